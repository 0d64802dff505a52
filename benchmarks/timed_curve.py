"""Learning curves over the seconds of training, whatever an epoch takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from pykeen.triples import CoreTriplesFactory
from typing_extensions import override

from pykeen_nonsampling.cli.curves import LearningCurve
from pykeen_nonsampling.ranking.evaluator import FactorizedRankBasedEvaluator


def choose_clock() -> Callable[[], float]:
    """Choose the processor's time for a single thread, which other programs do not prolong, and the wall clock otherwise."""
    return time.process_time if torch.get_num_threads() == 1 and not torch.cuda.is_available() else time.perf_counter


class TimedCurve(LearningCurve):
    """Evaluates the model after given numbers of seconds of training, in the midst of an epoch if need be, and then ends it.

    Evaluations come before a batch, when the optimizer's step of the last one is done.
    """

    def __init__(
        self,
        evaluation: CoreTriplesFactory,
        known: Sequence[CoreTriplesFactory],
        marks: Sequence[float],
        cosine: bool = False,
    ):
        """Initialize the callback.

        :param evaluation: the triples to evaluate on
        :param known: other true triples, to be left out of the ranking
        :param marks: the numbers of seconds, ascending; training ends after the last one
        :param cosine: whether the learning rate falls to zero at the last one, along a cosine of the seconds: the number of
            epochs, which other schedules need, is not known beforehand
        """
        super().__init__(evaluation, known, evaluator=FactorizedRankBasedEvaluator(), limit=marks[-1], clock=choose_clock())
        self.marks = list(marks)
        self.cosine = cosine
        #: the number of batches of an epoch, once the first one is done
        self._batches = math.inf

    @property
    def epochs(self) -> float:
        """The number of epochs so far, with part of the last one; 0 in the first one, whose length is not known."""
        return self.steps / self._batches

    @override
    def pre_batch(self, **kwargs: Any) -> None:
        self.measure()
        if self.steps and self.seconds >= self.marks[0]:
            while self.marks and self.marks[0] <= self.seconds:
                self.marks.pop(0)
            self.evaluate(step=self.steps, epochs=self.epochs)
            self.model.train()
        super().pre_batch(**kwargs)
        if self.cosine:
            for group in self.optimizer.param_groups:
                share = min(1.0, self.seconds / self.limit)
                group["lr"] = group.setdefault("initial_lr", group["lr"]) * (1 + math.cos(math.pi * share)) / 2

    @override
    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        super().post_epoch(epoch, epoch_loss, **kwargs)
        self._batches = min(self._batches, self.steps)
