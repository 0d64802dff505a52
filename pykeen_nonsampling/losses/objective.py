"""The interface of objectives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from ..factorizations.moments import ScoreMoments


@dataclass(frozen=True)
class Scores:
    """What an objective sees of some queries: the scores of their answers, and moments of those of all candidates."""

    #: shape: (n,), the scores of the positives, i.e. of observed triples
    positives: Tensor
    #: shape: (n,), the query of each positive, ascending from 0 to q - 1
    query_index: Tensor
    #: the moments of the scores of all candidates of each query, positives among them, shape: (q,) each; none, if the
    #: candidates are summed elsewhere, which happens only for an objective that does not need whole queries
    candidates: ScoreMoments | None
    #: shape: (n,), the weights of the positives
    positive_weights: Tensor | float = 1.0
    #: shape: (q,), the weights of the queries' negatives
    query_weights: Tensor | float = 1.0
    #: shape: (n,), what the positives weigh among the candidates: subtract them for moments of negatives alone
    answer_weights: Tensor | float = 1.0

    def per_positive(self, x: Tensor | float) -> Tensor | float:
        """Repeat what belongs to queries for each of their positives, shape: (q,) to (n,)."""
        return x.index_select(0, self.query_index) if isinstance(x, Tensor) else x

    def per_query(self, x: Tensor) -> Tensor:
        """Sum what belongs to positives over those of each query, shape: (n,) to (q,)."""
        return x.new_zeros(self.all_candidates.second.shape).index_add(0, self.query_index, x)

    @property
    def negatives(self) -> ScoreMoments:
        """The moments of the scores of each query's negatives: of its candidates without the positives, shape: (q,) each."""
        weights = self.answer_weights * torch.ones_like(self.positives)
        return ScoreMoments(
            count=self.all_candidates.count - self.per_query(weights),
            first=self.all_candidates.first - self.per_query(weights * self.positives),
            second=self.all_candidates.second - self.per_query(weights * self.positives.square()),
        )

    @property
    def all_candidates(self) -> ScoreMoments:
        """The moments of the scores of all candidates of each query, for objectives that need whole queries."""
        if self.candidates is None:
            raise ValueError("The candidates of these queries are summed elsewhere. Set needs_queries = True to see them.")
        return self.candidates


@dataclass(frozen=True)
class Costs:
    """The total cost, and its derivatives with respect to everything it depends on."""

    total: Tensor
    #: shape: (n,), with respect to the scores of the positives
    positives: Tensor
    #: shape: (q,), with respect to the sum of the scores of each query's candidates; none, if it does not depend on them
    first: Tensor | None = None
    #: shape: (q,), with respect to their sum of squares
    second: Tensor | None = None


class Objective(ABC):
    r"""What the scores of queries cost: a function of the positives' scores and of the moments of all candidates' scores.

    For each query, the weighted number, sum and sum of squares of its candidates' scores are known at a cost that does not
    depend on how many candidates there are. Any function of these and of the positives' scores is an objective, e.g. those
    of the *spherical family* [vincent2015]_.

    A subclass defines :meth:`cost`. Its derivatives are computed by automatic differentiation, unless it defines
    :meth:`costs`, too.

    .. [vincent2015] Vincent, P., de Brébisson, A., and Bouthillier, X. (2015) `Efficient Exact Gradient Update for training
       Deep Networks with Very Large Sparse Targets <https://arxiv.org/abs/1412.7091>`_. NeurIPS '15.
    """

    #: whether it must see whole queries; if not, the cost is a sum of what positives and what candidates cost, and the
    #: latter is linear in their moments, so that the closed-world training loop can use it
    needs_queries: ClassVar[bool] = True

    @property
    def needs_first(self) -> bool:
        """Whether it uses the sum of the candidates' scores, in addition to that of their squares."""
        return True

    @abstractmethod
    def cost(self, scores: Scores) -> Tensor:
        """Compute the total cost of some whole queries.

        :param scores: their scores
        :return: shape: (), the cost, differentiable with respect to the scores of positives and the moments of candidates
        """

    def costs(self, scores: Scores) -> Costs:
        """Compute the total cost of some whole queries, and its derivatives.

        :param scores: their scores
        :return: the cost, and its derivatives
        """
        with torch.enable_grad():
            positives = scores.positives.detach().requires_grad_()
            candidates = scores.candidates
            inputs = [positives]
            if candidates is not None:
                inputs += [x.detach().requires_grad_() for x in (candidates.first, candidates.second)]
                candidates = replace(candidates, first=inputs[1], second=inputs[2])
            total = self.cost(replace(scores, positives=positives, candidates=candidates))
            gradients = torch.autograd.grad(total, inputs, materialize_grads=True)
        return Costs(total.detach(), *gradients)
