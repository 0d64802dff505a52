"""Interactions whose relations are block-diagonal: trilinear products of parts of the vectors."""

from __future__ import annotations

from typing import ClassVar

import torch
from pykeen.nn.modules import (
    AutoSFInteraction,
    ComplExInteraction,
    CPInteraction,
    DistMultInteraction,
    HolEInteraction,
    Interaction,
    QuatEInteraction,
)
from torch import Tensor
from typing_extensions import override

from .base import Family, check_complex, check_real
from .trilinear import Layout, Term, TrilinearFactorization


class BlockDiagonalFactorization(TrilinearFactorization):
    """Vectors that are cut into parts; a term says which parts of head, relation and tail meet."""

    family = Family.BLOCK_DIAGONAL

    @override
    def heads(self, *representations: Tensor) -> Tensor:
        check_real(type(self.interaction).__name__, *representations)
        vectors = [x.flatten(start_dim=1) for x in representations]
        return vectors[0] if len(vectors) == 1 else torch.cat(vectors, dim=-1)

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        return self.heads(*representations)


class DistMultFactorization(BlockDiagonalFactorization):
    r"""DistMult: $f = \langle h, r, t \rangle$, so $q = h \odot r$ and $k = t$.

    .. math::

        \sum_{h,r} q q^\top = \Big(\sum_h h h^\top\Big) \odot \Big(\sum_r r r^\top\Big)
    """

    interaction_cls: ClassVar[type[Interaction]] = DistMultInteraction
    feature_size = "d"


class CPFactorization(BlockDiagonalFactorization):
    r"""CP: $f = \langle h, r, t \rangle$, where an entity has different vectors as head and as tail."""

    interaction_cls: ClassVar[type[Interaction]] = CPInteraction
    feature_size = "k·d"


class AutoSFFactorization(BlockDiagonalFactorization):
    r"""AutoSF: $f = \sum_b s_b \langle h_{i_b}, r_{k_b}, t_{j_b} \rangle$, with blocks and signs to choose."""

    interaction_cls: ClassVar[type[Interaction]] = AutoSFInteraction
    feature_size = "k·d"

    def __init__(self, interaction: AutoSFInteraction):
        """Initialize the factorization, with the interaction's blocks and signs."""
        super().__init__(interaction)
        self.head_layout = self.tail_layout = Layout(len(interaction.entity_shape))
        self.relation_layout = Layout(len(interaction.relation_shape))
        self.terms = [Term(i, k, j, sign) for i, k, j, sign in interaction.coefficients]


class QuatEFactorization(BlockDiagonalFactorization):
    r"""QuatE: $f = -\langle h \otimes r, t \rangle$, the Hamilton product, in PyKEEN with the sign of the official code."""

    interaction_cls: ClassVar[type[Interaction]] = QuatEInteraction
    feature_size = "4d"
    head_layout = relation_layout = tail_layout = Layout(4)

    def __init__(self, interaction: QuatEInteraction):
        """Initialize the factorization, with the interaction's table of products."""
        super().__init__(interaction)
        table = self.interaction.table
        self.terms = [Term(i, k, j, -table[i, k, j].item()) for i, k, j in table.nonzero().tolist()]

    @override
    def heads(self, *representations: Tensor) -> Tensor:
        # one part of all quaternions after the other
        return super().heads(*(x.transpose(-1, -2) for x in representations))


#: $\mathrm{Re} \langle h, r, \bar t \rangle$, in terms of real (0) and imaginary parts (1)
COMPLEX_TERMS = (Term(0, 0, 0), Term(1, 1, 0, -1.0), Term(0, 1, 1), Term(1, 0, 1))


def split_complex(x: Tensor) -> Tensor:
    """Bring complex vectors to the form [real parts, imaginary parts]."""
    parts = torch.view_as_real(x)
    # a single number has that form already; if it is transposed, PyTorch before 2.13 cannot bring its gradient back
    return (parts if x.shape[-1] == 1 else parts.transpose(-1, -2)).flatten(start_dim=-2)


class ComplExFactorization(TrilinearFactorization):
    r"""ComplEx: $f = \mathrm{Re} \langle h, r, \bar t \rangle$, so $q = h \odot r$ and $k = t$, part by part."""

    interaction_cls: ClassVar[type[Interaction]] = ComplExInteraction
    family = Family.BLOCK_DIAGONAL
    feature_size = "2d"
    head_layout = relation_layout = tail_layout = Layout(2)
    terms = COMPLEX_TERMS

    @override
    def heads(self, *representations: Tensor) -> Tensor:
        check_complex("ComplEx", *representations)
        (x,) = representations
        return split_complex(x)

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        return self.heads(*representations)


class HolEFactorization(ComplExFactorization):
    r"""HolE: $f = r^\top (h \star t)$, which is ComplEx in the frequency domain.

    The circular correlation has the Fourier transform $\overline{\hat h} \odot \hat t$, and by Parseval's theorem

    .. math::

        f = \frac{1}{d} \sum_\omega \overline{\hat r_\omega} \, \overline{\hat h_\omega} \, \hat t_\omega
          = \frac{1}{d} \mathrm{Re} \langle \hat h, \hat r, \overline{\hat t} \rangle

    For real vectors, frequencies $\omega$ and $d - \omega$ are conjugate to each other, so half of them suffice, and those
    that stand for two count twice.
    """

    interaction_cls: ClassVar[type[Interaction]] = HolEInteraction
    feature_size = "d + 2"

    @override
    def heads(self, *representations: Tensor) -> Tensor:
        check_real("HolE", *representations)
        (x,) = representations
        return split_complex(torch.fft.rfft(x))

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        (r,) = representations
        d = r.shape[-1]
        times = torch.full((d // 2 + 1,), 2 / d, dtype=r.dtype, device=r.device)
        times[0] = 1 / d
        if d % 2 == 0:
            times[-1] = 1 / d
        return self.heads(r) * times.repeat(2)
