"""The sweep for CPUs, compiled by Numba: vectors are read once, and stay in cache until all is done with them."""

from __future__ import annotations

from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ..factorizations import TrilinearForm
from ..objectives import Scores, SquaredObjective
from ..triples import SideWeights, TripleIndex
from . import kernels
from .base import Gradients, Problem, free_memory
from .candidates import meet_candidates
from .plain import PlainSweep, add_norms, zero_gradients
from .plan import Plan
from .threads import num_threads
from .work import Work

__all__ = [
    "FusedSweep",
]

#: The number of elements of a matrix of queries: three of these, in single precision, fit a last-level cache
CACHED_ELEMENTS = 2**20

#: The number of matrices of queries that are alive at the same time
MATRICES = 4

#: The number of bytes for the gradients by relations of all threads. If they take more, there are fewer threads.
RELATION_MEMORY = 2**28


class FusedSweep:
    """Visits each query with its answers once, and each answer with its queries.

    A query is made of its given entity and its relation. While it is in cache, its answers are scored, the cost of their scores
    is differentiated, and the gradients of query, given entity and relation follow. The squared objective is a part of the loop;
    others see the scores of all answers first, and a second visit adds the gradients.

    Queries are grouped by given entity, and divided between threads such that no entity belongs to two of them. Likewise, a visit
    to answers, grouped by answer, adds their gradients. So there are no locks, and the same number of threads gives the same bits.
    Only for relations, each thread has a gradient of its own.

    If each query meets all candidates, products with their Gram matrix remain, for blocks of queries.

    This is for forms made of trilinear products, in single or double precision, on a CPU. For others, it is :class:`PlainSweep`.
    """

    def __init__(self, memory_budget: int | None = None):
        """Initialize the sweep.

        :param memory_budget: the number of bytes for intermediate results. By default, a quarter of what is free.
        """
        self.memory_budget = memory_budget
        self.plain = PlainSweep(memory_budget)
        self._plans: WeakKeyDictionary[TripleIndex, Plan] = WeakKeyDictionary()

    @staticmethod
    def applies(problem: Problem) -> bool:
        """Whether the compiled loops can solve a problem."""
        x = problem.given
        return type(problem.form) is TrilinearForm and x.device.type == "cpu" and x.dtype in (torch.float, torch.double)

    def __call__(self, problem: Problem, differentiate: bool) -> tuple[Tensor, Gradients | None]:
        """Sum the costs of a problem.

        :param problem: the problem
        :param differentiate: whether the gradients are needed
        :return: the sum, and its gradients, if needed
        """
        if not self.applies(problem):
            return self.plain(problem, differentiate)
        index, weights = problem.side.index, problem.side.weights
        given, answers, candidates, objective = problem.given, problem.answers, problem.candidates, problem.objective
        gradients = zero_gradients(problem) if differentiate else None
        by_relation = self._gradients_by_relation(problem, differentiate)
        work = Work.of(problem, self._plan(problem.side.index, len(by_relation)), gradients, by_relation)
        total = given.new_zeros(())
        slopes = given.new_empty(len(index))
        # whether the objective has to see answers and candidates of a query together
        together = candidates is not None and objective.needs_queries
        if gradients is not None and type(objective) is SquaredObjective:
            targets = objective.positive_target, objective.negative_target
            total += work.visit(kernels.SQUARE, slopes, weights, targets, problem.norm_weight)
        else:
            total += work.visit(kernels.SCORE, slopes, SideWeights(), (0.0, 0.0), problem.norm_weight)
            if candidates is not None and together:
                total += meet_candidates(problem, candidates, work, gradients, self._size(problem), slopes)
            else:
                scores = Scores(slopes, index.query_index, None, weights.positives, weights.queries, weights.answers)
                if gradients is None:
                    total += objective.cost(scores)
                else:
                    costs = objective.costs(scores)
                    total += costs.total
                    slopes = costs.positives.contiguous()
            if gradients is not None:
                work.visit(kernels.USE_SLOPES, slopes, SideWeights(), (0.0, 0.0), problem.norm_weight)
        if candidates is not None and not together:
            total += meet_candidates(problem, candidates, work, gradients, self._size(problem))
        if problem.norm_weight:
            counts = index.answers.bincount(minlength=len(answers))
            total += add_norms(answers, counts, problem.norm_weight, None if gradients is None else gradients.answers)
        if gradients is not None:
            work.collect(slopes, gradients.answers)
            torch.sum(by_relation, dim=0, out=gradients.relations)
        return total, gradients

    def _plan(self, index: TripleIndex, parts: int) -> Plan:
        """Plan the visits of an index. Kept, since every epoch needs it."""
        plan = self._plans.get(index)
        if plan is None or plan.parts != parts:
            plan = self._plans[index] = Plan(index, parts)
        return plan

    def _gradients_by_relation(self, problem: Problem, differentiate: bool) -> Tensor:
        """Make a gradient by relations for each thread, for as many threads as there is memory for."""
        threads, relations = num_threads(), problem.relations
        if not differentiate:
            return relations.new_empty(threads, 0, 0)
        size = max(1, relations.numel() * relations.element_size())
        memory = RELATION_MEMORY if self.memory_budget is None else self.memory_budget
        return relations.new_zeros(max(1, min(threads, memory // size)), *relations.shape)

    def _size(self, problem: Problem) -> int:
        """Determine the number of queries in a block."""
        x = problem.answers
        memory = free_memory(x.device) // 4 if self.memory_budget is None else self.memory_budget
        elements = min(CACHED_ELEMENTS, memory // (MATRICES * x.element_size()))
        return max(1, elements // max(1, x.shape[1]))
