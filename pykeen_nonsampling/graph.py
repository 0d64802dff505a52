"""The training triples, indexed once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from class_resolver import HintOrType, OptionalKwargs
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import LossWeighter, loss_weighter_resolver
from pykeen.typing import Target
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset, Sampler

__all__ = [
    "Batches",
    "Graph",
    "Negatives",
    "Sides",
    "find_runs",
]


@dataclass(frozen=True)
class Negatives:
    """Weights of negatives that belong to the queries of a graph's triples.

    A query's weight is divided among its triples. So each part of the graph, whether batch or block, brings its share of
    the negatives, even if some triples of a query are in one part and some in another.
    """

    #: shape: (n,), each triple's share of the weight of its query
    query_shares: Tensor
    #: shape: (n,), the weight that each triple would have, if it were a negative: of its query and its tail
    weights: Tensor
    #: shape: (num_entities,), the weights of the candidates, if they are not all 1
    candidates: Tensor | None = None

    def __getitem__(self, positions: Tensor | slice) -> Negatives:
        """Return those of the triples at the given positions."""
        return Negatives(self.query_shares[positions], self.weights[positions], self.candidates)


class Graph(Dataset["Graph"]):
    """A set of distinct triples, each with an optional weight, and the distinct queries among them.

    Indexing by positions or by a slice gives the subgraph of those triples, so a graph is the dataset, the batch and the
    sub-batch of a training loop alike.
    """

    def __init__(
        self, triples: Tensor, weights: Tensor | None = None, negatives: Negatives | None = None, share: float = 1.0
    ):
        """Initialize the graph.

        :param triples: shape: (n, 3), the ids of distinct triples, those with the same head and relation in a row
        :param weights: shape: (n,), the weights of the triples
        :param negatives: what the triples would weigh as negatives, and what those of their queries do
        :param share: the number of triples as a share of those of the graph that this one is a part of
        """
        self.triples = triples
        self.weights = weights
        self._negatives = negatives
        self.share = share
        self._counts: tuple[Tensor, Tensor] | None = None
        self._blocks: tuple[int, Sequence[Graph]] | None = None
        self._pattern: Tensor | None = None
        self._workspaces: dict[str, Tensor] = {}

    @classmethod
    def from_factory(cls, factory: CoreTriplesFactory, num_entities: int, num_relations: int) -> Graph:
        """Take the distinct triples of a factory, with inverse triples if it creates them.

        :param factory: the training triples
        :param num_entities: the number of entities that the model knows
        :param num_relations: the number of relations that the model knows, inverse ones included
        :return: the graph
        :raises ValueError: if there are no triples, or they do not fit the model
        """
        if not factory.num_triples:
            raise ValueError(
                "The triples factory holds no triples, so there is nothing to train on. Check the file or the split it is "
                "made from."
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
        for column, name, bound in ((0, "head", num_entities), (1, "relation", num_relations), (2, "tail", num_entities)):
            low, high = triples[:, column].min().item(), triples[:, column].max().item()
            if low < 0 or high >= bound:
                raise ValueError(
                    f"There is a {name} id {low if low < 0 else high}, but ids range from 0 to {bound - 1}. Map the triples "
                    f"with the same entity_to_id and relation_to_id as the factory's, e.g. by TriplesFactory.from_path(…)."
                )
        # sorted by relation, head, tail: the entities of a relation are few, so neighbours share not only queries but also
        # most of the memory that their vectors are in
        keys = ((triples[:, 1] * num_entities + triples[:, 0]) * num_entities + triples[:, 2]).unique()
        pairs, tails = keys // num_entities, keys % num_entities
        triples = torch.stack([pairs % num_entities, pairs // num_entities, tails], dim=-1)
        return cls(triples)

    def weigh(self, loss_weighter: HintOrType[LossWeighter], loss_weighter_kwargs: OptionalKwargs = None) -> Graph:
        """Return the graph with a weight for each triple.

        :param loss_weighter: the method to weight triples, or none
        :param loss_weighter_kwargs: additional keyword-based parameters for it
        :return: the graph
        """
        weighter: LossWeighter | None = loss_weighter_resolver.make_safe(loss_weighter, loss_weighter_kwargs)  # type: ignore[arg-type]
        if weighter is None:
            return self
        weights = weighter.weight_triples(self.triples).expand(len(self))
        return Graph(self.triples, check_weights(weights, f"{weighter} gives", "a triple's weight"))

    def to(self, device: torch.device) -> Graph:
        """Move a graph without weights to a device."""
        return Graph(self.triples.to(device))

    def reverse(self) -> Graph:
        """Return the graph of the reverse triples, without weights: what were tails are heads."""
        h, r, t = self.triples.unbind(dim=-1)
        base = int(self.triples.max()) + 1
        order = ((r * base + t) * base + h).argsort()
        return Graph(self.triples[order].flip(1))

    def counts(self, num_entities: int, num_relations: int) -> tuple[Tensor, Tensor]:
        """Count how often each entity, as head or tail, and each relation occurs in the triples. Kept, like the blocks."""
        if self._counts is None:
            h, r, t = self.triples.unbind(dim=-1)
            self._counts = torch.cat([h, t]).bincount(minlength=num_entities), r.bincount(minlength=num_relations)
        return self._counts

    def __len__(self) -> int:
        """Return the number of triples."""
        return self.triples.shape[0]

    def __getitem__(self, positions: Tensor | slice) -> Graph:
        """Return the subgraph of the triples at the given positions; the graph itself, index and all, for all of them."""
        if isinstance(positions, Tensor):
            positions = positions.sort().values
        elif positions.indices(len(self)) == (0, len(self), 1):
            return self
        triples = self.triples[positions]
        return Graph(
            triples,
            weights=None if self.weights is None else self.weights[positions],
            negatives=None if self._negatives is None else self._negatives[positions],
            share=self.share * len(triples) / len(self),
        )

    def blocks(self, size: int) -> Sequence[Graph]:
        """Return the parts of at most the given number of triples, in a row. Kept, since every epoch needs them."""
        if self._blocks is None or self._blocks[0] != size:
            self._blocks = size, [self[start : start + size] for start in range(0, len(self), size)]
        return self._blocks[1]

    def workspace(self, name: str, like: Tensor, num_rows: int) -> Tensor:
        """Return memory for some rows of a matrix, the same each time, with whatever is left in it."""
        shape = (num_rows, *like.shape[1:])
        space = self._workspaces.get(name)
        if space is None or space.shape != shape or space.dtype != like.dtype:
            with torch.inference_mode(False):
                space = self._workspaces[name] = torch.empty(shape, dtype=like.dtype, device=like.device)
        return space

    @property
    def tails(self) -> Tensor:
        """The tails, shape: (n,)."""
        return self.triples[:, 2]

    @cached_property
    def _queries(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.triples[:, :2].unique_consecutive(dim=0, return_inverse=True, return_counts=True)

    @property
    def pairs(self) -> Tensor:
        """The distinct queries, as pairs of head and relation, shape: (q, 2)."""
        return self._queries[0]

    @cached_property
    def relation_runs(self) -> Sequence[tuple[int, slice]]:
        """The relations of the distinct queries, cf. :func:`find_runs`."""
        return find_runs(self.pairs[:, 1])

    @property
    def negatives(self) -> Negatives:
        """The weights of the negatives, if they belong to the queries."""
        if self._negatives is None:
            raise ValueError("The queries of this graph have no negatives of their own.")
        return self._negatives

    @property
    def positives(self) -> Tensor:
        """The number of triples of each distinct query, shape: (q,)."""
        return self._queries[2]

    @cached_property
    def query_weights(self) -> Tensor:
        """The weight of each distinct query, as far as its triples are in this graph, shape: (q,)."""
        shares = self.negatives.query_shares
        return shares.new_zeros(len(self.pairs)).index_add_(0, self.query_index, shares)

    @property
    def query_index(self) -> Tensor:
        """The position among the distinct queries of each triple's, shape: (n,)."""
        return self._queries[1]

    @cached_property
    def rows(self) -> tuple[Tensor, Tensor]:
        """The triples as a sparse matrix of queries × tails in CSR form: row offsets, shape: (q + 1,), and columns."""
        return functional.pad(self.positives.cumsum(dim=0), (1, 0)).int(), self.tails.int()

    @cached_property
    def columns(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The same matrix by columns: distinct tails, their offsets, the queries, and the order of triples that this is."""
        tails, order = self.tails.sort(stable=True)
        distinct, counts = tails.unique_consecutive(return_counts=True)
        offsets = functional.pad(counts.cumsum(dim=0)[:-1], (1, 0))
        return distinct, offsets.int(), self.query_index[order].int(), order

    def pattern(self, num_entities: int, dtype: torch.dtype) -> Tensor:
        """Return the same matrix as a tensor, with zeros as values, shape: (q, num_entities)."""
        if self._pattern is None or self._pattern.dtype != dtype:
            offsets, tails = self.rows
            values = torch.zeros(len(self), dtype=dtype, device=tails.device)
            with warnings.catch_warnings():
                # PyTorch calls sparse matrices a beta feature, once a process
                warnings.simplefilter("ignore", category=UserWarning)
                self._pattern = torch.sparse_csr_tensor(offsets, tails, values, size=(len(self.pairs), num_entities))
        return self._pattern


def find_runs(relations: Tensor) -> Sequence[tuple[int, slice]]:
    """Find where a relation is the same for some rows in a row.

    :param relations: shape: (n,), the ids of relations
    :return: the relations, each with the rows that it belongs to
    """
    distinct, counts = relations.unique_consecutive(return_counts=True)
    stops = counts.cumsum(dim=0).tolist()
    return [(r, slice(start, stop)) for r, start, stop in zip(distinct.tolist(), [0, *stops], stops, strict=False)]


def check_weights(weights: Tensor, giver: str, what: str) -> Tensor:
    """Refuse weights that are none.

    :param weights: the weights
    :param giver: where they come from, and a verb
    :param what: what they are
    :return: the weights
    :raises ValueError: if one of them is no finite number ≥ 0
    """
    if (weights.isfinite() & (weights >= 0)).all():
        return weights
    raise ValueError(
        f"{giver} weights from {weights.min().item()} to {weights.max().item()}, but {what} is a finite number ≥ 0."
    )


class Sides(Dataset["Sides"]):
    """The same triples once for each of their ends that is to be predicted, each with its own queries.

    Indexing by positions or by a slice gives the triples at these positions of each side, in its own order. So all batches
    of an epoch together have all triples of each side.
    """

    def __init__(self, sides: Mapping[Target, Graph], num_queries: float | None = None):
        """Initialize the sides.

        :param sides: the graph for each end, with the triples reversed for heads
        :param num_queries: the number of queries of all sides, of a part of them in proportion
        """
        self.sides = sides
        self.num_queries = sum(len(side.pairs) for side in sides.values()) if num_queries is None else num_queries

    def counts(self, num_entities: int, num_relations: int) -> tuple[Tensor, Tensor]:
        """Count how often each entity and each relation occurs in the triples of all sides."""
        counts = [side.counts(num_entities, num_relations) for side in self.sides.values()]
        return sum(entities for entities, _ in counts), sum(relations for _, relations in counts)  # type: ignore[return-value]

    def __len__(self) -> int:
        """Return the number of triples of each side."""
        return len(next(iter(self.sides.values())))

    def __getitem__(self, positions: Tensor | slice) -> Sides:
        """Return the triples at the given positions of each side."""
        if isinstance(positions, slice) and positions.indices(len(self)) == (0, len(self), 1):
            return self
        sides = {target: graph[positions] for target, graph in self.sides.items()}
        return Sides(sides, self.num_queries * len(next(iter(sides.values()))) / len(self))


class Batches(Sampler["Tensor | slice"]):
    """Random batches of positions, whole: collating 272,115 triples one by one takes seconds an epoch."""

    def __init__(self, size: int, batch_size: int, drop_last: bool):
        """Initialize the sampler.

        :param size: the number of triples
        :param batch_size: the number of triples a batch; one batch of all triples is not shuffled, as order has no effect
        :param drop_last: whether to leave out an incomplete last batch
        """
        self.size = size
        self.batch_size = batch_size
        self.drop_last = drop_last

    def __len__(self) -> int:
        """Return the number of batches."""
        full, rest = divmod(self.size, self.batch_size)
        return full + (1 if rest and not self.drop_last else 0)

    def __iter__(self) -> Iterator[Tensor | slice]:
        """Iterate over the positions of each batch."""
        if len(self) == 1 and self.batch_size >= self.size:
            yield slice(None)
        else:
            yield from torch.randperm(self.size).split(self.batch_size)[: len(self)]
