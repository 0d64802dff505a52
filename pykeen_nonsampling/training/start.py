"""A start from the squared solution: cheap epochs, before those of a loss that sees every score."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pykeen.triples import CoreTriplesFactory
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR

from ..losses import FactorizedLoss, NonSamplingLoss
from ..memory.room import Room, known_room
from ..validation import as_integer, as_number

if TYPE_CHECKING:
    from .loop import FactorizedTrainingLoop

logger = logging.getLogger(__name__)

#: The learning rate of the start
LEARNING_RATE = 0.05

#: What its checkpoint is called, after that of the whole training
SUFFIX = ".start"

#: The arguments of a training that its start has, too
COMMON = ("use_tqdm", "tqdm_kwargs", "checkpoint_directory", "checkpoint_frequency")


@dataclass(frozen=True)
class Start:
    """What a training starts with."""

    num_epochs: int
    lr: float
    #: the squared loss, with the weights that are given
    loss: FactorizedLoss

    @classmethod
    def of(cls, num_epochs: int, kwargs: Mapping[str, Any] | None) -> Start:
        """Check what the user says of a start.

        :param num_epochs: the number of epochs
        :param kwargs: their learning rate, and the weights of the loss
        :return: the start
        :raises ValueError: if it is out of range, or there is none to set anything of
        :raises TypeError: if it is not known what is set
        """
        num_epochs, kwargs = as_integer("start_epochs", num_epochs, 200, least=0), dict(kwargs or {})
        if kwargs and not num_epochs:
            raise ValueError(f"start_kwargs={kwargs} sets what to start with, but there is no start. Set start_epochs=100.")
        lr = as_number("lr in start_kwargs", kwargs.pop("lr", LEARNING_RATE), LEARNING_RATE, above=0)
        unknown = sorted(set(kwargs) - set(NonSamplingLoss().kwargs))
        if unknown:
            raise TypeError(
                f"start_kwargs has {', '.join(unknown)}, which is neither lr nor a parameter of the squared loss: "
                f"{', '.join(NonSamplingLoss().kwargs)}."
            )
        return cls(num_epochs, lr, NonSamplingLoss(**kwargs))

    @property
    def kwargs(self) -> dict[str, Any]:
        """What the user could have said to start in the same way."""
        return {"lr": self.lr, **self.loss.kwargs} if self.num_epochs else {}


def start_squared(loop: FactorizedTrainingLoop, triples_factory: CoreTriplesFactory, start: Start) -> None:
    """Train the model of a training loop with the squared loss, one step on the whole graph per epoch.

    :param loop: the training loop
    :param triples_factory: the training triples
    :param start: how long, and how
    """
    model, kwargs, num_epochs = loop.model, loop._training_kwargs, start.num_epochs
    loss = model.loss
    model.loss = start.loss
    optimizer = Adam(model.get_grad_params(), lr=start.lr)
    given: dict[str, Any] = {} if loop.target is None else {"target": loop.target}
    try:
        squared = type(loop)(
            model=model,
            triples_factory=triples_factory,
            optimizer=optimizer,
            lr_scheduler=CosineAnnealingLR(optimizer, T_max=num_epochs),
            factorization=loop.factorization,
            factorization_kwargs=loop.factorization_kwargs,
            memory_budget=loop.memory_budget,
            mode=loop.mode,
            loss_weighter=loop.loss_weighter,
            loss_weighter_kwargs=loop.loss_weighter_kwargs,
            **given,
        )
        squared._is_start = True
        # which was checked for the whole training
        known_room.set(Room(loop._run.memory_budget))
        arguments = {name: kwargs[name] for name in COMMON if name in kwargs}
        if kwargs.get("checkpoint_name"):
            arguments["checkpoint_name"] = f"{kwargs['checkpoint_name']}{SUFFIX}"
        losses = squared.train(triples_factory, num_epochs=num_epochs, **arguments)
    finally:
        model.loss = loss
    if losses:
        logger.info("Started with %d epochs of the squared loss, from %.3g to %.3g", num_epochs, losses[0], losses[-1])


def remove_start(checkpoint: Path) -> None:
    """Remove the checkpoint of a start, which that of the whole training replaces."""
    checkpoint.with_name(f"{checkpoint.name}{SUFFIX}").unlink(missing_ok=True)
