"""Batches of whole queries, seen from one end or from both."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.data import Dataset, Sampler

from .index import QUERY_COST, Positions
from .sides import Side


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
