"""In which order compiled loops visit queries and answers, so that each row of a gradient belongs to one thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ...free import free_memory
from ...graph.index import QUERY_COST, TripleIndex, expand_slices
from ...graph.sides import SideWeights

#: The number of elements of a matrix of queries: three of these, in single precision, fit a last-level cache
CACHED_ELEMENTS = 2**20

#: The number of matrices of queries that are alive at the same time: at most, and usually
MOST_MATRICES, MATRICES = 4, 3

#: The bytes per triple that it takes to sort them
SORTING_BYTES = 100

#: The number of bytes for the gradients by relations of all threads. If they take more, there are fewer threads.
RELATION_MEMORY = 2**28


def query_block_size(width: int, itemsize: int, memory_budget: int | None = None) -> int:
    """Determine the number of queries that meet all candidates at once.

    :param width: the number of features
    :param itemsize: the number of bytes of a feature
    :param memory_budget: the number of bytes to use at most. By default, a quarter of what is free.
    :return: the number of queries, at least one
    """
    memory = free_memory(torch.device("cpu")) // 4 if memory_budget is None else memory_budget
    return max(1, min(CACHED_ELEMENTS, memory // (MOST_MATRICES * itemsize)) // max(1, width))


def limit_parts(parts: int, relation_bytes: int, memory_budget: int | None = None) -> int:
    """Limit the number of parts to divide the work into, each with its own gradient by relations, to what fits.

    :param parts: the number of parts, at most
    :param relation_bytes: the bytes of the features of all relations
    :param memory_budget: the number of bytes to use at most
    :return: the number of parts, at least one
    """
    memory = RELATION_MEMORY if memory_budget is None else memory_budget
    return max(1, min(parts, memory // max(1, relation_bytes)))


@dataclass(frozen=True)
class Rows:
    """Queries in a row, and their triples."""

    queries: slice
    triples: slice
    #: shape: (parts + 1,), where to divide the queries, such that no given entity is in two parts
    cuts: Any


class Order:
    """The triples of an index in two orders: grouped by given entity, and grouped by answer.

    The first one is that of queries, and of all that belongs to them or their triples. Numbers have 32 bits to save memory.
    """

    #: the bytes of a triple, of a query, and of a distinct pair of relation and answer
    TRIPLE_BYTES, QUERY_BYTES, ANSWER_BYTES = 12, 20, 16

    def __init__(self, index: TripleIndex, parts: int):
        """Sort queries by given entity, and triples by answer.

        :param index: the index, which is not kept
        :param parts: the number of parts to divide both into
        """
        self.parts = parts
        entities, order = index.pairs[:, 0].sort(stable=True)
        counts = index.counts[order]
        query_index, triple_order = expand_slices(index.offsets[order], counts)
        #: shape: (q, 2), (q + 1,) and (n,), as in the index
        self.pairs = torch.stack([entities, index.pairs[order, 1]], dim=-1).int()
        self.offsets = functional.pad(counts.cumsum(dim=0), (1, 0))
        self.answers = index.answers[triple_order].int()
        self._order = order.int()
        self._rows: tuple[int, Sequence[Rows]] | None = None
        self._weights: tuple[SideWeights, SideWeights] | None = None
        # by answer, then by relation
        relations, n = self.pairs[query_index, 1], index.num_relations
        keys, triples = (self.answers.long() * n + relations).sort(stable=True)
        runs, counts = keys.unique_consecutive(return_counts=True)
        #: shape: (n,), the triples in the order of groups, and their given entities
        self.triples, self.run_given = triples.int(), self.pairs[query_index[triples], 0]
        #: shape: (g,), answer and relation of each group, and where its triples begin
        self.run_answers, self.run_relations = (runs // n).int(), (runs % n).int()
        self.run_offsets = functional.pad(counts.cumsum(dim=0), (1, 0))
        self.run_cuts = _cut(self.run_answers, QUERY_COST + counts, parts)

    @property
    def counts(self) -> Tensor:
        """The number of answers of each query, shape: (q,)."""
        return self.offsets.diff()

    def rows(self, size: int) -> Sequence[Rows]:
        """Divide the queries into blocks of at most some number. Kept, since every epoch needs them."""
        if self._rows is None or self._rows[0] != size:
            self._rows = size, [self._block(start, size) for start in range(0, len(self.pairs), size)]
        return self._rows[1]

    def _block(self, start: int, size: int) -> Rows:
        stop = min(start + size, len(self.pairs))
        offsets = self.offsets[start : stop + 1]
        cuts = start + _cut(self.pairs[start:stop, 0], QUERY_COST + offsets.diff(), self.parts)
        return Rows(slice(start, stop), slice(int(offsets[0]), int(offsets[-1])), cuts)

    def sort_weights(self, weights: SideWeights, index: TripleIndex) -> SideWeights:
        """Bring the weights of the index into this order. Kept, too."""
        if self._weights is None or self._weights[0] is not weights:
            order = self._order.long()
            _, triple_order = expand_slices(index.offsets[order], self.counts)
            self._weights = weights, weights.take(order, triple_order)
        return self._weights[1]


def _cut(groups: Tensor, loads: Tensor, parts: int) -> Any:
    """Divide rows into parts of about the same load, and no group into two.

    :param groups: shape: (n,), the group of each row; equal ones are neighbors
    :param loads: shape: (n,), what it costs to visit the row
    :param parts: the number of parts
    :return: shape: (parts + 1,), where the parts begin
    """
    n = len(groups)
    starts = functional.pad((groups.diff() != 0).nonzero()[:, 0] + 1, (1, 1))
    starts[-1] = n
    loads = functional.pad(loads.cumsum(dim=0), (1, 0))
    wanted = torch.arange(1, parts) * loads[-1] // parts
    inner = starts[torch.searchsorted(loads[starts], wanted)]
    return functional.pad(functional.pad(inner, (1, 0)), (0, 1), value=n).numpy()
