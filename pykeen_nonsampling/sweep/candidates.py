"""Queries that meet all candidates: products with their Gram matrix, for blocks of queries."""

from __future__ import annotations

import torch
from torch import Tensor

from ..moments import Moments, ScoreMoments, add_gram, mirror
from ..objectives import Scores
from . import kernels
from .base import Gradients, Problem
from .plan import Rows
from .work import Work

__all__ = [
    "meet_candidates",
]


def meet_candidates(
    problem: Problem, candidates: Moments, work: Work, gradients: Gradients | None, size: int, slopes: Tensor | None = None
) -> Tensor:
    r"""Sum what the candidates cost, from the moments $k^\top q$ and $q^\top G q$ of their scores, and add the gradients.

    By the moments, the gradients are $\sum_q a_q q$ and $\sum_q b_q q q^\top$, by a query $a_q k + 2 b_q G q$, where a and b are
    the derivatives of the objective.

    :param problem: the problem
    :param candidates: the moments of the candidates' features
    :param work: the problem as arrays
    :param gradients: the gradients to add to; none, if they are not needed
    :param size: the number of queries in a block
    :param slopes: shape: (n,), the scores of all answers, which the derivatives of the costs by them are written over; none,
        if answers and candidates cost what they cost apart from each other
    :return: the sum
    """
    objective, given, plan = problem.objective, problem.given, work.plan
    # new memory costs as much as what is done with it
    memory = given.new_empty(3, min(size, len(plan.pairs)), work.keys.shape[1])
    total = given.new_zeros(())
    for rows in plan.rows(size):
        n = rows.queries.stop - rows.queries.start
        queries, by_gram, scaled = memory[:, :n]
        pairs = plan.pairs[rows.queries]
        kernels.MAKE_QUERIES(rows.cuts, pairs, *work.form, queries.numpy())
        torch.mm(queries, candidates.second, out=by_gram)
        second = given.new_empty(n)
        kernels.MULTIPLY_ROWS(rows.cuts, queries.numpy(), by_gram.numpy(), second.numpy())
        first = queries @ candidates.first if objective.needs_first else given.new_zeros(n)
        scores = _scores(problem, rows, ScoreMoments(candidates.count, first, second), slopes)
        if gradients is None:
            total += objective.cost(scores)
            continue
        costs = objective.costs(scores)
        total += costs.total
        if slopes is not None:
            slopes[rows.triples] = costs.positives
        by_first = given.new_empty(0)
        if costs.first is not None and gradients.first is not None:
            by_first = costs.first.contiguous()
            gradients.first.addmv_(queries.T, by_first)
        by_second = torch.zeros_like(second) if costs.second is None else costs.second
        if gradients.second is not None:
            add_gram(gradients.second, queries, torch.mul(queries, by_second[:, None], out=scaled))
        kernels.PULL_BACK(
            rows.entity_cuts,
            rows.order,
            pairs,
            *work.form,
            by_gram.numpy(),
            (2 * by_second).numpy(),
            by_first.numpy(),
            candidates.first.contiguous().numpy(),
            work.by_given,
            work.by_relation,
        )
    if gradients is not None and gradients.second is not None:
        mirror(gradients.second)
    return total


def _scores(problem: Problem, rows: Rows, moments: ScoreMoments, slopes: Tensor | None) -> Scores:
    """Collect what an objective sees of a block of queries."""
    weights = problem.side.weights.take(rows.queries, rows.triples)
    if slopes is None:
        none = torch.empty(0, dtype=torch.long)
        return Scores(moments.second.new_empty(0), none, moments, query_weights=weights.queries)
    query_index = torch.repeat_interleave(problem.side.index.counts[rows.queries])
    return Scores(
        positives=slopes[rows.triples].clone(),
        query_index=query_index,
        candidates=moments,
        positive_weights=weights.positives,
        query_weights=weights.queries,
        answer_weights=weights.answers,
    )
