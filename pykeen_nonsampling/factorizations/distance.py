r"""Squared distances, lifted: $\|x - y\|^2 = \|x\|^2 - 2 x^\top y + \|y\|^2$ is bilinear in $[x, \|x\|^2, 1]$."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pykeen.nn.modules import Interaction, TransEInteraction
from torch import Tensor

from .base import Factorization, Moments, NotDecomposableError, check_real

__all__ = [
    "TransEFactorization",
]


def lift(x: Tensor) -> Tensor:
    r"""Compute $[x, \|x\|^2, 1]$ row by row."""
    return torch.cat([x, x.square().sum(dim=-1, keepdim=True), torch.ones_like(x[:, :1])], dim=-1)


class TransEFactorization(Factorization):
    r"""TransE with p=2: $f = b - a \|h + r - t\|^2$, exact for vectors of any norm.

    With $u = h + r$ the query is a linear map of the lifted vector $[u, \|u\|^2, 1]$, and the moments of the latter over all
    pairs of a head and a relation follow from the Gram matrices of lifted heads and lifted relations.

    The score that a quadratic loss can pull to 1 for true and to 0 for false triples is [li2021]_'s $1 - \frac{1}{3}
    \|h + r - t\|^2$: for unit vectors, 3 is the expected squared distance of unrelated ones. It is an increasing function of
    PyKEEN's $-\|h + r - t\|$ and of its square (``power_norm=True``), so all three rank alike.
    """

    interaction_cls: ClassVar[type[Interaction]] = TransEInteraction
    # no score of unit vectors is far from 1/3, so the sum over all candidates is large, whatever is learned
    negative_mass: ClassVar[float] = 3.0
    # PyKEEN's TransE keeps entities on the unit sphere
    regularization_weight: ClassVar[float] = 0.0

    def __init__(self, interaction: TransEInteraction, scale: float = 1 / 3, offset: float = 1.0):
        """Initialize the factorization.

        :param interaction: the interaction
        :param scale: >0, the factor a of the squared distance
        :param offset: the score b at distance zero
        :raises NotDecomposableError: for a norm other than p=2
        :raises ValueError: for a scale or an offset that is out of range
        """
        super().__init__(interaction)
        if interaction.p != 2:
            raise NotDecomposableError(
                f"TransE with p={interaction.p} cannot be decomposed: only the square of the 2-norm is bilinear in features "
                f"of head and tail. Use the 2-norm, with model_kwargs=dict(scoring_fct_norm=2, power_norm=True) for the "
                f"model and interaction_kwargs=dict(p=2, power_norm=True) for the interaction."
            )
        if not (math.isfinite(scale) and scale > 0):
            raise ValueError(f"scale={scale} would not rank near triples first: choose a finite scale > 0, e.g. scale=1/3.")
        if not math.isfinite(offset):
            raise ValueError(f"offset={offset} gives no finite score: choose a finite offset, e.g. offset=1.")
        self.scale = scale
        self.offset = offset

    def heads(self, *representations: Tensor) -> Tensor:  # noqa: D102
        check_real("TransE", *representations)
        (x,) = representations
        return lift(x)

    def relations(self, *representations: Tensor) -> Tensor:  # noqa: D102
        return self.heads(*representations)

    def transform(self, scores: Tensor) -> Tensor:  # noqa: D102
        squared_distance = -scores if self.interaction.power_norm else scores.square()
        return self.offset - self.scale * squared_distance

    def _operator(self, like: Tensor) -> Tensor:
        r"""Compute $M$ with $f = [u, \|u\|^2, 1]^\top M [t, \|t\|^2, 1]$."""
        k = like.shape[-1]
        m = torch.zeros(k, k, dtype=like.dtype, device=like.device)
        m.diagonal()[:-2] = 2 * self.scale
        m[-2, -1] = m[-1, -2] = -self.scale
        m[-1, -1] = self.offset
        return m

    def _queries(self, u: Tensor) -> Tensor:
        r"""Compute the queries $[2 a u, -a, b - a \|u\|^2]$ of the other end of a triple, which is best at u."""
        square = u.square().sum(dim=-1, keepdim=True)
        return torch.cat(
            [2 * self.scale * u, torch.full_like(square, -self.scale), self.offset - self.scale * square], dim=-1
        )

    def _queries_backward(self, u: Tensor, grad: Tensor) -> Tensor:
        """Compute the gradient by u, followed by two zeros, from that by the queries, in place of the latter."""
        grad[:, :-2].addcmul_(u, grad[:, -1:], value=-1).mul_(2 * self.scale)
        grad[:, -2:] = 0
        return grad

    def queries(self, heads: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        return self._queries(heads[:, :-2] + relations[:, :-2])

    def queries_backward(self, heads: Tensor, relations: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        grad = self._queries_backward(heads[:, :-2].add_(relations[:, :-2]), grad)
        # head and relation enter by their sum
        return grad, grad

    def head_queries(self, tails: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        return self._queries(tails[:, :-2] - relations[:, :-2])

    def head_queries_backward(self, tails: Tensor, relations: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        grad = self._queries_backward(tails[:, :-2].sub_(relations[:, :-2]), grad)
        return grad, -grad

    def query_moments(self, heads: Moments, relations: Tensor) -> Moments:  # noqa: D102
        sums, operator = _moments_of_lifted_sums(heads, Moments.of(relations)), self._operator(relations)
        return Moments(count=sums.count, first=operator.T @ sums.first, second=operator.T @ sums.second @ operator)


def _moments_of_lifted_sums(x: Moments, y: Moments) -> Moments:
    r"""Compute the moments of $[u, \|u\|^2, 1]$ with $u = x + y$ over all pairs, from those of lifted x and lifted y.

    Each entry is a sum over pairs of a polynomial in x and y, of degree at most 4; with $\|u\|^2 = \|x\|^2 + 2 x^\top y +
    \|y\|^2$ it splits into products of a sum over x and a sum over y.
    """
    n, m = x.count, y.count
    (x1, x_sq), (y1, y_sq) = ((v.first[:-2], v.first[-2]) for v in (x, y))  # Σx, Σ‖x‖²
    (xx, x_cube, x_four), (yy, y_cube, y_four) = (
        (v.second[:-2, :-2], v.second[:-2, -2], v.second[-2, -2])
        for v in (x, y)  # Σxxᵀ, Σx‖x‖², Σ‖x‖⁴
    )
    u1 = m * x1 + n * y1
    u_sq = m * x_sq + 2 * (x1 @ y1) + n * y_sq
    cross = torch.outer(x1, y1)
    uu = m * xx + cross + cross.T + n * yy
    u_cube = m * x_cube + 2 * (xx @ y1) + x1 * y_sq + y1 * x_sq + 2 * (yy @ x1) + n * y_cube
    u_four = m * x_four + 4 * (xx * yy).sum() + n * y_four + 4 * (x_cube @ y1) + 2 * x_sq * y_sq + 4 * (x1 @ y_cube)
    first = torch.cat([u1, u_sq[None], torch.full_like(u_sq, n * m)[None]])
    second = torch.cat(
        [
            torch.cat([uu, u_cube[:, None]], dim=1),
            torch.cat([u_cube, u_four[None]])[None],
        ]
    )
    second = torch.cat([torch.cat([second, first[:-1, None]], dim=1), first[None]])
    return Moments(count=n * m, first=first, second=second)
