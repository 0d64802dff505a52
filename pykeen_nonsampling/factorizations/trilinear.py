r"""Sums of trilinear products $\langle h, r, t \rangle = \sum_i h_i r_i t_i$: what most interactions are made of.

The relation's operator is made of diagonals, so the Gram matrix of all queries is made of elementwise products of the Gram
matrices of heads and relations.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from torch import Tensor
from typing_extensions import override

from .base import Factorization, Form
from .moments import Moments


def with_one(x: Tensor) -> Tensor:
    """Add a constant feature 1 to the features of each entity."""
    return torch.cat([x, torch.ones_like(x[:, :1])], dim=-1)


class Layout(NamedTuple):
    """How a row of features is divided into blocks: some vectors of the same length, then some numbers."""

    vectors: int
    scalars: int = 0

    def widths(self, total: int) -> list[int]:
        """Compute the widths of the blocks of a row of some length."""
        width = (total - self.scalars) // self.vectors if self.vectors else 0
        return [width] * self.vectors + [1] * self.scalars

    def is_scalar(self, block: int) -> bool:
        """Whether a block is a number."""
        return block >= self.vectors

    def total(self, width: int) -> int:
        """Compute the length of a row with vectors of some length."""
        return self.vectors * width + self.scalars

    def split(self, x: Tensor) -> Sequence[Tensor]:
        """Divide the last dimension into blocks."""
        return x.split(self.widths(x.shape[-1]), dim=-1)

    def grid(self, x: Tensor) -> list[list[Tensor]]:
        """Divide rows and columns of a square matrix into blocks."""
        widths = self.widths(x.shape[-1])
        return [list(row.split(widths, dim=1)) for row in x.split(widths, dim=0)]


class Term(NamedTuple):
    r"""The trilinear product $c \langle h, r, t \rangle$ of three blocks, by position. Numbers apply to each component."""

    head: int
    #: if there is none, the product is $c \langle h, t \rangle$
    relation: int | None
    tail: int
    coefficient: float = 1.0


@final
@dataclass(frozen=True)
class TrilinearForm(Form):
    r"""A sum of trilinear products of blocks, $\sum_b c_b \langle \phi_{i_b}, \rho_{k_b}, \psi_{j_b} \rangle$, as data."""

    #: the blocks of the features of given entities, relations and answers
    given_layout: Layout
    relation_layout: Layout
    answer_layout: Layout
    #: which of them meet; a term's head is the given entity, its tail the answer
    terms: tuple[Term, ...]

    @functools.cached_property
    def is_elementwise(self) -> bool:
        """Whether each component of a given entity meets only the same component of relation and answer."""
        count, layouts = len(self.terms), {self.given_layout, self.relation_layout, self.answer_layout}
        return layouts == {Layout(count)} and set(self.terms) == {Term(i, i, i) for i in range(count)}

    @functools.cached_property
    def reverse(self) -> TrilinearForm:
        """The same form from its other end."""
        terms = tuple(term._replace(head=term.tail, tail=term.head) for term in self.terms)
        return TrilinearForm(self.answer_layout, self.relation_layout, self.given_layout, terms)

    @override
    def queries(self, given: Tensor, relations: Tensor, out: Tensor | None = None) -> Tensor:
        if self.is_elementwise:
            return torch.mul(given, relations, out=out)
        terms = ((t.head, t.relation, t.tail, t.coefficient) for t in self.terms)
        return _contract(terms, given, self.given_layout, relations, self.relation_layout, self.answer_layout, out)

    def operators(self, given: Tensor, answers: Tensor, out: Tensor | None = None) -> Tensor:
        """Compute the gradient of the scores with respect to the relation features, row by row."""
        if self.is_elementwise:
            return torch.mul(given, answers, out=out)
        terms = ((t.head, t.tail, t.relation, t.coefficient) for t in self.terms if t.relation is not None)
        return _contract(terms, given, self.given_layout, answers, self.answer_layout, self.relation_layout, out)

    @override
    def backward(
        self, given: Tensor, relations: Tensor, grad: Tensor, out: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, Tensor]:
        # queries of either end and operators are derivatives of one trilinear form, hence of each other
        out_given, out_relations = out or (None, None)
        return self.reverse.queries(grad, relations, out_given), self.operators(given, grad, out_relations)


class TrilinearFactorization(Factorization):
    r"""A score that is a sum of trilinear products of blocks of features.

    .. math::

        f = \sum_b c_b \langle \phi_{i_b}(h), \rho_{k_b}(r), \psi_{j_b}(t) \rangle

    A subclass says what the features are, how they are divided into blocks, and which blocks meet. A query's block j is
    $\sum_{b: j_b = j} c_b \, \phi_{i_b} \odot \rho_{k_b}$, and the Gram matrix of all queries has the blocks

    .. math::

        \Big( \sum_{h,r} q q^\top \Big)_{j j'} = \sum_{b: j_b = j} \sum_{b': j_{b'} = j'} c_b c_{b'}
        \Big( \sum_h \phi_{i_b} \phi_{i_{b'}}^\top \Big) \odot \Big( \sum_r \rho_{k_b} \rho_{k_{b'}}^\top \Big)

    Where a block is a number, it is treated as a vector of equal components. So a constant feature 1 allows for terms that
    depend on one entity only, such as $\langle h, r, 1 \rangle$ or $\langle 1, r, t \rangle$.
    """

    #: the blocks of the features of heads, relations and tails
    head_layout: Layout = Layout(1)
    relation_layout: Layout = Layout(1)
    tail_layout: Layout = Layout(1)
    #: which of them meet
    terms: Sequence[Term] = (Term(0, 0, 0),)

    @functools.cached_property
    @override
    def form(self) -> Form:
        return TrilinearForm(self.head_layout, self.relation_layout, self.tail_layout, tuple(self.terms))

    @override
    def query_moments(self, heads: Moments, relations: Tensor, weights: Tensor | None = None) -> Moments:
        r = Moments.of(relations, weights)
        head_sums, relation_sums = self.head_layout.split(heads.first), self.relation_layout.split(r.first)
        head_grams, relation_grams = self.head_layout.grid(heads.second), self.relation_layout.grid(r.second)

        def relation_gram(k: int | None, l: int | None) -> Tensor | float:  # noqa: E741
            """Sum the products of two blocks over all relations; without a block, there is a 1 in its place."""
            if k is None:
                return r.count if l is None else relation_sums[l][None]
            return relation_sums[k][:, None] if l is None else relation_grams[k][l]

        layout = self.tail_layout
        widths = layout.widths(layout.total(self.head_layout.widths(heads.first.shape[0])[0]))
        first = [heads.first.new_zeros(width) for width in widths]
        second = [[heads.first.new_zeros(v, w) for w in widths] for v in widths]
        for b, (i, k, j, c) in enumerate(self.terms):
            x = c * head_sums[i] * (r.count if k is None else relation_sums[k])
            first[j] = first[j] + (x.sum() if layout.is_scalar(j) else x)
            for other, (i2, k2, j2, c2) in enumerate(self.terms[b:]):
                y = c * c2 * head_grams[i][i2] * relation_gram(k, k2)
                if layout.is_scalar(j):
                    y = y.sum(dim=0, keepdim=True)
                if layout.is_scalar(j2):
                    y = y.sum(dim=1, keepdim=True)
                second[j][j2] = second[j][j2] + y
                if other:
                    second[j2][j] = second[j2][j] + y.T
        return Moments(
            count=heads.count * r.count,
            first=torch.cat(first),
            second=torch.cat([torch.cat(row, dim=1) for row in second]),
        )


def _contract(
    terms: Iterable[tuple[int, int | None, int, float]],
    x: Tensor,
    x_layout: Layout,
    y: Tensor,
    y_layout: Layout,
    layout: Layout,
    out: Tensor | None = None,
) -> Tensor:
    """Sum the products of blocks of x and blocks of y, row by row, in the blocks that they belong to.

    :param terms: the blocks of x, y and the result, and a coefficient
    :param x: shape: (n, k), features
    :param x_layout: their blocks
    :param y: shape: (n, l), other features
    :param y_layout: their blocks
    :param layout: the blocks of the result
    :param out: shape: (n, m), memory for the result
    :return: shape: (n, m), the result
    """
    xs, ys = x_layout.split(x), y_layout.split(y)
    widths = layout.widths(layout.total(xs[0].shape[-1]))
    result = x.new_empty(len(x), sum(widths)) if out is None else out
    written = [False] * len(widths)
    # a new view for each term: one from before the last term has no gradient
    targets = [functools.partial(result.narrow, -1, sum(widths[:j]), width) for j, width in enumerate(widths)]
    for i, k, j, coefficient in terms:
        target = targets[j]()
        if layout.is_scalar(j):
            # the sum over all components
            product = xs[i] if k is None else xs[i] * ys[k]
            total = product.sum(dim=-1, keepdim=True)
            target.add_(total, alpha=coefficient) if written[j] else target.copy_(coefficient * total)
        elif not written[j]:
            _write(target, xs[i], None if k is None else ys[k], coefficient)
        elif k is None:
            target.add_(xs[i], alpha=coefficient)
        else:
            target.addcmul_(xs[i], ys[k], value=coefficient)
        written[j] = True
    for j, done in enumerate(written):
        if not done:
            targets[j]().zero_()
    return result


def _write(target: Tensor, x: Tensor, y: Tensor | None, coefficient: float) -> None:
    """Write the product, into memory that need not be cleared first."""
    if y is not None and y.shape[-1] < x.shape[-1]:
        # there are fewer of these
        y, coefficient = coefficient * y, 1.0
    width = max(x.shape[-1], 0 if y is None else y.shape[-1])
    if torch.is_grad_enabled() or width != target.shape[-1]:
        target.copy_(coefficient * (x if y is None else x * y))
    elif y is None:
        torch.mul(x, coefficient, out=target)
    else:
        torch.mul(x, y, out=target)
        if coefficient != 1:
            target.mul_(coefficient)
