"""How often everything occurs in a graph, which default weights follow from."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Protocol

import torch
from pykeen.triples import CoreTriplesFactory
from torch import Tensor

from .index import TripleIndex


class Processes(Protocol):
    """Processes that count together."""

    def add(self, *tensors: Tensor) -> None:
        """Sum tensors over all processes, in place."""

    def all_of(self, value: Any) -> list[Any]:
        """Return the values of all processes."""


class Frequencies:
    """How often everything occurs in a graph, which may be divided among processes. These count together."""

    def __init__(
        self,
        index: TripleIndex,
        other_end: TripleIndex | None = None,
        group: Processes | None = None,
        inverse: bool = False,
    ):
        """Initialize the frequencies.

        :param index: the triples, from heads to tails; in each process, all tails of its queries
        :param other_end: the triples from tails to heads; in each process, all heads of its queries. If there is only one
            process, they follow from the index.
        :param group: the processes; none, if there is only one
        :param inverse: whether half of the triples are the inverse ones of the others
        """
        self.index, self._other_end, self._group = index, other_end, group
        self.inverse = inverse
        self.num_entities = index.num_entities
        self.num_relations = index.num_relations

    @classmethod
    def of(cls, factory: CoreTriplesFactory) -> Frequencies:
        """Count what is in a factory."""
        index = TripleIndex.from_factory(factory, factory.num_entities, factory.num_relations)
        return cls(index, inverse=factory.create_inverse_triples)

    @property
    def is_divided(self) -> bool:
        """Whether the entities are divided among processes."""
        return self._group is not None

    @cached_property
    def other_end(self) -> TripleIndex:
        """The triples from tails to heads."""
        return self.index.reverse() if self._other_end is None else self._other_end

    def _total(self, count: Tensor) -> Tensor:
        if self._group is not None:
            self._group.add(count)
        return count

    def count_together(self) -> None:
        """Count everything that all processes count together, at the same time in each of them."""
        for name in ("num_triples", "heads", "relations", "tails", "most_answers"):
            getattr(self, name)

    @cached_property
    def num_triples(self) -> int:
        """The number of triples."""
        return int(self._total(torch.tensor(len(self.index), device=self.index.answers.device)))

    @property
    def density(self) -> float:
        """The number of triples per entity, without inverse ones."""
        return self.num_triples / (1 + self.inverse) / self.num_entities

    @cached_property
    def heads(self) -> Tensor:
        """The number of triples of each entity as head, shape: (num_entities,)."""
        return self._total(self.index.given_counts())

    @cached_property
    def relations(self) -> Tensor:
        """The number of triples of each relation, shape: (num_relations,)."""
        return self._total(self.index.relation_counts())

    @cached_property
    def tails(self) -> Tensor:
        """The number of triples of each entity as tail, shape: (num_entities,)."""
        return self._total(self.index.answers.bincount(minlength=self.num_entities))

    @cached_property
    def most_answers(self) -> int:
        """The largest number of tails that a head and a relation have, or of heads that a relation and a tail have."""
        here = max(int(x.max()) if len(x) else 0 for x in (self.index.counts, self._other_counts))
        return here if self._group is None else max(self._group.all_of(here))

    @property
    def num_other_queries(self) -> int:
        """The number of distinct pairs of relation and tail, in this process."""
        return len(self._other_counts)

    @cached_property
    def _other_counts(self) -> Tensor:
        """The number of heads of each pair of relation and tail."""
        if self._other_end is not None:
            return self._other_end.counts
        relations = self.index.pairs[:, 1].index_select(0, self.index.query_index)
        return (relations * self.num_entities + self.index.answers).unique(return_counts=True)[1]
