"""The standardized objective: an answer should stand out from the negatives of its query."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from .base import Costs, Objective, Scores
from .squared import squared_error

__all__ = [
    "StandardizedObjective",
]

#: The least variance of a query's negatives, in units of its rounding error: what is less, is no scale to measure with
LEAST_VARIANCE = 16.0

#: The least share of the candidates that has to be negative: less may be the rounding error of a sum
LEAST_SHARE = 1.0e-6


@dataclass(frozen=True)
class StandardizedObjective(Objective):
    r"""How many standard deviations an answer scores above the mean of itself and the negatives of its query.

    .. math::

        \sum_{(q,t) \in \mathcal{T}} w_{qt} \left(
            \frac{c_q}{\alpha} \log\left(1 + e^{\alpha (\beta - z_{qt})}\right) + \gamma (f_{qt} - 1)^2
        \right)

    The first term, the *Z-loss* [debrebisson2016]_, does not change when all scores of a query are shifted or scaled. So a
    regularizer alone would have no effect: vectors can shrink at no cost. The second term, the anchor, gives scores a scale.

    As in a filtered ranking, the other answers of the query are left out. For negatives with a total weight $n$, mean $\mu$
    and variance $\sigma^2$, and an answer of weight $u$, the standardized score is

    .. math::

        z = \frac{\sqrt{n} \, (f - \mu)}{\sqrt{(n + u) \, \sigma^2 + u \, (f - \mu)^2}}

    It is at most $\sqrt{n / u}$. A query without negatives costs its anchor, and so does one whose negatives score the same,
    as a single one does, or differ by no more than rounding may explain: they give no scale to measure with.

    .. [debrebisson2016] de Brébisson, A., and Vincent, P. (2016) `The Z-loss: a shift and scale invariant classification
       loss belonging to the Spherical Family <https://arxiv.org/abs/1604.08859>`_. arXiv.
    """

    #: β, the number of standard deviations to reach
    margin: float
    #: α, how abruptly the cost ends at the margin
    sharpness: float
    #: γ, the weight of an answer's squared distance from a score of 1
    anchor: float

    # docstr-coverage: inherited
    def cost(self, scores: Scores) -> Tensor:  # noqa: D102
        return self._total(scores, _compare(scores))

    # docstr-coverage: inherited
    def costs(self, scores: Scores) -> Costs:  # noqa: D102
        x = _compare(scores)
        f, w, u = scores.positives, scores.positive_weights, scores.answer_weights
        # by the score of each answer, if the negatives stay as they are: z' = √n (n + u) σ² / (…)^(3/2)
        slopes = -x.weights * torch.sigmoid(self.sharpness * (self.margin - x.z)) * x.slope
        by_mean = -scores.per_query(slopes)
        by_variance = -scores.per_query(slopes * x.difference) / (2 * x.variance)
        first, second = (by_mean - 2 * x.mean * by_variance) / x.count, by_variance / x.count
        # the answers are among the candidates, and were subtracted
        slopes = slopes - u * (scores.per_positive(first) + 2 * f * scores.per_positive(second))
        return Costs(self._total(scores, x), slopes + 2 * self.anchor * w * (f - 1), first, second)

    def _total(self, scores: Scores, x: _Comparison) -> Tensor:
        """Sum what all answers cost."""
        costs = functional.softplus(self.sharpness * (self.margin - x.z)) / self.sharpness
        anchors = squared_error(scores.positives, 1.0, self.anchor * scores.positive_weights)
        return (x.weights * costs + anchors).sum()


@dataclass(frozen=True)
class _Comparison:
    """Answers beside the negatives of their query."""

    #: shape: (q,), of the negatives' scores
    count: Tensor
    mean: Tensor
    variance: Tensor
    #: shape: (n,), the difference of answers from the mean of negatives
    difference: Tensor
    #: shape: (n,), their standardized scores
    z: Tensor
    #: shape: (n,), the derivatives of these by the difference
    slope: Tensor
    #: shape: (n,), the weights of what they cost, 0 for those of a query whose negatives are no scale
    weights: Tensor | float


def _compare(scores: Scores) -> _Comparison:
    """Compare answers with the negatives of their query."""
    negatives, everything, u = scores.negatives, scores.all_candidates, scores.answer_weights
    count = torch.as_tensor(negatives.count)
    exist = count > LEAST_SHARE * everything.count
    count = torch.where(exist, count, 1.0)
    mean = negatives.first / count
    variance = negatives.second / count - mean.square()
    # of sums over all candidates, from which those over answers were subtracted
    rounding = torch.finfo(variance.dtype).eps * (everything.count / count).sqrt() * everything.second / count
    varies = exist & (variance > LEAST_VARIANCE * rounding)
    variance = torch.where(varies, variance, 1.0)
    n, difference = scores.per_positive(count), scores.positives - scores.per_positive(mean)
    within = (n + u) * scores.per_positive(variance)
    both = within + u * difference.square()
    z = difference * (n / both).sqrt()
    slope = within / both * (n / both).sqrt()
    weights = scores.positive_weights * scores.per_positive(varies * scores.query_weights)
    return _Comparison(count, mean, variance, difference, z, slope, weights)
