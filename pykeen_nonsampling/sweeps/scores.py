"""The sweep for objectives that see every score: three products of matrices for each block of queries."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from typing_extensions import override

from ..free import free_memory
from ..losses.objective import AllScores, ScoreObjective
from .plain import PlainSweep, add_norms, zero_gradients
from .problem import Gradients, Problem, Size, SweepMemory
from .products import Block

#: The number of scores in a block; and the numbers of its queries, at least and at most: few make products slow
SCORES, FEWEST_QUERIES, MOST_QUERIES = 2**22, 128, 4096

#: The number of matrices with a row per query of a block, beside the scores
MATRICES = 7


class ScoreSweep(PlainSweep):
    """Scores blocks of queries with all candidates.

    In the place of the scores, the objective puts its derivatives, which are multiplied back. Of all queries and all
    candidates, there is never a whole matrix: the scores of a block take about as much memory as the features of all
    candidates, and it is the same for each block.
    """

    @override
    def __call__(self, problem: Problem, differentiate: bool) -> tuple[Tensor, Gradients | None]:
        given, answers = problem.given, problem.answers
        objective = cast(ScoreObjective, problem.objective)
        gradients = zero_gradients(problem) if differentiate else None
        total, row_of_scores = given.new_zeros(()), answers.new_empty(0, len(answers))
        if problem.norm_weight:
            counts = problem.side.index.answers.bincount(minlength=len(answers))
            total += add_norms(answers, counts, problem.norm_weight, None if gradients is None else gradients.answers)
        for block in self._divide(problem):
            x, y = self._gather(problem, block)
            queries = self._queries(problem, block, x, y)
            weights = problem.side.weights.take(block.queries, block.triples)
            scores = AllScores(
                scores=torch.mm(queries, answers.T, out=self._rows("scores", row_of_scores, block)),
                query_index=block.index.query_index,
                answers=block.index.answers,
                positive_weights=weights.positives,
                query_weights=weights.queries,
                candidate_weights=weights.candidates,
            )
            if gradients is None:
                total += objective.cost(scores)
                if problem.norm_weight:
                    total += add_norms(queries, block.index.counts, problem.norm_weight)
                continue
            total += self._differentiate(objective, scores)
            grad_queries = torch.mm(scores.scores, answers, out=self._rows("gradient by queries", answers, block))
            gradients.answers.addmm_(scores.scores.T, queries)
            if problem.norm_weight:
                total += add_norms(queries, block.index.counts, problem.norm_weight, grad_queries)
            self._pull_back(problem, gradients, block, x, y, grad_queries)
        return total, gradients

    def _differentiate(self, objective: ScoreObjective, scores: AllScores) -> Tensor:
        """Put the derivatives of a block in the place of its scores, and return its cost."""
        return objective.differentiate(scores)

    @override
    def memory(self, size: Size) -> SweepMemory:
        queries = min(max(1, size.num_queries), self._num_queries(size.num_candidates, size.itemsize, size.device))
        kept = super().memory(size).kept
        return SweepMemory(kept, 0, queries * size.itemsize * (size.num_candidates + MATRICES * size.width))

    @override
    def _divide(self, problem: Problem) -> Sequence[Block]:
        index, keys = problem.side.index, problem.answers
        known = self._blocks.get(index)
        if known is None or known[0] != len(keys):
            most = self._num_queries(len(keys), keys.element_size(), keys.device)
            # a part of a batch may have no query of this side
            number = -(-index.num_queries // most)
            # of the same size, since products of few queries are slow
            bounds = [index.num_queries * i // max(1, number) for i in range(number + 1)]
            blocks = [Block(index, slice(*rows), len(index)) for rows in itertools.pairwise(bounds)]
            known = self._blocks[index] = len(keys), blocks
        return known[1]

    def _num_queries(self, num_candidates: int, itemsize: int, device: torch.device) -> int:
        """Determine the number of queries in a block."""
        if self.memory_budget is None:
            # asked for once, not for every batch
            self.memory_budget = free_memory(device) // 4
        fitting = self.memory_budget // (itemsize * num_candidates)
        return max(1, min(fitting, max(FEWEST_QUERIES, min(MOST_QUERIES, SCORES // num_candidates))))
