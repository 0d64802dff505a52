"""Whether there is room for a training: refused, if there is not, and limited, if there is little."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from pykeen.models import Model
from pykeen.triples import CoreTriplesFactory

from ..distributed.group import Group
from ..distributed.model import check_dividable
from ..distributed.shards import Sharding
from ..free import free_memory
from .dry_run import make_without_values, outline, outline_instance
from .outline import PARTS, Outline, format_bytes
from .task import Counts, Task, TaskOf

logger = logging.getLogger(__name__)

#: What takes less than this share of the free memory is not looked at closely, with so many bytes per triple
SMALL_SHARE, SMALL_TRIPLE_BYTES = 0.05, 1000


@dataclass(frozen=True)
class Room:
    """That a training fits."""

    #: the number of bytes for blocks; none, if no limit is needed
    memory_budget: int | None


#: What is known before a model is made, so that its training loop need not look again
known_room: ContextVar[Room | None] = ContextVar("known_room", default=None)


def check_divided(model: type[Model], model_kwargs: Mapping[str, Any], counts: Counts, num_ranks: int) -> None:
    """Refuse to divide the entities of a model among processes if that is not possible, before it is made.

    :param model: the class of the model
    :param model_kwargs: its keyword arguments
    :param counts: the numbers of the graph
    :param num_ranks: the number of processes
    :raises ShardingError: if it is not possible
    """
    Sharding(counts.num_entities, Group(size=num_ranks))
    check_dividable(make_without_values(model, model_kwargs, counts.factory()))


def check_model(
    model: type[Model],
    model_kwargs: Mapping[str, Any],
    factory: CoreTriplesFactory,
    task: TaskOf,
    device: torch.device,
    memory_budget: int | None = None,
) -> Room | None:
    """Refuse to train a model that does not fit, before it is made.

    :param model: the class of the model
    :param model_kwargs: its keyword arguments
    :param factory: the training triples
    :param task: what is trained
    :param device: the device to train on
    :param memory_budget: the number of bytes for blocks, if the user has set it
    :return: the room that there is; none, if the size is not known before the model is made
    :raises ValueError: if it does not fit
    """
    free = free_memory(device)
    try:
        if _is_small(make_without_values(model, model_kwargs, factory), factory.num_triples, free):
            return Room(memory_budget)
        made = outline(model, model_kwargs, factory, task)
    except Exception as error:
        # the training loop sees the model, and refuses it if there is a reason
        logger.debug("The size of %s is not known before it is made: %r", model.__name__, error)
        return None

    def resize(d: int) -> Outline:
        return outline(model, {**model_kwargs, "embedding_dim": d}, factory, task)

    dimension = model_kwargs.get("embedding_dim") or default_dimension(model)
    return _find_room(made, model.__name__, dimension, resize, free, device, memory_budget)


def check_room(loop: Any, counts: Counts, task: Task) -> Room:
    """Refuse to train a model that does not fit.

    :param loop: the training loop
    :param counts: the numbers of the graph
    :param task: what is trained
    :return: the room that there is
    :raises ValueError: if the model does not fit
    """
    model, device, memory_budget = loop.model, loop.model.device, loop.memory_budget
    free = free_memory(device)
    if _is_small(model, counts.num_triples, free):
        return Room(memory_budget)
    try:
        made = outline_instance(loop, counts, task.with_optimizer(loop.optimizer))
    except Exception as error:
        # e.g. one that computes vectors from the graph
        logger.debug("The memory that %s needs is not known: %r", type(model).__name__, error)
        return Room(memory_budget)
    dimension = model.entity_representations[0].shape[0]
    # the parameters exist already
    free += made.parameters
    return _find_room(
        made, type(model).__name__, dimension, lambda d: made.shrink(d / dimension), free, device, memory_budget
    )


def _find_room(
    made: Outline,
    name: str,
    dimension: int,
    resize: Callable[[int], Outline],
    free: int,
    device: torch.device,
    memory_budget: int | None,
) -> Room:
    """Limit the memory for blocks to what the rest leaves, and refuse a model if that is nothing."""
    if made.memory(device, memory_budget).training <= free:
        return Room(memory_budget)
    if memory_budget is None and made.fits(free, device):
        return Room(1 + free - made.memory(device, 1).training)
    largest = largest_dimension(lambda d: resize(d).fits(free, device, memory_budget), dimension)
    raise ValueError(_refuse(made, name, dimension, free, largest, device, memory_budget))


def _is_small(model: Any, num_triples: int, free: int) -> bool:
    """Whether a model is so small that it fits without a closer look.

    There are no factorizations with more than four features per number that an entity has, and no model needs more than 20
    copies of its parameters and features, or of a Gram matrix for each relation.
    """
    parameters = sum(x.numel() * x.element_size() for x in model.parameters())
    # complex numbers have two parts
    numbers = 2 * sum(math.prod(x.shape) for x in model.entity_representations)
    width, relations = 4 * numbers + 4, model.num_relations
    features = 8 * width * (model.num_entities + relations * width)
    return 20 * (parameters + features) + SMALL_TRIPLE_BYTES * num_triples < SMALL_SHARE * free


def default_dimension(model: type[Model]) -> int:
    """Return the dimension that a model has by default; 0, if it has no such parameter."""
    parameter = inspect.signature(model).parameters.get("embedding_dim")
    return 0 if parameter is None else int(parameter.default)


def largest_dimension(fits: Callable[[int], bool], dimension: int) -> int | None:
    """Find the largest dimension that fits.

    :param fits: whether a dimension fits; if it does, all smaller ones do
    :param dimension: one that does not
    :return: the largest one below that does; none, if there is none
    """
    low, high = 0, dimension
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low or None


def _refuse(
    made: Outline,
    name: str,
    dimension: int,
    free: int,
    largest: int | None,
    device: torch.device,
    memory_budget: int | None,
) -> str:
    """Say why a model cannot be trained, and what to change."""
    memory, counts = made.memory(device, memory_budget or 1), made.counts
    size = "" if not dimension else f" with {dimension} dimensions"
    parts = ", ".join(f"{label} {format_bytes(getattr(memory, part))}" for part, label in PARTS.items())
    if memory_budget is not None and made.fits(free, device):
        room = 1 + free - made.memory(device, 1).training
        advice = f"Set a smaller budget for blocks, e.g. training_loop_kwargs=dict(memory_budget={room}), or none"
    elif largest is None:
        advice = "No number of dimensions is small enough, so use a smaller graph, or another model"
    else:
        advice = f"Use at most {largest} dimensions, e.g. model_kwargs=dict(embedding_dim={largest})"
    return (
        f"{name}{size} needs about {format_bytes(memory.training)} of memory to be trained on {counts.num_entities:,} "
        f"entities, {counts.num_relations:,} relations and {counts.num_triples:,} triples ({parts}), but only "
        f"{format_bytes(free)} are free. {advice}; cf. pykeen-nonsampling plan."
    )
