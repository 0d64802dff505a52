"""The training triples, indexed once."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from class_resolver import HintOrType, OptionalKwargs
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import LossWeighter, loss_weighter_resolver
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset, Sampler

__all__ = [
    "Batches",
    "Graph",
]


class Graph(Dataset["Graph"]):
    """A set of distinct triples, each with an optional weight, and the distinct queries among them.

    Indexing by positions or by a slice gives the subgraph of those triples, so a graph is the dataset, the batch and the
    sub-batch of a training loop alike.
    """

    def __init__(self, triples: Tensor, weights: Tensor | None = None, share: float = 1.0):
        """Initialize the graph.

        :param triples: shape: (n, 3), the ids of distinct triples, those with the same head and relation in a row
        :param weights: shape: (n,), the weights of the triples
        :param share: the number of triples as a share of those of the graph that this one is a part of
        """
        self.triples = triples
        self.weights = weights
        self.share = share
        self._blocks: tuple[int, Sequence[Graph]] | None = None
        self._pattern: Tensor | None = None
        self._workspaces: dict[str, Tensor] = {}

    @classmethod
    def from_factory(
        cls,
        factory: CoreTriplesFactory,
        num_entities: int,
        num_relations: int,
        loss_weighter: HintOrType[LossWeighter] = None,
        loss_weighter_kwargs: OptionalKwargs = None,
    ) -> Graph:
        """Take the distinct triples of a factory, with inverse triples if it creates them.

        :param factory: the training triples
        :param num_entities: the number of entities that the model knows
        :param num_relations: the number of relations that the model knows, inverse ones included
        :param loss_weighter: the method to weight triples
        :param loss_weighter_kwargs: additional keyword-based parameters for it
        :return: the graph
        :raises ValueError: if there are no triples, they do not fit the model, or their weights are none
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
        weighter: LossWeighter | None = loss_weighter_resolver.make_safe(loss_weighter, loss_weighter_kwargs)  # type: ignore[arg-type]
        if weighter is None:
            return cls(triples)
        weights = weighter.weight_triples(triples).expand(len(triples))
        if not (weights.isfinite() & (weights >= 0)).all():
            raise ValueError(
                f"{weighter} gives weights from {weights.min().item()} to {weights.max().item()}, but a triple's weight is "
                f"a finite number ≥ 0."
            )
        return cls(triples, weights)

    def to(self, device: torch.device) -> Graph:
        """Move the graph to a device."""
        return Graph(self.triples.to(device), None if self.weights is None else self.weights.to(device), self.share)

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

    @property
    def query_index(self) -> Tensor:
        """The position among the distinct queries of each triple's, shape: (n,)."""
        return self._queries[1]

    @cached_property
    def rows(self) -> tuple[Tensor, Tensor]:
        """The triples as a sparse matrix of queries × tails in CSR form: row offsets, shape: (q + 1,), and columns."""
        return functional.pad(self._queries[2].cumsum(dim=0), (1, 0)).int(), self.tails.int()

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
