r"""Signed sums of trilinear products $\langle h, r, t \rangle = \sum_i h_i r_i t_i$.

The relation's operator is diagonal (or, for complex vectors, made of 2×2 blocks), so the Gram matrix of all queries is an
elementwise product of the Gram matrices of heads and relations.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from pykeen.nn.modules import ComplExInteraction, DistMultInteraction, Interaction, SimplEInteraction
from torch import Tensor

from .base import Factorization, Moments, check_real

__all__ = [
    "ComplExFactorization",
    "DistMultFactorization",
    "SimplEFactorization",
]


class DistMultFactorization(Factorization):
    r"""DistMult: $f = \langle h, r, t \rangle$, so $q = h \odot r$ and $k = t$.

    .. math::

        \sum_{h,r} q q^\top = \Big(\sum_h h h^\top\Big) \odot \Big(\sum_r r r^\top\Big)
    """

    interaction_cls: ClassVar[type[Interaction]] = DistMultInteraction

    def heads(self, *representations: Tensor) -> Tensor:  # noqa: D102
        check_real(type(self.interaction).__name__, *representations)
        (x,) = representations
        return x

    def relations(self, *representations: Tensor) -> Tensor:  # noqa: D102
        return self.heads(*representations)

    def queries(self, heads: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        return heads * relations

    def query_moments(self, heads: Moments, relations: Tensor) -> Moments:  # noqa: D102
        r = Moments.of(relations)
        return Moments(count=heads.count * r.count, first=heads.first * r.first, second=heads.second * r.second)


class SimplEFactorization(DistMultFactorization):
    r"""SimplE: $f = \frac{1}{2} (\langle h_1, r_1, t_1 \rangle + \langle t_2, r_2, h_2 \rangle)$.

    This is DistMult on the concatenations $[h_1; h_2]$, $\frac{1}{2} [r_1; r_2]$ and $[t_1; t_2]$.
    """

    interaction_cls: ClassVar[type[Interaction]] = SimplEInteraction

    def heads(self, *representations: Tensor) -> Tensor:  # noqa: D102
        check_real(type(self.interaction).__name__, *representations)
        return torch.cat(representations, dim=-1)

    def relations(self, *representations: Tensor) -> Tensor:  # noqa: D102
        return 0.5 * self.heads(*representations)


class ComplExFactorization(Factorization):
    r"""ComplEx: $f = \mathrm{Re} \langle h, r, \bar t \rangle$, so $q = h \odot r$ and $k = t$ as pairs of real vectors.

    Complex vectors are handled as $[\mathrm{Re}; \mathrm{Im}]$. Of a set of complex vectors, the Hermitian Gram matrix
    $\sum x x^*$ and the plain one $\sum x x^\top$ hold what the real Gram matrix of the pairs holds, and both are
    multiplicative:

    .. math::

        \sum_{h,r} q q^* = \Big(\sum_h h h^*\Big) \odot \Big(\sum_r r r^*\Big)
        \qquad
        \sum_{h,r} q q^\top = \Big(\sum_h h h^\top\Big) \odot \Big(\sum_r r r^\top\Big)
    """

    interaction_cls: ClassVar[type[Interaction]] = ComplExInteraction

    def heads(self, *representations: Tensor) -> Tensor:  # noqa: D102
        (x,) = representations
        if not torch.is_complex(x):
            raise ValueError(
                f"ComplEx needs complex representations, but was given dtype {x.dtype}, with which it would be DistMult. "
                f"Use e.g. entity_representations_kwargs=dict(shape=…, dtype=torch.cfloat)."
            )
        return torch.cat([x.real, x.imag], dim=-1)

    def relations(self, *representations: Tensor) -> Tensor:  # noqa: D102
        return self.heads(*representations)

    def queries(self, heads: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        h_re, h_im = heads.chunk(2, dim=-1)
        r_re, r_im = relations.chunk(2, dim=-1)
        return torch.cat([h_re * r_re - h_im * r_im, h_re * r_im + h_im * r_re], dim=-1)

    def query_moments(self, heads: Moments, relations: Tensor) -> Moments:  # noqa: D102
        r = Moments.of(relations)
        first = torch.complex(*heads.first.chunk(2)) * torch.complex(*r.first.chunk(2))
        (h_hermitian, h_plain), (r_hermitian, r_plain) = _complex_grams(heads.second), _complex_grams(r.second)
        return Moments(
            count=heads.count * r.count,
            first=torch.cat([first.real, first.imag]),
            second=_real_gram(h_hermitian * r_hermitian, h_plain * r_plain),
        )


def _complex_grams(gram: Tensor) -> tuple[Tensor, Tensor]:
    r"""Turn the Gram matrix of the pairs $[x; y]$ into the Hermitian and the plain one of $x + i y$."""
    (xx, xy), (yx, yy) = (rows.chunk(2, dim=1) for rows in gram.chunk(2, dim=0))
    return torch.complex(xx + yy, yx - xy), torch.complex(xx - yy, xy + yx)


def _real_gram(hermitian: Tensor, plain: Tensor) -> Tensor:
    r"""Turn the Hermitian and the plain Gram matrix of $x + i y$ into that of the pairs $[x; y]$."""
    total, difference = 0.5 * (plain + hermitian), 0.5 * (plain - hermitian)
    return torch.cat(
        [
            torch.cat([total.real, difference.imag], dim=1),
            torch.cat([total.imag, -difference.real], dim=1),
        ]
    )
