"""One run: training a model, and ranking all test triples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from pykeen.datasets import Dataset, get_dataset
from pykeen.evaluation import MetricResults
from pykeen.models import Model, model_resolver
from pykeen.pipeline import pipeline
from pykeen.training import NonFiniteLossError, TrainingCallback
from pykeen.triples import CoreTriplesFactory, TriplesFactory
from typing_extensions import override

from pykeen_nonsampling._compat import cheap_garbage_collection
from pykeen_nonsampling.cli.stopwatch import OutOfTime, Stopwatch
from pykeen_nonsampling.datasets import AllEntities
from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.ranking.evaluator import FactorizedRankBasedEvaluator
from pykeen_nonsampling.ranking.metrics import get_metrics
from pykeen_nonsampling.ranking.predict import predict_targets

from ..quality import Quality, QualitySettings
from ..subject import OPTIMIZER
from ..timed_curve import choose_clock
from . import paper
from .plan import DEFAULTS, SAMPLED, Query, Run, Search, Training, find_configuration

#: The loss of PyKEEN's training loop: those of OpenKE, whose models the paper compares with
SAMPLED_LOSSES: Mapping[str, str] = {"TransE": "marginranking"}
SAMPLED_LOSS = "softplus"

#: The metrics that are reported: to compute all of PyKEEN's takes longer than training on a small graph
EVALUATOR: Mapping[str, Any] = dict(
    metrics=["inverseharmonicmeanrank", "arithmeticmeanrank", *["hitsatk"] * 3],
    metrics_kwargs=[None, None, dict(k=1), dict(k=3), dict(k=10)],
    add_defaults=False,
)

#: The number of predicted entities
TOP = 10


@cache
def load_graph(name: str, inverse: bool = False) -> Dataset:
    """Load a dataset with all of its evaluation triples, as in the paper.

    :param name: its name
    :param inverse: whether to create inverse triples, as some configurations have them
    """
    try:
        return AllEntities(name, create_inverse_triples=inverse)
    except ValueError:
        # it is split by PyKEEN, so that no triple is left out
        return get_dataset(dataset=name, dataset_kwargs=dict(create_inverse_triples=inverse))


class Seed(TrainingCallback):
    """Sets the random seed before the first step."""

    def __init__(self, seed: int):
        """Initialize the callback.

        :param seed: the random seed
        """
        super().__init__()
        self.seed: int | None = seed

    @override
    def pre_batch(self, **kwargs: Any) -> None:
        if self.seed is not None:
            torch.manual_seed(self.seed)
        self.seed = None


def do(run: Run) -> dict[str, Any]:
    """Do a run.

    :return: its results, as JSON has them
    """
    if isinstance(run, Search):
        return _search(run)
    assert isinstance(run, Training)  # noqa: S101
    return _train(run)


def warm_up(run: Run) -> None:
    """Do what happens only once per process, such as lazy imports and compilation, which must not count as training."""
    _train(Training("nations", run.model, run.loop, seed=0, dim=4, epochs=1, learning_rate=0.01, negative_weight=0.01))


def _train(run: Training) -> dict[str, Any]:
    watch = Stopwatch(math.inf if run.budget is None else run.budget, clock=choose_clock())
    seeds = [] if run.start is None else [Seed(run.seed)]
    arguments = _arguments(run)
    graph = load_graph(run.dataset, **arguments.pop("dataset_kwargs", {}))
    watching = dict(callbacks=[watch, *seeds], use_tqdm=False, use_tqdm_batch=False)
    arguments["training_kwargs"] = {**arguments.get("training_kwargs", {}), **watching}
    try:
        # PyKEEN collects garbage after each epoch, which takes longer than one on a small graph; this package's loops do not
        with cheap_garbage_collection():
            result = pipeline(
                **arguments,
                dataset=graph,
                training_loop=run.loop,
                random_seed=run.seed if run.start is None else run.start,
                evaluator="factorized",
                evaluator_kwargs=EVALUATOR,
                evaluation_kwargs=dict(use_tqdm=False),
            )
        ranks, stopped = result.metric_results, False
    except OutOfTime:
        ranks, stopped = _rank(watch.model, graph), True
    except NonFiniteLossError as error:
        return {"failure": str(error) or type(error).__name__}
    steps = math.ceil(graph.training.num_triples / paper.BATCH_SIZE) if run.loop == SAMPLED else 1
    return {
        **get_metrics(ranks),
        "seconds": watch.seconds,
        "epochs": watch.steps / steps if stopped else len(watch.ends),
        "stopped": stopped,
        "ranked": graph.testing.num_triples,
        **({} if run.query is None else _predict(watch.model, graph, run.query)),
    }


def _arguments(run: Training) -> dict[str, Any]:
    """Translate a run to arguments of ``pipeline()``, where ``dataset_kwargs`` are those of :func:`load_graph`."""
    arguments: dict[str, Any]
    if run.configuration == DEFAULTS:
        return dict(model=run.model, model_kwargs=dict(embedding_dim=run.dim), epochs=run.epochs)
    if run.configuration is not None:
        found = find_configuration(run.dataset, run.model, run.loop)
        assert found is not None  # noqa: S101
        given = ("dataset", "training_loop", "evaluator")
        arguments = {name: value for name, value in found[1]["pipeline"].items() if name not in given}
        return arguments | dict(dataset_kwargs=dict(inverse=arguments["dataset_kwargs"]["create_inverse_triples"]))
    arguments = dict(
        model=run.model,
        # what the recipes of this package fill in; all training loops get the same
        model_kwargs=dict(embedding_dim=run.dim, **model_defaults(model_resolver.lookup(run.model))),
        epochs=run.epochs,
        optimizer=OPTIMIZER["optimizer"],
        optimizer_kwargs=dict(OPTIMIZER["optimizer_kwargs"], lr=run.learning_rate),
    )
    if run.loop == SAMPLED:
        return arguments | dict(
            loss=SAMPLED_LOSSES.get(run.model, SAMPLED_LOSS),
            negative_sampler_kwargs=dict(num_negs_per_pos=paper.NUM_NEGATIVES),
            training_kwargs=dict(batch_size=paper.BATCH_SIZE),
        )
    # nothing but the weight: the paper has no other
    weights = ["regularization_weight", "duality_weight"]
    if run.loop == "nonsamplinglcwa":
        weights += ["query_weight", "candidate_weight"]
    loss_kwargs = dict.fromkeys(weights, 0.0) | {"negative_weight": run.negative_weight}
    return arguments | dict(loss="nonsampling", loss_kwargs=loss_kwargs)


def _rank(model: Model, graph: Dataset) -> MetricResults[Any]:
    """Rank all test triples, as ``pipeline()`` would have."""
    known = [part.mapped_triples for part in (graph.training, graph.validation) if part is not None]
    return FactorizedRankBasedEvaluator(**EVALUATOR).evaluate(
        model=model, mapped_triples=graph.testing.mapped_triples, additional_filter_triples=known, use_tqdm=False
    )


def label_triples(part: CoreTriplesFactory) -> list[tuple[str, str, str]]:
    """Return triples with labels."""
    assert isinstance(part, TriplesFactory)  # noqa: S101
    return [(str(h), str(r), str(t)) for h, r, t in part.label_triples(part.mapped_triples)]


def _find_answers(graph: Dataset, query: Query) -> list[str]:
    """Return the answers to a query in the validation and test triples."""
    head, relation, tail = query
    answers = set()
    for part in (graph.validation, graph.testing):
        for h, r, t in [] if part is None else label_triples(part):
            if r == relation and (h == head or t == tail):
                answers.add(h if head is None else t)
    return sorted(answers)


def _predict(model: Model, graph: Dataset, query: Query) -> dict[str, list[str]]:
    """Find the best answers to a query that are not in the training triples, and those that are true."""
    head, relation, tail = query
    found = predict_targets(
        model,
        head=head,
        relation=relation,
        tail=tail,
        triples_factory=graph.training,
        k=TOP,
        filter_triples=graph.training,
    )
    predicted = list(found.df["head_label" if head is None else "tail_label"])
    return {"predicted": predicted, "true": _find_answers(graph, query)}


def _search(run: Search) -> dict[str, Any]:
    settings = QualitySettings(
        run.dataset,
        run.model,
        run.dim,
        budget_seconds=run.budget_seconds,
        search_seconds=run.search_seconds,
        trials=run.trials,
        repeats=run.repeats,
        loops=(run.loop,),
    )
    quality = Quality(settings)
    quality.run(lambda message: None)
    best = quality.best(run.loop)
    return {"parameters": best["parameters"], "curves": quality.curves[run.loop]}
