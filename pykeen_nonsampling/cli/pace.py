"""How long an epoch takes, estimated in seconds of work from a part of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from pykeen.losses import Loss
from pykeen.models import Model
from pykeen.triples import CoreTriplesFactory

from ..graph.frequencies import Frequencies
from ..graph.sides import Side
from ..training import FactorizedTrainingLoop
from .stopwatch import extrapolate, time_epochs

#: Graphs with up to so many triples are timed as a whole
SMALL = 20_000

#: The number of triples of the smallest sample, and how many more seconds an epoch of the largest one has to take
FEWEST, ENOUGH = 2_000, 0.3

#: The number of epochs that are timed, of small graphs, and of samples
EPOCHS, SAMPLE_EPOCHS = 20, 3


@dataclass(frozen=True)
class Pace:
    """The time of an epoch."""

    seconds: float
    #: the part of it that does not depend on the number of triples
    fixed: float
    #: the number of triples that were timed
    timed: int


def estimate_pace(
    model: type[Model],
    model_kwargs: Mapping[str, Any],
    factory: CoreTriplesFactory,
    training_loop: type[FactorizedTrainingLoop],
    loss: Loss | None = None,
) -> Pace:
    """Estimate the time of an epoch on a graph, by timing epochs on whole queries of a part of it.

    What is done for all entities and relations is done in full each time, and the rest is proportional to the number of
    queries: so two samples of different sizes are enough, if their times differ enough.

    :param model: the class of the model
    :param model_kwargs: its keyword arguments
    :param factory: the training triples
    :param training_loop: the class of the training loop
    :param loss: the loss
    :return: the time
    """
    kwargs: dict[str, Any] = {**model_kwargs, **({} if loss is None else {"loss": loss})}
    made: Any = model(triples_factory=factory, random_seed=0, **kwargs)
    loop = _sampling(training_loop)(model=made, triples_factory=factory, optimizer="Adam")
    if loss is not None:
        # also if it is the model's default, which the loop replaces
        made.loss = loss
    n = factory.num_triples
    if n <= SMALL:
        seconds = time_epochs(loop, factory, EPOCHS)
        return Pace(seconds, seconds, n)
    least = share = FEWEST / n
    fixed = seconds = loop.time(factory, least)
    # at least twice the time of the smallest sample: a difference of two similar numbers would be mostly noise
    while share < 1 and seconds - fixed < max(ENOUGH, fixed):
        share = min(1.0, 8 * share)
        seconds = loop.time(factory, share)
    return Pace(extrapolate(seconds, int(share * n), n, fixed), fixed, int(share * n))


def _sampling(training_loop: type[FactorizedTrainingLoop]) -> Any:
    """Derive a training loop that trains on a sample of the queries of a graph, which is indexed once."""

    class Sampling(training_loop):  # type: ignore[misc, valid-type]
        share = 1.0

        @cached_property
        def whole(self) -> dict[str, Any]:
            return {}

        def time(self, factory: CoreTriplesFactory, share: float) -> float:
            self.share = share
            return time_epochs(self, factory, SAMPLE_EPOCHS)

        def _count(self, placement: Any, factory: CoreTriplesFactory) -> Frequencies:
            if "frequencies" not in self.whole:
                self.whole["frequencies"] = super()._count(placement, factory)
            return self.whole["frequencies"]

        def _sides(self, *args: Any) -> Sequence[Side]:
            if "sides" not in self.whole:
                self.whole["sides"] = super()._sides(*args)
            generator = torch.Generator().manual_seed(0)
            sides = []
            for side in self.whole["sides"]:
                chosen = torch.rand(side.index.num_queries, generator=generator) < self.share
                sides.append(side.take(chosen.nonzero()[:, 0]) if self.share < 1 else side)
            return sides

    return Sampling
