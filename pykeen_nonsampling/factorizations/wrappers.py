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

from .base import Factorization, Form, NotDecomposableError
from .functions import ClampFunction, ScoreFunction
from .matrices import MatrixFactorization
from .moments import Moments
from .trilinear import Layout, Term, TrilinearFactorization, with_one


class WrapperFactorization(Factorization, ABC):
    """What stays the same as in the wrapped factorization."""

    def __init__(self, interaction: Interaction, base: Factorization):
        """Initialize the factorization from that of the wrapped interaction."""
        super().__init__(interaction)
        self.base: Any = base
        self.family = base.family
        self.squares = base.squares
        self.no_scores, self.no_moments = base.no_scores, base.no_moments

    @property
    def same_features(self) -> bool:
        """Whether heads and tails have the same features."""
        return bool(self.base.same_features)


class ClampedFactorization(WrapperFactorization):
    r"""Scores that are clamped to an interval, $\min(\max(f_0, l), u)$, for losses that see every score.

    What is factorized is $f_0$ itself, with the features of the base.
    """

    def __init__(self, interaction: ClampedInteraction[Any, Any, Any], base: Factorization):
        """Initialize the factorization from that of the wrapped interaction.

        :param interaction: the interaction
        :param base: the factorization of the wrapped one
        :raises ValueError: if the clamp is not an interval
        """
        super().__init__(interaction, base)
        clamp: Any = interaction.clamp_score
        try:
            self.low, self.high = clamp
        except TypeError as error:
            raise ValueError(
                f"clamp_score={clamp!r} is not an interval. Use a pair of numbers, or a float for both "
                f"ends of it, e.g. clamp_score=3.0."
            ) from error
        if getattr(base, "squared", False):
            raise ValueError(
                f"squared=True trains on another score than the model's own, which clamp_score={clamp!r} is for. Remove one "
                f"of them."
            )
        self.no_moments = (
            f"it sees only moments of scores, and of those clamped to {clamp} there is no closed form, since a clamp is not "
            f"linear in the features of head and tail. Use training_loop='nonsamplinglcwa' with loss='crossentropy' or "
            f"another loss that sees every score, or remove the clamp, with model_kwargs=dict(clamp_score=None)."
        )

    @override
    def heads(self, *representations: Tensor) -> Tensor:
        return self.base.heads(*representations)

    @override
    def tails(self, *representations: Tensor) -> Tensor:
        return self.base.tails(*representations)

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        return self.base.relations(*representations)

    @property
    @override
    def form(self) -> Form:
        return self.base.form

    @override
    def query_moments(self, heads: Moments, relations: Tensor, weights: Tensor | None = None) -> Moments:
        return self.base.query_moments(heads, relations, weights)

    @override
    def transform(self, scores: Tensor) -> Tensor:
        # within the clamp
        return self.base.transform(scores)

    @property
    @override
    def own_scores(self) -> ScoreFunction | None:
        return ClampFunction(self.base.own_scores, self.low, self.high)


class _Affine(WrapperFactorization):
    r"""A monotonic affine transformation, $f = s f_0 + b$: one more feature 1, and s and b learned with the rest."""

    def __init__(self, interaction: MonotonicAffineTransformationInteraction, base: Factorization):
        """Initialize the factorization from that of the wrapped interaction."""
        super().__init__(interaction, base)
        if base.own_scores is not None:
            what, advice = "score", "Remove factorization_kwargs"
            if base.squares:
                what, advice = "norm", "Use the square of the norm, with base_kwargs=dict(power_norm=True)"
            self.no_scores = (
                f"it needs the {what} of {type(base.interaction).__name__} itself, but its scale and bias are learned "
                f"together with another function of it. {advice}, or use loss='nonsampling'."
            )

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
    def own_scores(self) -> ScoreFunction | None:
        own: ScoreFunction | None = self.base.own_scores
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
    #: the factorization for each kind of base
    kinds: Mapping[type[Any], type[Any]]
    #: whether an interaction scores as its base does, and has the same factorization
    adds_nothing: Callable[[Any], bool] = lambda interaction: False
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
        if self.adds_nothing(interaction):
            return base
        self.check(interaction, base)
        for kind, cls in self.kinds.items():
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
    if base.no_moments is not None:
        raise NotDecomposableError(
            f"{type(interaction).__name__} of clamped scores cannot be decomposed: they are no function of one product of "
            f"features. Clamp the result instead, with ClampedInteraction(base=…, clamp_score=…), or remove the clamp."
        )


def _check_average(interaction: Any, base: Factorization) -> None:
    _check_clamp(interaction, base)
    if base.squares:
        raise NotDecomposableError(
            f"DirectionAverageInteraction of {type(base.interaction).__name__} cannot be decomposed: the average of two "
            f"norms does not rank like that of their squares, which can be decomposed. Use the square, if there is one, "
            f"with base_kwargs=dict(p=2, power_norm=True)."
        )


#: The interactions of PyKEEN that wrap another one, by the class that defines their score
WRAPPERS: Mapping[type[Interaction], Wrapper] = {
    ClampedInteraction: Wrapper(
        "the base is supported; with a clamp, for losses that see every score",
        "m₀",
        {Factorization: ClampedFactorization},
        adds_nothing=lambda interaction: interaction.clamp_score is None,
    ),
    DirectionAverageInteraction: Wrapper(
        "the base is supported, not clamped, and not a norm (power_norm=True makes it a square)",
        "2m₀",
        {TrilinearFactorization: AverageTrilinearFactorization, MatrixFactorization: AverageMatrixFactorization},
        check=_check_average,
    ),
    MonotonicAffineTransformationInteraction: Wrapper(
        "the base is supported, and not clamped; if it is a norm, for the loss nonsampling",
        "m₀ + 1",
        {TrilinearFactorization: AffineTrilinearFactorization, MatrixFactorization: AffineMatrixFactorization},
        check=_check_clamp,
        plain=True,
    ),
}


def find_wrapper(interaction: type[Interaction]) -> Wrapper | None:
    """Find the wrapper that an interaction gets its score from, if it is made of another interaction."""
    return WRAPPERS.get(next(cls for cls in interaction.__mro__ if "forward" in vars(cls)))
