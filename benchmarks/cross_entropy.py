"""Times of training with cross-entropy over all candidates, beside the products that it cannot avoid, autograd, and PyKEEN.

All times of a model are measured in one run, in turns, as by ``speed``. Where only some batches of an epoch are timed, their
time is scaled to the whole, and the numbers of batches are reported.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from pykeen.models import Model, model_resolver
from pykeen.training import LCWATrainingLoop, TrainingLoop
from pykeen.triples import CoreTriplesFactory
from pykeen.typing import LABEL_HEAD, LABEL_TAIL, Target
from torch import Tensor
from torch.nn import functional
from torch.utils.data import BatchSampler, DataLoader, RandomSampler
from tqdm.auto import tqdm
from typing_extensions import override

from pykeen_nonsampling.cli.console import silence
from pykeen_nonsampling.cli.files import check_free, check_writable, force_option
from pykeen_nonsampling.cli.stopwatch import extrapolate, time_epochs
from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.factorizations import Factorization
from pykeen_nonsampling.factorizations.features import factorize_model, features, represent
from pykeen_nonsampling.losses import SoftmaxLoss
from pykeen_nonsampling.training import NonSamplingLCWATrainingLoop

from .machine import has_bfloat16, machine
from .options import check_json, find_models, graph_options, json_option, load_graph, model_options, output_option
from .subject import EPOCHS, OPTIMIZER, Quantity, in_turns, make_loop, make_model, time_batches
from .tables import print_cross_entropy

#: The data types of numbers inside products, and what PyTorch calls them; the result is always float32
PRECISIONS: Mapping[str, str] = {"float32": "highest", "bfloat16": "medium"}

#: The number of queries in a step of mini-batches, and of triples in a batch of autograd
BATCH_QUERIES = 1000
#: The number of queries to multiply at once for the floor: of 288, 1,024, 4,096 and 8,192, the fastest on FB15k-237
FLOOR_QUERIES = 1024

#: Each ratio, and the times that it is computed from
RATIOS: Mapping[str, tuple[str, str]] = {
    "step/floor": ("step_seconds", "floor_seconds"),
    "batches/floor": ("batches_seconds", "floor_seconds"),
    "autograd/batches": ("autograd_seconds", "batches_seconds"),
    "lcwa/batches": ("lcwa_seconds", "batches_seconds"),
    "step/squared": ("step_seconds", "squared_seconds"),
}


@contextlib.contextmanager
def precision(name: str) -> Iterator[None]:
    """Multiply matrices with numbers of a data type."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(PRECISIONS[name])
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def autograd_cross_entropy(
    model: Model, factorization: Factorization, triples: Tensor, target: Target, regularization_weight: float = 0.0
) -> Tensor:
    """Sum the cross-entropy of triples as one would without this package: one row of scores for each of them.

    :param model: the model
    :param factorization: the factorization of its score
    :param triples: shape: (n, 3), the triples
    :param target: the end of the triples that is predicted
    :param regularization_weight: the weight of the N3 norm of the vectors of each triple
    :return: shape: (), the sum, differentiable with respect to the parameters of the model
    """
    vectors = represent(model)
    heads, relations, tails = features(model, factorization, vectors=vectors)
    h, r, t = triples.unbind(dim=-1)
    if target == LABEL_TAIL:
        scores = factorization.form.queries(heads[h], relations[r]) @ tails.T
    else:
        scores = factorization.form.reverse.queries(tails[t], relations[r]) @ heads.T
    if factorization.own_scores is not None:
        scores = factorization.own_scores(scores)
    loss = functional.cross_entropy(scores, t if target == LABEL_TAIL else h, reduction="sum")
    if regularization_weight:
        for tensors, ids in ((vectors.entities, h), (vectors.relations, r), (vectors.entities, t)):
            for x in tensors:
                loss = loss + regularization_weight * x[ids].abs().pow(3).sum()
    return loss + model.collect_regularization_term()


class AutogradTrainingLoop(TrainingLoop[Tensor]):
    """Trains as public code does: cross-entropy of each triple's tail, with N3, differentiated automatically.

    It predicts tails only, so give it inverse triples.
    """

    def __init__(self, *, regularization_weight: float = 0.0, **kwargs: Any):
        """Initialize the training loop.

        :param regularization_weight: the weight of the N3 norm of the vectors of each triple
        :param kwargs: additional keyword-based parameters passed to :class:`pykeen.training.TrainingLoop`
        """
        super().__init__(**kwargs)
        self.factorization = factorize_model(self.model)
        self.regularization_weight = regularization_weight

    @override
    def _create_training_data_loader(
        self, triples_factory: CoreTriplesFactory, *, batch_size: int, drop_last: bool, **kwargs: Any
    ) -> DataLoader[Tensor]:
        triples: Any = triples_factory._add_inverse_triples_if_necessary(triples_factory.mapped_triples)
        # a batch is gathered at once, and not triple by triple
        return DataLoader(triples, sampler=BatchSampler(RandomSampler(triples), batch_size, drop_last), batch_size=None)

    @staticmethod
    @override
    def _get_batch_size(batch: Tensor) -> int:
        return len(batch)

    @override
    def _process_batch(
        self, batch: Tensor, start: int, stop: int, label_smoothing: float = 0.0, slice_size: int | None = None
    ) -> Tensor:
        part = batch[start:stop]
        total = autograd_cross_entropy(self.model, self.factorization, part, LABEL_TAIL, self.regularization_weight)
        return total / len(part)

    @override
    def _slice_size_search(self, **kwargs: Any) -> int:
        raise NotImplementedError


class CrossEntropy:
    """One model of one dimension on one graph, and the ways to train it with cross-entropy."""

    def __init__(self, training: CoreTriplesFactory, model: str, dim: int, lcwa_batch_size: int):
        """Create the model for autograd; the training loops have their own."""
        self.training, self.name, self.dim, self.lcwa_batch_size = training, model, dim, lcwa_batch_size
        triples = training.mapped_triples
        #: the number of distinct queries for each end
        self.num_queries: dict[Target, int] = {
            LABEL_TAIL: len(triples[:, [0, 1]].unique(dim=0)),
            LABEL_HEAD: len(triples[:, [1, 2]].unique(dim=0)),
        }
        #: what a pipeline sets; PyKEEN's own regularizers would visit all entities in each small step
        self.defaults = model_defaults(model_resolver.lookup(model))
        self.squared_loop = make_loop(model, training, dim, NonSamplingLCWATrainingLoop, **self.defaults)
        self.model = make_model(model, training, dim, **self.defaults)
        self.factorization = factorize_model(self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), fused=True)
        #: how many batches were timed, or blocks of the floor, and how many there are
        self.parts: dict[str, tuple[int, int]] = {}

    @property
    def batch_size(self) -> int:
        """The number of triples in a mini-batch with about :data:`BATCH_QUERIES` queries of both ends."""
        return max(1, round(self.training.num_triples * BATCH_QUERIES / sum(self.num_queries.values())))

    def floor(self, batches: int) -> float:
        """Time the three products of queries and candidates for some blocks, and scale them to all queries of both ends."""
        seconds, timed, total = 0.0, 0, 0
        with torch.no_grad():
            heads, _, tails = features(self.model, self.factorization)
            self.model.collect_regularization_term()
            for keys, number in ((tails, self.num_queries[LABEL_TAIL]), (heads, self.num_queries[LABEL_HEAD])):
                queries, by_query = (keys.new_full((FLOOR_QUERIES, keys.shape[1]), 0.1) for _ in range(2))
                scores, by_key = keys.new_zeros(FLOOR_QUERIES, len(keys)), torch.zeros_like(keys)
                part = min(number, batches * FLOOR_QUERIES)
                start = time.perf_counter()
                for first in range(0, part, FLOOR_QUERIES):
                    rows = slice(0, min(FLOOR_QUERIES, part - first))
                    torch.mm(queries[rows], keys.T, out=scores[rows])
                    torch.mm(scores[rows], keys, out=by_query[rows])
                    by_key.addmm_(scores[rows].T, queries[rows])
                seconds += extrapolate(time.perf_counter() - start, part, number)
                timed, total = (x + math.ceil(y / FLOOR_QUERIES) for x, y in ((timed, part), (total, number)))
        self.parts["floor"] = timed, total
        return seconds

    def _softmax_loop(self) -> TrainingLoop[Any]:
        """Create the training loop of this package for cross-entropy."""
        loss = SoftmaxLoss(scale=1.0)
        return make_loop(self.name, self.training, self.dim, NonSamplingLCWATrainingLoop, loss, **self.defaults)

    def step(self) -> float:
        """Time an epoch of this package that is a single step on the whole graph."""
        return time_batches(self._softmax_loop(), self.training, self.training.num_triples, math.inf)[0]

    def batches(self, batches: int) -> float:
        """Time some mini-batches of this package, and scale them to an epoch."""
        seconds, timed = time_batches(self._softmax_loop(), self.training, self.batch_size, batches)
        return self._scale("batches", seconds, timed, math.ceil(self.training.num_triples / self.batch_size))

    def autograd(self, batches: int) -> float:
        """Time some batches of triples of each end with autograd, and scale them to all triples of both ends."""
        triples = self.training.mapped_triples
        parts = triples[torch.randperm(len(triples))].split(BATCH_QUERIES)
        self.model.train()
        start = time.perf_counter()
        for part, target in itertools.product(parts[:batches], self.num_queries):
            self.optimizer.zero_grad()
            autograd_cross_entropy(self.model, self.factorization, part, target).backward()
            self.optimizer.step()
            self.model.post_parameter_update()
        seconds = time.perf_counter() - start
        return self._scale("autograd", seconds, 2 * min(batches, len(parts)), 2 * len(parts))

    def lcwa(self, batches: int) -> float:
        """Time some batches of PyKEEN's own training with cross-entropy, and scale them to an epoch: tails only."""
        model = make_model(self.name, self.training, self.dim, loss="crossentropy", **self.defaults)
        loop = LCWATrainingLoop(model=model, triples_factory=self.training, automatic_memory_optimization=False, **OPTIMIZER)
        seconds, timed = time_batches(loop, self.training, self.lcwa_batch_size, batches)
        return self._scale("lcwa", seconds, timed, math.ceil(self.num_queries[LABEL_TAIL] / self.lcwa_batch_size))

    def squared(self) -> float:
        """Time epochs of this package with the squared loss, which needs no scores of candidates."""
        return time_epochs(self.squared_loop, self.training, EPOCHS)

    def _scale(self, name: str, seconds: float, timed: int, total: int) -> float:
        self.parts[name] = timed, total
        return extrapolate(seconds, timed, total)

    def quantities(self, precisions: Sequence[str], repeats: int, batches: int) -> dict[str, Quantity]:
        """Collect the times to measure.

        :param precisions: the precisions of products
        :param repeats: how often to measure them
        :param batches: the number of batches to time where not all of them are
        :return: the times to measure, by precision and name
        """
        ways: dict[str, tuple[Callable[[], float], Callable[[], float]]] = {
            "floor_seconds": (partial(self.floor, batches), partial(self.floor, 1)),
            "step_seconds": (self.step, partial(self.batches, 1)),
            "batches_seconds": (partial(self.batches, batches), partial(self.batches, 1)),
            "autograd_seconds": (partial(self.autograd, batches), partial(self.autograd, 1)),
            "lcwa_seconds": (partial(self.lcwa, batches), partial(self.lcwa, 1)),
            "squared_seconds": (self.squared, self.squared),
        }
        return {
            f"{kind} {name}": Quantity(precision(kind)(measure), precision(kind)(warm_up), repeats)
            for kind in precisions
            for name, (measure, warm_up) in ways.items()
            # the others are for comparison with what one gets by default
            if kind == "float32" or name not in ("lcwa_seconds", "squared_seconds")
        }


@dataclass(frozen=True)
class Settings:
    """What is measured, and how often."""

    models: Sequence[str]
    dims: Sequence[int]
    repeats: int
    #: the number of batches that are timed where not all of them are
    batches: int
    lcwa_batch_size: int
    precisions: Sequence[str]


@dataclass
class Benchmark:
    """Measures all times on one graph, and reports them."""

    name: str
    training: CoreTriplesFactory
    settings: Settings
    results: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    #: the number of distinct queries for each end
    num_queries: Mapping[Target, int] = field(default_factory=dict)

    def run(self) -> None:
        """Measure all times, with a progress bar."""
        settings = self.settings
        for model, dim in itertools.product(settings.models, settings.dims):
            subject = CrossEntropy(self.training, model, dim, settings.lcwa_batch_size)
            self.num_queries = subject.num_queries
            quantities = subject.quantities(settings.precisions, settings.repeats, settings.batches)
            with tqdm(total=len(quantities) * (1 + settings.repeats), unit="step", leave=False) as bar:

                def progress(step: str, bar: Any = bar, where: str = f"{model}, d={dim}") -> None:
                    bar.set_description(f"{where}: {step}")
                    bar.update()

                samples = in_turns(quantities, progress)
            for kind in settings.precisions:
                found = {name.removeprefix(f"{kind} "): x for name, x in samples.items() if name.startswith(kind)}
                self._add({"model": model, "dim": dim, "precision": kind}, found, subject.parts)

    def _add(
        self, what: Mapping[str, Any], samples: Mapping[str, Sequence[float]], parts: Mapping[str, tuple[int, int]]
    ) -> None:
        """Add the medians of what was measured, and their ratios."""
        result: dict[str, Any] = {**what, **{name: statistics.median(values) for name, values in samples.items()}}
        result.update((ratio, result[a] / result[b]) for ratio, (a, b) in RATIOS.items() if a in samples and b in samples)
        for name, (timed, everything) in parts.items():
            if f"{name}_seconds" in samples:
                result.update({f"{name}_timed": timed, f"{name}_total": everything})
        self.results.append(result)
        self.samples.append({**what, **samples})

    def as_dict(self) -> dict[str, Any]:
        """Return everything: the machine, the settings, the graph, all results and the times they are medians of."""
        return {
            "machine": machine(),
            "settings": {**asdict(self.settings), "optimizer": "Adam(fused=True)", "batch_queries": BATCH_QUERIES},
            "dataset": {
                "name": self.name,
                "entities": self.training.num_entities,
                "relations": self.training.num_relations,
                "training": self.training.num_triples,
                "queries": self.num_queries,
            },
            "results": self.results,
            "samples": self.samples,
        }


@click.command(name="cross_entropy")
@graph_options
@model_options(models=("ComplEx",), dims=(100, 200), repeats=3)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="The number of batches to time where their time is scaled to an epoch.",
)
@click.option(
    "--lcwa-batch-size",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="The batch size of PyKEEN's lcwa; for models other than ComplEx, more than 64 may need too much memory.",
)
@click.option("--threads", type=click.IntRange(min=1), show_default="as PyTorch chooses", help="The number of threads.")
@json_option("cross_entropy.json")
@output_option("all numbers")
@force_option
def command(
    dataset: str,
    entities: int | None,
    relations: int | None,
    triples: int | None,
    models: Sequence[str],
    threads: int | None,
    json_path: Path | None,
    output: Path,
    force: bool,
    **options: Any,
) -> None:
    """Measure how fast training with cross-entropy is, beside autograd and PyKEEN.

    Times an epoch with the softmax loss, next to the three products of matrices that it cannot avoid, automatic
    differentiation of the same loss triple by triple, PyKEEN's lcwa with its own cross-entropy, and the squared loss. If the
    processor has bfloat16, products are measured with it, too. Prints a table, and writes all numbers.
    """
    json_path = json_path or output / "cross_entropy.json"
    check_json(json_path, output)
    silence()
    if threads is not None:
        click.get_current_context().call_on_close(partial(torch.set_num_threads, torch.get_num_threads()))
        torch.set_num_threads(threads)
    precisions = ["float32", "bfloat16"] if has_bfloat16() else ["float32"]
    settings = Settings(models=find_models(models), precisions=precisions, **options)
    check_free([json_path], force)
    graph = load_graph(dataset, entities, relations, triples, settings.models, settings.dims)
    check_writable(json_path.parent, "--json")
    training = graph.dataset.training
    click.echo(
        f"{', '.join(settings.models)} on {graph.name}: {training.num_entities:,} entities, {training.num_relations:,} "
        f"relations, {training.num_triples:,} training triples; {torch.get_num_threads()} threads."
    )
    benchmark = Benchmark(graph.name, training, settings)
    benchmark.run()
    json_path.parent.mkdir(parents=True, exist_ok=True)
    json_path.write_text(json.dumps(benchmark.as_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    click.echo()
    print_cross_entropy(benchmark.results)
    click.echo(f"\n≈ is extrapolated from some batches. All numbers: {json_path}")
