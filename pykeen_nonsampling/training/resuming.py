"""Training loops that can be stopped at any time, and continued by the same training only."""

from __future__ import annotations

import json
import logging
import signal
import threading
from abc import ABC
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pykeen.training import TrainingLoop
from pykeen.training.training_loop import CheckpointMismatchError
from pykeen.triples import CoreTriplesFactory
from torch.optim.lr_scheduler import CosineAnnealingLR
from typing_extensions import override

from .. import _compat, checkpoints
from ..graph.batches import Batch
from .fingerprint import describe_model, differences, plain

logger = logging.getLogger(__name__)

#: The arguments of :meth:`pykeen.training.TrainingLoop.train` that change the result
INFLUENTIAL = (
    "label_smoothing",
    "drop_last",
    "gradient_clipping_max_norm",
    "gradient_clipping_norm_type",
    "gradient_clipping_max_abs_value",
)


class ResumableTrainingLoop(TrainingLoop[Batch], ABC):
    """A training loop whose checkpoints are always complete, and know which training they belong to."""

    #: the arguments of the current training
    _training_kwargs: Mapping[str, Any]
    #: the file for its checkpoints, if it has one
    _checkpoint: Path | None = None
    #: whether it is this process that writes it
    _writes: bool = True
    #: whether the user has asked to stop after this epoch
    _interrupted: bool = False

    def __init__(self, **kwargs: Any) -> None:
        """Initialize the training loop.

        :param kwargs: keyword-based parameters passed to :class:`pykeen.training.TrainingLoop`
        """
        super().__init__(**kwargs)
        self._training_kwargs = {}
        # before it has begun
        self._schedule = _describe(self.lr_scheduler, {} if self.lr_scheduler is None else self.lr_scheduler.state_dict())

    @property
    def checksum(self) -> str:
        """What the training was set up with, as text, which a checkpoint has to match.

        PyKEEN's own includes the current learning rate, so that no run with a learning rate scheduler could be resumed, and
        neither the graph nor its weights.
        """
        return json.dumps(self._setup)

    @cached_property
    def _setup(self) -> dict[str, Any]:
        """What the training was set up with, as plain data."""
        return {
            "training_loop": type(self).__name__,
            "model": self._describe_model(),
            "optimizer": _describe(self.optimizer, self.optimizer.defaults),
            "lr_scheduler": self._schedule,
            **{name: plain(self._training_kwargs.get(name) or None) for name in INFLUENTIAL},
            **self._describe_data(),
        }

    def _describe_model(self) -> dict[str, Any]:
        """Describe the model, as plain data."""
        return describe_model(self.model)

    def _describe_data(self) -> dict[str, Any]:
        """Describe what the training loop adds to the setup, as plain data."""
        return {}

    @override
    def train(self, triples_factory: CoreTriplesFactory, *args: Any, **kwargs: Any) -> list[float] | None:
        checkpoints.prepare(kwargs)
        self._training_kwargs = kwargs
        self.__dict__.pop("_setup", None)
        return super().train(triples_factory, *args, **kwargs)

    @override
    def _train(self, *, checkpoint_path: Path | None = None, **kwargs: Any) -> list[float] | None:  # type: ignore[override]
        self._checkpoint, self._interrupted = checkpoint_path, False
        interrupts: AbstractContextManager[None] = nullcontext()
        if checkpoint_path is not None:
            interrupts = _deferring_interrupts(self._interrupt)
        with interrupts:
            return super()._train(checkpoint_path=checkpoint_path, **kwargs)

    def _interrupt(self) -> None:
        """Stop after this epoch: in its midst, vectors and the state of the optimizer do not belong together."""
        self._interrupted = True
        logger.warning("Interrupted: training ends after this epoch, with a checkpoint. Press Ctrl-C again to end it now.")

    @override
    def _train_epoch(self, **kwargs: Any) -> float:  # type: ignore[override]
        loss = super()._train_epoch(**kwargs)
        # PyKEEN writes a checkpoint before it stops
        self._should_stop |= self._is_interrupted()
        return loss

    def _is_interrupted(self) -> bool:
        """Whether the user has asked to stop after this epoch."""
        return self._interrupted

    @override
    def _save_state(self, path: Any, **kwargs: Any) -> None:  # type: ignore[override]
        if self._writes or path != self._checkpoint:
            with checkpoints.replacing(Path(path)) as part:
                super()._save_state(path=part, **kwargs)
        if self._interrupted and path == self._checkpoint:
            raise KeyboardInterrupt(f"Stopped after epoch {self._epoch}. To go on from {path}, run the same again.")

    @override
    def _load_state(
        self, path: str | Path, triples_factory: CoreTriplesFactory | None = None
    ) -> tuple[Path | None, int | None]:
        checkpoints.check(Path(path))
        there = json.loads(torch.load(path, weights_only=False, mmap=True, map_location="cpu")["checksum"])
        here = self._setup
        found = list(differences(there, here))
        other_length = [x[0] for x in found] == ["lr_scheduler.T_max"] and isinstance(self.lr_scheduler, CosineAnnealingLR)
        if found and not other_length:
            raise CheckpointMismatchError(_explain(path, found))
        try:
            # the same, but for rounding errors and the length of the schedule
            self._setup = there
            best_model, best_epoch = super()._load_state(path, triples_factory)
        finally:
            self._setup = here
        if best_model is not None:
            # PyKEEN has just written it
            checkpoints.seal(best_model)
        if other_length:
            _, before, after = found[0]
            self._change_length(before, after)
        return best_model, best_epoch

    def _change_length(self, before: int, after: int) -> None:
        """Go on with a cosine schedule for another number of epochs than that of the checkpoint."""
        scheduler: Any = self.lr_scheduler
        scheduler.T_max = after
        with _compat.quiet_schedulers():
            # computes the learning rate anew
            scheduler.step(scheduler.last_epoch)
        logger.warning(
            "The first %d epochs followed a cosine schedule for %d epochs. From here on, the learning rate follows one for "
            "%d epochs, and starts again at %.3g.",
            self._epoch,
            before,
            after,
            scheduler.get_last_lr()[0],
        )


@contextmanager
def _deferring_interrupts(act: Callable[[], None]) -> Iterator[None]:
    """Let the first Ctrl-C call a function, and the second one interrupt, unless the program handles it itself.

    :param act: the function
    """
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return

    def handle(*_: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        act()

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _describe(part: Any, attributes: Mapping[str, Any]) -> dict[str, Any] | None:
    """Describe an optimizer or a learning rate scheduler."""
    return None if part is None else {"class": type(part).__name__, **plain(attributes)}


def _explain(path: str | Path, found: Sequence[tuple[str, Any, Any]]) -> str:
    """Say how the training of a checkpoint differs from this one."""
    shown = "; ".join(f"{name} was {there!r}, and is {here!r}" for name, there, here in found[:3])
    more = f"; and {len(found) - 3} more" if len(found) > 3 else ""
    return (
        f"The checkpoint {path} is from another training: {shown}{more}. To continue that one, use its configuration; to "
        f"start a new one, use another checkpoint_name."
    )
