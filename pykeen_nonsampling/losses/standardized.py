"""The standardized loss: answers stand out from the negatives of their query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from docdata import parse_docdata
from pykeen.losses import Reduction

from ..objectives import StandardizedObjective
from .base import CountWeight, MomentLoss, QueryWeight, as_optional

__all__ = [
    "StandardizedLoss",
]


@parse_docdata
class StandardizedLoss(MomentLoss):
    r"""How many standard deviations an answer scores above the negatives of its query, from [debrebisson2016]_.

    .. math::

        L = \sum_{(q,t) \in \mathcal{T}} \frac{1}{\alpha} \log\left(1 + e^{\alpha (\beta - z_{qt})}\right)
            + \gamma (f_{qt} - 1)^2
        \qquad
        z_{qt} = \frac{f_{qt} - \mu_q}{\sigma_q}

    The mean $\mu_q$ and the standard deviation $\sigma_q$ of the scores of the answer and all negatives of its query come
    from the same moments as the squared loss, and cost the same, cf.
    :class:`~pykeen_nonsampling.objectives.StandardizedObjective`. There is no weight of negatives to choose, and no target
    for them: all that counts is how far answers stand out. Since it compares the answers of a query with its negatives, this
    loss is for ``training_loop="nonsamplinglcwa"`` only.
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

    # all parameters by name: PyKEEN compares configurations with them
    def __init__(
        self,
        margin: float | None = None,
        sharpness: float | None = None,
        anchor: float | None = None,
        positive_weight: float = 1.0,
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

        :param margin: the number β of standard deviations that answers should score above the mean negative. By default,
            it is derived from the number of entities: the more there are, the higher is the best of their scores.
        :param sharpness: >0, how abruptly the cost of an answer ends at the margin, α. By default, it depends on the model.
        :param anchor: ≥0, the weight γ of an answer's squared distance from a score of 1. With a weight of 0, vectors can
            shrink at no cost, so that regularization has no effect. By default, it depends on the model.
        :param positive_weight: >0, the weight of an observed triple
        :param query_weight: the weight of how much a query's answers stand out, relative to the anchor; otherwise cf.
            :class:`MomentLoss`, as all that follow
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
        self.margin = as_optional("margin", margin, 9.0)
        self.sharpness = as_optional("sharpness", sharpness, 0.5, above=0)
        self.anchor = as_optional("anchor", anchor, 1.0, least=0)

    # docstr-coverage: inherited
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> StandardizedObjective:  # noqa: D102
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
