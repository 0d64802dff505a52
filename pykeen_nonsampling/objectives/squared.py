"""The squared objective: every score has a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from .base import Costs, Objective, Scores

__all__ = [
    "SquaredObjective",
    "squared_error",
]


def squared_error(scores: Tensor, targets: Tensor | float, weights: Tensor | float) -> Tensor:
    """Compute what each score costs."""
    return weights * (scores - targets).square()


@dataclass(frozen=True)
class SquaredObjective(Objective):
    r"""The weighted squared distance of positives from their target, and of all other candidates from theirs.

    .. math::

        \sum_{(q,t) \in \mathcal{T}} \left( w_{qt} (f - y^+)^2 - c_q u_t (f - y^-)^2 \right)
        + \sum_q c_q \sum_t u_t (f - y^-)^2

    The first sum runs over the positives, the second over all candidates, of which it needs the moments only:
    $\sum_t u_t (f - y)^2 = \sum_t u_t f^2 - 2 y \sum_t u_t f + y^2 \sum_t u_t$.
    """

    #: the target of positives
    positive_target: float = 1.0
    #: the target of negatives
    negative_target: float = 0.0

    needs_queries: ClassVar[bool] = False

    @property
    def needs_first(self) -> bool:
        """Whether negatives have a target other than 0."""
        return self.negative_target != 0

    # docstr-coverage: inherited
    def cost(self, scores: Scores) -> Tensor:  # noqa: D102
        total = squared_error(scores.positives, self.positive_target, scores.positive_weights).sum()
        total = total - squared_error(scores.positives, self.negative_target, _negative_weights(scores)).sum()
        if scores.candidates is not None:
            total = total + self._candidates(scores)
        return total

    def _candidates(self, scores: Scores) -> Tensor:
        """Sum the squared distances of all candidates from the target of negatives."""
        candidates, y = scores.candidates, self.negative_target
        assert candidates is not None  # noqa: S101
        distances = candidates.second
        if y:
            distances = distances - 2 * y * candidates.first + y**2 * candidates.count
        return (scores.query_weights * distances).sum()

    # docstr-coverage: inherited
    def costs(self, scores: Scores) -> Costs:  # noqa: D102
        f, w, c = scores.positives, scores.positive_weights, _negative_weights(scores)
        # w (f - y⁺)² - c (f - y⁻)² = (w - c) f² - 2 b f + constant
        b = w * self.positive_target - c * self.negative_target
        constant = w * self.positive_target**2 - c * self.negative_target**2
        half_slope = (w - c) * f - b
        total = torch.dot(f, half_slope - b) + (constant.sum() if isinstance(constant, Tensor) else constant * f.numel())
        if scores.candidates is None:
            return Costs(total, half_slope.mul_(2))
        second = torch.as_tensor(scores.query_weights, dtype=f.dtype, device=f.device)
        second = second.expand_as(scores.candidates.second)
        return Costs(
            total + self._candidates(scores),
            half_slope.mul_(2),
            first=-2 * self.negative_target * second if self.needs_first else None,
            second=second,
        )


def _negative_weights(scores: Scores) -> Tensor | float:
    """Compute what positives would weigh if they were negatives."""
    return scores.answer_weights * scores.per_positive(scores.query_weights)
