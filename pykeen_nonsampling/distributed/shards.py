"""Entities divided among processes: which rows of a matrix each process has, and how it gets those of others."""

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
from pykeen.triples import CoreTriplesFactory
from torch import Tensor, nn

from .group import Group

#: The number of triples that the first process sends at once
TRIPLES_AT_ONCE = 2**22

#: The number of rows to draw random numbers for at once; a multiple of what PyTorch draws at once
ROWS_AT_ONCE = 2**16


class ShardingError(ValueError):
    """Something is asked for that needs all entities in one place."""


class Sharding:
    """Which process has which entities.

    They are dealt out like cards, one by one, so that no process gets all of those that occur often. After that, they are
    numbered anew, such that those of a process are in a row.
    """

    def __init__(self, num_entities: int, group: Group):
        """Initialize the division.

        :param num_entities: the number of entities
        :param group: the processes
        :raises ShardingError: if there are fewer entities than processes
        """
        if num_entities < group.size:
            raise ShardingError(
                f"{num_entities} entities cannot be divided among {group.size} processes. Start at most {num_entities}."
            )
        self.num_entities = num_entities
        self.group = group
        quotient, remainder = divmod(num_entities, group.size)
        #: where the entities of each process begin, and where the last ones end
        self.offsets = [i * quotient + min(i, remainder) for i in range(1 + group.size)]

    @property
    def mine(self) -> slice:
        """The entities of this process."""
        return slice(self.offsets[self.group.rank], self.offsets[self.group.rank + 1])

    @property
    def num_rows(self) -> int:
        """The number of entities of this process."""
        return self.mine.stop - self.mine.start

    def _starts(self, like: Tensor) -> Tensor:
        return torch.tensor(self.offsets[:-1], device=like.device)

    def number(self, entities: Tensor) -> Tensor:
        """Return the new numbers of entities."""
        return self._starts(entities)[entities % self.group.size] + entities // self.group.size

    def owners(self, numbers: Tensor) -> Tensor:
        """Return the processes that have entities, given by their new numbers."""
        return torch.bucketize(numbers.contiguous(), self._starts(numbers), right=True) - 1

    def original(self, numbers: Tensor) -> Tensor:
        """Return the original ids of entities, given by their new numbers."""
        owners = self.owners(numbers)
        return (numbers - self._starts(numbers)[owners]) * self.group.size + owners

    def number_triples(self, triples: Tensor) -> Tensor:
        """Return triples with the new numbers of their entities."""
        heads, relations, tails = triples.unbind(dim=-1)
        return torch.stack([self.number(heads), relations, self.number(tails)], dim=-1)

    def is_mine(self, numbers: Tensor) -> Tensor:
        """Return whether entities, given by their new numbers, belong to this process."""
        return (numbers >= self.mine.start) & (numbers < self.mine.stop)


class Shard(CoreTriplesFactory):
    """The triples that one process trains on: those of its entities, from either end.

    A model for this factory has vectors of this process's entities, and of all relations.
    """

    def __init__(
        self, sharding: Sharding, by_head: Tensor, by_tail: Tensor, num_relations: int, create_inverse_triples: bool = False
    ):
        """Initialize the factory.

        :param sharding: which process has which entities
        :param by_head: shape: (n, 3), all triples whose heads are this process's, with the new numbers of entities
        :param by_tail: shape: (m, 3), likewise, those whose tails are
        :param num_relations: the number of relations, without inverse ones
        :param create_inverse_triples: whether to create inverse triples
        """
        super().__init__(by_head[:0], sharding.num_rows, num_relations, create_inverse_triples)
        self.sharding = sharding
        # PyKEEN would compare them with the number of this process's entities
        self.mapped_triples = by_head
        self.by_tail = by_tail

    def both_ends(self) -> tuple[Tensor, Tensor]:
        """Return all triples of this process's heads, and of its tails, with inverse triples if there are any."""
        if not self.create_inverse_triples:
            return self.mapped_triples, self.by_tail
        triples = self._add_inverse_triples_if_necessary(torch.cat([self.mapped_triples, self.by_tail]))
        heads, _, tails = triples.unbind(dim=-1)
        return triples[self.sharding.is_mine(heads)], triples[self.sharding.is_mine(tails)]


def divide(factory: CoreTriplesFactory | None, group: Group) -> Shard:
    """Divide triples among processes.

    :param factory: the triples, in the first process; none in the others
    :param group: the processes
    :return: those of this process
    """
    sizes: Any = None
    if factory is not None:
        sizes = factory.num_entities, factory.real_num_relations, factory.create_inverse_triples, factory.num_triples
    num_entities, num_relations, inverse, num_triples = group.same(sizes)
    sharding = Sharding(num_entities, group)
    ends: tuple[list[Tensor], list[Tensor]] = ([], [])
    for start in range(0, num_triples, TRIPLES_AT_ONCE):
        triples = torch.empty(0, 3, dtype=torch.long)
        if factory is not None:
            triples = sharding.number_triples(factory.mapped_triples[start : start + TRIPLES_AT_ONCE])
        for parts, column in zip(ends, (0, 2), strict=True):
            owners, order = sharding.owners(triples[:, column]).sort(stable=True)
            sent = owners.bincount(minlength=group.size).tolist()
            received = [group.same(sent)[group.rank]] + [0] * (group.size - 1)
            parts.append(group.exchange(triples[order], sent, received))
    return Shard(sharding, torch.cat(ends[0]), torch.cat(ends[1]), num_relations, inverse)


class Exchange:
    """Rows of a matrix that is divided by entities: those that this process needs, and those that others need of it."""

    def __init__(self, sharding: Sharding, entities: Tensor):
        """Let all processes say what they need.

        :param sharding: which process has which entities
        :param entities: shape: (n,), the new numbers of those that this one needs, ascending
        """
        self.group = group = sharding.group
        counts = sharding.owners(entities).bincount(minlength=group.size)
        ones = [1] * group.size
        self.received = counts.tolist()
        self.sent = group.exchange(counts, ones, ones).tolist()
        self.rows = group.exchange(entities, self.received, self.sent) - sharding.mine.start

    def fetch(self, matrix: Tensor) -> Tensor:
        """Return the rows that this process needs, in the order of its entities.

        :param matrix: shape: (num_rows, d), the rows of this process's entities
        """
        return self.group.exchange(matrix.index_select(0, self.rows), self.sent, self.received)

    def give_back(self, rows: Tensor, matrix: Tensor) -> None:
        """Add rows, such as gradients, to those of the processes that they belong to.

        :param rows: shape: (n, d), in the order of this process's entities
        :param matrix: shape: (num_rows, d), the rows of this process's entities, to add to
        """
        matrix.index_add_(0, self.rows, self.group.exchange(rows, self.received, self.sent))


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
            f"The entities of this {type(model).__name__} cannot be divided among processes: {problem}. Change that, or "
            f"leave out --sharded."
        )


def shard_model(model: Any, sharding: Sharding) -> None:
    """Let a model have the vectors of this process's entities.

    :param model: the model, made for a :class:`Shard`
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
