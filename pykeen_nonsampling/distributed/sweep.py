"""The sweep for entities that are divided among processes: answers of others come in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn import functional

from ..graph.index import TripleIndex
from ..graph.sides import Side
from ..sweeps.plain import zero_gradients
from ..sweeps.problem import Gradients, Problem, Size, Sweep, SweepMemory
from .exchange import Exchange
from .shards import Sharding

#: The bytes per triple to know which vectors to exchange, and the number of matrices of these vectors
EXCHANGE_BYTES, EXCHANGE_MATRICES = 32, 6

#: The number of entities of others to have at once: at least, and as a share of this process's own
FEWEST_ROWS, SHARE = 2**14, 4


def rows_at_once(num_rows: int) -> int:
    """Return the number of entities of others to have at once.

    :param num_rows: the number of this process's own
    :return: a share of these, such that memory stays in proportion; if there are only a few, all of them
    """
    return max(FEWEST_ROWS, num_rows // SHARE)


@dataclass(frozen=True)
class _Block:
    """Some queries of this process, with all their answers."""

    #: shape: (n,), the rows of their given entities
    given: Tensor
    #: the queries, in terms of these rows, and of those that are fetched; none, if there are no more queries here
    side: Side | None
    exchange: Exchange


class ShardedSweep:
    """Visits the queries of this process's entities, whose answers may belong to any process.

    The vectors of the answers to some queries are fetched, another sweep visits these queries, and the gradients are given
    back. No process ever has all vectors, unless a single query has all entities as answers.
    """

    def __init__(self, sweep: Sweep, sharding: Sharding, limit: int | None = None):
        """Initialize the sweep.

        :param sweep: visits the queries of a block
        :param sharding: which process has which entities
        :param limit: the number of entities to fetch at once, and of queries to visit
        """
        self.sweep = sweep
        self.sharding = sharding
        self.limit = rows_at_once(sharding.num_rows) if limit is None else limit
        self._blocks: WeakKeyDictionary[TripleIndex, Sequence[_Block]] = WeakKeyDictionary()

    def __call__(self, problem: Problem, differentiate: bool) -> tuple[Tensor, Gradients | None]:
        """Sum the costs of this process's queries.

        :param problem: the problem, with the features of this process's entities
        :param differentiate: whether the gradients are needed
        :return: the sum, and its gradients, if needed, to which all processes have added
        """
        index = problem.side.index
        if index not in self._blocks:
            self._blocks[index] = self._divide(problem.side)
        total = problem.given.new_zeros(())
        gradients = zero_gradients(problem) if differentiate else None
        for block in self._blocks[index]:
            answers = block.exchange.fetch(problem.answers)
            back = answers
            if block.side is not None:
                given = problem.given.index_select(0, block.given)
                cost, more = self.sweep(replace(problem, side=block.side, given=given, answers=answers), differentiate)
                total += cost
                if gradients is not None and more is not None:
                    gradients.given.index_add_(0, block.given, more.given)
                    for x, y in (
                        (gradients.relations, more.relations),
                        (gradients.first, more.first),
                        (gradients.second, more.second),
                    ):
                        if x is not None and y is not None:
                            x += y
                    back = more.answers
            if gradients is not None:
                block.exchange.give_back(back, gradients.answers)
        return total, gradients

    def memory(self, size: Size) -> SweepMemory:
        """Estimate the memory that a problem needs."""
        needed, n = self.sweep.memory(size), size.num_triples
        kept = (TripleIndex.TRIPLE_BYTES + EXCHANGE_BYTES) * n + TripleIndex.QUERY_BYTES * size.num_queries
        blocks = EXCHANGE_MATRICES * size.width * size.itemsize * min(max(1, n), self.limit)
        return SweepMemory(needed.kept + kept, needed.sorting, needed.blocks + blocks)

    def _divide(self, side: Side) -> Sequence[_Block]:
        """Divide the queries into blocks, as many in each process, since all of them exchange vectors at the same time."""
        parts = _split(side.index, self.limit)
        blocks = []
        for i in range(max(self.sharding.group.all_of(len(parts)))):
            part = side.take(parts[i]) if i < len(parts) else None
            if part is None:
                none = side.index.answers[:0]
                blocks.append(_Block(none, None, Exchange(self.sharding, none)))
                continue
            index = part.index
            entities, answers = index.answers.unique(return_inverse=True)
            given, rows = index.pairs[:, 0].unique(return_inverse=True)
            pairs = torch.stack([rows, index.pairs[:, 1]], dim=-1)
            relabeled = TripleIndex.of_parts(pairs, index.offsets, answers, len(entities), index.num_relations)
            exchange = Exchange(self.sharding, entities)
            blocks.append(_Block(given - self.sharding.mine.start, replace(part, index=relabeled), exchange))
        return blocks


def _split(index: TripleIndex, limit: int) -> Sequence[slice]:
    """Divide the queries of an index, in their order, such that none has more queries, or distinct answers, than a limit.

    A query with more answers than that is on its own.
    """
    order = index.answers.argsort(stable=True)
    repeated = index.answers[order].diff() == 0
    previous = torch.full_like(order, -1)
    previous[order[1:][repeated]] = order[:-1][repeated]
    parts, start = [], 0
    while start < index.num_queries:
        first = int(index.offsets[start])
        # an answer is new to a part if it did not occur since the part's beginning
        distinct = functional.pad((previous[first:] < first).cumsum(dim=0), (1, 0))
        last = first + int(torch.searchsorted(distinct, limit, right=True)) - 1
        stop = int(torch.searchsorted(index.offsets, last, right=True)) - 1
        parts.append(slice(start, min(max(stop, start + 1), start + limit)))
        start = parts[-1].stop
    return parts
