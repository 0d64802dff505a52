"""The squared loss: every score has a target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from docdata import parse_docdata
from pykeen.losses import Reduction, apply_label_smoothing
from torch import Tensor

from ..objectives import SquaredObjective
from ..objectives.squared import squared_error
from .base import CountWeight, MomentLoss, QueryWeight, as_exponent, as_optional

__all__ = [
    "NEGATIVE_WEIGHT",
    "NonSamplingLoss",
]

#: The weight of a negative triple outside of this package's training loops: the best choice of [li2021]_ in most cases
NEGATIVE_WEIGHT = 1.0e-3

#: The parameters that are only meaningful for a graph
GRAPH_WEIGHTS = (
    "query_weight",
    "candidate_weight",
    "range_weight",
    "head_weight",
    "relation_weight",
    "tail_weight",
    "regularization_weight",
    "duality_weight",
)


@parse_docdata
class NonSamplingLoss(MomentLoss):
    r"""The weighted squared loss over every triple, observed or not, from [li2021]_.

    .. math::

        L = \sum_{(h,r,t) \in \mathcal{T}} c^+ (f(h,r,t) - 1)^2 + \sum_{(h,r,t) \notin \mathcal{T}} c^- f(h,r,t)^2

    It is quadratic in the scores of negative triples, so it needs only the scores of positive triples and three moments of
    the scores over all triples, cf. :class:`~pykeen_nonsampling.objectives.SquaredObjective`. It is an ordinary loss for
    PyKEEN's sLCWA and LCWA training loops, too: there, the sums run over the triples that the loop scores.

    Negatives may weigh more or less by their head, relation and tail, e.g. by how often these occur: then $c^- w_h w_r w_t$
    takes the place of $c^-$, at no extra cost. It has the regularization by frequency of :class:`MomentLoss`.

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

    # all parameters by name: PyKEEN compares configurations with them
    def __init__(
        self,
        positive_weight: float = 1.0,
        negative_weight: float | None = None,
        query_weight: float | QueryWeight | None = None,
        candidate_weight: float | str | CountWeight | None = None,
        range_weight: float | None = None,
        head_weight: float | str | CountWeight | None = None,
        relation_weight: float | str | CountWeight | None = None,
        tail_weight: float | str | CountWeight | None = None,
        regularization_weight: float | None = None,
        regularization_power: float = 3.0,
        duality_weight: float | None = None,
        reduction: Reduction = "sum",
    ):
        r"""Initialize the loss.

        :param positive_weight: >0, the weight c⁺ of an observed triple
        :param negative_weight: >0, the weight c⁻ of any other triple. There are many more of them, so it is small. If it is
            ``None``, this package's training loops derive it from graph and model; in others, it is
            :data:`NEGATIVE_WEIGHT`.
        :param query_weight: cf. :class:`MomentLoss`, as all that follow
        :param candidate_weight: likewise
        :param range_weight: likewise
        :param head_weight: likewise
        :param relation_weight: likewise
        :param tail_weight: likewise
        :param regularization_weight: likewise
        :param regularization_power: likewise
        :param duality_weight: likewise
        :param reduction: likewise
        :raises TypeError: if a parameter is not a number where it has to be one
        :raises ValueError: if a parameter is out of range
        """
        super().__init__(
            positive_weight=positive_weight,
            query_weight=query_weight,
            candidate_weight=candidate_weight,
            range_weight=range_weight,
            head_weight=head_weight,
            relation_weight=relation_weight,
            tail_weight=tail_weight,
            regularization_weight=regularization_weight,
            regularization_power=regularization_power,
            duality_weight=duality_weight,
            reduction=reduction,
        )
        self.negative_weight = as_optional("negative_weight", negative_weight, NEGATIVE_WEIGHT, above=0)

    # docstr-coverage: inherited
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> SquaredObjective:  # noqa: D102
        labels = torch.tensor([1.0, 0.0], dtype=torch.float64)
        return SquaredObjective(*apply_label_smoothing(labels, label_smoothing, num_entities).tolist())

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
