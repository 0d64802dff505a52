"""Queries that meet all candidates: products with the candidates' Gram matrix, for blocks of queries."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ...factorizations.moments import Moments, ScoreMoments, add_gram, mirror
from ..problem import Gradients
from . import kernels
from .arrays import Arrays
from .order import Rows


class GramProducts:
    r"""The moments $k^\top q$ and $q^\top G q$ of the scores of all candidates, for blocks of queries, and their gradients.

    If a cost has the derivatives $a_q$ and $b_q$ by these moments, the gradients are $\sum_q a_q q$ by $k$,
    $\sum_q b_q q q^\top$ by $G$, and $a_q k + 2 b_q G q$ by each query.
    """

    def __init__(self, features: Moments, arrays: Arrays, gradients: Gradients | None, size: int):
        """Allocate memory for a block: new memory costs as much as what is done with it.

        :param features: the moments of the candidates' features, $k$ and $G$
        :param arrays: the problem as arrays
        :param gradients: the gradients to add to; none, if they are not needed
        :param size: the number of queries in a block, at most
        """
        self.features, self.arrays, self.gradients = features, arrays, gradients
        shape = min(size, len(arrays.order.pairs)), len(features.first)
        self._matrices = [features.first.new_empty(shape) for _ in range(3)]

    def _memory(self, rows: Rows) -> Iterator[Tensor]:
        """Return memory for the queries of a block, those times factors, and the gradients by them, shape: (b, m) each."""
        return (x[: rows.queries.stop - rows.queries.start] for x in self._matrices)

    def _make_queries(self, rows: Rows, factors: Tensor) -> None:
        """Make the queries of a block, and those times factors, if there are any."""
        queries, scaled, _ = (x.numpy() for x in self._memory(rows))
        kernels.MAKE_QUERIES(rows.cuts, self.arrays.pairs, *self.arrays.form, factors.numpy(), queries, scaled)

    def meet(self, rows: Rows, needs_first: bool) -> ScoreMoments:
        """Compute the moments of a block.

        :param rows: the block
        :param needs_first: whether the first moment is needed
        :return: the moments, shape: (b,) each
        """
        queries, _, by_gram = self._memory(rows)
        self._make_queries(rows, queries.new_empty(0))
        torch.mm(queries, self.features.second, out=by_gram)
        second = queries.new_empty(len(queries))
        kernels.MULTIPLY_ROWS(rows.cuts, queries.numpy(), by_gram.numpy(), second.numpy())
        first = queries @ self.features.first if needs_first else torch.zeros_like(second)
        return ScoreMoments(self.features.count, first, second)

    def differentiate(self, rows: Rows, first: Tensor | None, second: Tensor | None) -> Tensor:
        """Add the gradients of the block that was just met, and return those by its queries.

        :param rows: the block
        :param first: shape: (b,), the derivatives by the first moments; none, if they are zero
        :param second: shape: (b,), the same by the sum of squares
        :return: shape: (b, m), the gradients by queries
        """
        queries, scaled, by_query = self._memory(rows)
        if second is None:
            by_query.zero_()
        else:
            self._add_second(queries, torch.mul(queries, second[:, None], out=scaled))
            by_query.mul_(2 * second[:, None])
        return self._add_first(queries, by_query, first)

    def meet_linearly(self, rows: Rows, first: Tensor | None, second: Tensor) -> Tensor:
        """Do both at once, if the derivatives are known beforehand, since the cost is linear in the moments.

        :param rows: the block
        :param first: shape: (b,), the derivatives by the first moments; none, if they are zero
        :param second: shape: (b,), those by the second moments
        :return: shape: (b, m), the gradients by queries
        """
        queries, scaled, by_query = self._memory(rows)
        self._make_queries(rows, second)
        self._add_second(queries, scaled)
        torch.addmm(by_query, scaled, self.features.second, beta=0, alpha=2, out=by_query)
        return self._add_first(queries, by_query, first)

    def _add_second(self, queries: Tensor, scaled: Tensor) -> None:
        if self.gradients is not None and self.gradients.second is not None:
            add_gram(self.gradients.second, queries, scaled)

    def _add_first(self, queries: Tensor, by_query: Tensor, first: Tensor | None) -> Tensor:
        if first is not None and self.gradients is not None and self.gradients.first is not None:
            self.gradients.first.addmv_(queries.T, first)
            by_query.addr_(first, self.features.first)
        return by_query

    def finish(self) -> Tensor:
        """Complete the gradients after the last block, and return the cost, if it is linear in the moments."""
        total = self.features.first.new_zeros(())
        if self.gradients is not None and self.gradients.second is not None:
            total += (mirror(self.gradients.second) * self.features.second).sum()
        if self.gradients is not None and self.gradients.first is not None:
            total += self.gradients.first @ self.features.first
        return total
