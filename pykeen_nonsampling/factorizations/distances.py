r"""Squared distances: $\|x - y\|^2 = \|x\|^2 - 2 x^\top y + \|y\|^2$ is a sum of trilinear products of $[x, \|x\|^2, 1]$."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from pykeen.nn.modules import (
    Interaction,
    LineaREInteraction,
    MuREInteraction,
    NormBasedInteraction,
    PairREInteraction,
    RotatEInteraction,
    TransEInteraction,
    TripleREInteraction,
    UMInteraction,
)
from torch import Tensor
from typing_extensions import override

from ..validation import as_number
from .base import Family, NotDecomposableError, check_complex, check_real
from .diagonal import COMPLEX_TERMS, split_complex
from .functions import NormFunction, ScoreFunction, SquareFunction
from .trilinear import Layout, Term, TrilinearFactorization


class SquaredDistanceFactorization(TrilinearFactorization):
    r"""Squared distances $f = b - a \|L h + c - M t\|^2$, where L and M are diagonal, exact for vectors of any norm.

    .. math::

        \|L h + c - M t\|^2 = \langle h^2, L^2, 1 \rangle + \langle 1, M^2, t^2 \rangle + \|c\|^2
        + 2 \langle h, L c, 1 \rangle - 2 \langle 1, M c, t \rangle - 2 \langle h, L M, t \rangle

    Where there is no L (or it keeps norms, as a rotation does), the number $\|h\|^2$ takes the place of the vector $h^2$;
    the same for M. A subclass says which of L, c and M its relations have.

    The score that a quadratic loss can pull to 1 for true and to 0 for false triples needs the constants a and b, e.g.
    [li2021]_'s $1 - \frac{1}{3} \|h + r - t\|^2$ for TransE. It is an increasing function of PyKEEN's $-\|\cdot\|$ and of
    its square (``power_norm=True``), so all three rank alike. By default, it is $1 - \frac{1}{2} \|\cdot\|^2$: for unit
    vectors, 2 is the expected squared distance of unrelated ones, so training may start from there.
    """

    family = Family.SQUARED_DISTANCE
    condition: ClassVar[str | None] = "p=2"
    plain_kwargs: ClassVar[Mapping[str, Any]] = {"scale": 1.0, "offset": 0.0}

    #: the keyword-based parameters of the model that make it Euclidean
    euclidean: ClassVar[str] = "p=2"
    #: the number of real vectors that an entity's vector consists of
    vectors: ClassVar[int] = 1
    #: which of L, c and M there are
    scales_heads: ClassVar[bool] = False
    translates: ClassVar[bool] = False
    scales_tails: ClassVar[bool] = False
    #: whether there is a number for each entity that is added to the score
    has_biases: ClassVar[bool] = False
    #: the factor a of the squared distance and the score b at distance zero, unless the user sets them
    default_scale: ClassVar[float] = 1 / 2
    default_offset: ClassVar[float] = 1.0

    def __init__(
        self,
        interaction: NormBasedInteraction,
        scale: float | None = None,
        offset: float | None = None,
        squared: bool = False,
    ):
        """Initialize the factorization.

        :param interaction: the interaction
        :param scale: >0, the factor a of the squared distance
        :param offset: the score b at distance zero
        :param squared: whether losses that see every score are trained on f, which ranks like the model's own score, and
            not on the latter. The derivative of a norm is as large far away as it is nearby; that of f is not.
        :raises NotDecomposableError: for a norm other than p=2
        :raises TypeError: if it is not said whether to use f
        :raises ValueError: for a scale or an offset that is out of range
        """
        super().__init__(interaction)
        self._check_norm(interaction)
        scale = self.default_scale if scale is None else scale
        offset = self.default_offset if offset is None else offset
        self.scale = as_number("scale", scale, 0.5, above=0, otherwise=", which ranks close triples first")
        self.offset = as_number("offset", offset, 1.0)
        if not isinstance(squared, bool):
            raise TypeError(f"{squared=} has to be True or False.")
        self.squared = squared
        self.squares = not interaction.power_norm
        self._lay_out()

    def _check_norm(self, interaction: NormBasedInteraction) -> None:
        """Refuse norms that are not Euclidean."""
        if interaction.p != 2:
            name = self.interaction_cls.__name__.removesuffix("Interaction")
            raise NotDecomposableError(
                f"{name} with p={interaction.p} cannot be decomposed: only the square of the 2-norm is bilinear in features "
                f"of head and tail. Use the 2-norm, with model_kwargs=dict({self.euclidean}) for the model and "
                f"interaction_kwargs=dict(p=2) for the interaction."
            )

    def _lay_out(self) -> None:
        """Say which blocks there are, and which of them meet."""
        a, scaled = self.scale, self.scales_heads or self.scales_tails
        names = [
            name
            for name, needed in (
                ("LM", scaled),
                ("LL", self.scales_heads),
                ("MM", self.scales_tails),
                ("Mc", self.translates),
                ("Lc", self.translates and scaled),
            )
            if needed
        ]
        relation = {name: k for k, name in enumerate(names)}
        self.head_layout, self.tail_layout = (
            Layout(self.vectors * (1 + scaled), 1 + (self.has_biases or not scaled))
            for scaled in (self.scales_heads, self.scales_tails)
        )
        self.relation_layout = Layout(len(names), int(self.translates))
        # the last blocks are the constant 1 and, for translations, the sum of all constants
        one_h, one_t = (sum(layout) - 1 for layout in (self.head_layout, self.tail_layout))
        constant = Term(one_h, len(names), one_t) if self.translates else Term(one_h, None, one_t, self.offset)
        terms = [constant, *self._products(relation.get("LM"))]
        if self.scales_heads:
            terms.append(Term(1, relation["LL"], one_t, -a))
        if self.scales_tails:
            terms.append(Term(one_h, relation["MM"], 1, -a))
        # each entity's numbers come before the constant
        if self.head_layout.scalars > 1:
            terms.append(Term(one_h - 1, None, one_t, -a))
        if self.tail_layout.scalars > 1:
            terms.append(Term(one_h, None, one_t - 1, -a))
        if self.translates:
            terms.append(Term(0, relation.get("Lc", relation["Mc"]), one_t, -2 * a))
            terms.append(Term(one_h, relation["Mc"], 0, 2 * a))
        self.terms = terms

    def _products(self, relation: int | None) -> Sequence[Term]:
        """Say which terms the product of head and tail has."""
        return [Term(0, relation, 0, 2 * self.scale)]

    def _entities(self, representations: Sequence[Tensor], scaled: bool) -> Tensor:
        r"""Compute $[x, x^2, -b, 1]$, if the coordinates of x are scaled, and $[x, \|x\|^2 - b, 1]$ otherwise."""
        check_real(type(self.interaction).__name__, *representations)
        x, *biases = representations
        blocks = [x, x.square()] if scaled else [x]
        numbers = [] if scaled else [x.square().sum(dim=-1)]
        if self.has_biases:
            numbers.append(-biases[0])
        if numbers:
            blocks.append(sum(numbers[1:], numbers[0])[:, None])
        return torch.cat([*blocks, torch.ones_like(x[:, :1])], dim=-1)

    @override
    def heads(self, *representations: Tensor) -> Tensor:
        return self._entities(representations, self.scales_heads)

    @override
    def tails(self, *representations: Tensor) -> Tensor:
        return self._entities(representations, self.scales_tails)

    @property
    def same_features(self) -> bool:
        """Whether heads and tails have the same features."""
        return self.scales_heads == self.scales_tails

    @abstractmethod
    def maps(self, *representations: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Compute L, c and M of all relations, as far as they exist."""

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        check_real(type(self.interaction).__name__, *representations)
        left, shift, right = self.maps(*representations)
        factors = [x for x in (left, right) if x is not None]
        blocks = [math.prod(factors[1:], start=factors[0])] if factors else []
        blocks += [x.square() for x in factors]
        if shift is not None:
            blocks.append(shift if right is None else right * shift)
            if factors:
                blocks.append(shift if left is None else left * shift)
            blocks.append(self.offset - self.scale * shift.square().sum(dim=-1, keepdim=True))
        return torch.cat(blocks, dim=-1) if blocks else torch.empty(1, 0)

    @override
    def transform(self, scores: Tensor) -> Tensor:
        return self.offset + self.scale * (-scores.square() if self.squares else scores)

    @property
    @override
    def own_scores(self) -> ScoreFunction | None:
        if self.squared:
            return None
        if self.squares:
            return NormFunction(self.scale, self.offset)
        return SquareFunction(self.scale, self.offset) if (self.scale, self.offset) != (1.0, 0.0) else None


class TransEFactorization(SquaredDistanceFactorization):
    r"""TransE with p=2: $f = b - a \|h + r - t\|^2$.

    By default, it is [li2021]_'s $1 - \frac{1}{3} \|h + r - t\|^2$: for unit vectors, 3 is the expected squared distance of
    unrelated ones.
    """

    interaction_cls: ClassVar[type[Interaction]] = TransEInteraction
    family = Family.TRANSLATION
    feature_size = "d + 2"
    euclidean: ClassVar[str] = "scoring_fct_norm=2, power_norm=True"
    translates: ClassVar[bool] = True
    default_scale: ClassVar[float] = 1 / 3

    @override
    def maps(self, *representations: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        (r,) = representations
        return None, r, None


class UMFactorization(SquaredDistanceFactorization):
    r"""The unstructured model with p=2: $f = b - a \|h - t\|^2$ for all relations."""

    interaction_cls: ClassVar[type[Interaction]] = UMInteraction
    family = Family.TRANSLATION
    feature_size = "d + 2"
    euclidean: ClassVar[str] = "scoring_fct_norm=2"

    @override
    def maps(self, *representations: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return None, None, None


class RotatEFactorization(SquaredDistanceFactorization):
    r"""RotatE: $f = b - a \|h \odot r - t\|^2 = b - a (\|h\|^2 + \|t\|^2) + 2 a \mathrm{Re} \langle h, r, \bar t \rangle$.

    This holds because relations are rotations, $|r_i| = 1$. If they were not, PyKEEN's own score would depend on which of
    $\|h \odot r - t\|$ and $\|h - \bar r \odot t\|$ is cheaper to compute, so other relations are refused.
    """

    interaction_cls: ClassVar[type[Interaction]] = RotatEInteraction
    feature_size = "2d + 2"
    condition: ClassVar[str | None] = "|r| = 1"
    vectors: ClassVar[int] = 2
    # for PyKEEN, a complex vector of unit length has a squared norm of 2
    default_scale: ClassVar[float] = 1 / 4

    def __init__(self, interaction: RotatEInteraction, **kwargs: Any):
        """Initialize the factorization, cf. :class:`SquaredDistanceFactorization`."""
        super().__init__(interaction, **kwargs)
        # PyKEEN's RotatE ignores the parameters of its norm
        self.squares = True

    def _check_norm(self, interaction: NormBasedInteraction) -> None:
        pass

    def _lay_out(self) -> None:
        super()._lay_out()
        self.relation_layout = Layout(2)

    def _products(self, relation: int | None) -> Sequence[Term]:
        return [term._replace(coefficient=2 * self.scale * term.coefficient) for term in COMPLEX_TERMS]

    def _entities(self, representations: Sequence[Tensor], scaled: bool) -> Tensor:
        check_complex("RotatE", *representations)
        return super()._entities([split_complex(x) for x in representations], scaled)

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        check_complex("RotatE", *representations)
        (r,) = representations
        with torch.no_grad():
            absolute = r.abs()
            # without values, only shapes are of interest
            if absolute.numel() and not absolute.is_meta and (absolute - 1).abs().max() > 1e-3:
                raise NotDecomposableError(
                    f"RotatE needs rotations, but there are relations with absolute values from {absolute.min():.3g} to "
                    f"{absolute.max():.3g}, for which even PyKEEN's score is ambiguous. Keep them at 1 in each step, as "
                    f"model='RotatE' does with its default, relation_constrainer='complex_normalize', or with "
                    f"relation_representations_kwargs=dict(initializer='init_phases', constrainer='complex_normalize')."
                )
        # the same value, but its gradient does not point away from the rotations, where a step would be undone
        return split_complex(r / r.abs())

    @override
    def maps(self, *representations: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        return None, None, None


class MuREFactorization(SquaredDistanceFactorization):
    r"""MuRE with the squared 2-norm: $f = b - a (\|R \odot h + r - t\|^2 - b_h - b_t)$.

    With the norm itself (``power_norm=False``) there is no factorization: together with the biases of the entities, it
    does not rank like its square.
    """

    interaction_cls: ClassVar[type[Interaction]] = MuREInteraction
    feature_size = "2d + 2"
    condition: ClassVar[str | None] = "p=2, power_norm=True"
    euclidean: ClassVar[str] = "p=2, power_norm=True"
    scales_heads: ClassVar[bool] = True
    translates: ClassVar[bool] = True
    has_biases: ClassVar[bool] = True

    def _check_norm(self, interaction: NormBasedInteraction) -> None:
        super()._check_norm(interaction)
        if not interaction.power_norm:
            raise NotDecomposableError(
                "MuRE with power_norm=False cannot be decomposed: together with the biases of the entities, a norm does not "
                "rank like its square, which can be decomposed. Use the square, with model_kwargs=dict(power_norm=True)."
            )

    @override
    def maps(self, *representations: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        shift, left = representations
        return left, shift, None


class PairREFactorization(SquaredDistanceFactorization):
    r"""PairRE with p=2: $f = b - a \|h \odot r_h - t \odot r_t\|^2$."""

    interaction_cls: ClassVar[type[Interaction]] = PairREInteraction
    feature_size = "2d + 1"
    scales_heads: ClassVar[bool] = True
    scales_tails: ClassVar[bool] = True

    @override
    def maps(self, *representations: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        left, right = representations
        return left, None, right


class LineaREFactorization(SquaredDistanceFactorization):
    r"""LineaRE with p=2: $f = b - a \|h \odot r_h + r - t \odot r_t\|^2$."""

    interaction_cls: ClassVar[type[Interaction]] = LineaREInteraction
    feature_size = "2d + 1"
    scales_heads: ClassVar[bool] = True
    translates: ClassVar[bool] = True
    scales_tails: ClassVar[bool] = True

    @override
    def maps(self, *representations: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        left, shift, right = representations
        return left, shift, right


class TripleREFactorization(LineaREFactorization):
    r"""TripleRE with p=2: $f = b - a \|h \odot (r_h + u) + r - t \odot (r_t + u)\|^2$."""

    interaction_cls: ClassVar[type[Interaction]] = TripleREInteraction

    @override
    def maps(self, *representations: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        left, shift, right = representations
        u = self.interaction.u or 0.0
        return left + u, shift, right + u
