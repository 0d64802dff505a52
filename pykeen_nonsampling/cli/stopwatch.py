"""How long training takes."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from typing import Any

from pykeen.training import TrainingCallback, TrainingLoop
from pykeen.triples import CoreTriplesFactory
from typing_extensions import override


class OutOfTime(Exception):  # noqa: N818
    """Ends training at a limit of a stopwatch; not an error."""


class Stopwatch(TrainingCallback):
    """Measures the seconds of training, and ends it at a limit.

    Callbacks run before the optimizer's step, so a batch is over when the next one begins, or when the epoch ends.
    """

    def __init__(self, limit: float = math.inf, max_steps: float = math.inf, clock: Callable[[], float] = time.perf_counter):
        """Initialize the callback.

        :param limit: the number of seconds after which training ends
        :param max_steps: the number of batches after which training ends
        :param clock: the clock
        """
        super().__init__()
        self.limit = limit
        self.max_steps = max_steps
        self.clock = clock
        #: the seconds of training so far
        self.seconds = 0.0
        #: the part of them before the first batch
        self.preparation = 0.0
        #: the number of batches so far
        self.steps = 0
        #: the seconds of training until the end of each epoch
        self.ends: list[float] = []
        self._last = clock()

    @override
    def register_training_loop(self, training_loop: TrainingLoop) -> None:
        super().register_training_loop(training_loop)
        self.resume()

    @override
    def pre_batch(self, **kwargs: Any) -> None:
        self.measure()
        if not self.steps:
            self.preparation = self.seconds
        elif self.seconds >= self.limit or self.steps >= self.max_steps:
            raise OutOfTime
        self.steps += 1

    @override
    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        self.measure()
        self.ends.append(self.seconds)

    def measure(self) -> None:
        """Add up the time until now."""
        now = self.clock()
        self.seconds += now - self._last
        self._last = now

    def resume(self) -> None:
        """Leave out the time since it was last measured."""
        self._last = self.clock()

    def epoch_seconds(self) -> float:
        """Return the median time of an epoch, from the end of one to the end of the next."""
        return statistics.median(end - start for start, end in zip(self.ends, self.ends[1:], strict=False))


def time_epochs(loop: TrainingLoop[Any], triples_factory: CoreTriplesFactory, epochs: int) -> float:
    """Train for one epoch that is not timed and some that are, and return the median of the latter.

    :param loop: the training loop
    :param triples_factory: the training triples
    :param epochs: the number of epochs that are timed
    :return: the seconds of an epoch
    """
    watch, done = Stopwatch(), len(loop.losses_per_epochs)
    loop.train(triples_factory, num_epochs=done + 1 + epochs, continue_training=done > 0, use_tqdm=False, callbacks=watch)
    return watch.epoch_seconds()


def extrapolate(seconds: float, timed: int, total: int, fixed: float = 0.0) -> float:
    """Scale the time of a part to the whole.

    :param seconds: the time of the part
    :param timed: the size of the part
    :param total: the size of the whole
    :param fixed: the time that does not grow with the size
    :return: the time of the whole
    """
    if timed == total:
        return seconds
    fixed = min(fixed, seconds)
    return fixed + (seconds - fixed) * total / timed
