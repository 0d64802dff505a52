"""Entities divided among processes: which process has which of them, and which triples it trains on."""

from __future__ import annotations

from typing import Any

import torch
from pykeen.triples import CoreTriplesFactory
from torch import Tensor

from .group import Group

#: The number of triples that the first process sends at once
TRIPLES_AT_ONCE = 2**22


class ShardingError(ValueError):
    """Something is asked for that needs all entities in one place."""


class Sharding:
    """Which process has which entities: numbers only, without vectors or triples.

    They are dealt out like cards, one by one, so that no process gets all of those that occur often. After that, they are
    numbered anew, such that those of a process are in a row.
    """

    def __init__(self, num_entities: int, group: Group):
        """Initialize the sharding.

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


class TriplesShard(CoreTriplesFactory):
    """The triples that this process trains on: all that have one of its entities at either end.

    A model for this factory has the vectors of this process's entities, and of all relations.
    """

    def __init__(
        self, sharding: Sharding, by_head: Tensor, by_tail: Tensor, num_relations: int, create_inverse_triples: bool = False
    ):
        """Initialize the factory.

        :param sharding: which process has which entities
        :param by_head: shape: (n, 3), all triples whose heads are this process's, with the new numbers of entities
        :param by_tail: shape: (m, 3), all triples whose tails are this process's, with the new numbers of entities
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


def divide(factory: CoreTriplesFactory | None, group: Group) -> TriplesShard:
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
    return TriplesShard(sharding, torch.cat(ends[0]), torch.cat(ends[1]), num_relations, inverse)
