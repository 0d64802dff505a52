"""Interactions that are sums of products of two vectors, lifted by a constant."""

from __future__ import annotations

from typing import ClassVar

import torch
from pykeen.nn.modules import CrossEInteraction, DistMAInteraction, Interaction, ProjEInteraction, TransFInteraction
from torch import Tensor
from typing_extensions import override

from .base import Family, NotDecomposableError, check_real
from .matrices import check_identity
from .trilinear import Layout, Term, TrilinearFactorization, with_one


class SumFactorization(TrilinearFactorization):
    """Products of head and relation, or of relation and tail, and of head and tail: $[h, 1]$ and $[t, 1]$."""

    family = Family.SUM_OF_PRODUCTS
    feature_size = "d + 1"
    head_layout = tail_layout = Layout(1, 1)

    @override
    def heads(self, *representations: Tensor) -> Tensor:
        check_real(type(self.interaction).__name__, *representations)
        (x,) = representations
        return with_one(x)

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        check_real(type(self.interaction).__name__, *representations)
        (r,) = representations
        return r


class DistMAFactorization(SumFactorization):
    r"""DistMA: $f = \langle h, r \rangle + \langle r, t \rangle + \langle h, t \rangle$."""

    interaction_cls: ClassVar[type[Interaction]] = DistMAInteraction
    terms = (Term(0, 0, 1), Term(1, 0, 0), Term(0, None, 0))


class TransFFactorization(SumFactorization):
    r"""TransF: $f = 2 \langle h, t \rangle + \langle r, t \rangle - \langle h, r \rangle$."""

    interaction_cls: ClassVar[type[Interaction]] = TransFInteraction
    terms = (Term(0, None, 0, 2.0), Term(1, 0, 0), Term(0, 0, 1, -1.0))


class ProjEFactorization(SumFactorization):
    r"""ProjE without non-linearity: $f = \langle d_e, h, t \rangle + \langle d_r \odot r + b_c, t \rangle + b_p$."""

    interaction_cls: ClassVar[type[Interaction]] = ProjEInteraction
    condition: ClassVar[str | None] = "inner_activation=nn.Identity, outer_activation=nn.Identity"
    relation_layout = Layout(2, 1)
    terms = (Term(0, 0, 0), Term(1, 1, 0), Term(1, 2, 1))

    def __init__(self, interaction: ProjEInteraction):
        """Initialize the factorization."""
        super().__init__(interaction)
        check_identity("ProjE", interaction.inner_activation, "inner_non_linearity")
        check_identity("ProjE", interaction.outer_activation, "outer_activation")

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        r, parameters = super().relations(*representations), self.interaction
        return torch.cat(
            [parameters.d_e.expand_as(r), parameters.d_r * r + parameters.b_c, parameters.b_p.expand(len(r), 1)], dim=-1
        )


class CrossEFactorization(SumFactorization):
    r"""CrossE without non-linearity: $f = \langle h, c_r \odot (1 + r), t \rangle + \langle b, t \rangle$."""

    interaction_cls: ClassVar[type[Interaction]] = CrossEInteraction
    condition: ClassVar[str | None] = "combination_activation=nn.Identity, combination_dropout=None"
    relation_layout = Layout(2)
    terms = (Term(0, 0, 0), Term(1, 1, 0))

    def __init__(self, interaction: CrossEInteraction):
        """Initialize the factorization."""
        super().__init__(interaction)
        check_identity("CrossE", interaction.activation, "combination_activation")
        if interaction.dropout is not None and interaction.dropout.p:
            raise NotDecomposableError(
                f"CrossE with a dropout rate of {interaction.dropout.p} cannot be decomposed: it acts on each query "
                f"separately, so a sum over all queries has no closed form. Leave it out, with model_kwargs=dict("
                f"combination_dropout=None)."
            )

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        check_real("CrossE", *representations)
        r, c = representations
        return torch.cat([c * (1 + r), self.interaction.bias.expand_as(r)], dim=-1)
