"""Interactions made of another interaction: whatever family its factorization belongs to, theirs does, too."""

from __future__ import annotations

from abc import ABC
from typing import Any

import torch
from pykeen.nn.modules import DirectionAverageInteraction, Interaction, MonotonicAffineTransformationInteraction
from torch import Tensor

from .base import Factorization, NotDecomposableError
from .matrices import MatrixFactorization
from .trilinear import Layout, Term, TrilinearFactorization, with_one

__all__ = [
    "AffineMatrixFactorization",
    "AffineTrilinearFactorization",
    "AverageMatrixFactorization",
    "AverageTrilinearFactorization",
    "WrapperFactorization",
    "affine",
    "average",
]


class WrapperFactorization(Factorization, ABC):
    """What is the same as in the wrapped factorization."""

    def __init__(self, interaction: Interaction, base: Factorization):
        """Initialize the factorization from that of the wrapped interaction."""
        super().__init__(interaction)
        self.base: Any = base
        self.family = base.family
        self.negative_mass = base.negative_mass
        self.regularization_weight = base.regularization_weight
        self.squares = base.squares

    @property
    def same_features(self) -> bool:
        """Whether heads and tails have the same features."""
        return bool(self.base.same_features)


class _Affine(WrapperFactorization):
    r"""A monotonic affine transformation, $f = s f_0 + b$: one more feature 1, and s and b learned beside the rest."""

    # docstr-coverage: inherited
    def heads(self, *representations: Tensor) -> Tensor:
        return with_one(self.base.heads(*representations))

    # docstr-coverage: inherited
    def tails(self, *representations: Tensor) -> Tensor:
        return with_one(self.base.tails(*representations))

    @property
    def _scale(self) -> Tensor:
        return self.interaction.log_scale.exp()

    @property
    def _bias(self) -> Tensor:
        return self.interaction.bias

    # docstr-coverage: inherited
    def transform(self, scores: Tensor) -> Tensor:
        return self._scale * self.base.transform((scores - self._bias) / self._scale) + self._bias


class AffineTrilinearFactorization(_Affine, TrilinearFactorization):
    r"""$s f_0 + b$ for trilinear products: $s \rho$ for $\rho$, s where there was none, and $\langle 1, b, 1 \rangle$."""

    def __init__(self, interaction: MonotonicAffineTransformationInteraction, base: TrilinearFactorization):
        """Initialize the factorization from that of the wrapped interaction."""
        super().__init__(interaction, base)
        h, r, t = base.head_layout, base.relation_layout, base.tail_layout
        scale, bias = sum(r), sum(r) + 1
        self.head_layout, self.tail_layout = (Layout(x.vectors, x.scalars + 1) for x in (h, t))
        self.relation_layout = Layout(r.vectors, r.scalars + 2)
        self.terms = [
            *(term._replace(relation=scale) if term.relation is None else term for term in base.terms),
            Term(sum(h), bias, sum(t)),
        ]

    # docstr-coverage: inherited
    def relations(self, *representations: Tensor) -> Tensor:  # noqa: D102
        r = self.base.relations(*representations).to(self._scale.device)
        return torch.cat([self._scale * r, *(x.expand(len(r), 1) for x in (self._scale, self._bias))], dim=-1)


class AffineMatrixFactorization(_Affine, MatrixFactorization):
    r"""$s f_0 + b$ for matrices: another row and column, with b where they meet."""

    # docstr-coverage: inherited
    def relations(self, *representations: Tensor) -> Tensor:  # noqa: D102
        r = self.base.relations(*representations)
        return _block_diagonal(self._scale * r, self._bias.expand(len(r), 1, 1))


class AverageTrilinearFactorization(WrapperFactorization, TrilinearFactorization):
    r"""The average of both directions, $f = \frac{1}{2} (f_0(h_1, r_1, t_1) + f_0(t_2, r_2, h_2))$, of trilinear products.

    The features of heads are $[\phi(h_1), \psi(h_2)]$, those of tails $[\psi(t_1), \phi(t_2)]$, and the terms are those of
    both directions. Of DistMult, this is SimplE.
    """

    def __init__(self, interaction: DirectionAverageInteraction, base: TrilinearFactorization):
        """Initialize the factorization from that of the wrapped interaction."""
        super().__init__(interaction, base)
        h, r, t = base.head_layout, base.relation_layout, base.tail_layout
        self.head_layout, self.relation_layout, self.tail_layout = _join(h, t), _join(r, r), _join(t, h)
        self.terms = []
        for i, k, j, c in base.terms:
            if k is None:
                # half of it, as elsewhere half of the relation's features
                relations: tuple[int | None, int | None] = None, None
                c = c / 2
            else:
                relations = _first(r, r, k), _second(r, r, k)
            self.terms += [
                Term(_first(h, t, i), relations[0], _first(t, h, j), c),
                Term(_second(h, t, j), relations[1], _second(t, h, i), c),
            ]

    # docstr-coverage: inherited
    def heads(self, *representations: Tensor) -> Tensor:  # noqa: D102
        forward, backward = representations
        h, t = self.base.head_layout, self.base.tail_layout
        return _join_features(h, self.base.heads(forward), t, self.base.tails(backward))

    # docstr-coverage: inherited
    def tails(self, *representations: Tensor) -> Tensor:  # noqa: D102
        forward, backward = representations
        h, t = self.base.head_layout, self.base.tail_layout
        return _join_features(t, self.base.tails(forward), h, self.base.heads(backward))

    # docstr-coverage: inherited
    def relations(self, *representations: Tensor) -> Tensor:  # noqa: D102
        layout = self.base.relation_layout
        forward, backward = (0.5 * self.base.relations(x) for x in representations)
        return _join_features(layout, forward, layout, backward)

    # docstr-coverage: inherited
    def transform(self, scores: Tensor) -> Tensor:  # noqa: D102
        # affine, so the same for an average
        return self.base.transform(scores)


class AverageMatrixFactorization(WrapperFactorization, MatrixFactorization):
    r"""The average of both directions for matrices: $\frac{1}{2} \begin{bmatrix} A_1 & \\ & A_2^\top \end{bmatrix}$."""

    # docstr-coverage: inherited
    def heads(self, *representations: Tensor) -> Tensor:  # noqa: D102
        forward, backward = representations
        return torch.cat([self.base.heads(forward), self.base.tails(backward)], dim=-1)

    # docstr-coverage: inherited
    def tails(self, *representations: Tensor) -> Tensor:  # noqa: D102
        forward, backward = representations
        return torch.cat([self.base.tails(forward), self.base.heads(backward)], dim=-1)

    # docstr-coverage: inherited
    def relations(self, *representations: Tensor) -> Tensor:  # noqa: D102
        forward, backward = (self.base.relations(x) for x in representations)
        return 0.5 * _block_diagonal(forward, backward.mT)


def affine(interaction: MonotonicAffineTransformationInteraction, base: Factorization) -> Factorization:
    """Wrap a factorization in a monotonic affine transformation."""
    if isinstance(base, TrilinearFactorization):
        return AffineTrilinearFactorization(interaction, base)
    if isinstance(base, MatrixFactorization):
        return AffineMatrixFactorization(interaction, base)
    raise _unknown(interaction, base)


def average(interaction: DirectionAverageInteraction, base: Factorization) -> Factorization:
    """Wrap a factorization in an average of both directions."""
    if base.squares:
        raise NotDecomposableError(
            f"DirectionAverageInteraction of {type(base.interaction).__name__} cannot be decomposed: the average of two "
            f"norms does not rank as that of their squares does, which is what can be. Use the square, if there is one, "
            f"with base_kwargs=dict(p=2, power_norm=True)."
        )
    if isinstance(base, TrilinearFactorization):
        return AverageTrilinearFactorization(interaction, base)
    if isinstance(base, MatrixFactorization):
        return AverageMatrixFactorization(interaction, base)
    raise _unknown(interaction, base)


def _unknown(interaction: torch.nn.Module, base: Factorization) -> NotDecomposableError:
    return NotDecomposableError(
        f"{type(interaction).__name__} of {type(base.interaction).__name__} cannot be decomposed: {type(base).__name__} "
        f"does not say what it is made of. Derive it from TrilinearFactorization or MatrixFactorization."
    )


def _block_diagonal(a: Tensor, b: Tensor) -> Tensor:
    """Put matrices onto the diagonal of larger ones, shapes: (m, k, l) and (m, p, q) to (m, k + p, l + q)."""
    top = torch.cat([a, a.new_zeros(len(a), a.shape[1], b.shape[2])], dim=2)
    bottom = torch.cat([b.new_zeros(len(b), b.shape[1], a.shape[2]), b], dim=2)
    return torch.cat([top, bottom], dim=1)


def _join(a: Layout, b: Layout) -> Layout:
    """Join the blocks of two kinds of features: vectors first, as ever."""
    return Layout(a.vectors + b.vectors, a.scalars + b.scalars)


def _first(a: Layout, b: Layout, block: int) -> int:
    """Return the position of a block of the first kind."""
    return block + b.vectors if a.is_scalar(block) else block


def _second(a: Layout, b: Layout, block: int) -> int:
    """Return the position of a block of the second kind."""
    return a.vectors + block + (a.scalars if b.is_scalar(block) else 0)


def _join_features(a: Layout, x: Tensor, b: Layout, y: Tensor) -> Tensor:
    """Join the features themselves."""
    (x_vectors, x_scalars), (y_vectors, y_scalars) = (
        z.split([z.shape[-1] - layout.scalars, layout.scalars], dim=-1) for layout, z in ((a, x), (b, y))
    )
    return torch.cat([x_vectors, y_vectors, x_scalars, y_scalars], dim=-1)
