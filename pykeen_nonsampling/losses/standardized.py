"""The standardized loss: an answer should stand out from the negatives of its query."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from docdata import parse_docdata
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from ..factorizations.base import Family
from .base import FactorizedLoss, Numbers, as_optional
from .constants import constant
from .objective import Costs, Objective, Scores
from .squared import squared_error

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

    @override
    def cost(self, scores: Scores) -> Tensor:
        return self._total(scores, _compare(scores))

    @override
    def costs(self, scores: Scores) -> Costs:
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


@parse_docdata
class StandardizedLoss(FactorizedLoss):
    r"""How many standard deviations an answer scores above the negatives of its query, from [debrebisson2016]_.

    .. math::

        L = \sum_{(q,t) \in \mathcal{T}} \frac{1}{\alpha} \log\left(1 + e^{\alpha (\beta - z_{qt})}\right)
            + \gamma (f_{qt} - 1)^2
        \qquad
        z_{qt} = \frac{f_{qt} - \mu_q}{\sigma_q}

    The mean $\mu_q$ and the standard deviation $\sigma_q$ of the scores of the answer and all negatives of its query come
    from the same moments as the squared loss, and cost the same, cf.
    :class:`StandardizedObjective`. There is no weight of negatives to choose, and no target for them: all that counts is how
    far answers stand out. Since it compares the answers of a query with its negatives, this loss is for
    ``training_loop="nonsamplinglcwa"`` only.
    ---
    name: Standardized
    citation:
        author: de Brébisson
        year: 2016
        link: https://arxiv.org/abs/1604.08859
        arxiv: 1604.08859
    """

    #: The default strategy for optimizing the loss's hyper-parameters
    hpo_default: ClassVar[Mapping[str, Any]] = {
        "margin": {"type": float, "low": 3.0, "high": 15.0, "q": 1.0},
        "sharpness": {"type": float, "low": 0.25, "high": 4.0, "log": True},
    }

    weighs_queries: ClassVar[bool] = True

    hpo_factors: ClassVar[Mapping[str, tuple[float, float]]] = {
        "margin": (1 / 2, 3 / 2),
        "anchor": (1 / 10, 4),
        **FactorizedLoss.hpo_factors,
    }

    def __init__(
        self, margin: float | None = None, sharpness: float | None = None, anchor: float | None = None, **kwargs: Any
    ):
        r"""Initialize the loss.

        :param margin: the number β of standard deviations that answers should score above the mean negative. By default,
            it is derived from the number of entities: the more there are, the higher is the best of their scores.
        :param sharpness: >0, how abruptly the cost of an answer ends at the margin, α. By default, it depends on the model.
        :param anchor: ≥0, the weight γ of an answer's squared distance from a score of 1. With a weight of 0, vectors can
            shrink at no cost, so that regularization has no effect. By default, it depends on the model.
        :param kwargs: the other weights, cf. :class:`FactorizedLoss`. Here, ``query_weight`` is the weight of how much a
            query's answers stand out, relative to the anchor.
        :raises TypeError: if a parameter is not a number where it has to be one
        :raises ValueError: if a parameter is out of range
        """
        super().__init__(**kwargs)
        self.margin = as_optional("margin", margin, 9.0)
        self.sharpness = as_optional("sharpness", sharpness, 0.5, above=0)
        self.anchor = as_optional("anchor", anchor, 1.0, least=0)

    @override
    def default_weights(
        self, graph: Numbers, family: Family, closed_world: bool, num_features: float = math.inf
    ) -> dict[str, float]:
        return {
            "margin": constant("margin", family) * math.log(graph.num_entities),
            "sharpness": constant("sharpness", family),
            "anchor": constant("anchor", family),
            "query_weight": 0.0,
            "candidate_weight": 0.0,
            "range_weight": 0.0,
            **self._default_regularization(constant("regularization of the standardized loss", family)),
        }

    @override
    def check_precision(self, dtype: torch.dtype) -> None:
        super().check_precision(dtype)
        margin = None if self.margin is None else abs(self.margin)
        softness = None if self.sharpness is None else 1 / self.sharpness
        for name, size in (("anchor", self.anchor), ("margin", margin), ("sharpness", softness)):
            self._check_size(name, size, dtype, "the z-scores", 1.0)

    @override
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> StandardizedObjective:
        if label_smoothing:
            raise ValueError(
                f"{label_smoothing=} does not apply to {type(self).__name__}, in which negatives have no target to smooth. "
                f"Remove it, or use loss='nonsampling'."
            )
        # without a graph to derive them from
        margin = 9.0 if self.margin is None else self.margin
        sharpness = 0.5 if self.sharpness is None else self.sharpness
        anchor = 1.0 if self.anchor is None else self.anchor
        return StandardizedObjective(margin, sharpness, anchor)
