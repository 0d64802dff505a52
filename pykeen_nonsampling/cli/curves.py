"""How good a model is after how many seconds of training."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from pykeen.evaluation import Evaluator, RankBasedEvaluator
from pykeen.training import TrainingCallback, TrainingLoop
from pykeen.triples import CoreTriplesFactory
from typing_extensions import override

from ..ranking.evaluator import FactorizedRankBasedEvaluator

#: PyKEEN's name of the mean reciprocal rank
MRR = "both.realistic.inverse_harmonic_mean_rank"
SECONDS = "training seconds"


def choose_clock() -> Callable[[], float]:
    """Choose the processor's time for a single thread, which other programs do not prolong, and the wall clock otherwise."""
    return time.process_time if torch.get_num_threads() == 1 and not torch.cuda.is_available() else time.perf_counter


class LearningCurve(TrainingCallback):
    """Evaluates the model at intervals during training, and measures the time without the evaluations."""

    clock: Callable[[], float] = staticmethod(time.perf_counter)

    def __init__(
        self,
        evaluation: CoreTriplesFactory,
        known: Sequence[CoreTriplesFactory],
        frequency: int,
        evaluator: Evaluator | None = None,
    ):
        """Initialize the callback.

        :param evaluation: the triples to evaluate on
        :param known: other true triples, to be left out of the ranking
        :param frequency: the number of epochs between evaluations
        :param evaluator: the evaluator. Defaults to PyKEEN's.
        """
        super().__init__()
        self.evaluation = evaluation
        self.known = known
        self.frequency = frequency
        self.evaluator = evaluator or RankBasedEvaluator()
        self.points: list[dict[str, float]] = []
        self.seconds = 0.0

    @override
    def register_training_loop(self, training_loop: TrainingLoop) -> None:
        super().register_training_loop(training_loop)
        self._last = self.clock()

    @override
    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        self._pause()
        if epoch == 1 or epoch % self.frequency == 0:
            self._evaluate(epoch=epoch)
        self._last = self.clock()

    def _pause(self) -> None:
        """Add up the time until now."""
        self.seconds += self.clock() - self._last

    def _evaluate(self, **labels: float) -> None:
        """Add a point to the curve."""
        result = self.evaluator.evaluate(
            model=self.model,
            mapped_triples=self.evaluation.mapped_triples,
            additional_filter_triples=[factory.mapped_triples for factory in self.known],
            batch_size=256,
            use_tqdm=False,
        )
        self.points.append({**labels, SECONDS: self.seconds, "MRR": float(result.get_metric(MRR))})


class OutOfTime(Exception):  # noqa: N818
    """Ends training at the end of its time; not an error."""


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
        super().__init__(evaluation, known, frequency=1, evaluator=FactorizedRankBasedEvaluator())
        self.clock = choose_clock()
        self.marks = list(marks)
        self.steps = 0

    @override
    def pre_batch(self, **kwargs: Any) -> None:
        if self.steps and self.seconds + self.clock() - self._last >= self.marks[0]:
            self._pause()
            self._evaluate(step=self.steps)
            while self.marks and self.marks[0] <= self.seconds:
                self.marks.pop(0)
            if not self.marks:
                raise OutOfTime
            self.model.train()
            self._last = self.clock()
        self.steps += 1

    @override
    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        # epochs take different times
        pass
