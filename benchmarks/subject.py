"""Times of training and evaluation: this package's, plain autograd's, PyKEEN's, and a lower bound.

All training loops use Adam with ``fused=True``.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from pykeen.datasets import Dataset
from pykeen.evaluation import Evaluator, RankBasedEvaluator
from pykeen.models import ERModel, LiteralModel, Model, model_resolver
from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop, TrainingLoop
from pykeen.triples import CoreTriplesFactory
from torch import Tensor

from pykeen_nonsampling.cli.stopwatch import OutOfTime, Stopwatch, extrapolate, time_epochs
from pykeen_nonsampling.defaults import required_kwargs
from pykeen_nonsampling.factorizations import Factorization, Moments
from pykeen_nonsampling.factorizations.features import factorize_model, features
from pykeen_nonsampling.losses import NEGATIVE_WEIGHT, FactorizedLoss, NonSamplingLoss
from pykeen_nonsampling.ranking.evaluator import FactorizedRankBasedEvaluator
from pykeen_nonsampling.training import FactorizedTrainingLoop, NonSamplingLCWATrainingLoop, NonSamplingTrainingLoop

OPTIMIZER: Mapping[str, Any] = dict(optimizer="Adam", optimizer_kwargs=dict(fused=True))

#: As in [li2021]_
SLCWA_BATCH_SIZE, NUM_NEGATIVES = 4000, 25
#: PyKEEN holds batch × entities × dimension numbers several times over: on FB15k-237 with d=200, more would not fit in 16 GB
LCWA_BATCH_SIZE = 64
EVALUATION_BATCH_SIZE = 256
#: The number of queries to multiply at once for the floor
FLOOR_ROWS = 8192
#: The number of epochs, or runs of the floor, of which one time is the median: they are short
EPOCHS = 5


def make_model(name: str, triples_factory: CoreTriplesFactory, dim: int, **kwargs: Any) -> Model:
    """Create a model with PyKEEN's defaults, except for what it needs to be trained without sampling."""
    return model_resolver.make(
        name,
        triples_factory=triples_factory,
        embedding_dim=dim,
        random_seed=0,
        **{**required_kwargs(model_resolver.lookup(name)), **kwargs},
    )


def check_model(name: str, dim: int) -> None:
    """Refuse a model that cannot be trained without sampling, or needs more than triples.

    :raises NotDecomposableError: if it cannot
    :raises ValueError: if it needs more
    """
    if issubclass(model_resolver.lookup(name), LiteralModel):
        raise ValueError(f"{name} needs literals of entities, but only triples are measured: use the model without them.")
    factory = CoreTriplesFactory.create(torch.tensor([[0, 0, 1], [1, 0, 0]]))
    factorize_model(make_model(name, factory, dim))


def autograd_loss(model: ERModel, factorization: Factorization, loss: NonSamplingLoss, triples: Tensor) -> Tensor:
    """Compute the closed-world loss as one would without this package's kernels: gather, multiply, sum.

    The Gram matrix of the relations is the factorization's own: it has few rows.
    """
    heads, relations, tails = features(model, factorization)
    h, r, t = triples.unbind(dim=-1)
    scores = (factorization.form.queries(heads[h], relations[r]) * tails[t]).sum(dim=-1)
    keys = Moments(count=len(tails), first=tails.sum(dim=0), second=tails.T @ tails)
    head_moments = keys if tails is heads else Moments(len(heads), heads.sum(dim=0), heads.T @ heads)
    moments = factorization.query_moments(head_moments, relations).of_scores(keys)
    positives = loss.positive_weight * (1 - scores).square().sum() - NEGATIVE_WEIGHT * scores.square().sum()
    return positives + NEGATIVE_WEIGHT * moments.second + model.collect_regularization_term()


def make_loop(
    name: str,
    triples_factory: CoreTriplesFactory,
    dim: int,
    training_loop: type[FactorizedTrainingLoop] = NonSamplingTrainingLoop,
    loss: FactorizedLoss | None = None,
    **kwargs: Any,
) -> FactorizedTrainingLoop:
    """Create a model and one of this package's training loops for it, by default with the squared loss."""
    if loss is None:
        # in the closed world, as in [li2021]_
        closed = dict(negative_weight=NEGATIVE_WEIGHT, regularization_weight=0.0)
        loss = NonSamplingLoss(**closed if training_loop is NonSamplingTrainingLoop else {})
    model = make_model(name, triples_factory, dim, loss=loss, **kwargs)
    return training_loop(model=model, triples_factory=triples_factory, **OPTIMIZER)


def time_batches(
    loop: TrainingLoop[Any], triples_factory: CoreTriplesFactory, batch_size: int | None, batches: float
) -> tuple[float, int]:
    """Train for an epoch, or for some batches of it.

    :param loop: the training loop
    :param triples_factory: the training triples
    :param batch_size: the batch size
    :param batches: the number of batches after which to stop
    :return: the seconds from the first batch on, and the number of batches
    """
    watch = Stopwatch(max_steps=batches)
    with contextlib.suppress(OutOfTime):
        loop.train(triples_factory, num_epochs=1, batch_size=batch_size, use_tqdm=False, pin_memory=False, callbacks=watch)
    return watch.seconds - watch.preparation, watch.steps


@dataclass(frozen=True)
class Quantity:
    """A time to measure, and what to do once before it is first measured."""

    measure: Callable[[], float]
    warm_up: Callable[[], Any]
    repeats: int


def in_turns(quantities: Mapping[str, Quantity], progress: Callable[[str], None]) -> dict[str, list[float]]:
    """Measure each time once per repeat."""
    for name, quantity in quantities.items():
        progress(name)
        quantity.warm_up()
    samples: dict[str, list[float]] = {name: [] for name in quantities}
    for repeat in range(max(quantity.repeats for quantity in quantities.values())):
        for name, quantity in quantities.items():
            if repeat < quantity.repeats:
                progress(name)
                samples[name].append(quantity.measure())
    return samples


class Subject:
    """One model of one dimension on one dataset, and the ways to time it."""

    def __init__(self, dataset: Dataset, model: str, dim: int):
        """Create the model once for each of this package's training loops, and once for PyKEEN's."""
        self.dataset = dataset
        self.training: CoreTriplesFactory = dataset.training
        self.loop = make_loop(model, self.training, dim)
        self.local_loop = make_loop(model, self.training, dim, NonSamplingLCWATrainingLoop)
        self.ours = self.loop.model
        self.theirs = make_model(model, self.training, dim)
        self.factorization = factorize_model(self.ours)
        #: how much of each baseline was timed, and how much there is
        self.parts: dict[str, tuple[int, int]] = {}

    def floor(self) -> float:
        """Time the dense products that an epoch cannot avoid: for all features, the Gram matrix and its gradient."""
        with torch.no_grad():
            heads, relations, tails = features(self.ours, self.factorization)
            self.ours.collect_regularization_term()
            operands = [
                (x, x.new_empty(x.shape[1], x.shape[1]), torch.empty_like(x))
                for x in ((heads, relations) if tails is heads else (heads, relations, tails))
                # relations that are matrices have no Gram matrix
                if x.ndim == 2
            ]

            def run() -> float:
                start = time.perf_counter()
                for x, gram, gradient in operands:
                    torch.mm(x.T, x, out=gram)
                    torch.mm(x, gram, out=gradient)
                return time.perf_counter() - start

            run()
            return statistics.median(run() for _ in range(EPOCHS))

    def local_floor(self) -> float:
        """Time the dense products of the local closed world: of all queries with a Gram matrix, and with each other."""
        triples = self.training.mapped_triples
        with torch.no_grad():
            heads, _, tails = features(self.ours, self.factorization)
            sides = [(len(triples[:, ends].unique(dim=0)), x.shape[1]) for ends, x in (([0, 1], tails), ([1, 2], heads))]
            # in blocks, as in training: all queries at once may not fit in memory
            operands = []
            for n, m in sides:
                queries, by_gram = tails.new_ones(2, min(n, FLOOR_ROWS), m)
                operands.append((n, queries, by_gram, tails.new_ones(m, m), tails.new_empty(m, m)))

            def run() -> float:
                start = time.perf_counter()
                for n, queries, by_gram, gram, gradient in operands:
                    for first in range(0, n, FLOOR_ROWS):
                        rows = slice(0, min(FLOOR_ROWS, n - first))
                        torch.mm(queries[rows], gram, out=by_gram[rows])
                        torch.mm(queries[rows].T, queries[rows], out=gradient)
                return time.perf_counter() - start

            run()
            return statistics.median(run() for _ in range(EPOCHS))

    def epoch(self) -> float:
        """Time epochs of this package's training loop, including the optimizer step."""
        return time_epochs(self.loop, self.training, EPOCHS)

    def local_epoch(self) -> float:
        """Time epochs under the local closed world assumption."""
        return time_epochs(self.local_loop, self.training, EPOCHS)

    def autograd(self) -> float:
        """Time the loss and its gradient with plain autograd, without an optimizer step."""
        self.ours.train()
        self.ours.zero_grad(set_to_none=True)
        start = time.perf_counter()
        autograd_loss(self.ours, self.factorization, self.loop.loss, self.training.mapped_triples).backward()
        seconds = time.perf_counter() - start
        self.ours.zero_grad(set_to_none=True)
        return seconds

    def baseline(self, name: str, batches: int) -> float:
        """Time some batches of one of PyKEEN's training loops, and scale them to an epoch."""
        triples = self.training.mapped_triples
        kwargs: dict[str, Any] = dict(
            model=self.theirs, triples_factory=self.training, automatic_memory_optimization=False, **OPTIMIZER
        )
        loop: TrainingLoop[Any]
        if name == "slcwa":
            loop = SLCWATrainingLoop(negative_sampler_kwargs=dict(num_negs_per_pos=NUM_NEGATIVES), **kwargs)
            batch_size, instances = SLCWA_BATCH_SIZE, len(triples)
        else:
            loop = LCWATrainingLoop(**kwargs)
            batch_size, instances = LCWA_BATCH_SIZE, len(triples[:, :2].unique(dim=0))
        seconds, timed = time_batches(loop, self.training, batch_size, batches)
        total = math.ceil(instances / batch_size)
        self.parts[name] = timed, total
        return extrapolate(seconds, timed, total)

    def evaluation(self) -> float:
        """Time this package's evaluation on all test triples."""
        return self._evaluate(FactorizedRankBasedEvaluator(), self.dataset.testing.mapped_triples)

    def pykeen_evaluation(self, batches: int) -> float:
        """Time PyKEEN's evaluation on some test triples, and scale it to all of them.

        Preparing the filter takes the same time for any number of triples: about that of evaluating a single one.
        """
        testing = self.dataset.testing.mapped_triples
        part = testing[: batches * EVALUATION_BATCH_SIZE]
        fixed = self._evaluate(RankBasedEvaluator(), testing[:1])
        self.parts["pykeen_evaluation"] = len(part), len(testing)
        return extrapolate(self._evaluate(RankBasedEvaluator(), part), len(part), len(testing), fixed)

    def _evaluate(self, evaluator: Evaluator, triples: Tensor) -> float:
        known = [part.mapped_triples for part in (self.training, self.dataset.validation) if part is not None]
        start = time.perf_counter()
        evaluator.evaluate(
            model=self.ours,
            mapped_triples=triples,
            additional_filter_triples=known,
            # the factorized evaluator has a default of its own
            batch_size=None if isinstance(evaluator, FactorizedRankBasedEvaluator) else EVALUATION_BATCH_SIZE,
            use_tqdm=False,
        )
        return time.perf_counter() - start

    def quantities(self, loops: Sequence[str], repeats: int, baseline_repeats: int, batches: int) -> dict[str, Quantity]:
        """Collect the times to measure.

        :param loops: PyKEEN's training loops to time: slcwa, lcwa
        :param repeats: how often to measure them
        :param baseline_repeats: how often to measure PyKEEN's own training and evaluation
        :param batches: the number of batches to time of PyKEEN's own training and evaluation
        :return: the times to measure
        """
        quantities = {
            name: Quantity(measure, measure, repeats)
            for name, measure in (
                ("floor_seconds", self.floor),
                ("epoch_seconds", self.epoch),
                ("local_floor_seconds", self.local_floor),
                ("local_epoch_seconds", self.local_epoch),
                ("autograd_seconds", self.autograd),
                ("evaluation_seconds", self.evaluation),
            )
        }
        baseline_repeats = min(repeats, baseline_repeats)
        for loop in loops:
            quantities[f"{loop}_seconds"] = Quantity(
                partial(self.baseline, loop, batches), partial(self.baseline, loop, 1), baseline_repeats
            )
        single = self.dataset.testing.mapped_triples[:1]
        quantities["pykeen_evaluation_seconds"] = Quantity(
            partial(self.pykeen_evaluation, batches), partial(self._evaluate, RankBasedEvaluator(), single), baseline_repeats
        )
        return quantities
