"""Observed triples: indexed once by their queries, seen from either end, and divided into batches of whole queries."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeVar

import torch
from pykeen.triples import CoreTriplesFactory
from torch import Tensor
from torch.nn import functional

#: Positions of queries or triples: any of them, or some in a row
Positions = Tensor | slice

EndType = TypeVar("EndType")

#: What a query costs, in terms of its answers
QUERY_COST = 2

_LARGEST = torch.iinfo(torch.long).max


class TripleIndex:
    r"""Distinct triples (given entity, relation, answer), by query: the pairs $(e, r)$ that occur, each with its answers.

    This is a sparse matrix of queries × entities in CSR form, and its columns are known, too. Queries are sorted by
    relation, then by entity: the entities of a relation are few, so neighbors share most of the memory that their vectors
    are in. An index never changes.
    """

    #: shape: (q, 2), the queries, as pairs of given entity and relation
    pairs: Tensor
    #: shape: (q + 1,), where the answers of each query begin
    offsets: Tensor
    #: shape: (n,), the answers, ascending for each query
    answers: Tensor
    num_entities: int
    num_relations: int

    #: the bytes of a triple and of a query
    TRIPLE_BYTES, QUERY_BYTES = 8, 24

    def __init__(self, triples: Tensor, num_entities: int, num_relations: int):
        """Index triples.

        :param triples: shape: (n, 3), ids of given entities, relations and answers, in any order; duplicates count once
        :param num_entities: the number of entities
        :param num_relations: the number of relations
        :raises ValueError: if an id is out of range
        """
        for column, name, bound in ((0, "head", num_entities), (1, "relation", num_relations), (2, "tail", num_entities)):
            low, high = triples[:, column].aminmax() if len(triples) else (torch.zeros(()),) * 2
            if low < 0 or high >= bound:
                raise ValueError(
                    f"There is a {name} id {int(low if low < 0 else high)}, but ids range from 0 to {bound - 1}. Map the "
                    f"triples with the same entity_to_id and relation_to_id as the factory's, e.g. by "
                    f"TriplesFactory.from_path(…)."
                )
        queries, answers = _sort(triples, num_entities, num_relations)
        distinct, counts = queries.unique_consecutive(return_counts=True)
        pairs = torch.stack([distinct % num_entities, distinct // num_entities], dim=-1)
        self._fill(pairs, functional.pad(counts.cumsum(dim=0), (1, 0)), answers, num_entities, num_relations)

    def _fill(self, pairs: Tensor, offsets: Tensor, answers: Tensor, num_entities: int, num_relations: int) -> TripleIndex:
        self.pairs, self.offsets, self.answers = pairs, offsets, answers
        self.num_entities, self.num_relations = num_entities, num_relations
        return self

    @classmethod
    def of_parts(cls, pairs: Tensor, offsets: Tensor, answers: Tensor, num_entities: int, num_relations: int) -> TripleIndex:
        """Make an index of parts that are in order already.

        :param pairs: shape: (q, 2), the queries
        :param offsets: shape: (q + 1,), where the answers of each query begin
        :param answers: shape: (n,), the answers
        :param num_entities: the number of entities that may be answers
        :param num_relations: the number of relations
        :return: the index
        """
        return object.__new__(cls)._fill(pairs, offsets, answers, num_entities, num_relations)

    def _with(self, pairs: Tensor, offsets: Tensor, answers: Tensor) -> TripleIndex:
        """Make an index with the same entities and relations."""
        return self.of_parts(pairs, offsets, answers, self.num_entities, self.num_relations)

    @classmethod
    def from_factory(cls, factory: CoreTriplesFactory, num_entities: int, num_relations: int) -> TripleIndex:
        """Index the triples of a factory, with inverse triples if it creates them.

        :param factory: the training triples
        :param num_entities: the number of entities that the model has
        :param num_relations: the number of relations that the model has, inverse ones included
        :return: the index, from heads to tails
        :raises ValueError: if there are no triples, or they do not fit the model
        """
        if not factory.num_triples:
            raise ValueError(
                "The triples factory has no triples, so there is nothing to train on. Check the file or the split that it "
                "is made from."
            )
        for name, known, given in (
            ("entities", num_entities, factory.num_entities),
            ("relations", num_relations, factory.num_relations),
        ):
            if known != given:
                raise ValueError(
                    f"The triples factory has {given} {name}, but the model has {known}: the sum over all triples would run "
                    f"over the wrong set. Create the model with triples_factory=… the factory to train on (relations count "
                    f"twice with create_inverse_triples=True)."
                )
        triples = factory._add_inverse_triples_if_necessary(mapped_triples=factory.mapped_triples)
        return cls(triples, num_entities, num_relations)

    def __len__(self) -> int:
        """Return the number of triples."""
        return self.answers.shape[0]

    @property
    def num_queries(self) -> int:
        """The number of distinct queries."""
        return self.pairs.shape[0]

    # what is cheap to compute is not kept: a graph may have ten million queries

    @property
    def counts(self) -> Tensor:
        """The number of answers of each query, shape: (q,)."""
        return self.offsets.diff()

    @cached_property
    def query_index(self) -> Tensor:
        """The query of each triple, shape: (n,)."""
        return torch.repeat_interleave(self.counts, output_size=len(self))

    @property
    def triples(self) -> Tensor:
        """The triples (given entity, relation, answer), shape: (n, 3)."""
        pairs = torch.repeat_interleave(self.pairs, self.counts, dim=0, output_size=len(self))
        return torch.cat([pairs, self.answers[:, None]], dim=-1)

    @property
    def columns(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The matrix by columns: distinct answers, where their queries begin, the queries, and the order of triples used."""
        answers, order = self.answers.sort(stable=True)
        distinct, counts = answers.unique_consecutive(return_counts=True)
        return distinct, functional.pad(counts.cumsum(dim=0)[:-1], (1, 0)), self.query_index[order], order

    def to(self, device: torch.device) -> TripleIndex:
        """Move the index to a device."""
        if self.answers.device == device:
            return self
        return self._with(*(x.to(device) for x in (self.pairs, self.offsets, self.answers)))

    def reverse(self) -> TripleIndex:
        """Return the index of the same triples from their other end."""
        return TripleIndex(self.triples.flip(1), self.num_entities, self.num_relations)

    def positions(self, queries: Positions) -> Positions:
        """Return the positions of the triples of some queries.

        :param queries: positions of queries, ascending
        :return: the positions of their triples, of the same kind
        """
        if isinstance(queries, slice):
            start, stop, _ = queries.indices(self.num_queries)
            return slice(int(self.offsets[start]), int(self.offsets[max(start, stop)]))
        return expand_slices(self.offsets[queries], self.counts[queries])[1]

    def take(self, queries: Positions) -> TripleIndex:
        """Return the index of some queries, with all their answers.

        :param queries: positions of queries, ascending
        :return: the index; this one, if these are all queries
        """
        if isinstance(queries, slice) and queries.indices(self.num_queries) == (0, self.num_queries, 1):
            return self
        offsets = functional.pad(self.counts[queries].cumsum(dim=0), (1, 0))
        return self._with(self.pairs[queries], offsets, self.answers[self.positions(queries)])

    def blocks(self, size: int) -> Sequence[slice]:
        """Divide the queries, in their order, into blocks of at most some number of triples, or of one query with more."""
        offsets = self.offsets.cpu()
        blocks, start = [], 0
        while start < self.num_queries:
            stop = int(torch.searchsorted(offsets, offsets[start] + size, right=True)) - 1
            blocks.append(slice(start, max(stop, start + 1)))
            start = blocks[-1].stop
        return blocks

    def lookup(self, pairs: Tensor) -> tuple[Tensor, Tensor]:
        """Look up the answers of queries, which need not occur.

        :param pairs: shape: (m, ≥2), given entities and relations
        :return: for each answer, the position of its query among the pairs, and the answer
        """
        if not self.num_queries:
            return self.answers, self.answers
        keys, wanted = (x[:, 1] * self.num_entities + x[:, 0] for x in (self.pairs, pairs))
        found = torch.searchsorted(keys, wanted).clamp_(max=self.num_queries - 1)
        counts = torch.where(keys[found] == wanted, self.counts[found], 0)
        rows, positions = expand_slices(self.offsets[found], counts)
        return rows, self.answers[positions]

    def occurrences(self) -> tuple[Tensor, Tensor]:
        """Count how often each entity, at either end, and each relation occurs in the triples."""
        return self.given_counts() + self.answers.bincount(minlength=self.num_entities), self.relation_counts()

    def given_counts(self) -> Tensor:
        """Count the triples of each given entity, shape: (num_entities,)."""
        zeros = torch.zeros(self.num_entities, dtype=torch.long, device=self.answers.device)
        return zeros.index_add_(0, self.pairs[:, 0], self.counts)

    def relation_counts(self) -> Tensor:
        """Count the triples of each relation, shape: (num_relations,)."""
        zeros = torch.zeros(self.num_relations, dtype=torch.long, device=self.answers.device)
        return zeros.index_add_(0, self.pairs[:, 1], self.counts)


def _sort(triples: Tensor, num_entities: int, num_relations: int) -> tuple[Tensor, Tensor]:
    """Sort distinct triples by relation, given entity and answer; return queries r·|E| + e, and answers."""
    given, relations, answers = triples.unbind(dim=-1)
    queries = relations * num_entities + given
    if num_relations * num_entities * num_entities <= _LARGEST:
        keys = (queries * num_entities + answers).unique()
        return keys // num_entities, keys % num_entities
    # that many triples have no numbers of 64 bits, but those of observed queries have
    distinct, index = queries.unique(return_inverse=True)
    keys = (index * num_entities + answers).unique()
    return distinct[keys // num_entities], keys % num_entities


def expand_slices(starts: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """List the members of ranges of numbers.

    :param starts: shape: (m,), the first number of each range
    :param counts: shape: (m,), how many numbers it has
    :return: shape: (n,) each, the range of each member, and the member
    """
    rows = torch.repeat_interleave(counts)
    within = torch.arange(len(rows), device=rows.device) - (counts.cumsum(dim=0) - counts)[rows]
    return rows, starts[rows] + within
