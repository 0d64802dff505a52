r"""Moments of vectors and scores, $\sum 1$, $\sum x$ and $\sum x x^\top$: all that a sum over every triple is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: The width of the panels that a symmetric product is divided into on a CPU; narrower ones take longer than what they save
PANEL = 128


@dataclass(frozen=True)
class Weights:
    """Weights of all triples, $w_h w_r w_t$; a part that is left out counts as 1."""

    #: shape: (num_entities,), the weights of heads
    heads: Tensor | None = None
    #: shape: (num_relations,), the weights of relations
    relations: Tensor | None = None
    #: shape: (num_entities,), the weights of tails
    tails: Tensor | None = None

    @property
    def are_equal(self) -> bool:
        """Whether all triples weigh the same."""
        return self.heads is None and self.relations is None and self.tails is None

    def of(self, triples: Tensor) -> Tensor | float:
        """Compute the weights of some triples, shape: (n,)."""
        weights: Tensor | float = 1.0
        for column, x in enumerate((self.heads, self.relations, self.tails)):
            if x is not None:
                weights = weights * x[triples[:, column]]
        return weights


@dataclass(frozen=True)
class ScoreMoments:
    r"""The sums $\sum 1$, $\sum f$ and $\sum f^2$ of the scores over a set of triples, or over several sets at once."""

    count: float | Tensor
    #: shape: (), or one number per set
    first: Tensor
    second: Tensor

    def __add__(self, other: ScoreMoments) -> ScoreMoments:
        """Return the moments over both sets."""
        return ScoreMoments(self.count + other.count, self.first + other.first, self.second + other.second)


@dataclass(frozen=True)
class Moments:
    r"""The sums $\sum 1$, $\sum x$ and $\sum x x^\top$ (the Gram matrix) of a set of vectors.

    The moments of shards add up to those of the whole.
    """

    count: float
    first: Tensor
    second: Tensor

    @classmethod
    def of(cls, x: Tensor, weights: Tensor | None = None) -> Moments:
        r"""Collect the moments of the rows of a matrix, in O(rows·d²).

        :param x: shape: (n, d), the matrix
        :param weights: shape: (n,), the weights ≥ 0 of the rows: $\sum w$, $\sum w x$ and $\sum w x x^\top$
        :return: the moments
        """
        if weights is None:
            return cls(count=x.shape[0], first=x.sum(dim=0), second=gram(x))
        return cls(count=weights.sum().item(), first=weights @ x, second=gram(x * weights.sqrt()[:, None]))

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both sets."""
        return Moments(self.count + other.count, self.first + other.first, self.second + other.second)

    def of_scores(self, keys: Moments) -> ScoreMoments:
        r"""Collect the moments of $q^\top k$ over all pairs of a query in this set and a key in the other.

        .. math::

            \sum_{q,k} q^\top k = \Big\langle \sum_q q, \sum_k k \Big\rangle
            \qquad
            \sum_{q,k} (q^\top k)^2 = \Big\langle \sum_q q q^\top, \sum_k k k^\top \Big\rangle
        """
        return ScoreMoments(
            count=self.count * keys.count,
            first=self.first @ keys.first,
            second=(self.second * keys.second).sum(),
        )


class _Gram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        if x.device.type != "cpu":
            return x.T @ x
        result = x.new_empty(x.shape[1], x.shape[1])
        add_gram(result, x, x, factor=0.0)
        return mirror(result)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grad_outputs: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return x @ (grad_outputs[0] + grad_outputs[0].T)


def gram(x: Tensor) -> Tensor:
    r"""Compute the Gram matrix $\sum x x^\top$ of the rows; its gradient takes one matrix product instead of two."""
    return _Gram.apply(x)


def _panels(width: int) -> list[slice]:
    """Divide columns into panels; a few columns into a single one."""
    size = PANEL if width >= 2 * PANEL else max(1, width)
    return [slice(start, min(start + size, width)) for start in range(0, width, size)]


def add_gram(target: Tensor, x: Tensor, y: Tensor, factor: float = 1.0) -> None:
    r"""Add $x^\top y$, which has to be symmetric, to a matrix: above the diagonal, and wherever else it costs nothing.

    :param target: shape: (m, m), the matrix
    :param x: shape: (n, m), some rows
    :param y: shape: (n, m), the same rows, perhaps scaled
    :param factor: the factor of the matrix; 0, if its memory has no value yet
    """
    for panel in _panels(target.shape[0]):
        target[: panel.stop, panel].addmm_(x[:, : panel.stop].T, y[:, panel], beta=factor)


def mirror(target: Tensor) -> Tensor:
    """Copy what :func:`add_gram` has left out from above the diagonal, and return the matrix."""
    for panel in _panels(target.shape[0]):
        target[panel, : panel.start] = target[: panel.start, panel].T
    return target
