"""What a run needs, before it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from pykeen.datasets import dataset_resolver
from pykeen.losses import Loss, loss_resolver
from pykeen.models import Model, model_resolver
from pykeen.training import training_loop_resolver
from pykeen.triples import CoreTriplesFactory, TriplesFactory

from ..datasets import SyntheticGraph
from ..defaults import model_defaults, start_epochs
from ..distributed.shards import ShardingError
from ..factorizations.features import factorize_model
from ..free import free_memory
from ..losses import FactorizedLoss, NonSamplingLoss, check_loss, resolve_loss
from ..losses.automatic import MOST_SCORES, count_scores
from ..memory.dry_run import make_without_values, outline
from ..memory.outline import PARTS, Memory, Outline, format_bytes
from ..memory.room import check_divided, default_dimension, largest_dimension
from ..memory.task import Counts
from ..memory.traffic import estimate_traffic
from ..training import FactorizedTrainingLoop
from .console import load, lookup, parse_argument, silence
from .files import check_triples
from .pace import estimate_pace

#: A graph of given sizes is estimated from one with at most so many triples
SAMPLED_TRIPLES = 100_000

#: The sizes of a graph that takes no time
TINY = dict(num_entities=100, num_triples=400)


@dataclass(frozen=True)
class Graph:
    """The training triples, or fewer of them that stand for all."""

    factory: CoreTriplesFactory
    counts: Counts
    #: how many times as many entities and triples there are
    scale: float = 1.0

    @classmethod
    def of(cls, factory: CoreTriplesFactory) -> Graph:
        """Take training triples as they are."""
        return cls(factory, Counts.of(factory))

    @classmethod
    def of_sizes(cls, num_entities: int, num_relations: int, num_triples: int, generate: bool) -> Graph:
        """Generate a graph.

        :param num_entities: the number of entities
        :param num_relations: the number of relations
        :param num_triples: the number of training triples
        :param generate: whether to generate all of them, or a graph with fewer triples, but as many per entity
        :return: the graph
        """
        scale = 1.0 if generate else max(1.0, num_triples / SAMPLED_TRIPLES)
        entities, triples = (max(1, round(x / scale)) for x in (num_entities, num_triples))
        factory = _generate(entities, num_relations, triples)
        counts = Counts.of(factory)
        queries = tuple(min(num_triples, round(scale * x)) for x in counts.num_queries)
        return cls(factory, Counts(num_entities, num_relations, num_triples, queries), scale)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Estimate:
    """What a run needs."""

    outline: Outline
    #: the loss to train with
    loss: FactorizedLoss
    #: the seconds of an epoch, and how they were found; none, if it does not fit
    seconds: float | None
    source: str
    #: the number of epochs of the squared loss that a pipeline starts with, and their seconds
    start_epochs: int = 0
    start_seconds: float | None = None


def make_plan(
    model: type[Model],
    model_kwargs: Mapping[str, Any],
    graph: Graph,
    training_loop: type[FactorizedTrainingLoop],
    loss: Loss | None = None,
    timed: bool = True,
) -> Estimate:
    """Estimate what a run needs.

    :param model: the class of the model
    :param model_kwargs: its keyword arguments
    :param graph: the training triples
    :param training_loop: the class of the training loop
    :param loss: the loss; the one that suits, if there is none
    :param timed: whether to estimate the time
    :return: the plan
    """
    inverse, factory = graph.factory.create_inverse_triples, graph.factory
    if graph.scale != 1:
        factory = graph.counts.factory()
    factorization = factorize_model(make_without_values(model, model_kwargs, factory))
    resolved = resolve_loss(loss, graph.counts, factorization, training_loop.closed_world)
    task = partial(training_loop.plan_task, resolved, inverse=inverse)
    outlined = outline(model, model_kwargs, factory, task, graph.counts)
    start = start_epochs(resolved, factorization)
    if not timed:
        return Estimate(outlined, resolved, None, "not asked for", start)
    if not outlined.fits(free_memory(torch.device("cpu"))):
        return Estimate(outlined, resolved, None, "not measured, since it does not fit", start)
    time = partial(_time, model, model_kwargs, graph, training_loop)
    return Estimate(outlined, resolved, *time(resolved), start, start * time(NonSamplingLoss())[0] if start else None)


def _time(
    model: type[Model],
    model_kwargs: Mapping[str, Any],
    graph: Graph,
    training_loop: type[FactorizedTrainingLoop],
    loss: FactorizedLoss,
) -> tuple[float, str]:
    """Estimate the seconds of an epoch, and say how they were found."""
    pace = estimate_pace(model, model_kwargs, graph.factory, training_loop, loss)
    n = graph.factory.num_triples
    if graph.scale == 1:
        return pace.seconds, "measured" if pace.timed == n else f"from epochs on {pace.timed:,} of {n:,} triples"
    tiny = _generate(num_relations=graph.counts.num_relations, **TINY)
    fixed = min(pace.seconds, estimate_pace(model, model_kwargs, tiny, training_loop, loss).seconds)
    # every query is scored with every entity, and there are more of both
    factor = graph.scale**2 if loss.needs_scores else graph.scale
    return fixed + factor * (pace.seconds - fixed), f"from epochs on a synthetic graph of 1/{graph.scale:.3g} of the size"


def outline_shard(model: type[Model], model_kwargs: Mapping[str, Any], whole: Outline, num_ranks: int) -> Outline:
    """Outline the part of a model that one of several processes has, among which its entities are divided.

    :param model: the class of the model
    :param model_kwargs: its keyword arguments
    :param whole: the outline of the whole model
    :param num_ranks: the number of processes
    :return: the outline of the part
    :raises ShardingError: if it cannot be divided
    """
    check_divided(model, model_kwargs, whole.counts, num_ranks)
    counts = whole.counts.shard(num_ranks)
    return outline(model, model_kwargs, counts.factory(), lambda *_: whole.task, counts)


def _generate(num_entities: int, num_relations: int, num_triples: int) -> CoreTriplesFactory:
    """Generate training triples."""
    # a small graph has no room for communities
    communities = min(20, max(1, num_entities**2 * num_relations // (4 * num_triples)))
    return SyntheticGraph(
        num_entities, num_relations, num_triples, num_communities=min(communities, num_entities), evaluation_ratio=0.0
    ).training


@click.command(name="plan")
@click.option("--dataset", help="The name of a PyKEEN dataset.")
@click.option(
    "--training",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file with training triples: head, relation and tail, separated by tabs.",
)
@click.option("--entities", type=click.IntRange(min=1), help="The number of entities, if there are no triples yet.")
@click.option("--relations", type=click.IntRange(min=1), help="The number of relations, if there are no triples yet.")
@click.option("--triples", type=click.IntRange(min=1), help="The number of training triples, if there are none yet.")
@click.option("--generate", is_flag=True, help="Generate all of these triples, not only a part of them.")
@click.option("--model", required=True, help="The name of a PyKEEN model.")
@click.option("--dim", type=click.IntRange(min=1), help="Its dimension.  [default: PyKEEN's]")
@click.option("--loop", type=click.Choice(["nonsampling", "nonsamplinglcwa"]), default="nonsamplinglcwa", show_default=True)
@click.option("--loss", help="The name of a loss.  [default: the one that suits graph and model]")
@click.option("--ranks", type=click.IntRange(min=2), help="Also estimate what each of this many processes needs and sends.")
@click.argument("arguments", nargs=-1, metavar="[NAME=VALUE]...")
def command(
    dataset: str | None,
    training: Path | None,
    entities: int | None,
    relations: int | None,
    triples: int | None,
    generate: bool,
    model: str,
    dim: int | None,
    loop: str,
    loss: str | None,
    ranks: int | None,
    arguments: tuple[str, ...],
) -> None:
    """Estimate the memory of a run and the time of an epoch, and name the loss.

    The graph is a dataset, a file, or just sizes: for these, numbers of distinct queries are those of a synthetic graph. The
    model has the given keyword arguments (values are JSON, or else plain text; all others have the defaults of a pipeline):

        pykeen-nonsampling plan --entities 200000 --relations 100 --triples 2000000 --model ComplEx --dim 200

    With --ranks, also estimates the memory of each of several processes, and the bytes that each sends per epoch: if each
    has the whole model, and if the entities are divided among them (train --sharded).
    """
    silence()
    cls: type[Model] = lookup(model_resolver, model, "model")
    kwargs = {**model_defaults(cls), **dict(map(parse_argument, arguments))}
    if dim is not None:
        kwargs["embedding_dim"] = dim
    training_loop: Any = training_loop_resolver.lookup(loop)
    try:
        instance = None if loss is None else _make_loss(loss, training_loop.closed_world)
        graph = _load(dataset, training, (entities, relations, triples), generate)
        free = free_memory(torch.device("cpu"))
        plan = make_plan(cls, kwargs, graph, training_loop, instance)
    except (KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise click.ClickException(str(error.args[0])) from error
    _report(plan, graph, free, f"{cls.__name__}{f' with {dim} dimensions' if dim else ''}, {loop}", loss)
    if ranks is not None:
        _report_ranks(cls, kwargs, plan.outline, ranks)
    if plan.outline.memory().total > free:

        def fits(d: int) -> bool:
            smaller = make_plan(cls, {**kwargs, "embedding_dim": d}, graph, training_loop, instance, timed=False)
            return smaller.outline.memory().total <= free

        _advise(cls, largest_dimension(fits, kwargs.get("embedding_dim") or default_dimension(cls)), free)


def _make_loss(name: str, closed_world: bool) -> Loss:
    cls = lookup(loss_resolver, name, "loss")
    check_loss(cls, closed_world)
    return cls()


def _load(
    dataset: str | None, training: Path | None, sizes: tuple[int | None, int | None, int | None], generate: bool
) -> Graph:
    """Find or generate the graph."""
    ways = [dataset is not None, training is not None, any(size is not None for size in sizes)]
    entities, relations, triples = sizes
    if sum(ways) != 1 or (ways[2] and (entities is None or relations is None or triples is None)):
        raise click.UsageError(
            "Which graph? Give either --dataset NAME, or --training FILE, or all of --entities, --relations and --triples."
        )
    if generate and not ways[2]:
        raise click.UsageError(
            "--generate goes with --entities, --relations and --triples: here, there are triples already."
        )
    if dataset is not None:
        return Graph.of(load(lookup(dataset_resolver, dataset, "dataset")).training)
    if training is not None:
        check_triples(training, "--training")
        return Graph.of(TriplesFactory.from_path(training))
    return Graph.of_sizes(entities, relations, triples, generate)  # type: ignore[arg-type]


def _report(plan: Estimate, graph: Graph, free: int, title: str, given_loss: str | None) -> None:
    """Print a plan."""
    counts, memory = plan.outline.counts, plan.outline.memory()
    heads, tails = counts.num_queries
    click.echo(
        f"{title}: {counts.num_entities:,} entities, {counts.num_relations:,} relations, {counts.num_triples:,} triples, "
        f"{heads:,} distinct pairs of head and relation, {tails:,} of relation and tail"
        f"{'' if graph.scale == 1 else ' (as in a synthetic graph with as many triples per entity)'}.\n"
    )
    rows = [
        *_format_memory(memory),
        ("total", f"{format_bytes(memory.total)} of {format_bytes(free)} that are free"),
        ("loss", given_loss or _explain_loss(plan)),
        *([("start", _format_start(plan))] if plan.start_epochs else []),
        ("time per epoch", f"{'unknown' if plan.seconds is None else format_seconds(plan.seconds)} ({plan.source})"),
    ]
    for label, value in rows:
        click.echo(f"{label:<25}{value}")


def _explain_loss(plan: Estimate) -> str:
    """Name the loss that was chosen, and say why."""
    if plan.outline.task.closed_world:
        return "nonsampling, the squared one: softmax needs whole queries, and the closed world has none"
    name = "softmax, cross-entropy over every candidate" if plan.loss.needs_scores else "nonsampling, the squared one"
    scores = count_scores(plan.outline.counts)
    return f"{name}: at most {scores:.2g} scores per epoch, and softmax is chosen up to {MOST_SCORES:.2g}"


def _format_start(plan: Estimate) -> str:
    """Say how long the epochs take that come before those of the loss."""
    total = "" if plan.start_seconds is None else f", {format_seconds(plan.start_seconds)} in all"
    return f"{plan.start_epochs} epochs of the squared loss{total}"


def _format_memory(memory: Memory) -> Sequence[tuple[str, str]]:
    """List the parts of the memory, with what they are called."""
    parts = {**PARTS, "training": "training", "evaluation": "evaluation, afterwards"}
    return [(label, format_bytes(getattr(memory, part))) for part, label in parts.items()]


def _report_ranks(model: type[Model], model_kwargs: Mapping[str, Any], whole: Outline, num_ranks: int) -> None:
    """Print what each of several processes needs and sends, for both ways to share the work."""
    ways, problem = {"data parallel": replace(whole, counts=whole.counts.parallel(num_ranks))}, ""
    try:
        ways["sharded"] = outline_shard(model, model_kwargs, whole, num_ranks)
    except ShardingError as error:
        problem = f"\n{error}"
    columns = []
    for name, made in ways.items():
        memory, sent = made.memory(), format_bytes(estimate_traffic(made, num_ranks).total)
        columns.append(
            [
                (f"each of {num_ranks} processes", name),
                *_format_memory(memory),
                ("total", format_bytes(memory.total)),
                ("sent per epoch", f"at most {sent}" if made.counts.num_fetched else sent),
            ]
        )
    click.echo()
    for row in zip(*columns, strict=True):
        click.echo(f"{row[0][0]:<25}{''.join(f'{value:<20}' for _, value in row)}".rstrip())
    if problem:
        click.echo(problem)


def _advise(model: type[Model], largest: int | None, free: int) -> None:
    """Say which dimension fits."""
    advice = f"The largest dimension that does is {largest}: --dim {largest}." if largest else "No dimension does."
    click.echo(f"\n{model.__name__} does not fit into {format_bytes(free)}. {advice}")


def format_seconds(seconds: float) -> str:
    """Write a number of seconds with three digits."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"
