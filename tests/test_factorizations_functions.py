"""Functions of scores: in place, they are what automatic differentiation makes of them."""

from __future__ import annotations

import pytest
import torch

from pykeen_nonsampling.factorizations.functions import ClampFunction, NormFunction, ScoreFunction, SquareFunction
from pykeen_nonsampling.losses.objective import AllScores, FunctionObjective
from pykeen_nonsampling.losses.softmax import SoftmaxObjective

NORM, SQUARE = NormFunction(scale=0.5, offset=1.0), SquareFunction(scale=0.5, offset=1.0)

FUNCTIONS: dict[str, ScoreFunction] = {
    "norm": NORM,
    "square": SQUARE,
    "clamp": ClampFunction(None, -1.0, 0.5),
    "clamp below": ClampFunction(None, -1.0, None),
    "clamp above": ClampFunction(None, None, 0.5),
    "clamped norm": ClampFunction(NORM, -2.0, -0.5),
    "clamped square": ClampFunction(SQUARE, -2.0, -0.5),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
def test_in_place(function: ScoreFunction, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    # the last one is a distance of 0, which rounding may even make negative
    scores = torch.cat([1 - 6 * torch.rand(99, generator=generator), torch.tensor([1.0, 1.0 + 1e-6])]).to(dtype)
    derivatives = torch.randn(scores.shape, generator=generator).to(dtype)
    inputs = scores.clone().requires_grad_()
    expected = function(inputs)
    (gradient,) = torch.autograd.grad(expected, inputs, derivatives)
    known = function.apply(scores, torch.empty_like(scores))
    function.pull_back(known, derivatives)
    torch.testing.assert_close(scores, expected.detach())
    torch.testing.assert_close(derivatives, gradient)


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS.keys())
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_objective(function: ScoreFunction, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many queries are processed at a time."""
    monkeypatch.setattr("pykeen_nonsampling.losses.objective.CACHED_SCORES", 20 * rows)
    generator = torch.Generator().manual_seed(1)
    scores = 1 - 4 * torch.rand(11, 20, generator=generator, dtype=torch.float64)
    queries = torch.arange(11).repeat_interleave(2)
    x = AllScores(scores, queries, torch.randint(20, (22,), generator=generator))
    objective = FunctionObjective(SoftmaxObjective(3.0), function)
    inputs = scores.clone().requires_grad_()
    expected = SoftmaxObjective(3.0).cost(AllScores(function(inputs), x.query_index, x.answers))
    (gradient,) = torch.autograd.grad(expected, inputs)
    torch.testing.assert_close(objective.cost(x), expected.detach())
    torch.testing.assert_close(objective.differentiate(x), expected.detach())
    torch.testing.assert_close(scores, gradient)
