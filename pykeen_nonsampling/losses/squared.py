"""The squared loss: every score has a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from docdata import parse_docdata
from pykeen.losses import apply_label_smoothing
from torch import Tensor
from typing_extensions import override

from .base import FactorizedLoss, as_exponent, as_optional
from .objective import Costs, Objective, Scores

#: The weight of a negative triple outside of this package's training loops: the best choice of [li2021]_ in most cases
NEGATIVE_WEIGHT = 1.0e-3

#: The parameters that are only meaningful for a graph
GRAPH_WEIGHTS = (
    "query_weight",
    "candidate_weight",
    "head_weight",
    "relation_weight",
    "tail_weight",
    "regularization_weight",
    "duality_weight",
)


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

    @override
    def cost(self, scores: Scores) -> Tensor:
        return self.costs(scores).total

    def _candidates(self, scores: Scores) -> Tensor:
        """Sum the squared distances of all candidates from the target of negatives."""
        candidates, y = scores.candidates, self.negative_target
        assert candidates is not None  # noqa: S101
        distances = candidates.second
        if y:
            distances = distances - 2 * y * candidates.first + y**2 * candidates.count
        return (scores.query_weights * distances).sum()

    @override
    def costs(self, scores: Scores) -> Costs:
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


@parse_docdata
class NonSamplingLoss(FactorizedLoss):
    r"""The weighted squared loss over every triple, observed or not, from [li2021]_.

    .. math::

        L = \sum_{(h,r,t) \in \mathcal{T}} c^+ (f(h,r,t) - 1)^2 + \sum_{(h,r,t) \notin \mathcal{T}} c^- f(h,r,t)^2

    It is quadratic in the scores of negative triples, so it needs only the scores of positive triples and three moments of
    the scores over all triples, cf. :class:`~pykeen_nonsampling.losses.squared.SquaredObjective`. It is an ordinary loss for
    PyKEEN's sLCWA and LCWA training loops, too: there, the sums run over the triples that the loop scores.

    Negatives may weigh more or less by their head, relation and tail, e.g. by how often these occur: then $c^- w_h w_r w_t$
    takes the place of $c^-$, at no extra cost. It has the regularization by frequency of :class:`FactorizedLoss`.

    .. [li2021] Li, Z., *et al.* (2021) `Efficient Non-Sampling Knowledge Graph Embedding
       <https://doi.org/10.1145/3442381.3449859>`_. WWW '21.
    ---
    name: Non-sampling
    citation:
        author: Li
        year: 2021
        link: https://doi.org/10.1145/3442381.3449859
        arxiv: 2104.10796
    """

    #: The default strategy for optimizing the loss's hyper-parameters
    hpo_default: ClassVar[Mapping[str, Any]] = {
        "negative_weight": {"type": float, "low": 1.0e-6, "high": 1.0e1, "log": True},
    }

    hpo_factors: ClassVar[Mapping[str, tuple[float, float]]] = {
        **FactorizedLoss.hpo_factors,
        # a larger weight makes all scores shrink to zero
        "negative_weight": (1 / 30, 10),
    }

    def __init__(self, positive_weight: float = 1.0, negative_weight: float | None = None, **kwargs: Any):
        r"""Initialize the loss.

        :param positive_weight: >0, the weight c⁺ of an observed triple
        :param negative_weight: >0, the weight c⁻ of any other triple. There are many more of them, so it is small. If it is
            ``None``, this package's training loops derive it from graph and model; in others, it is
            :data:`NEGATIVE_WEIGHT`.
        :param kwargs: the other weights, cf. :class:`FactorizedLoss`
        :raises TypeError: if a parameter is not a number where it has to be one
        :raises ValueError: if a parameter is out of range
        """
        super().__init__(positive_weight=positive_weight, **kwargs)
        self.negative_weight = as_optional("negative_weight", negative_weight, NEGATIVE_WEIGHT, above=0)

    @override
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> SquaredObjective:
        labels = torch.tensor([1.0, 0.0], dtype=torch.float64)
        return SquaredObjective(*apply_label_smoothing(labels, label_smoothing, num_entities).tolist())

    @override
    def forward(self, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        return self.process_lcwa_scores(predictions=x, labels=target, weights=weight)

    @override
    def process_lcwa_scores(
        self,
        predictions: Tensor,
        labels: Tensor,
        label_smoothing: float | None = None,
        num_entities: int | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        used = [name for name in GRAPH_WEIGHTS if as_exponent(getattr(self, name))]
        if used:
            raise ValueError(
                f"{self} has weights that depend on the graph, which only this package's training loops use. Use "
                f"training_loop='nonsamplinglcwa', or remove {', '.join(used)}."
            )
        negative_weight = NEGATIVE_WEIGHT if self.negative_weight is None else self.negative_weight
        cost = torch.lerp(
            torch.full_like(predictions, negative_weight),
            torch.full_like(predictions, self.positive_weight),
            labels.to(predictions.dtype),
        )
        if weights is not None:
            cost = cost * weights
        labels = apply_label_smoothing(labels=labels, epsilon=label_smoothing, num_classes=num_entities)
        return self._reduction_method(squared_error(predictions, labels, cost))
