"""A start from the squared solution: cheap epochs, before those of a loss that sees every score."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pykeen.triples import CoreTriplesFactory
from torch.optim import Adam
from torch.optim.lr_scheduler import CosineAnnealingLR

from ..losses import NonSamplingLoss
from ..memory.room import Room, known_room

if TYPE_CHECKING:
    from .loop import FactorizedTrainingLoop

logger = logging.getLogger(__name__)

#: The learning rate of the start
LEARNING_RATE = 0.05

#: What its checkpoint is called, after that of the whole training
SUFFIX = ".start"

#: The arguments of a training that its start has, too
COMMON = ("use_tqdm", "tqdm_kwargs", "checkpoint_directory", "checkpoint_frequency")


def start_squared(loop: FactorizedTrainingLoop, triples_factory: CoreTriplesFactory, num_epochs: int) -> None:
    """Train the model of a training loop with the squared loss, one step on the whole graph per epoch.

    :param loop: the training loop
    :param triples_factory: the training triples
    :param num_epochs: the number of epochs
    """
    model, kwargs = loop.model, loop._training_kwargs
    loss = model.loss
    model.loss = NonSamplingLoss()
    optimizer = Adam(model.get_grad_params(), lr=LEARNING_RATE)
    given: dict[str, Any] = {} if loop.target is None else {"target": loop.target}
    try:
        start = type(loop)(
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
        start._is_start = True
        # which was checked for the whole training
        known_room.set(Room(loop._run.memory_budget))
        arguments = {name: kwargs[name] for name in COMMON if name in kwargs}
        if kwargs.get("checkpoint_name"):
            arguments["checkpoint_name"] = f"{kwargs['checkpoint_name']}{SUFFIX}"
        losses = start.train(triples_factory, num_epochs=num_epochs, **arguments)
    finally:
        model.loss = loss
    if losses:
        logger.info("Started with %d epochs of the squared loss, from %.3g to %.3g", num_epochs, losses[0], losses[-1])


def remove_start(checkpoint: Path) -> None:
    """Remove the checkpoint of a start, which that of the whole training replaces."""
    checkpoint.with_name(f"{checkpoint.name}{SUFFIX}").unlink(missing_ok=True)
