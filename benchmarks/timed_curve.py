"""Learning curves over the seconds of training, whatever an epoch takes."""

from __future__ import annotations

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

    def __init__(self, evaluation: CoreTriplesFactory, known: Sequence[CoreTriplesFactory], marks: Sequence[float]):
        """Initialize the callback.

        :param evaluation: the triples to evaluate on
        :param known: other true triples, to be left out of the ranking
        :param marks: the numbers of seconds, ascending; training ends after the last one
        """
        super().__init__(evaluation, known, evaluator=FactorizedRankBasedEvaluator(), limit=marks[-1], clock=choose_clock())
        self.marks = list(marks)

    @override
    def pre_batch(self, **kwargs: Any) -> None:
        self.measure()
        if self.steps and self.seconds >= self.marks[0]:
            while self.marks and self.marks[0] <= self.seconds:
                self.marks.pop(0)
            self.evaluate(step=self.steps)
            self.model.train()
        super().pre_batch(**kwargs)
