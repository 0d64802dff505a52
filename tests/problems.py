"""A problem that sweeps solve, and its solution by automatic differentiation."""

from __future__ import annotations

from typing import Any

import torch
from pykeen.datasets import Nations
from pykeen.nn.modules import DistMultInteraction
from torch import Tensor

from pykeen_nonsampling import Objective
from pykeen_nonsampling.factorizations import factorize
from pykeen_nonsampling.factorizations.moments import Moments
from pykeen_nonsampling.graph.index import TripleIndex
from pykeen_nonsampling.graph.sides import Side, SideWeights
from pykeen_nonsampling.losses.objective import Scores
from pykeen_nonsampling.sweeps.problem import Problem

#: A part of Nations
INDEX = TripleIndex.from_factory(Nations().training, num_entities=14, num_relations=55).take(slice(0, 90))


class CubicObjective(Objective):
    """Cubic in the positives, and the mean and the spread of all candidates beside it."""

    def cost(self, scores: Scores) -> Tensor:
        f = scores.positives
        total = (scores.positive_weights * (f**3 - f)).sum()
        if scores.candidates is not None:
            moments = scores.candidates
            total = total + (scores.query_weights * (moments.second / moments.count + moments.first).cos()).sum()
        return total


def make_features() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, 6, dtype=torch.double, generator=generator).requires_grad_() for n in (14, 55, 14)]


def make_problem(heads: Tensor, relations: Tensor, tails: Tensor, local: bool = True, **kwargs: Any) -> Problem:
    generator = torch.Generator().manual_seed(1)
    weights = SideWeights(
        positives=torch.rand(len(INDEX), dtype=torch.double, generator=generator),
        queries=torch.rand(INDEX.num_queries, dtype=torch.double, generator=generator),
    )
    form = factorize(DistMultInteraction()).form
    candidates = Moments.of(tails) if local else None
    return Problem(Side("tail", INDEX, weights), form, CubicObjective(), heads, relations, tails, candidates, **kwargs)


def sum_by_definition(problem: Problem) -> Tensor:
    """Compute the same by automatic differentiation, with a row of scores per query."""
    weights: Any = problem.side.weights
    e, r = INDEX.pairs.unbind(dim=-1)
    f = (problem.given[e] * problem.relations[r]) @ problem.answers.T
    positives = f[INDEX.query_index, INDEX.answers]
    total = (weights.positives * (positives**3 - positives)).sum()
    if problem.candidates is not None:
        total = total + (weights.queries * (f.square().mean(dim=1) + f.sum(dim=1)).cos()).sum()
    return total


def solve(sweep: Any, problem: Problem) -> list[Tensor]:
    """Compute sum and gradients."""
    total, gradients = sweep(problem, True)
    return [total, *(x for x in vars(gradients).values() if x is not None)]
