"""How fast training and evaluation are, how good a model is after how many seconds, and what several processes gain."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import click
from pykeen.datasets import dataset_resolver
from pykeen.models import model_resolver

from ..distributed.group import GroupError
from .console import POSITIVE, check_evaluation, check_matplotlib, load, lookup, silence
from .files import check_free, check_writable, force_option
from .quality import QUALITY_DEFAULTS, measure_quality
from .scaling import RANKS, Scaling, check_ranks
from .speed import Benchmark, Settings
from .timing import check_model

#: What else can be measured instead: the options that are only for it, and others that have an effect on it
INSTEAD: Mapping[str, tuple[set[str], set[str]]] = {
    "--quality": ({"quality", "budget_seconds", "search_seconds", "trials"}, {*QUALITY_DEFAULTS}),
    "--ranks": ({"ranks"}, {"dataset", "entities", "relations", "triples", "models", "dims", "repeats", "json_path"}),
}


@click.command(name="benchmark")
@click.option("--dataset", default="fb15k237", show_default=True, help="The name of a PyKEEN dataset.")
@click.option("--entities", type=click.IntRange(min=1), help="Use a synthetic graph with this many entities instead.")
@click.option("--relations", type=click.IntRange(min=1), help="The number of relations of the synthetic graph.")
@click.option("--triples", type=click.IntRange(min=1), help="The number of triples of the synthetic graph.")
@click.option(
    "--model",
    "models",
    multiple=True,
    default=["DistMult", "SimplE", "ComplEx", "TransE"],
    show_default=True,
    help="The name of a PyKEEN model. The first one is also used for the growing graphs.",
)
@click.option(
    "--dim",
    "dims",
    multiple=True,
    type=click.IntRange(min=1),
    default=[200],
    show_default=True,
    help="The embedding dimension.",
)
@click.option(
    "--loop",
    "loops",
    multiple=True,
    type=click.Choice(["slcwa", "lcwa"]),
    default=["slcwa", "lcwa"],
    show_default=True,
    help="PyKEEN's training loop to compare with.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="How often each time is measured; medians are reported.",
)
@click.option(
    "--baseline-repeats",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The same for PyKEEN's training loops and evaluation, which take far longer.",
)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="The number of batches of PyKEEN's training and evaluation to time; their time is scaled to the whole.",
)
@click.option("--growth/--no-growth", default=True, show_default=True, help="Whether to time growing graphs, too.")
@click.option("--growth-size", type=POSITIVE, default=1.0, hidden=True)
@click.option(
    "--quality",
    is_flag=True,
    help="Measure the time to quality instead: the validation MRR over the seconds of training, for each training loop. "
    "Defaults are then kinships, ComplEx, 64 dimensions and 3 repeats.",
)
@click.option(
    "--budget-seconds",
    type=POSITIVE,
    default=60.0,
    show_default=True,
    help="With --quality, the seconds of training that are drawn for each loop.",
)
@click.option(
    "--search-seconds",
    type=POSITIVE,
    show_default="the same",
    help="With --quality, the seconds of training that each loop has to find its settings.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="With --quality, the number of settings that each loop tries in this time.",
)
@click.option(
    "--ranks",
    type=RANKS,
    help="Measure training in several processes instead, e.g. 1,2,4: data parallel, and with divided entities.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    show_default="benchmark.json in the output directory; with --ranks, scaling.json",
    help="The file for all numbers.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("benchmark"),
    show_default=True,
    help="The directory for table and plots.",
)
@force_option
@click.pass_context
def command(
    context: click.Context,
    /,
    dataset: str,
    entities: int | None,
    relations: int | None,
    triples: int | None,
    quality: bool,
    budget_seconds: float,
    search_seconds: float | None,
    trials: int,
    ranks: Sequence[int] | None,
    json_path: Path | None,
    output: Path,
    force: bool,
    **settings: Any,
) -> None:
    """Measure how fast training and evaluation are.

    Times an epoch without sampling, next to the dense products that it cannot avoid, plain automatic differentiation of the
    same loss, and PyKEEN's own training loops; evaluation, next to PyKEEN's own; the memory that an epoch takes; and how
    the time per epoch grows with the graph. Prints a table, and writes it along with all numbers and plots.

    With --quality, searches good settings for each training loop of this package and of PyKEEN, with the same effort, and
    measures how long it takes to become how good.

    With --ranks, trains in several processes on this machine, and compares their time, memory and traffic with those of one.
    Each has one thread, unless OMP_NUM_THREADS is set.
    """
    if ranks is None:
        check_matplotlib()
    _check_options(context, "--quality" if quality else "--ranks" if ranks is not None else None)
    if quality:
        given = {"dataset": dataset, **settings}
        chosen = {
            name: default if context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT else given[name]
            for name, default in QUALITY_DEFAULTS.items()
        }
        measure_quality(chosen, budget_seconds, search_seconds or budget_seconds, trials, output, force)
        return
    sizes = {"num_entities": entities, "num_relations": relations, "num_triples": triples}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    if sizes and context.get_parameter_source("dataset") is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--dataset and --entities/--relations/--triples are mutually exclusive: give one of them.")
    json_path = json_path or output / ("benchmark.json" if ranks is None else "scaling.json")
    if json_path.parent != output and not json_path.parent.is_dir():
        message = f"There is no directory {json_path.parent}. Create it first, or choose another file."
        raise click.BadParameter(message, param_hint="--json")
    silence()
    settings["models"] = [lookup(model_resolver, model, "model").__name__ for model in settings["models"]]
    measured = Settings(**settings)
    check_free(measured.paths(output, json_path) if ranks is None else [json_path], force)
    dataset_cls = lookup(dataset_resolver, "syntheticgraph" if sizes else dataset, "dataset")
    try:
        for model, dim in itertools.product(settings["models"], settings["dims"]):
            check_model(model, dim)
        data = load(dataset_cls, **sizes)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    name = "a synthetic graph" if sizes else dataset
    if ranks is not None:
        check_ranks(ranks, data.num_entities)
        check_writable(json_path.parent, "--json")
        _measure_scaling(Scaling(name, data, measured.models, measured.dims, ranks, measured.repeats), json_path)
        return
    if not data.testing.num_triples:
        raise click.ClickException(f"There are no test triples to evaluate on among {triples} in total: use more --triples.")
    if not sizes:
        check_evaluation(data, name, dataset_cls)
    check_writable(output, "--output")
    check_writable(json_path.parent, "--json")
    click.echo(
        f"{', '.join(settings['models'])} on {name}: {data.num_entities:,} entities, {data.num_relations:,} relations, "
        f"{data.training.num_triples:,} training and {data.testing.num_triples:,} test triples."
    )
    result = Benchmark(name=name, dataset=data, settings=measured)
    result.run()
    paths = result.write(output, json_path)
    click.echo(f"\n{result.format_table()}\n")
    for axis, line in result.growth.items():
        click.echo(f"Seconds per epoch grow with {axis} to the power of {line['exponent']:.2f}.")
    click.echo(f"Table, numbers and plots: {', '.join(map(str, paths))}")


def _measure_scaling(scaling: Scaling, json_path: Path) -> None:
    """Measure training in several processes, and report it."""
    training = scaling.dataset.training
    click.echo(
        f"{', '.join(scaling.models)} on {scaling.name}, nonsamplinglcwa: {training.num_entities:,} entities, "
        f"{training.num_relations:,} relations, {training.num_triples:,} training triples; processes with "
        f"{scaling.threads} thread{'s' if scaling.threads > 1 else ''} each, on {os.cpu_count()} cores."
    )
    try:
        scaling.run()
    except BrokenProcessPool as error:
        raise click.ClickException(
            "A process has died, perhaps for want of memory. Use fewer processes or dimensions; pykeen-nonsampling plan "
            "--ranks estimates what each needs."
        ) from error
    except (GroupError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    scaling.write(json_path)
    click.echo(f"\n{scaling.format_table()}\n")
    for problem in scaling.problems:
        click.echo(problem)
    click.echo(f"All numbers: {json_path}")


def _check_options(context: click.Context, mode: str | None) -> None:
    """Refuse options that have no effect on what is measured."""
    always = {"output", "force"}
    for parameter in context.command.params:
        name, option = parameter.name or "", parameter.opts[0]
        if context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT or name in always:
            continue
        if mode is not None and name not in set.union(*INSTEAD[mode]):
            raise click.UsageError(f"{option} has no effect with {mode}: remove one of them.")
        needed = next((other for other, (only, _) in INSTEAD.items() if name in only and other != mode), None)
        if needed is not None:
            raise click.UsageError(f"{option} is for {needed}: add it, or remove {option}.")
