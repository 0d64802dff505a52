"""The interfaces of objectives: those that need moments of scores, and those that see every score."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from ..factorizations.functions import ScoreFunction
from ..factorizations.moments import ScoreMoments

#: The number of scores to process at once, such that they stay in a second-level cache
CACHED_SCORES = 2**18


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


@dataclass(frozen=True)
class AllScores:
    """What an objective that sees every score gets of some whole queries."""

    #: shape: (q, num_candidates), the scores of all candidates
    scores: Tensor
    #: shape: (n,), the query of each positive, ascending from 0 to q - 1
    query_index: Tensor
    #: shape: (n,), the positives, as columns of the scores
    answers: Tensor
    #: shape: (n,), the weights of the positives
    positive_weights: Tensor | float = 1.0
    #: shape: (q,), the weights of the queries
    query_weights: Tensor | float = 1.0
    #: shape: (num_candidates,), the weights of candidates as negatives, if they differ
    candidate_weights: Tensor | None = None

    @property
    def num_answers(self) -> Tensor:
        """The number of answers of each query, shape: (q,)."""
        return self.query_index.bincount(minlength=len(self.scores))

    @property
    def positives(self) -> Tensor:
        """The scores of the positives, shape: (n,)."""
        return self.scores[self.query_index, self.answers]

    def split(self) -> Iterator[AllScores]:
        """Divide the queries into some at a time, such that what is computed of their scores stays in the cache."""
        parts = list(split_rows(self.scores))
        bounds = torch.tensor([*(rows.start for rows, _ in parts), len(self.scores)], device=self.scores.device)
        offsets = torch.searchsorted(self.query_index, bounds).tolist()
        for (rows, scores), start, stop in zip(parts, offsets, offsets[1:], strict=False):
            positives, queries = (
                weights[positions] if isinstance(weights, Tensor) else weights
                for weights, positions in ((self.positive_weights, slice(start, stop)), (self.query_weights, rows))
            )
            yield replace(
                self,
                scores=scores,
                query_index=self.query_index[start:stop] - rows.start,
                answers=self.answers[start:stop],
                positive_weights=positives,
                query_weights=queries,
            )


def split_rows(scores: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Divide scores into some rows at a time."""
    size = max(1, CACHED_SCORES // max(1, scores.shape[1]))
    for start in range(0, len(scores), size):
        rows = slice(start, start + size)
        yield rows, scores[rows]


class ScoreObjective(ABC):
    r"""What the scores of queries cost: a function of the scores of all candidates.

    Any function of them is exact, at the price of three products of matrices per block of queries: $S = Q K^\top$, and with
    the derivatives $D$ in its place, the gradients $D K$ by queries and $D^\top Q$ by keys.

    A subclass defines :meth:`cost`. Its derivatives are computed by automatic differentiation, unless it defines
    :meth:`differentiate`, too.
    """

    #: it must see whole queries, which there are none of in the closed world
    needs_queries: ClassVar[bool] = True

    @abstractmethod
    def cost(self, x: AllScores) -> Tensor:
        """Compute the total cost of some whole queries.

        :param x: their scores
        :return: shape: (), the cost, differentiable with respect to the scores
        """

    def differentiate(self, x: AllScores) -> Tensor:
        """Compute the total cost of some whole queries, and put its derivatives in the place of the scores.

        :param x: their scores, which are overwritten
        :return: shape: (), the cost
        """
        with torch.enable_grad():
            scores = x.scores.detach().requires_grad_()
            total = self.cost(replace(x, scores=scores))
            (derivatives,) = torch.autograd.grad(total, [scores], materialize_grads=True)
        x.scores.copy_(derivatives)
        return total.detach()


@dataclass(frozen=True)
class FunctionObjective(ScoreObjective):
    """An objective of a function of the factorized scores, such as the root of a squared distance."""

    #: what the function's values cost
    objective: ScoreObjective
    function: ScoreFunction

    @override
    def cost(self, x: AllScores) -> Tensor:
        return self.objective.cost(replace(x, scores=self.function(x.scores)))

    @override
    def differentiate(self, x: AllScores) -> Tensor:
        totals, room = [], x.scores.new_empty(0)
        for part in x.split():
            # the same memory for each part
            room = room[: len(part.scores)] if len(room) else torch.empty_like(part.scores)
            known = self.function.apply(part.scores, room)
            totals.append(self.objective.differentiate(part))
            self.function.pull_back(known, part.scores)
        return torch.stack(totals).sum()


#: An objective of either kind
AnyObjective = Objective | ScoreObjective
