"""The sweep for CPUs, compiled by Numba: vectors are read once, and stay in cache until all is done with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...factorizations import TrilinearForm
from ...factorizations.moments import ScoreMoments
from ...graph.index import TripleIndex
from ...losses.objective import Costs, Objective, Scores
from ...losses.squared import SquaredObjective
from ..plain import PlainSweep, add_norms, zero_gradients
from ..problem import Gradients, Problem, Size, SweepMemory
from . import kernels
from .arrays import Arrays
from .gram import GramProducts
from .order import MATRICES, SORTING_BYTES, Order, Rows, limit_parts, query_block_size
from .threads import num_threads


class FusedSweep:
    """Visits each query with its answers once, and each answer with its queries.

    A query is made of its given entity and its relation. While it is in cache, its answers are scored, the cost of their
    scores is differentiated, and the gradients of query, given entity and relation follow. The squared objective is a part
    of the loop. Others see the scores of all answers first, and a second visit adds the gradients.

    Queries are grouped by given entity, and divided between threads such that no entity belongs to two of them. So are the
    answers, whose gradients a second visit adds. There are no locks, and the same number of threads gives the same bits.
    Only for relations, each thread has a gradient of its own.

    If each query meets all candidates, there are products of matrices for a block of queries before each visit.

    This is for forms made of trilinear products, in single or double precision, on a CPU. :class:`PlainSweep` does the rest.
    """

    def __init__(self, memory_budget: int | None = None):
        """Initialize the sweep.

        :param memory_budget: the number of bytes for intermediate results. By default, a quarter of what is free.
        """
        self.memory_budget = memory_budget
        self.plain = PlainSweep(memory_budget)
        self._orders: WeakKeyDictionary[TripleIndex, Order] = WeakKeyDictionary()
        self._sizes: dict[tuple[int, int], int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        # without what is kept between sweeps
        return type(self), (self.memory_budget,)

    @staticmethod
    def applies(problem: Problem) -> bool:
        """Whether the compiled loops can solve a problem."""
        x = problem.given
        return x.dtype in (torch.float, torch.double) and _suits(type(problem.form) is TrilinearForm, x.device)

    def memory(self, size: Size) -> SweepMemory:
        """Estimate the memory that a problem needs."""
        if not _suits(size.trilinear, size.device):
            return self.plain.memory(size)
        parts = limit_parts(num_threads(), size.relation_bytes, self.memory_budget)
        blocks = parts * size.relation_bytes if parts > 1 else 0
        if size.candidates:
            queries = min(size.num_queries, query_block_size(size.width, size.itemsize, self.memory_budget))
            blocks += MATRICES * queries * size.width * size.itemsize
        order = Order.TRIPLE_BYTES * size.num_triples + Order.QUERY_BYTES * size.num_queries
        return SweepMemory(order + Order.ANSWER_BYTES * size.num_answers, SORTING_BYTES * size.num_triples, blocks)

    def __call__(self, problem: Problem, differentiate: bool) -> tuple[Tensor, Gradients | None]:
        """Sum the costs of a problem.

        :param problem: the problem
        :param differentiate: whether the gradients are needed
        :return: the sum, and its gradients, if needed
        """
        if not self.applies(problem):
            return self.plain(problem, differentiate)
        index, given, answers, objective = problem.side.index, problem.given, problem.answers, problem.objective
        gradients = zero_gradients(problem) if differentiate else None
        parts = self._num_parts(problem)
        order = self._order(index, parts)
        by_relation = problem.relations[:0, None]
        if gradients is not None:
            by_relation = gradients.relations[None]
            if parts > 1:
                by_relation = by_relation.new_zeros(parts, *problem.relations.shape)
        arrays = Arrays.of(problem, order, gradients, by_relation)
        size, candidates = max(1, index.num_queries), None
        if problem.candidates is not None:
            size = self._size(problem)
            candidates = GramProducts(problem.candidates, arrays, gradients, size)
        slopes = given.new_empty(len(index))
        if gradients is not None and type(objective) is SquaredObjective:
            total = _solve_squared(problem, objective, arrays, candidates, order.rows(size), slopes)
        else:
            total = _solve(problem, arrays, candidates, order.rows(size), slopes, gradients is not None)
        if problem.norm_weight:
            counts = index.answers.bincount(minlength=len(answers))
            total += add_norms(answers, counts, problem.norm_weight, None if gradients is None else gradients.answers)
        if gradients is not None:
            arrays.collect(slopes, gradients.answers)
            if parts > 1:
                torch.sum(by_relation, dim=0, out=gradients.relations)
        return total, gradients

    def _order(self, index: TripleIndex, parts: int) -> Order:
        """Order the visits of an index. Kept, since every epoch needs it."""
        order = self._orders.get(index)
        if order is None or order.parts != parts:
            order = self._orders[index] = Order(index, parts)
        return order

    def _num_parts(self, problem: Problem) -> int:
        """Determine the number of threads: as many as there is memory for, since each has its own gradient by relations."""
        relations = problem.relations
        return limit_parts(num_threads(), relations.numel() * relations.element_size(), self.memory_budget)

    def _size(self, problem: Problem) -> int:
        """Determine the number of queries in a block."""
        x = problem.answers
        key = x.shape[1], x.element_size()
        # asked for once: it depends on the free memory, which takes as long to find out as a step on a small graph
        if key not in self._sizes:
            self._sizes[key] = query_block_size(*key, self.memory_budget)
        return self._sizes[key]


def _suits(trilinear: bool, device: torch.device) -> bool:
    return trilinear and device.type == "cpu"


def _solve(
    problem: Problem,
    arrays: Arrays,
    candidates: GramProducts | None,
    blocks: Sequence[Rows],
    slopes: Tensor,
    differentiate: bool,
) -> Tensor:
    """Sum what queries cost, and add their gradients: score answers, let the objective see the scores, and visit again."""
    objective, total = cast(Objective, problem.objective), problem.given.new_zeros(())
    weights = arrays.order.sort_weights(problem.side.weights, problem.side.index)
    for rows in blocks:
        total += arrays.visit(rows, kernels.SCORE, slopes, problem.norm_weight)
        part = weights.take(rows.queries, rows.triples)
        scores = Scores(
            positives=slopes[rows.triples],
            query_index=torch.repeat_interleave(arrays.order.counts[rows.queries]),
            candidates=None if candidates is None else candidates.meet(rows, objective.needs_first),
            positive_weights=part.positives,
            query_weights=part.queries,
            answer_weights=part.answers,
        )
        if not differentiate:
            total += objective.cost(scores)
            continue
        costs = objective.costs(scores)
        total += costs.total
        slopes[rows.triples] = costs.positives
        more = None if candidates is None else candidates.differentiate(rows, costs.first, costs.second)
        arrays.visit(rows, kernels.USE_SLOPES, slopes, problem.norm_weight, more)
    if candidates is not None:
        candidates.finish()
    return total


def _solve_squared(
    problem: Problem,
    objective: SquaredObjective,
    arrays: Arrays,
    candidates: GramProducts | None,
    blocks: Sequence[Rows],
    slopes: Tensor,
) -> Tensor:
    """Do the same for the squared objective in a single visit. It is linear in the candidates' moments."""
    total = problem.given.new_zeros(())
    weights = arrays.order.sort_weights(problem.side.weights, problem.side.index)
    linear: Costs | None = None
    if candidates is not None:
        zeros = total.expand(len(arrays.order.pairs))
        moments, none = ScoreMoments(candidates.features.count, zeros, zeros), total.new_empty(0)
        linear = objective.costs(Scores(none, none.long(), moments, query_weights=weights.queries))
        total += linear.total
    for rows in blocks:
        more = None
        if candidates is not None and linear is not None and linear.second is not None:
            first = None if linear.first is None else linear.first[rows.queries]
            # one number for all of them is no array that loops are compiled for
            more = candidates.meet_linearly(rows, first, linear.second[rows.queries].contiguous())
        targets = objective.positive_target, objective.negative_target
        total += arrays.visit(rows, kernels.SQUARE, slopes, problem.norm_weight, more, weights, targets)
    if candidates is not None:
        total += candidates.finish()
    return total
