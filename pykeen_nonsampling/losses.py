"""What each triple costs: losses that are quadratic in the scores, so that moments suffice for the negatives."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from docdata import parse_docdata
from pykeen.losses import Loss, PointwiseLoss, Reduction, apply_label_smoothing, loss_resolver
from torch import Tensor

if TYPE_CHECKING:
    # at run time this module stays a leaf above pykeen.losses, since it is loaded in the middle of PyKEEN's own imports
    from .factorizations import ScoreMoments

__all__ = [
    "NonSamplingLoss",
    "check_loss",
]


@parse_docdata
class NonSamplingLoss(PointwiseLoss):
    r"""The weighted squared loss over every triple, observed or not, from [li2021]_.

    .. math::

        L = \sum_{(h,r,t) \in \mathcal{T}} c^+ (f(h,r,t) - 1)^2 + \sum_{(h,r,t) \notin \mathcal{T}} c^- f(h,r,t)^2

    It is quadratic in the scores of negative triples, so it needs only the scores of positive triples and three moments of
    the scores over all triples, cf. :meth:`total`. It is an ordinary loss for PyKEEN's sLCWA and LCWA training
    loops, too: there, the sums run over the triples that the loop scores.

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

    #: The default strategy for optimizing the loss's hyper-parameters: the range of $c^-$ that [li2021]_ explores
    hpo_default: ClassVar[Mapping[str, Any]] = {
        "negative_weight": {"type": float, "low": 1.0e-6, "high": 1.0e-1, "log": True},
    }

    def __init__(self, positive_weight: float = 1.0, negative_weight: float = 1.0e-3, reduction: Reduction = "sum"):
        """Initialize the loss.

        :param positive_weight: >0, the weight c⁺ of an observed triple
        :param negative_weight: >0, the weight c⁻ of any other triple. There are many more of them, so it is small: 1e-3 is
            the best choice of [li2021]_ in most cases.
        :param reduction: ``"sum"`` as in [li2021]_, or ``"mean"``, which divides by the number of triples scored. Over all
            triples of a graph this is a very large number: optimizers whose step depends on the gradient's scale, and
            regularizers beside the loss, are easier to tune with the sum.
        :raises ValueError: if a weight is not a positive, finite number
        """
        super().__init__(reduction=reduction)
        for name, value in (("positive_weight", positive_weight), ("negative_weight", negative_weight)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(
                    f"{name}={value} is no weight that a triple can have: choose a finite number > 0, "
                    f"e.g. loss_kwargs=dict(positive_weight=1.0, negative_weight=1e-3)."
                )
        self.positive_weight = positive_weight
        self.negative_weight = negative_weight

    def extra_repr(self) -> str:
        """Show the parameters. PyKEEN's checkpoints compare this text, so a changed weight is noticed."""
        return f"{self.positive_weight=}, {self.negative_weight=}, {self.reduction=}".replace("self.", "")

    # docstr-coverage: inherited
    def forward(self, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:  # noqa: D102
        return self.process_lcwa_scores(predictions=x, labels=target, weights=weight)

    # docstr-coverage: inherited
    def process_lcwa_scores(  # noqa: D102
        self,
        predictions: Tensor,
        labels: Tensor,
        label_smoothing: float | None = None,
        num_entities: int | None = None,
        weights: Tensor | None = None,
    ) -> Tensor:
        cost = torch.lerp(
            torch.full_like(predictions, self.negative_weight),
            torch.full_like(predictions, self.positive_weight),
            labels.to(predictions.dtype),
        )
        if weights is not None:
            cost = cost * weights
        labels = apply_label_smoothing(labels=labels, epsilon=label_smoothing, num_classes=num_entities)
        return self._reduction_method(cost * (predictions - labels).square())

    def targets(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> tuple[float, float]:
        """Return the targets of positive and negative triples.

        :param label_smoothing: as in PyKEEN, 1 - ε for positives and ε / (num_entities - 1) for negatives
        :param num_entities: the number of entities, for label smoothing
        :return: the targets
        """
        labels = torch.tensor([1.0, 0.0], dtype=torch.float64)
        positive, negative = apply_label_smoothing(labels, label_smoothing, num_entities).tolist()
        return positive, negative

    def positive_cost(
        self, scores: Tensor, weights: Tensor | None = None, targets: tuple[float, float] = (1.0, 0.0)
    ) -> tuple[Tensor, Tensor]:
        r"""Compute what positive triples cost more than if they were negative, and its derivative by the scores.

        .. math::

            c^+ w (f - y^+)^2 - c^- (f - y^-)^2 = a f^2 - 2 b f + c

        :param scores: shape: (n,), the scores of the positive triples
        :param weights: shape: (n,), additional weights of the positive triples
        :param targets: the targets of positive and negative triples
        :return: the sum, and the derivatives, shape: (n,)
        """
        positive_target, negative_target = targets
        w: Tensor | float = self.positive_weight if weights is None else self.positive_weight * weights.to(scores.dtype)
        a = w - self.negative_weight
        b = w * positive_target - self.negative_weight * negative_target
        c = w * positive_target**2 - self.negative_weight * negative_target**2
        half_slope = a * scores - b
        constant = c.sum() if isinstance(c, Tensor) else c * scores.numel()
        total = torch.dot(scores, half_slope - b) + constant
        return total, half_slope.mul_(2)

    def total(
        self, positive_cost: Tensor, moments: ScoreMoments, share: float = 1.0, targets: tuple[float, float] = (1.0, 0.0)
    ) -> Tensor:
        r"""Compute the loss over all triples from what positives cost more and the moments of the scores over all triples.

        .. math::

            L = \sum_{\mathcal{T}} \left( c^+ w (f - y^+)^2 - c^- (f - y^-)^2 \right)
              + c^- \sum_{\mathcal{E} \times \mathcal{R} \times \mathcal{E}} (f - y^-)^2

        :param positive_cost: the first sum, cf. :meth:`positive_cost`
        :param moments: the moments of the scores over *all* triples
        :param share: the share of the second sum to add: the positives given as a share of all positives
        :param targets: the targets of positive and negative triples
        :return: the scalar loss
        """
        loss = positive_cost + (share * self.negative_weight) * moments.squared_distance(targets[1])
        if self.reduction == "mean":
            return loss / (share * moments.count)
        return loss


def check_loss(loss: type[Loss]) -> None:
    """Refuse a loss that cannot be computed from moments.

    :param loss: the class of the loss
    :raises ValueError: if it cannot
    """
    if issubclass(loss, NonSamplingLoss):
        return
    raise ValueError(
        f"{loss.__name__} cannot be used without negative sampling: the scores of all negative triples are known by their "
        f"sum and their sum of squares only, so the loss has to be quadratic in them. Use loss='nonsampling', "
        f"with loss_kwargs=dict(positive_weight=1.0, negative_weight=1.0) if the mean squared error is what you want."
    )


loss_resolver.register(NonSamplingLoss)
