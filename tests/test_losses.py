"""The loss, in and outside of the loop that needs no scores of negatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pykeen.losses import Loss, MarginRankingLoss, MSELoss, loss_resolver
from pykeen.pipeline import pipeline

from pykeen_nonsampling import NonSamplingLoss
from pykeen_nonsampling.factorizations import ScoreMoments
from pykeen_nonsampling.losses import check_loss


@pytest.fixture
def scores() -> torch.Tensor:
    return torch.randn(5, 7, generator=torch.Generator().manual_seed(0), dtype=torch.double)


@pytest.fixture
def labels() -> torch.Tensor:
    return (torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) < 0.3).double()


def test_definition(scores: torch.Tensor, labels: torch.Tensor) -> None:
    loss = NonSamplingLoss(positive_weight=2.0, negative_weight=0.1)
    expected = (2.0 * labels * (scores - 1) ** 2 + 0.1 * (1 - labels) * scores**2).sum()
    torch.testing.assert_close(loss(scores, labels), expected)
    mean = NonSamplingLoss(positive_weight=2.0, negative_weight=0.1, reduction="mean")
    torch.testing.assert_close(mean(scores, labels), expected / scores.numel())


def test_equal_weights_are_the_squared_error(scores: torch.Tensor, labels: torch.Tensor) -> None:
    for reduction in ("sum", "mean"):
        ours, pykeens = NonSamplingLoss(1.0, 1.0, reduction=reduction), MSELoss(reduction=reduction)  # type: ignore[arg-type]
        for smoothing in (None, 0.2):
            arguments: dict[str, Any] = dict(predictions=scores, labels=labels, label_smoothing=smoothing, num_entities=7)
            torch.testing.assert_close(ours.process_lcwa_scores(**arguments), pykeens.process_lcwa_scores(**arguments))


@pytest.mark.parametrize("reduction", ["sum", "mean"])
@pytest.mark.parametrize("label_smoothing", [0.0, 0.3])
def test_moments_and_scores_give_the_same(
    scores: torch.Tensor, labels: torch.Tensor, reduction: Any, label_smoothing: float
) -> None:
    loss = NonSamplingLoss(positive_weight=2.0, negative_weight=0.1, reduction=reduction)
    weights = torch.rand(5, 7, dtype=torch.double)
    moments = ScoreMoments(count=scores.numel(), first=scores.sum(), second=scores.square().sum())
    positive = labels.bool()
    targets = loss.targets(label_smoothing, num_entities=7)
    cost, _ = loss.positive_cost(scores[positive], weights[positive], 0.1, targets)
    actual = cost + 0.1 * moments.squared_distance(targets[1])
    if reduction == "mean":
        actual /= moments.count
    expected = loss.process_lcwa_scores(
        scores, labels, label_smoothing, num_entities=7, weights=torch.where(positive, weights, 1.0)
    )
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_weight_outside_of_this_packages_loops(scores: torch.Tensor, labels: torch.Tensor, reduction: Any) -> None:
    default, explicit = (NonSamplingLoss(negative_weight=weight, reduction=reduction) for weight in (None, 1e-3))
    torch.testing.assert_close(default(scores, labels), explicit(scores, labels))


@pytest.mark.parametrize(
    "kwargs", [dict(query_weight=0.5), dict(candidate_weight=0.5), dict(regularization_weight=0.1)], ids=str
)
def test_what_other_loops_cannot_use_is_refused(scores: torch.Tensor, labels: torch.Tensor, kwargs: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(kwargs))}=0.*training_loop='nonsamplinglcwa'"):
        NonSamplingLoss(**kwargs)(scores, labels)


@pytest.mark.parametrize("weighted", [False, True])
def test_derivative_of_the_cost_of_positives(weighted: bool) -> None:
    loss = NonSamplingLoss(positive_weight=2.0, negative_weight=0.1)
    scores = torch.randn(9, dtype=torch.double, requires_grad=True)
    weights = torch.rand(9, dtype=torch.double) if weighted else None
    _, slopes = loss.positive_cost(scores.detach(), weights, 0.1, (0.9, 0.2))
    w = 2.0 if weights is None else 2.0 * weights
    expected = (w * (scores - 0.9).square() - 0.1 * (scores - 0.2).square()).sum()
    torch.testing.assert_close(slopes, torch.autograd.grad(expected, scores)[0])


def test_sampled_scores_mean_the_same(scores: torch.Tensor) -> None:
    loss = NonSamplingLoss(positive_weight=2.0, negative_weight=0.1)
    actual = loss.process_slcwa_scores(
        scores[:, :1].contiguous(),
        scores[:, 1:].contiguous(),
        pos_weights=torch.full((5, 1), 3.0),
        neg_weights=torch.full((5, 6), 0.5),
    )
    torch.testing.assert_close(actual, 6.0 * (scores[:, 0] - 1).square().sum() + 0.05 * scores[:, 1:].square().sum())


@pytest.mark.parametrize("training_loop", ["slcwa", "lcwa", "symmetriclcwa"])
def test_ordinary_loss_in_pykeens_loops(training_loop: str) -> None:
    result = pipeline(
        dataset="nations",
        model="DistMult",
        model_kwargs=dict(embedding_dim=16, entity_constrainer=None),
        loss="nonsampling",
        loss_kwargs=dict(negative_weight=0.1),
        training_loop=training_loop,
        epochs=15,
        optimizer_kwargs=dict(lr=0.01),
        use_tqdm=False,
        random_seed=0,
    )
    assert result.losses[-1] < 0.8 * result.losses[0]


def test_registered_under_its_name() -> None:
    assert loss_resolver.lookup("nonsampling") is NonSamplingLoss
    assert loss_resolver.lookup("NonSamplingLoss") is NonSamplingLoss


def test_search_space_is_made_of_parameters() -> None:
    assert set(NonSamplingLoss.hpo_default) == {"negative_weight"}
    space = NonSamplingLoss.hpo_default["negative_weight"]
    assert (space["low"], space["high"], space["log"]) == (1e-6, 1e1, True)


def test_losses_that_need_scores_are_refused() -> None:
    check_loss(NonSamplingLoss)
    others: list[type[Loss]] = [MarginRankingLoss, MSELoss]
    for other in others:
        with pytest.raises(ValueError, match=f"{other.__name__} cannot be used.*loss='nonsampling'"):
            check_loss(other)
