"""Interactions whose relations are full matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, final

import torch
from pykeen.nn.modules import (
    Interaction,
    MultiLinearTuckerInteraction,
    NTNInteraction,
    RESCALInteraction,
    TuckERInteraction,
)
from torch import Tensor, nn
from typing_extensions import override

from .base import Factorization, Family, Form, NotDecomposableError, check_real
from .moments import Moments
from .trilinear import with_one


@final
@dataclass(frozen=True)
class MatrixForm(Form):
    """A full matrix per relation: queries of one relation are one matrix product."""

    #: whether answers are the rows of the matrices, not the columns
    transposed: bool = False
    by_relation = True

    @property
    def reverse(self) -> MatrixForm:
        """The same form from its other end."""
        return MatrixForm(not self.transposed)

    @override
    def queries(self, given: Tensor, relations: Tensor, out: Tensor | None = None) -> Tensor:
        return _multiply(given, relations.mT if self.transposed else relations)

    @override
    def backward(
        self, given: Tensor, relations: Tensor, grad: Tensor, out: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        rows, columns = (grad, given) if self.transposed else (given, grad)
        return self.reverse.queries(grad, relations), _outer(rows, columns, relations)


class MatrixFactorization(Factorization):
    r"""A score $f = \phi^\top A_r \psi$ with relation features that are matrices, shape: (num_relations, k, l).

    .. math::

        \sum_{h,r} q q^\top = \sum_r A_r^\top \Big( \sum_h \phi \phi^\top \Big) A_r

    takes $O(|\mathcal{R}| m^3)$. Queries of one relation are one product of matrices.
    """

    family = Family.FULL_MATRIX

    @override
    def heads(self, *representations: Tensor) -> Tensor:
        check_real(type(self.interaction).__name__, *representations)
        (x,) = representations
        return x

    @property
    @override
    def form(self) -> Form:
        return MatrixForm()

    @override
    def query_moments(self, heads: Moments, relations: Tensor, weights: Tensor | None = None) -> Moments:
        if weights is None:
            count, first, weighted = float(len(relations)), relations.sum(dim=0), relations
        else:
            weighted = weights[:, None, None] * relations
            count, first = weights.sum().item(), weighted.sum(dim=0)
        products = heads.second @ relations
        return Moments(
            count=heads.count * count,
            first=heads.first @ first,
            second=weighted.flatten(end_dim=1).T @ products.flatten(end_dim=1),
        )


def _multiply(x: Tensor, matrices: Tensor) -> Tensor:
    """Multiply each row by its matrix, or all rows by the only one."""
    return x @ matrices[0] if len(matrices) == 1 else (x[:, None] @ matrices)[:, 0]


def _outer(x: Tensor, y: Tensor, matrices: Tensor) -> Tensor:
    """Compute the outer product of each pair of rows, or their sum, if there is only one matrix that they belong to."""
    return (x.T @ y)[None] if len(matrices) == 1 else x[:, :, None] * y[:, None]


class RESCALFactorization(MatrixFactorization):
    r"""RESCAL: $f = h^\top R t$."""

    interaction_cls: ClassVar[type[Interaction]] = RESCALInteraction
    feature_size = "d"

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        return self.heads(*representations)


class MultiLinearTuckerFactorization(MatrixFactorization):
    r"""Tucker's decomposition: $f = \sum_{ijk} Z_{ijk} h_i r_j t_k$, so $A_r = \sum_j r_j Z_j$, a mixture of slices."""

    interaction_cls: ClassVar[type[Interaction]] = MultiLinearTuckerInteraction
    feature_size = "d"

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        check_real(type(self.interaction).__name__, *representations)
        (r,) = representations
        return torch.einsum("ijk,rj->rik", self.interaction.core_tensor, r)


class TuckERFactorization(MultiLinearTuckerFactorization):
    """TuckER: Tucker's decomposition, provided that there is neither dropout nor batch normalization in between."""

    interaction_cls: ClassVar[type[Interaction]] = TuckERInteraction
    condition: ClassVar[str | None] = "no dropout, no batch normalization"

    def __init__(self, interaction: TuckERInteraction):
        """Initialize the factorization."""
        super().__init__(interaction)
        rates = [interaction.head_dropout.p, interaction.relation_dropout.p, interaction.head_relation_dropout.p]
        if any(rates) or interaction.head_batch_norm is not None:
            raise NotDecomposableError(
                f"TuckER with dropout rates of {rates} and batch normalization "
                f"{'on' if interaction.head_batch_norm is not None else 'off'} cannot be decomposed: both act on each query "
                f"separately, so a sum over all queries has no closed form. Leave them out, with model_kwargs=dict("
                f"dropout_0=0, dropout_1=0, dropout_2=0, apply_batch_normalization=False)."
            )


class NTNFactorization(MatrixFactorization):
    r"""NTN without non-linearity: $f = u^\top (h^\top W t + V_h h + V_t t + b)$, lifted by a constant.

    .. math::

        f = \begin{bmatrix} h \\ 1 \end{bmatrix}^\top
            \begin{bmatrix} \sum_k u_k W_k & V_h^\top u \\ u^\top V_t & u^\top b \end{bmatrix}
            \begin{bmatrix} t \\ 1 \end{bmatrix}
    """

    interaction_cls: ClassVar[type[Interaction]] = NTNInteraction
    feature_size = "d + 1"
    condition: ClassVar[str | None] = "activation=nn.Identity"

    def __init__(self, interaction: NTNInteraction):
        """Initialize the factorization."""
        super().__init__(interaction)
        check_identity("NTN", interaction.activation, "non_linearity")

    @override
    def heads(self, *representations: Tensor) -> Tensor:
        return with_one(super().heads(*representations))

    @override
    def relations(self, *representations: Tensor) -> Tensor:
        check_real("NTN", *representations)
        w, vh, vt, b, u = representations
        top = torch.cat([torch.einsum("rk,rkde->rde", u, w), torch.einsum("rk,rkd->rd", u, vh)[:, :, None]], dim=2)
        bottom = torch.cat([torch.einsum("rk,rkd->rd", u, vt), (u * b).sum(dim=1, keepdim=True)], dim=1)
        return torch.cat([top, bottom[:, None]], dim=1)


def check_identity(name: str, activation: nn.Module, parameter: str) -> None:
    """Refuse an activation function other than the identity.

    :param name: the name of the interaction
    :param activation: its activation function
    :param parameter: the parameter that sets it
    :raises NotDecomposableError: if it is not the identity
    """
    if not isinstance(activation, nn.Identity):
        raise NotDecomposableError(
            f"{name} with {activation} cannot be decomposed: a non-linear function is applied to a combination of head "
            f"and relation. Leave it out, with model_kwargs=dict({parameter}='identity')."
        )
