"""Every objective equals its definition, a candidate at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from enumeration import squared_cost, standardized_cost
from objective_case import ObjectiveTestCase
from pykeen.pipeline import pipeline
from torch import Tensor

from pykeen_nonsampling import FactorizedLoss, NonSamplingLoss, Objective, StandardizedLoss
from pykeen_nonsampling.factorizations.moments import ScoreMoments
from pykeen_nonsampling.losses.objective import Scores
from pykeen_nonsampling.losses.penalties import sum_of_norms
from pykeen_nonsampling.losses.squared import SquaredObjective


class TestSquared(ObjectiveTestCase):
    loss_cls = NonSamplingLoss
    loss_kwargs = dict(negative_weight=0.2)

    def enumerate_cost(self, *query: Tensor, label_smoothing: float) -> Tensor:  # type: ignore[override]
        return squared_cost(*query, label_smoothing=label_smoothing)


class TestStandardized(ObjectiveTestCase):
    loss_cls = StandardizedLoss
    loss_kwargs = dict(margin=3.0, sharpness=0.7, anchor=0.4)
    label_smoothing = 0.0

    def enumerate_cost(  # type: ignore[override]
        self,
        scores: Tensor,
        positive: Tensor,
        positive_weights: Tensor,
        query_weight: Tensor,
        candidate_weights: Tensor,
        label_smoothing: float,
    ) -> Tensor:
        query = scores, positive, positive_weights, query_weight, candidate_weights
        return standardized_cost(*query, **self.loss_kwargs)

    def test_without_an_anchor_shift_and_scale_do_not_matter(self) -> None:
        objective, scores = self.make_loss(anchor=0.0).objective(), self.draw_scores()
        f, all_scores = scores.positives, scores.candidates
        moved = dataclasses.replace(
            scores,
            positives=3 * f - 2,
            candidates=ScoreMoments(
                all_scores.count,
                3 * all_scores.first - 2 * all_scores.count,
                9 * all_scores.second - 12 * all_scores.first + 4 * all_scores.count,
            ),
        )
        torch.testing.assert_close(objective.cost(moved), objective.cost(scores))

    @pytest.mark.parametrize("dtype", [torch.float, torch.double])
    @pytest.mark.parametrize("negatives", [[0.3], [0.0, 0.0], [0.3] * 10, [0.3, 0.3 + 1e-10], [7e3, 7e3, 7e3]], ids=str)
    def test_negatives_that_score_the_same_are_no_scale(self, negatives: list[float], dtype: torch.dtype) -> None:
        """The query costs its anchors, and what is left of its negatives by rounding is not differentiated."""
        answers = torch.tensor([0.123, 0.7, negatives[0]], dtype=dtype)
        f = torch.cat([answers, torch.tensor(negatives, dtype=dtype)])
        moments = ScoreMoments(float(len(f)), f.sum(dim=0, keepdim=True), f.square().sum(dim=0, keepdim=True))
        costs = self.make_loss().objective().costs(Scores(answers, torch.zeros(3, dtype=torch.long), moments))
        torch.testing.assert_close(costs.total, 0.4 * (answers - 1).square().sum())
        torch.testing.assert_close(costs.positives, 0.8 * (answers - 1))
        assert not costs.first.any()  # type: ignore[union-attr]
        assert not costs.second.any()  # type: ignore[union-attr]

    def test_single_precision_is_double_precision_rounded(self) -> None:
        """Of queries with 1 to 3 negatives among 14 candidates, and with an answer that scores almost like one of them."""
        f = torch.rand(60, 14, generator=torch.Generator().manual_seed(0))
        f[:, :3] += torch.tensor([-1.0, 0.5, 2.0])
        f[:, 3] = f[:, 0] + 1e-4
        positive = torch.arange(14) > torch.arange(60)[:, None] % 3
        rows, _ = positive.nonzero(as_tuple=True)
        derivatives = []
        for x in (f.double(), f):
            moments = ScoreMoments(14.0, x.sum(dim=1), x.square().sum(dim=1))
            costs = self.make_loss().objective().costs(Scores(x[positive], rows, moments))
            assert costs.first is not None
            assert costs.second is not None
            by_candidate = costs.first[:, None] + 2 * x * costs.second[:, None]
            derivatives.append((costs.total, by_candidate[~positive], by_candidate[positive] + costs.positives))
        for expected, actual in zip(*derivatives, strict=True):
            torch.testing.assert_close(actual.double(), expected, rtol=1e-3, atol=1e-3)

    def test_query_without_negatives_costs_its_anchor(self) -> None:
        f = torch.tensor([0.2, 0.7])
        moments = ScoreMoments(2.0, f.sum(dim=0, keepdim=True), f.square().sum(dim=0, keepdim=True))
        costs = self.make_loss().objective().costs(Scores(f, torch.tensor([0, 0]), moments))
        torch.testing.assert_close(costs.total, 0.4 * (f - 1).square().sum())
        torch.testing.assert_close(costs.positives, 0.8 * (f - 1))

    def test_label_smoothing_is_refused_before_training(self) -> None:
        kwargs: dict[str, Any] = dict(
            dataset="nations", model="DistMult", training_loop="nonsamplinglcwa", loss="standardized"
        )
        with pytest.raises(ValueError, match=r"label_smoothing=0.1 does not apply to StandardizedLoss"):
            pipeline(**kwargs, training_kwargs=dict(num_epochs=1, label_smoothing=0.1, use_tqdm=False))

    @pytest.mark.parametrize(
        "kwargs", [dict(margin=float("inf")), dict(sharpness=0.0), dict(sharpness=float("nan")), dict(anchor=-1.0)]
    )
    def test_parameters_out_of_range(self, kwargs: dict[str, float]) -> None:
        with pytest.raises(ValueError, match=rf"{next(iter(kwargs))}=.* is out of range: use a finite number"):
            StandardizedLoss(**kwargs)


class CenteredObjective(Objective):
    """Looks at whole queries, and leaves its derivatives to the base class."""

    def cost(self, scores: Scores) -> Tensor:
        negatives = scores.negatives
        count = torch.as_tensor(negatives.count).clamp(min=1e-3)
        mean = negatives.first / count
        spread = negatives.second - mean * negatives.first
        positives = scores.positive_weights * (scores.positives - scores.per_positive(mean) - 1).square()
        return positives.sum() + (scores.query_weights * spread).sum()


class CenteredLoss(FactorizedLoss):
    negative_weight = 0.3

    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> Objective:
        return CenteredObjective()


class TestObjectiveOfOnesOwn(ObjectiveTestCase):
    loss_cls = CenteredLoss

    def enumerate_cost(  # type: ignore[override]
        self,
        scores: Tensor,
        positive: Tensor,
        positive_weights: Tensor,
        query_weight: Tensor,
        candidate_weights: Tensor,
        label_smoothing: float,
    ) -> Tensor:
        weights = candidate_weights[~positive]
        mean = (weights * scores[~positive]).sum() / weights.sum().clamp(min=1e-3)
        spread = (weights * (scores[~positive] - mean).square()).sum()
        return (positive_weights * (scores - mean - 1).square())[positive].sum() + query_weight * spread


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
    def test_equal_automatic_differentiation(self, power: float, dtype: torch.dtype) -> None:
        x = torch.randn(5, 2, 3, dtype=dtype, generator=torch.Generator().manual_seed(0)).requires_grad_()
        weights = torch.tensor([0, 1, 2, 7, 3])
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
