"""The softmax loss: cross-entropy over every candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from docdata import parse_docdata
from torch import Tensor
from typing_extensions import override

from ..factorizations.base import Family
from .base import FactorizedLoss, Numbers, as_optional
from .constants import constant
from .objective import AllScores, ScoreObjective, split_rows


@dataclass(frozen=True)
class SoftmaxObjective(ScoreObjective):
    r"""The cross-entropy of a softmax over all candidates of each query.

    .. math::

        \sum_q \frac{w_q}{n_q} \sum_{t \in T_q} w_{qt} \Big( \log \sum_k u_k e^{\beta f_{qk}} - \beta f_{qt} \Big)

    If it is filtered, the sum over k leaves out the other answers of the query.
    """

    #: β, what scores are multiplied with
    scale: float = 1.0
    #: whether the other answers of a query are left out of the sum over candidates
    filtered: bool = False

    def shares(self, x: AllScores) -> Tensor:
        """Compute the weight of each positive, shape: (n,)."""
        shares = (torch.as_tensor(x.query_weights).to(x.scores) / x.num_answers).index_select(0, x.query_index)
        return shares * x.positive_weights

    @override
    def cost(self, x: AllScores) -> Tensor:
        scores = self.scale * x.scores
        logs = scores if x.candidate_weights is None else scores + x.candidate_weights.log()
        positives = scores[x.query_index, x.answers]
        if not self.filtered:
            normalizers = logs.logsumexp(dim=-1).index_select(0, x.query_index)
        else:
            known = torch.zeros_like(scores, dtype=torch.bool)
            known[x.query_index, x.answers] = True
            negatives = logs.masked_fill(known, -math.inf).logsumexp(dim=-1).index_select(0, x.query_index)
            normalizers = torch.logaddexp(negatives, logs[x.query_index, x.answers])
        return torch.dot(self.shares(x), normalizers - positives)

    @override
    def differentiate(self, x: AllScores) -> Tensor:
        scores, shares, weights = x.scores, self.shares(x), x.candidate_weights
        positives = self.scale * x.positives
        largest, sums = scores.new_empty(len(scores)), scores.new_empty(len(scores))
        factors = scores.new_zeros(len(scores)).index_add_(0, x.query_index, shares)
        # what is less adds nothing to the sum, but numbers close to the smallest one make exponentials ten times as slow
        least = 0.9 * math.log(torch.finfo(scores.dtype).tiny)
        for rows, part in split_rows(scores):
            if self.scale != 1:
                part.mul_(self.scale)
            torch.amax(part, dim=1, out=largest[rows])
            part.sub_(largest[rows, None]).clamp_(min=least).exp_()
            if weights is not None:
                part.mul_(weights)
            if not self.filtered:
                torch.sum(part, dim=1, out=sums[rows])
                part.mul_((self.scale * factors[rows] / sums[rows])[:, None])
        mine = torch.ones(()) if weights is None else weights.index_select(0, x.answers)
        exponents = positives - largest.index_select(0, x.query_index)
        if not self.filtered:
            normalizers = (largest + sums.log()).index_select(0, x.query_index)
            scores.index_put_((x.query_index, x.answers), -self.scale * shares, accumulate=True)
            return torch.dot(shares, normalizers - positives)
        # without the answers, so that nothing is lost by subtracting them
        scores.index_put_((x.query_index, x.answers), scores.new_zeros(()))
        for rows, part in split_rows(scores):
            torch.sum(part, dim=1, out=sums[rows])
        negatives = sums.index_select(0, x.query_index)
        all_of_them = negatives + mine * exponents.exp()
        factors.zero_().index_add_(0, x.query_index, shares / all_of_them)
        for rows, part in split_rows(scores):
            part.mul_((self.scale * factors[rows])[:, None])
        scores.index_put_((x.query_index, x.answers), -self.scale * shares * negatives / all_of_them)
        return torch.dot(shares, all_of_them.log() - exponents)


@parse_docdata
class SoftmaxLoss(FactorizedLoss):
    r"""The cross-entropy of a softmax over every candidate of each query, from [lacroix2018]_.

    .. math::

        L = \sum_{(q,t) \in \mathcal{T}} n_q^{a - 1} \Big( \log \sum_k e^{\beta f_{qk}} - \beta f_{qt} \Big)

    It sees every score, so an epoch takes three products of all queries with all candidates,
    $O(|\mathcal{Q}| |\mathcal{E}| d)$, cf. :class:`~pykeen_nonsampling.losses.softmax.SoftmaxObjective`. Each query is
    scored once, however many answers it has, and with a ``query_weight`` of $a = 1$, the default, every triple counts once.
    This loss is for ``training_loop="nonsamplinglcwa"`` only.
    ---
    name: Softmax
    citation:
        author: Lacroix
        year: 2018
        link: https://arxiv.org/abs/1806.07297
        arxiv: 1806.07297
    """

    #: The default strategy for optimizing the loss's hyper-parameters
    hpo_default: ClassVar[Mapping[str, Any]] = {
        "scale": {"type": float, "low": 1.0, "high": 30.0, "log": True},
    }

    hpo_factors: ClassVar[Mapping[str, tuple[float, float]]] = {"scale": (1 / 4, 2), **FactorizedLoss.hpo_factors}

    weighs_queries: ClassVar[bool] = True
    needs_scores: ClassVar[bool] = True

    def __init__(self, scale: float | None = None, filtered: bool = False, **kwargs: Any):
        r"""Initialize the loss.

        :param scale: >0, what scores are multiplied with, β: the inverse of a temperature. By default, it depends on the
            model, and is such that answers that score about 1, as with the squared loss, win.
        :param filtered: whether the other answers of a query are left out of the sum over candidates, as filtered ranks
            leave them out
        :param kwargs: the other weights, cf. :class:`FactorizedLoss`. A ``query_weight`` of 0 weighs all queries the same,
            however many answers they have.
        :raises TypeError: if a parameter is not a number where it has to be one
        :raises ValueError: if a parameter is out of range
        """
        super().__init__(**kwargs)
        self.scale = as_optional("scale", scale, 10.0, above=0)
        if not isinstance(filtered, bool):
            raise TypeError(f"{filtered=} has to be True or False.")
        self.filtered = filtered

    @override
    def default_weights(
        self, graph: Numbers, family: Family, closed_world: bool, num_features: float = math.inf
    ) -> dict[str, float]:
        # the fewer candidates there are, the less an answer has to stand out, and the less it costs
        share = min(1.0, graph.num_entities / 2000)
        scale = constant("scale of the softmax loss", family) * (share**0.25 if family.is_distance else 1.0)
        factor = scale * share**0.5
        return {
            "scale": scale,
            "query_weight": 1.0,
            "candidate_weight": 0.0,
            **self._default_regularization(
                factor * constant("regularization of the softmax loss", family),
                factor * constant("duality of the softmax loss", family),
            ),
        }

    @override
    def objective(self, label_smoothing: float = 0.0, num_entities: int | None = None) -> SoftmaxObjective:
        if label_smoothing:
            raise ValueError(
                f"{label_smoothing=} does not apply to {type(self).__name__}. Remove it, or use loss='crossentropy'."
            )
        # without a graph to derive it from
        return SoftmaxObjective(1.0 if self.scale is None else self.scale, self.filtered)
