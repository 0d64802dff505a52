"""Interactions made of another interaction. They belong to the family of the latter's factorization.

:data:`WRAPPERS` is all that the rest of the package knows about them.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from pykeen.nn.modules import (
    ClampedInteraction,
    DirectionAverageInteraction,
    Interaction,
    MonotonicAffineTransformationInteraction,
)
from torch import Tensor
from typing_extensions import override

from .base import Factorization, NotDecomposableError
from .matrices import MatrixFactorization
from .trilinear import Layout, Term, TrilinearFactorization, with_one


class WrapperFactorization(Factorization, ABC):
    """What stays the same as in the wrapped factorization."""

    def __init__(self, interaction: Interaction, base: Factorization):
        """Initialize the factorization from that of the wrapped interaction."""
        super().__init__(interaction)
        self.base: Any = base
        self.family = base.family
        self.squares = base.squares

    @property
    def same_features(self) -> bool:
        """Whether heads and tails have the same features."""
        return bool(self.base.same_features)


class _Affine(WrapperFactorization):
    r"""A monotonic affine transformation, $f = s f_0 + b$: one more feature 1, and s and b learned with the rest."""

    @override
    def heads(self, *representations: Tensor) -> Tensor:
        return with_one(self.base.heads(*representations))

    @override
    def tails(self, *representations: Tensor) -> Tensor:
        return with_one(self.base.tails(*representations))

    @property
    def _scale(self) -> Tensor:
        return self.interaction.log_scale.exp()

    @property
    def _bias(self) -> Tensor:
        return self.interaction.bias

    @override
    def transform(self, scores: Tensor) -> Tensor:
        return self._scale * self.base.transform((scores - self._bias) / self._scale) + self._bias

    @property
    def has_own_scores(self) -> bool:  # type: ignore[override]
        """Whether losses that see every score can see the interaction's own: not those of a norm."""
        return not self.squares

    @property
    @override
    def own_scores(self) -> Callable[[Tensor], Tensor] | None:
        if not self.has_own_scores:
            raise NotDecomposableError(
                f"A loss that sees every score needs the norm of {type(self.base.interaction).__name__} itself, but its "
                f"scale and bias are learned together with the square of it. Use the square, with "
                f"base_kwargs=dict(power_norm=True), or loss='nonsampling'."
            )
        return None


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

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        r = self.base.relations(*representations).to(self._scale.device)
        return torch.cat([self._scale * r, *(x.expand(len(r), 1) for x in (self._scale, self._bias))], dim=-1)


class AffineMatrixFactorization(_Affine, MatrixFactorization):
    r"""$s f_0 + b$ for matrices: another row and column, with b where they meet."""

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        r = self.base.relations(*representations)
        return _block_diagonal(self._scale * r, self._bias.expand(len(r), 1, 1))


class AverageTrilinearFactorization(WrapperFactorization, TrilinearFactorization):
    r"""The average of both directions, $f = \frac{1}{2} (f_0(h_1, r_1, t_1) + f_0(t_2, r_2, h_2))$, of trilinear products.

    The features of heads are $[\phi(h_1), \psi(h_2)]$, those of tails $[\psi(t_1), \phi(t_2)]$, and the terms are those of
    both directions. For DistMult, this is SimplE.
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

    @override
    def heads(self, *representations: Tensor) -> Tensor:
        forward, backward = representations
        h, t = self.base.head_layout, self.base.tail_layout
        return _join_features(h, self.base.heads(forward), t, self.base.tails(backward))

    @override
    def tails(self, *representations: Tensor) -> Tensor:
        forward, backward = representations
        h, t = self.base.head_layout, self.base.tail_layout
        return _join_features(t, self.base.tails(forward), h, self.base.heads(backward))

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        layout = self.base.relation_layout
        forward, backward = (0.5 * self.base.relations(x) for x in representations)
        return _join_features(layout, forward, layout, backward)

    @override
    def transform(self, scores: Tensor) -> Tensor:
        # affine, so the same for an average
        return self.base.transform(scores)

    @property
    @override
    def own_scores(self) -> Callable[[Tensor], Tensor] | None:
        own: Callable[[Tensor], Tensor] | None = self.base.own_scores
        return own


class AverageMatrixFactorization(WrapperFactorization, MatrixFactorization):
    r"""The average of both directions for matrices: $\frac{1}{2} \begin{bmatrix} A_1 & \\ & A_2^\top \end{bmatrix}$."""

    @override
    def heads(self, *representations: Tensor) -> Tensor:
        forward, backward = representations
        return torch.cat([self.base.heads(forward), self.base.tails(backward)], dim=-1)

    @override
    def tails(self, *representations: Tensor) -> Tensor:
        forward, backward = representations
        return torch.cat([self.base.tails(forward), self.base.heads(backward)], dim=-1)

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        forward, backward = (self.base.relations(x) for x in representations)
        return 0.5 * _block_diagonal(forward, backward.mT)


def _block_diagonal(a: Tensor, b: Tensor) -> Tensor:
    """Put matrices onto the diagonal of larger ones, shapes: (m, k, l) and (m, p, q) to (m, k + p, l + q)."""
    top = torch.cat([a, a.new_zeros(len(a), a.shape[1], b.shape[2])], dim=2)
    bottom = torch.cat([b.new_zeros(len(b), b.shape[1], a.shape[2]), b], dim=2)
    return torch.cat([top, bottom], dim=1)


def _join(a: Layout, b: Layout) -> Layout:
    """Join the blocks of two kinds of features: vectors first, as always."""
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


@dataclass(frozen=True)
class Wrapper:
    """How an interaction that is made of another one, its base, is factorized."""

    #: what it needs for a factorization
    condition: str
    #: the number of features of an entity, in terms of that of the base, m₀
    feature_size: str
    #: the factorizations for each kind of base; none, if it has the factorization of its base
    trilinear: type[Any] | None = None
    matrix: type[Any] | None = None
    #: refuses interactions that have no factorization, given that of the base
    check: Callable[[Any, Factorization], None] = lambda interaction, base: None
    #: whether the base must have no affine transformation of its own
    plain: bool = False

    def wrap(self, interaction: Any, base: Factorization) -> Factorization:
        """Factorize an interaction, given the factorization of its base.

        :param interaction: the interaction
        :param base: the factorization of its base
        :return: the factorization
        :raises NotDecomposableError: if there is none
        """
        self.check(interaction, base)
        if self.trilinear is None or self.matrix is None:
            return base
        for cls, kind in ((self.trilinear, TrilinearFactorization), (self.matrix, MatrixFactorization)):
            if isinstance(base, kind):
                result: Factorization = cls(interaction, base)
                result.feature_size = self.feature_size.replace("m₀", base.feature_size)
                return result
        raise NotDecomposableError(
            f"{type(interaction).__name__} of {type(base.interaction).__name__} cannot be decomposed: "
            f"{type(base).__name__} does not say what its terms or matrices are. Derive it from TrilinearFactorization or "
            f"MatrixFactorization."
        )


def _check_clamp(interaction: Any, base: Factorization) -> None:
    if interaction.clamp_score is not None:
        raise NotDecomposableError(
            f"Scores clamped to {interaction.clamp_score} cannot be decomposed: a clamp is not linear in the features "
            f"of head and tail. Remove the clamp, with model_kwargs=dict(clamp_score=None)."
        )


def _check_square(interaction: Any, base: Factorization) -> None:
    if base.squares:
        raise NotDecomposableError(
            f"DirectionAverageInteraction of {type(base.interaction).__name__} cannot be decomposed: the average of two "
            f"norms does not rank like that of their squares, which can be decomposed. Use the square, if there is one, "
            f"with base_kwargs=dict(p=2, power_norm=True)."
        )


#: The interactions of PyKEEN that wrap another one, by the class that defines their score
WRAPPERS: Mapping[type[Interaction], Wrapper] = {
    ClampedInteraction: Wrapper("clamp_score=None, and the base is supported", "m₀", check=_check_clamp),
    DirectionAverageInteraction: Wrapper(
        "the base is supported, and not a norm (power_norm=True makes it a square)",
        "2m₀",
        AverageTrilinearFactorization,
        AverageMatrixFactorization,
        check=_check_square,
    ),
    MonotonicAffineTransformationInteraction: Wrapper(
        "the base is supported", "m₀ + 1", AffineTrilinearFactorization, AffineMatrixFactorization, plain=True
    ),
}


def find_wrapper(interaction: type[Interaction]) -> Wrapper | None:
    """Find the wrapper that an interaction gets its score from, if it is made of another interaction."""
    return WRAPPERS.get(next(cls for cls in interaction.__mro__ if "forward" in vars(cls)))
