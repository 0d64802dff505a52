"""Models whose entities are divided among processes: which ones can be, and how their vectors are initialized."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
from pykeen.models import ERModel
from pykeen.nn import Embedding
from pykeen.nn.init import PretrainedInitializer
from pykeen.regularizers import NoRegularizer
from torch import Tensor, nn

from .shards import Sharding, ShardingError

#: The number of rows to draw random numbers for at once; a multiple of what PyTorch draws at once
ROWS_AT_ONCE = 2**16


class _ShardInitializer:
    """Initializes the rows of this process as if it did so for all of them, so that their number does not matter."""

    def __init__(self, initializer: Any, sharding: Sharding):
        self.initializer = initializer
        self.sharding = sharding

    def __call__(self, x: Tensor) -> Tensor:
        group, total = self.sharding.group, self.sharding.num_entities
        for start in range(0, total, ROWS_AT_ONCE):
            block = self.initializer(x.new_empty(min(ROWS_AT_ONCE, total - start), *x.shape[1:]))
            first = (group.rank - start) % group.size
            mine, row = block[first :: group.size], (start + first) // group.size
            x[row : row + len(mine)] = mine
        return x


def _reset(module: nn.Embedding, initializer: _ShardInitializer) -> None:
    initializer(module.weight.data)


#: The models whose entities are divided
_SHARDINGS: WeakKeyDictionary[nn.Module, Sharding] = WeakKeyDictionary()


def find_sharding(model: nn.Module) -> Sharding | None:
    """Return how the entities of a model are divided; none, if it has all of them."""
    return _SHARDINGS.get(model)


def divided_parameters(model: Any) -> set[str]:
    """Return the names of the parameters of a model whose rows are divided; none, if it has all entities."""
    if find_sharding(model) is None:
        return set()
    mine = {id(x) for x in model.entity_representations.parameters()}
    return {name for name, x in model.named_parameters() if id(x) in mine}


def check_dividable(model: Any) -> None:
    """Refuse a model whose entities cannot be divided.

    :param model: the model
    :raises ShardingError: if there are parts of it that cannot
    """
    if not isinstance(model, ERModel):
        raise ShardingError(f"{type(model).__name__} has no representations of entities that could be divided.")
    for problem in _problems(model):
        raise ShardingError(
            f"The entities of this {type(model).__name__} cannot be divided among processes: {problem}. Change that, or do "
            f"not divide them."
        )


def shard_model(model: Any, sharding: Sharding) -> None:
    """Let a model have the vectors of this process's entities.

    :param model: the model, made for a :class:`~pykeen_nonsampling.distributed.shards.TriplesShard`
    :param sharding: which process has which entities
    :raises ShardingError: if there are parts of it that cannot be divided
    """
    check_dividable(model)
    for x in model.entity_representations:
        x.initializer = _ShardInitializer(x.initializer, sharding)
        # PyKEEN resets the inner module, too, before it initializes the vectors
        inner: Any = x._embeddings
        inner.reset_parameters = partial(_reset, inner, _ShardInitializer(nn.init.normal_, sharding))
    _SHARDINGS[model] = sharding
    if isinstance(model._random_seed, int):
        # making it has used up as many random numbers as this process has entities
        torch.manual_seed(model._random_seed)


def unshard_model(model: Any, num_entities: int) -> None:
    """Turn a copy of a model whose entities were divided, and that has been given all vectors, into one like any other.

    :param model: the copy
    :param num_entities: the number of entities
    """
    model.num_entities = num_entities
    for x in model.entity_representations:
        x.initializer = x.initializer.initializer
        x.max_id = x._embeddings.num_embeddings = num_entities
        del x._embeddings.reset_parameters


def _problems(model: ERModel) -> Iterator[str]:
    """Say what of a model needs all entities in one place."""
    if len(model.weight_regularizers):
        yield "it has regularizers that look at all of their vectors"
    for x in model.entity_representations:
        name = type(x).__name__
        if type(x) is not Embedding:
            yield f"{name} does not have one vector of parameters per entity, as Embedding has"
        elif isinstance(x.initializer, PretrainedInitializer):
            yield f"{name} starts from the vectors of {type(x.initializer).__name__}, which has all of them"
        elif x.dropout is not None:
            yield f"{name} has dropout, whose random numbers would depend on the number of processes"
        elif x.regularizer is not None and not isinstance(x.regularizer, NoRegularizer):
            regularizer = type(x.regularizer).__name__
            yield f"{name} has a regularizer, {regularizer}, that looks at all vectors; regularizer='no' leaves it out"
