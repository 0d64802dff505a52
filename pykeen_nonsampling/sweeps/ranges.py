"""Queries that meet all candidates, and those in the range of their relation once more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..factorizations.moments import Moments, ScoreMoments, add_gram, mirror
from ..graph.sides import Ranges
from ..losses.objective import Costs
from .problem import Gradients

#: The number of scores, or of features, to have at once
SCORED_ELEMENTS = 2**22


@dataclass(frozen=True)
class _Part:
    """Queries in a row: those of one relation, or of neighboring relations whose ranges are scored."""

    rows: slice
    #: shape: (l, l) and (l,), the moments of the candidates
    second: Tensor
    first: Tensor
    #: the members of the range that are a part of the moments
    members: slice | None
    #: for relations with so few queries that the members of their ranges are scored instead: rows, members and scores
    scored: Sequence[tuple[slice, slice, Tensor]] = ()


class RangeProducts:
    r"""Products of queries with the moments of their candidates, of which those in the range of the relation weigh more.

    With weights $u_e$ of candidates, and $v_{re}$ more for members of the range of r, a query of r has the moments

    .. math::

        q^\top k_r \qquad q^\top G_r q
        \qquad \text{with} \qquad
        k_r = \sum_e u_e k_e + \sum_{e \in r} v_{re} k_e
        \qquad
        G_r = \sum_e u_e k_e k_e^\top + \sum_{e \in r} v_{re} k_e k_e^\top

    For n queries and m members, $G_r$ and its gradient take $O(m l^2)$. If there are fewer queries than features, it is
    cheaper to score the members, in $O(n m l)$.
    """

    def __init__(self, keys: Tensor, candidates: Moments, ranges: Ranges):
        """Initialize the products.

        :param keys: shape: (num_entities, l), the features of all candidates
        :param candidates: their moments
        :param ranges: the ranges of relations
        """
        self.keys = keys
        self.candidates = candidates
        self.ranges = ranges
        self._parts: list[_Part] = []

    def moments(self, queries: Tensor, runs: Sequence[tuple[int, slice]], out: Tensor) -> ScoreMoments:
        """Compute the moments of the scores of each query's candidates.

        :param queries: shape: (q, l), the queries
        :param runs: the relations of the queries, each with its rows
        :param out: shape: (q, l), memory for the products of queries and Gram matrices
        :return: the moments, shape: (q,) each
        """
        self.queries, self.by_gram = queries, out
        self._parts = list(self._divide(runs))
        count = queries.new_full((len(queries),), self.candidates.count)
        first, second = torch.empty_like(count), torch.empty_like(count)
        for part in self._parts:
            rows = part.rows
            torch.mm(queries[rows], part.second, out=out[rows])
            torch.mv(queries[rows], part.first, out=first[rows])
            second[rows] = torch.linalg.vecdot(queries[rows], out[rows])
            if part.members is not None:
                count[rows] += self.ranges.weights[part.members].sum()
            for some, members, scores in part.scored:
                weights = self.ranges.weights[members]
                count[some] += weights.sum()
                first[some] += scores @ weights
                second[some] += scores.square() @ weights
        return ScoreMoments(count, first, second)

    def add_gradients(self, costs: Costs, gradients: Gradients, grad_queries: Tensor) -> None:
        r"""Add the gradients of a block's costs, of which a and b are the derivatives by the moments.

        By a query, this is $a k_r + 2 b G_r q$, by all keys what follows from their moments, and by the key of a member
        $v_{re} (\sum_q a_q q + 2 \sum_q b_q q q^\top k_e)$ more.

        :param costs: the costs, with their derivatives by the moments
        :param gradients: the gradients to add to
        :param grad_queries: shape: (q, l), that by the queries, to add to
        """
        zeros = self.queries.new_zeros(len(self.queries))
        by_first, by_second = (zeros if x is None else x for x in (costs.first, costs.second))
        for part in self._parts:
            rows = part.rows
            queries, a, b = self.queries[rows], by_first[rows], by_second[rows]
            grad_queries[rows].addcmul_(self.by_gram[rows], b[:, None], value=2).addr_(a, part.first)
            first, second = a @ queries, torch.empty_like(part.second)
            add_gram(second, queries, queries * b[:, None], factor=0.0)
            mirror(second)
            if gradients.first is not None and gradients.second is not None:
                gradients.first.add_(first)
                gradients.second.add_(second)
            for members in self._chunks(part.members):
                keys = self._keys(members)
                self._add_to_members(gradients, members, torch.addmm(first, keys, second, alpha=2))
            for some, members, scores in part.scored:
                slopes = torch.addcmul(by_first[some, None], scores, by_second[some, None], value=2)
                self._add_to_members(gradients, members, slopes.T @ self.queries[some])
                grad_queries[some].addmm_(slopes * self.ranges.weights[members], self._keys(members))

    def _divide(self, runs: Sequence[tuple[int, slice]]) -> Iterator[_Part]:
        """Divide queries by relation. Neighbors whose ranges are scored have one product with all candidates in common."""
        second, first = self.candidates.second, self.candidates.first
        scored: list[tuple[slice, slice, Tensor]] = []
        for relation, rows in runs:
            members = self.ranges.members(relation)
            if self._is_scored(rows.stop - rows.start, members.stop - members.start):
                scored.append((rows, members, self.queries[rows] @ self._keys(members).T))
                continue
            if scored:
                yield _Part(slice(scored[0][0].start, rows.start), second, first, None, scored)
                scored = []
            more = [Moments.of(self._keys(some), self.ranges.weights[some]) for some in self._chunks(members)]
            yield _Part(rows, sum((x.second for x in more), second), sum((x.first for x in more), first), members)
        if scored:
            yield _Part(slice(scored[0][0].start, scored[-1][0].stop), second, first, None, scored)

    def _is_scored(self, queries: int, members: int) -> bool:
        """Whether three products of queries and members cost less than two of members and features."""
        return 3 * queries < 2 * self.keys.shape[1] and queries * members <= SCORED_ELEMENTS

    def _chunks(self, members: slice | None) -> Iterator[slice]:
        """Divide the members of a range, of which there may be as many as entities."""
        if members is not None:
            size = max(1, SCORED_ELEMENTS // self.keys.shape[1])
            for start in range(members.start, members.stop, size):
                yield slice(start, min(start + size, members.stop))

    def _keys(self, members: slice) -> Tensor:
        """Return the features of members."""
        return self.keys.index_select(0, self.ranges.entities[members])

    def _add_to_members(self, gradients: Gradients, members: slice, rows: Tensor) -> None:
        """Add to the gradients by members, by their weights."""
        gradients.answers.index_add_(0, self.ranges.entities[members], rows.mul_(self.ranges.weights[members, None]))
