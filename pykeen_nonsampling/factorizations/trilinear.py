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

    def queries_backward(self, heads: Tensor, relations: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        return relations.mul_(grad), heads.mul_(grad)

    def head_queries(self, tails: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        # heads and tails may change places
        return self.queries(tails, relations)

    def head_queries_backward(self, tails: Tensor, relations: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        return self.queries_backward(tails, relations, grad)

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
    r"""ComplEx: $f = \mathrm{Re} \langle h, r, \bar t \rangle$, so $q = h \odot r$ and $k = t$, parts and all.

    The features are real: a complex number is two of them in a row, as in PyTorch's memory. Of a set of complex vectors, the
    Hermitian Gram matrix $\sum x x^*$ and the plain one $\sum x x^\top$ hold what the real Gram matrix of the features
    holds, and both are multiplicative:

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
        return _as_real(x)

    def relations(self, *representations: Tensor) -> Tensor:  # noqa: D102
        return self.heads(*representations)

    def queries(self, heads: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        return _as_real(_as_complex(heads) * _as_complex(relations))

    def queries_backward(self, heads: Tensor, relations: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        h, r, g = (_as_complex(x) for x in (heads, relations, grad))
        return _as_real(g * r.conj()), _as_real(g.mul_(h.conj()))

    def head_queries(self, tails: Tensor, relations: Tensor) -> Tensor:  # noqa: D102
        return _as_real(_as_complex(tails) * _as_complex(relations).conj())

    def head_queries_backward(self, tails: Tensor, relations: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        t, r, g = (_as_complex(x) for x in (tails, relations, grad))
        return _as_real(g * r), _as_real(t.mul_(g.conj()))

    def query_moments(self, heads: Moments, relations: Tensor) -> Moments:  # noqa: D102
        r = Moments.of(relations)
        (h_hermitian, h_plain), (r_hermitian, r_plain) = _complex_grams(heads.second), _complex_grams(r.second)
        return Moments(
            count=heads.count * r.count,
            first=_as_real(_as_complex(heads.first) * _as_complex(r.first)),
            second=_real_gram(h_hermitian * r_hermitian, h_plain * r_plain),
        )


def _as_real(x: Tensor) -> Tensor:
    """View complex vectors as real ones, twice as long."""
    return torch.view_as_real(x).flatten(start_dim=-2)


def _as_complex(x: Tensor) -> Tensor:
    """View real vectors as complex ones, half as long."""
    return torch.view_as_complex(x.unflatten(-1, (-1, 2)))


def _complex_grams(gram: Tensor) -> tuple[Tensor, Tensor]:
    r"""Turn the Gram matrix of the parts of $x + i y$ into the Hermitian and the plain one of the complex numbers."""
    xx, xy, yx, yy = gram[0::2, 0::2], gram[0::2, 1::2], gram[1::2, 0::2], gram[1::2, 1::2]
    return torch.complex(xx + yy, yx - xy), torch.complex(xx - yy, xy + yx)


def _real_gram(hermitian: Tensor, plain: Tensor) -> Tensor:
    r"""Turn the Hermitian and the plain Gram matrix of $x + i y$ into that of its parts."""
    total, difference = 0.5 * (plain + hermitian), 0.5 * (plain - hermitian)
    rows_x, rows_y = (torch.stack(pair, dim=-1) for pair in ((total.real, difference.imag), (total.imag, -difference.real)))
    return torch.stack([rows_x, rows_y], dim=1).flatten(start_dim=2).flatten(end_dim=1)
