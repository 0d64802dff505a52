"""The compiled softmax is the one of PyTorch, but for rounding."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pykeen_nonsampling.factorizations.functions import ClampFunction, NormFunction, SquareFunction
from pykeen_nonsampling.losses.objective import AllScores, FunctionObjective, ScoreObjective
from pykeen_nonsampling.losses.softmax import SoftmaxObjective
from pykeen_nonsampling.sweeps.choice import fastest_sweep
from pykeen_nonsampling.sweeps.scores import ScoreSweep

pytest.importorskip("numba")

from pykeen_nonsampling.sweeps.numba import scores as fused

NORM = NormFunction(scale=1 / 3, offset=1.0)
SOFTMAX = SoftmaxObjective(scale=6.0)
COMPILED: dict[str, ScoreObjective] = {"products": SOFTMAX, "norms": FunctionObjective(SOFTMAX, NORM)}
OTHERS: dict[str, ScoreObjective] = {
    "filtered": SoftmaxObjective(scale=6.0, filtered=True),
    "squares": FunctionObjective(SOFTMAX, SquareFunction(scale=1 / 3, offset=1.0)),
    "clamped": FunctionObjective(SOFTMAX, ClampFunction(NORM, -1.5, -0.5)),
}
SIZES = [(1, 1), (3, 40), (7, 512), (5, 1300)]


def make(num_queries: int, num_candidates: int, dtype: torch.dtype = torch.float) -> AllScores:
    generator = torch.Generator().manual_seed(num_candidates)
    scores = 0.9 - 9 * torch.rand(num_queries, num_candidates, generator=generator)
    queries = torch.arange(num_queries).repeat_interleave(2)
    return AllScores(
        scores=scores.to(dtype),
        query_index=queries,
        answers=torch.randint(num_candidates, queries.shape, generator=generator),
        positive_weights=torch.rand(queries.shape, generator=generator),
        query_weights=torch.rand(num_queries, generator=generator),
    )


def differentiate(objective: ScoreObjective, x: AllScores) -> tuple[Tensor, Tensor]:
    copied = replace(x, scores=x.scores.clone())
    return fused.FusedScoreSweep()._differentiate(objective, copied), copied.scores


def test_it_is_chosen() -> None:
    sweep = fastest_sweep(scores=True)
    assert isinstance(sweep, ScoreSweep)
    assert type(sweep) is fused.FusedScoreSweep


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("objective", COMPILED.values(), ids=COMPILED.keys())
def test_value_and_derivatives(
    objective: ScoreObjective, size: tuple[int, int], threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fused, "num_threads", lambda: threads)
    # any other way would be this one
    monkeypatch.setattr(type(objective), "differentiate", None)
    x = make(*size)
    total, derivatives = differentiate(objective, x)
    doubles = x.scores.double().requires_grad_()
    expected = objective.cost(replace(x, scores=doubles))
    (gradient,) = torch.autograd.grad(expected, doubles)
    torch.testing.assert_close(total.double(), expected.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(derivatives.double(), gradient, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("objective", [*OTHERS.values(), *COMPILED.values()], ids=[*OTHERS, *COMPILED])
@pytest.mark.parametrize("dtype", [torch.float, torch.double])
@pytest.mark.parametrize("weighted", [False, True])
def test_all_objectives_work(objective: ScoreObjective, dtype: torch.dtype, weighted: bool) -> None:
    """Those that are not compiled are left to PyTorch."""
    x = make(5, 30, dtype)
    # no distance at all, and one that rounding has made negative
    x.scores[0, 0], x.scores[-1, -1] = 1.0, 1.0 + 1e-6
    if weighted:
        x = replace(x, candidate_weights=torch.rand(30, dtype=dtype))
    total, derivatives = differentiate(objective, x)
    there = replace(x, scores=x.scores.clone())
    torch.testing.assert_close(total, objective.differentiate(there), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(derivatives, there.scores, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("objective", COMPILED.values(), ids=COMPILED.keys())
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_stays_visible(objective: ScoreObjective, bad: float) -> None:
    for column in (0, 77, 599):
        x = make(4, 600)
        # as scores, infinite norms are just far away
        x.scores[2, column] = bad if objective is SOFTMAX or math.isnan(bad) else -bad
        total, _ = differentiate(objective, x)
        if objective is SOFTMAX or math.isnan(bad):
            assert not math.isfinite(total.item())


def test_scores_that_are_far_apart() -> None:
    """No exponential overflows, and the smallest ones are none."""
    x = replace(make(2, 600), scores=torch.linspace(-1e4, 1e4, 1200).view(2, 600).flip(1).contiguous())
    total, derivatives = differentiate(SOFTMAX, x)
    there = replace(x, scores=x.scores.double())
    torch.testing.assert_close(total.double(), SOFTMAX.differentiate(there).double())
    torch.testing.assert_close(derivatives.double(), there.scores)
