"""Every objective equals its definition, a candidate at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from centered import CenteredLoss, centered_cost
from enumeration import squared_cost
from objective_case import ObjectiveTestCase
from pykeen.pipeline import pipeline
from torch import Tensor

from pykeen_nonsampling import NonSamplingLoss
from pykeen_nonsampling.factorizations.moments import ScoreMoments
from pykeen_nonsampling.losses.objective import Scores
from pykeen_nonsampling.losses.penalties import sum_of_norms
from pykeen_nonsampling.losses.squared import SquaredObjective


class TestSquared(ObjectiveTestCase):
    loss_cls = NonSamplingLoss
    loss_kwargs = dict(negative_weight=0.2)

    def enumerate_cost(self, *query: Tensor, label_smoothing: float) -> Tensor:  # type: ignore[override]
        return squared_cost(*query, label_smoothing=label_smoothing)


class TestObjectiveOfOnesOwn(ObjectiveTestCase):
    loss_cls = CenteredLoss

    def enumerate_cost(self, *query: Tensor, label_smoothing: float) -> Tensor:  # type: ignore[override]
        return centered_cost(*query)


def test_squared_objective_looks_at_sums_only_if_negatives_have_a_target() -> None:
    assert not SquaredObjective().needs_first
    assert SquaredObjective(0.9, 0.1).needs_first
    assert NonSamplingLoss().objective(0.3, num_entities=4) == SquaredObjective(pytest.approx(0.7), pytest.approx(0.1))  # type: ignore[arg-type]


def test_moments_of_negatives_leave_out_the_positives() -> None:
    """From all scores of three queries with seven candidates."""
    generator = torch.Generator().manual_seed(0)
    f, u = torch.randn(3, 7, generator=generator), torch.rand(7, generator=generator)
    positive = torch.zeros(3, 7, dtype=torch.bool)
    positive[0, [1, 4]] = positive[2, 0] = True
    rows, columns = positive.nonzero(as_tuple=True)
    moments = ScoreMoments(u.sum().item(), f @ u, f.square() @ u)
    scores = Scores(f[positive], rows, moments, answer_weights=u[columns])
    weights = torch.where(positive, 0.0, u)
    negatives = scores.negatives
    for actual, power in ((negatives.count, 0), (negatives.first, 1), (negatives.second, 2)):
        torch.testing.assert_close(actual, (weights * f**power).sum(dim=1))
    with pytest.raises(ValueError, match="summed elsewhere"):
        _ = Scores(f[positive], rows, None).negatives


class TestNorms:
    @pytest.mark.parametrize("power", [1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
    @pytest.mark.parametrize("dtype", [torch.double, torch.cdouble])
    @pytest.mark.parametrize("counts", [(0, 1, 2, 7, 3), (0, 3, 0, 0, 1), (0, 0, 0, 0, 0)])
    def test_equal_automatic_differentiation(self, power: float, dtype: torch.dtype, counts: tuple[int, ...]) -> None:
        x = torch.randn(5, 2, 3, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()
        weights = torch.tensor(counts)
        actual = sum_of_norms(x, weights, power)
        expected = (weights * x.abs().pow(power).sum(dim=(1, 2))).sum()
        torch.testing.assert_close(actual, expected)
        for factor in (1.0, 0.3):
            (gradient,) = torch.autograd.grad(factor * sum_of_norms(x, weights, power), x)
            (wanted,) = torch.autograd.grad(factor * expected, x, retain_graph=True)
            torch.testing.assert_close(gradient, wanted)

    @pytest.mark.parametrize("power", [1.0, 1.5, 2.0, 3.0])
    def test_zero_has_no_gradient(self, power: float) -> None:
        x = torch.zeros(2, 3, requires_grad=True)
        sum_of_norms(x, torch.ones(2), power).backward()
        assert torch.equal(x.grad, torch.zeros(2, 3))  # type: ignore[arg-type]


@pytest.mark.parametrize("training_loop", ["lcwa", "slcwa"])
def test_other_training_loops_are_told_that_they_cannot(training_loop: str) -> None:
    kwargs: dict[str, Any] = dict(dataset="nations", model="DistMult", epochs=1, use_tqdm=False)
    with pytest.raises(NotImplementedError, match=r"CenteredLoss looks at all candidates.*nonsamplinglcwa"):
        pipeline(loss=CenteredLoss, training_loop=training_loop, **kwargs)
