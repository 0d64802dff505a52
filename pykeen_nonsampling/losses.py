"""What each triple costs: losses that are quadratic in the scores, so that moments suffice for the negatives."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from docdata import parse_docdata
from pykeen.losses import Loss, PointwiseLoss, Reduction, apply_label_smoothing, loss_resolver
from torch import Tensor

__all__ = [
    "NonSamplingLoss",
    "check_loss",
]


#: The weight of a negative triple outside of this package's training loops: the best choice of [li2021]_ in most cases
NEGATIVE_WEIGHT = 1.0e-3

#: From given entities, relations and numbers of positives, shape: (q,) each, to the weights of queries, shape: (q,)
QueryWeight = Callable[[Tensor, Tensor, Tensor], Tensor]

#: From numbers of triples to the weights of entities or relations, shape: (num_entities,) or (num_relations,)
CountWeight = Callable[[Tensor], Tensor]

#: The exponents b of $(1 + n)^b$ that have a name
POPULARITY: Mapping[str, float] = {
    "uniform": 0.0,
    "popularity": 1.0,
    "sqrt-popularity": 0.5,
    "inverse-popularity": -1.0,
}


#: The parameters that only mean something for a graph
GRAPH_WEIGHTS = (
    "query_weight",
    "candidate_weight",
    "head_weight",
    "relation_weight",
    "tail_weight",
    "regularization_weight",
)


@parse_docdata
class NonSamplingLoss(PointwiseLoss):
    r"""The weighted squared loss over every triple, observed or not, from [li2021]_.

    .. math::

        L = \sum_{(h,r,t) \in \mathcal{T}} c^+ (f(h,r,t) - 1)^2 + \sum_{(h,r,t) \notin \mathcal{T}} c^- f(h,r,t)^2

    It is quadratic in the scores of negative triples, so it needs only the scores of positive triples and three moments of
    the scores over all triples, cf. :meth:`positive_cost`. It is an ordinary loss for PyKEEN's sLCWA and LCWA training
    loops, too: there, the sums run over the triples that the loop scores.

    To the cost of each observed triple, [lacroix2018]_ add the norms of its vectors. Summed over all of them, this is a sum
    over entities and relations, with $n_x$ the number of places in the triples where x occurs:

    .. math::

        \lambda \sum_{(h,r,t) \in \mathcal{T}} \left( \|h\|_p^p + \|r\|_p^p + \|t\|_p^p \right)
        = \lambda \Big( \sum_e n_e \|e\|_p^p + \sum_r n_r \|r\|_p^p \Big)

    Negatives may weigh more or less by their head, relation and tail, e.g. by how often these occur: then $c^- w_h w_r w_t$
    takes the place of $c^-$, at no cost.

    Of complex vectors, the norm is that of the absolute values. PyKEEN's own regularizers are another thing: they see each
    vector once, however many triples it occurs in.

    .. [li2021] Li, Z., *et al.* (2021) `Efficient Non-Sampling Knowledge Graph Embedding
       <https://doi.org/10.1145/3442381.3449859>`_. WWW '21.
    .. [lacroix2018] Lacroix, T., *et al.* (2018) `Canonical Tensor Decomposition for Knowledge Base Completion
       <https://arxiv.org/abs/1806.07297>`_. ICML '18.
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

    def __init__(
        self,
        positive_weight: float = 1.0,
        negative_weight: float | None = None,
        query_weight: float | QueryWeight | None = None,
        candidate_weight: float | str | CountWeight | None = None,
        head_weight: float | str | CountWeight | None = None,
        relation_weight: float | str | CountWeight | None = None,
        tail_weight: float | str | CountWeight | None = None,
        regularization_weight: float | None = None,
        regularization_power: float = 3.0,
        reduction: Reduction = "sum",
    ):
        r"""Initialize the loss.

        What is ``None``, this package's training loops choose by the graph and the model, and tell.

        :param positive_weight: >0, the weight c⁺ of an observed triple
        :param negative_weight: >0, the weight c⁻ of any other triple. There are many more of them, so it is small.
            Outside of this package's training loops, the default is :data:`NEGATIVE_WEIGHT`.
        :param query_weight: the weight of a query's negatives under the local closed world assumption, beside c⁻: the
            exponent a of $n_q^a$, with $n_q$ the number of its positives, or a function of the given entities, the relations
            and $n_q$
        :param candidate_weight: the weight of a candidate as a negative under the local closed world assumption, beside c⁻:
            the exponent b of $(1 + n_e)^b$, with $n_e$ the number of triples that it is the answer of, its name in
            :data:`POPULARITY`, or a function of the $n_e$ of all entities. The weights are scaled such that their mean is 1.
        :param head_weight: the weight of a negative by its head, beside c⁻ and under either assumption: likewise, with the
            number of triples that an entity is the head of. By default, all weigh the same.
        :param relation_weight: the weight of a negative by its relation, likewise
        :param tail_weight: the weight of a negative by its tail, likewise
        :param regularization_weight: ≥0, the weight λ of the vectors of each observed triple
        :param regularization_power: ≥1, the power p of their norm: 3 as in [lacroix2018]_, or 2
        :param reduction: ``"sum"`` as in [li2021]_, or ``"mean"``, which divides by the number of triples scored. Over all
            triples of a graph this is a very large number: optimizers whose step depends on the gradient's scale, and
            regularizers beside the loss, are easier to tune with the sum.
        :raises ValueError: if a weight is not a positive, finite number
        """
        super().__init__(reduction=reduction)
        for name, value in (("positive_weight", positive_weight), ("negative_weight", negative_weight)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise ValueError(
                    f"{name}={value} is no weight that a triple can have: choose a finite number > 0, "
                    f"e.g. loss_kwargs=dict(positive_weight=1.0, negative_weight=1e-3)."
                )
        for name, exponent in (
            ("query_weight", query_weight),
            ("candidate_weight", candidate_weight),
            ("head_weight", head_weight),
            ("relation_weight", relation_weight),
            ("tail_weight", tail_weight),
        ):
            if isinstance(exponent, str) and name != "query_weight" and exponent in POPULARITY:
                continue
            if isinstance(exponent, str) or not (exponent is None or callable(exponent) or math.isfinite(exponent)):
                raise ValueError(
                    f"{name}={exponent!r} is no exponent of a number of triples: choose a finite number, e.g. 0.5, or 0 for "
                    f"equal weights, or a function of the numbers"
                    + ("." if name == "query_weight" else f", or one of {', '.join(POPULARITY)}.")
                )
        if regularization_weight is not None and not (math.isfinite(regularization_weight) and regularization_weight >= 0):
            raise ValueError(f"{regularization_weight=} is no weight: choose a finite number ≥ 0, e.g. 0.03.")
        if not (math.isfinite(regularization_power) and regularization_power >= 1):
            raise ValueError(f"{regularization_power=} makes no norm: choose a number ≥ 1, e.g. 3.")
        self.positive_weight = positive_weight
        self.negative_weight = negative_weight
        self.query_weight = query_weight
        self.candidate_weight, self.head_weight, self.relation_weight, self.tail_weight = (
            POPULARITY[x] if isinstance(x, str) else x for x in (candidate_weight, head_weight, relation_weight, tail_weight)
        )
        self.regularization_weight = regularization_weight
        self.regularization_power = regularization_power

    def extra_repr(self) -> str:
        """Show the parameters. PyKEEN's checkpoints compare this text, so a changed weight is noticed."""
        names = inspect.signature(type(self)).parameters
        values = {name: getattr(self, name) for name in names}
        # a function's address would be another one in another process
        return ", ".join(
            f"{name}={getattr(x, '__qualname__', type(x).__name__) if callable(x) else repr(x)}"
            for name, x in values.items()
        )

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
        used = [name for name in GRAPH_WEIGHTS if getattr(self, name)]
        if used:
            raise ValueError(
                f"{self} has weights that depend on the graph, which only this package's training loops look at. Use "
                f"training_loop='nonsamplinglcwa', or leave out {', '.join(used)}."
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
        self,
        scores: Tensor,
        weights: Tensor | None = None,
        negative_weights: Tensor | float = NEGATIVE_WEIGHT,
        targets: tuple[float, float] = (1.0, 0.0),
    ) -> tuple[Tensor, Tensor]:
        r"""Compute what positive triples cost more than if they were negative, and its derivative by the scores.

        .. math::

            c^+ w (f - y^+)^2 - c^- (f - y^-)^2 = a f^2 - 2 b f + c

        :param scores: shape: (n,), the scores of the positive triples
        :param weights: shape: (n,), additional weights of the positive triples
        :param negative_weights: what the triples would weigh, c⁻, if they were negative; one number, or shape: (n,)
        :param targets: the targets of positive and negative triples
        :return: the sum, and the derivatives, shape: (n,)
        """
        positive_target, negative_target = targets
        positives, negatives = (
            x.to(scores.dtype) if isinstance(x, Tensor) else x
            for x in (self.positive_weight if weights is None else self.positive_weight * weights, negative_weights)
        )
        a = positives - negatives
        b = positives * positive_target - negatives * negative_target
        c = positives * positive_target**2 - negatives * negative_target**2
        half_slope = a * scores - b
        constant = c.sum() if isinstance(c, Tensor) else c * scores.numel()
        total = torch.dot(scores, half_slope - b) + constant
        return total, half_slope.mul_(2)


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
