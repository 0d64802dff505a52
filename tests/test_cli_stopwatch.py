"""The stopwatch of training."""

from __future__ import annotations

from typing import Any

import pytest
from pykeen.datasets import Nations
from pykeen.models import DistMult
from pykeen.training import SLCWATrainingLoop, TrainingCallback

from pykeen_nonsampling.cli.stopwatch import OutOfTime, Stopwatch, extrapolate


@pytest.mark.parametrize(("batches", "timed", "seconds"), [(1, 1, 1.0), (2, 2, 3.0), (7, 7, 28.0), (100, 7, 28.0)])
def test_batches_are_timed_with_their_steps(batches: int, timed: int, seconds: float) -> None:
    """Of the 7 batches of an epoch, the n-th takes n seconds by a clock that only steps make go on."""
    now, steps = 0.0, 0

    class Steps(TrainingCallback):
        # registered after the stopwatch, as is PyKEEN's callback for the optimizer's step
        def post_batch(self, **kwargs: Any) -> None:
            nonlocal now, steps
            steps += 1
            now += steps

    training = Nations().training
    model = DistMult(triples_factory=training, embedding_dim=2, random_seed=0)
    loop = SLCWATrainingLoop(model=model, triples_factory=training, automatic_memory_optimization=False)
    watch = Stopwatch(max_steps=batches, clock=lambda: now)
    kwargs: dict[str, Any] = dict(num_epochs=1, batch_size=250, use_tqdm=False, callbacks=[watch, Steps()])
    if batches < 7:
        with pytest.raises(OutOfTime):
            loop.train(training, **kwargs)
    else:
        loop.train(training, **kwargs)
    assert watch.steps == steps == timed
    assert watch.seconds - watch.preparation == seconds


def test_parts_are_scaled_to_the_whole() -> None:
    assert extrapolate(6.0, timed=3, total=30) == 60.0
    assert extrapolate(6.0, timed=30, total=30) == 6.0
    # what takes the same time for any part is not scaled
    assert extrapolate(6.0, timed=3, total=30, fixed=1.0) == 51.0
    assert extrapolate(6.0, timed=3, total=30, fixed=7.0) == 6.0
