"""Observed triples: indexed once by their queries, seen from either end, and divided into batches of whole queries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import torch
from pykeen.triples import CoreTriplesFactory
from pykeen.typing import LABEL_HEAD, Target
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset, Sampler

from .factorizations import Form

__all__ = [
    "Batch",
    "Batches",
    "Ranges",
    "Side",
    "SideWeights",
    "TripleIndex",
]

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
        :return: the positions of their triples, likewise
        """
        if isinstance(queries, slice):
            start, stop, _ = queries.indices(self.num_queries)
            return slice(int(self.offsets[start]), int(self.offsets[max(start, stop)]))
        return expand_ranges(self.offsets[queries], self.counts[queries])[1]

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

    def range_members(self) -> tuple[Tensor, Tensor]:
        """List the distinct answers of each relation: where they begin, shape: (num_relations + 1,), and the answers."""
        relations = self.pairs[:, 1].index_select(0, self.query_index)
        members = (relations * self.num_entities + self.answers).unique()
        counts = (members // self.num_entities).bincount(minlength=self.num_relations)
        return functional.pad(counts.cumsum(dim=0), (1, 0)), members % self.num_entities

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
        rows, positions = expand_ranges(self.offsets[found], counts)
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


def expand_ranges(starts: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """List the members of ranges of numbers.

    :param starts: shape: (m,), the first number of each range
    :param counts: shape: (m,), how many numbers it has
    :return: shape: (n,) each, the range of each member, and the member
    """
    rows = torch.repeat_interleave(counts)
    within = torch.arange(len(rows), device=rows.device) - (counts.cumsum(dim=0) - counts)[rows]
    return rows, starts[rows] + within


@dataclass(frozen=True)
class Ranges:
    """The range of each relation, the entities that answer any of its queries, and what they weigh more for that."""

    #: shape: (num_relations + 1,), where the members of each relation's range begin
    offsets: Sequence[int]
    #: shape: (m,), the members
    entities: Tensor
    #: shape: (m,), their weights as negatives of the relation's queries, in addition to those of candidates
    weights: Tensor

    def members(self, relation: int) -> slice:
        """Return the positions of the members of a relation's range."""
        return slice(self.offsets[relation], self.offsets[relation + 1])


@dataclass(frozen=True)
class SideWeights:
    """The weights of one side's triples, queries and candidates. A number stands for equal ones."""

    #: shape: (n,), the weights of observed triples
    positives: Tensor | float = 1.0
    #: shape: (q,), the weights of the queries' negatives
    queries: Tensor | float = 1.0
    #: shape: (num_entities,), the weights of candidates as negatives; none, if they are all 1
    candidates: Tensor | None = None
    #: shape: (n,), what observed triples would weigh among the candidates of their queries
    answers: Tensor | float = 1.0
    #: what candidates in the range of a query's relation weigh more; none, if they do not
    ranges: Ranges | None = None

    def take(self, queries: Positions, triples: Positions) -> SideWeights:
        """Return the weights of some queries and their triples."""
        positives, answers = (x[triples] if isinstance(x, Tensor) else x for x in (self.positives, self.answers))
        weights = self.queries[queries] if isinstance(self.queries, Tensor) else self.queries
        return SideWeights(positives, weights, self.candidates, answers, self.ranges)


@dataclass(frozen=True)
class Side:
    """Triples seen from one end: queries made of the other end and the relation, answered by this end."""

    #: the end that answers
    target: Target
    index: TripleIndex
    weights: SideWeights = SideWeights()

    def face(self, form: Form) -> Form:
        """Turn a form, which makes queries for tails, to this end."""
        return form.reverse if self.target == LABEL_HEAD else form

    def ends(self, heads: EndType, tails: EndType) -> tuple[EndType, EndType]:
        """Sort what belongs to heads and to tails into what belongs to given entities and to answers, or vice versa."""
        return (tails, heads) if self.target == LABEL_HEAD else (heads, tails)

    def take(self, queries: Positions) -> Side:
        """Return some queries, with all their answers."""
        index = self.index.take(queries)
        if index is self.index:
            return self
        return Side(self.target, index, self.weights.take(queries, self.index.positions(queries)))


class Batch(Dataset["Batch"]):
    """Whole queries of one side or both. The training set, a mini-batch and a sub-batch are each one of these."""

    def __init__(self, sides: Sequence[Side], share: float = 1.0):
        """Initialize the batch.

        :param sides: the sides
        :param share: the number of triples as a share of those of the training set, of the first side
        """
        self.sides = sides
        self.share = share

    def __len__(self) -> int:
        """Return the number of triples of the side that has most."""
        return max(len(side.index) for side in self.sides)

    @property
    def num_queries(self) -> int:
        """The number of queries of all sides."""
        return sum(side.index.num_queries for side in self.sides)

    @cached_property
    def occurrences(self) -> tuple[Tensor, Tensor]:
        """How often each entity and each relation occurs in the triples of all sides."""
        entities, relations = zip(*(side.index.occurrences() for side in self.sides), strict=True)
        return torch.stack(entities).sum(dim=0), torch.stack(relations).sum(dim=0)

    def __getitem__(self, queries: Sequence[Positions]) -> Batch:
        """Return some queries of each side; this batch, index and all, for all of them."""
        sides = [side.take(positions) for side, positions in zip(self.sides, queries, strict=True)]
        if all(part is side for part, side in zip(sides, self.sides, strict=True)):
            return self
        return Batch(sides, self.share * len(sides[0].index) / max(1, len(self.sides[0].index)))

    def divide(self, number: int, parts: int) -> Batch:
        """Return one of several parts of about the same cost, which together have all queries of each side."""
        if parts == 1:
            return self
        queries = []
        for side in self.sides:
            costs = functional.pad((QUERY_COST + side.index.counts).cumsum(dim=0), (1, 0))
            bounds = torch.tensor([number, number + 1], device=costs.device) * costs[-1] // parts
            queries.append(slice(*torch.searchsorted(costs, bounds).tolist()))
        return self[queries]

    def part(self, start: int, stop: int) -> Batch:
        """Return the queries of each side whose first triple is at one of the given positions."""
        if start <= 0 and stop >= len(self):
            return self
        bounds = torch.tensor([start, stop])
        cuts = (torch.searchsorted(side.index.offsets[:-1].cpu(), bounds).tolist() for side in self.sides)
        return self[[slice(*cut) for cut in cuts]]


class Batches(Sampler[Sequence[Positions]]):
    """Random batches of whole queries: each has all negatives of its queries, and an objective sees each query whole."""

    def __init__(self, whole: Batch, batch_size: int, drop_last: bool):
        """Initialize the sampler.

        :param whole: the training set
        :param batch_size: the number of triples per batch, on average: a query is in one batch with all its triples
        :param drop_last: whether to leave out one batch per epoch, unless all triples fit evenly
        """
        self.sizes = [side.index.num_queries for side in whole.sides]
        self.parts = min(-(-len(whole) // batch_size), max(1, *self.sizes))
        self.length = min(self.parts, len(whole) // batch_size) if drop_last else self.parts

    def __len__(self) -> int:
        """Return the number of batches."""
        return self.length

    def __iter__(self) -> Iterator[Sequence[Positions]]:
        """Iterate over the queries of each batch, for each side."""
        if self.parts == 1:
            # order has no effect
            yield from [[slice(None)] * len(self.sizes)][: self.length]
            return
        divided = [torch.randperm(size).tensor_split(self.parts) for size in self.sizes]
        for i in range(self.length):
            yield [parts[i].sort().values for parts in divided]
