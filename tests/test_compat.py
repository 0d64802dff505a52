"""Workarounds for PyKEEN do what they say, and nothing else."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest
from pykeen.datasets import Nations
from pykeen.models import DistMult
from pykeen.training.callbacks import TrainingCallback

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingLoss, _compat


class TestGarbageCollection:
    @pytest.fixture(autouse=True)
    def _restore(self) -> Any:
        yield
        gc.unfreeze()

    def test_existing_objects_are_spared(self) -> None:
        gc.unfreeze()
        with _compat.cheap_garbage_collection():
            assert gc.get_freeze_count() > 0
        assert gc.get_freeze_count() == 0

    def test_and_those_that_the_first_epoch_has_made(self) -> None:
        """Loading compiled loops makes a great many, which PyKEEN would have looked through after every epoch."""
        made: list[Any] = []
        counts: list[int] = []

        class Make(TrainingCallback):
            def on_batch(self, epoch: int, batch: Any, batch_loss: float, **kwargs: Any) -> None:
                counts.append(gc.get_freeze_count())
                made.extend([] for _ in range(10_000))

        gc.unfreeze()
        training = Nations().training
        model = DistMult(triples_factory=training, random_seed=0, loss=NonSamplingLoss())
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=training)
        loop.train(training, num_epochs=2, use_tqdm=False, callbacks=Make)
        assert counts[1] > counts[0] + 9_000 > 9_000
        assert gc.get_freeze_count() == 0

    def test_also_if_something_fails(self) -> None:
        gc.unfreeze()
        with pytest.raises(ZeroDivisionError), _compat.cheap_garbage_collection():
            _ = 1 / 0
        assert gc.get_freeze_count() == 0

    def test_what_the_host_program_froze_stays_frozen(self) -> None:
        gc.unfreeze()
        gc.freeze()
        frozen = gc.get_freeze_count()
        training = Nations().training
        model = DistMult(triples_factory=training, random_seed=0, loss=NonSamplingLoss())
        NonSamplingLCWATrainingLoop(model=model, triples_factory=training).train(training, num_epochs=1, use_tqdm=False)
        assert gc.get_freeze_count() >= 0.99 * frozen


def test_only_the_warning_of_schedulers_is_silenced() -> None:
    message = "The epoch parameter in `scheduler.step()` was not necessary and is being deprecated where possible."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with _compat.quiet_schedulers():
            warnings.warn(message, UserWarning, stacklevel=1)
            warnings.warn("Something else.", UserWarning, stacklevel=1)
        warnings.warn(message, UserWarning, stacklevel=1)
    assert [str(w.message) for w in caught] == ["Something else.", message]


def test_text_of_the_warning_is_still_pytorchs() -> None:
    """Or it would not be silenced any more."""
    from torch.optim import lr_scheduler

    assert lr_scheduler.EPOCH_DEPRECATION_WARNING.startswith("The epoch parameter in `scheduler.step")


def test_arguments_outside_of_the_command_line_are_the_users() -> None:
    assert _compat.without_command_line_defaults(dict(batch_size=256)) == dict(batch_size=256)
