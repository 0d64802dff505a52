"""An objective of moments that is not the squared one: it looks at whole queries, and at sums of scores."""

from __future__ import annotations

import torch
from torch import Tensor

from pykeen_nonsampling import FactorizedLoss, Objective
from pykeen_nonsampling.losses.objective import Scores

#: What negatives weigh at least: less may be the rounding error of a sum
LEAST_COUNT = 1e-3


class CenteredObjective(Objective):
    """Leaves its derivatives to the base class."""

    def cost(self, scores: Scores) -> Tensor:
        negatives = scores.negatives
        mean = negatives.first / torch.as_tensor(negatives.count).clamp(min=LEAST_COUNT)
        spread = negatives.second - mean * negatives.first
        positives = scores.positive_weights * (scores.positives - scores.per_positive(mean) - 1).square()
        return positives.sum() + (scores.query_weights * spread).sum()


class CenteredLoss(FactorizedLoss):
    negative_weight = 0.3

    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> Objective:
        return CenteredObjective()


def centered_cost(
    scores: Tensor, positive: Tensor, positive_weights: Tensor, query_weight: Tensor, candidate_weights: Tensor
) -> Tensor:
    """Compute the cost of one query by its definition."""
    f, weights = scores[~positive], candidate_weights[~positive]
    mean = (weights * f).sum() / weights.sum().clamp(min=LEAST_COUNT)
    positives = positive_weights[positive] * (scores[positive] - mean - 1).square()
    return positives.sum() + query_weight * (weights * f * (f - mean)).sum()
