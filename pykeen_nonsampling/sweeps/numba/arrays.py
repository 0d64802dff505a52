"""A problem as compiled loops see it: arrays only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ...factorizations import Layout, TrilinearForm
from ...graph.sides import SideWeights
from ..problem import Gradients, Problem
from . import kernels
from .order import Order, Rows


@dataclass(frozen=True)
class Arrays:
    """A problem, and the memory for its gradients, as arrays. They are described in :mod:`kernels`."""

    order: Order
    terms: Any
    coefficients: Any
    #: the length of blocks that are vectors
    width: int
    given: Any
    relations: Any
    keys: Any
    by_given: Any
    by_relation: Any

    @classmethod
    def of(cls, problem: Problem, order: Order, gradients: Gradients | None, by_relation: Tensor) -> Arrays:
        """Prepare a problem.

        :param problem: the problem, with a trilinear form
        :param order: the orders to visit its queries in
        :param gradients: the gradients to add to; none, if they are not needed
        :param by_relation: shape: (parts, num_relations, l), those by relations, one for each part
        :return: the arrays
        """
        given, relations, keys = (x.contiguous() for x in (problem.given, problem.relations, problem.answers))
        form = problem.form
        assert isinstance(form, TrilinearForm)  # noqa: S101
        terms, coefficients, width = _tabulate(form, given.shape[1], relations.shape[1], keys.shape[1])
        return cls(
            order=order,
            terms=terms,
            coefficients=coefficients.astype(given.numpy().dtype),
            width=width,
            given=given.numpy(),
            relations=relations.numpy(),
            keys=keys.numpy(),
            by_given=given.new_empty(0, 0).numpy() if gradients is None else gradients.given.numpy(),
            by_relation=by_relation.numpy(),
        )

    @property
    def form(self) -> tuple[Any, ...]:
        """The arguments that all loops have in common."""
        return self.terms, self.coefficients, self.width, self.given, self.relations

    @property
    def pairs(self) -> Any:
        """The given entity and the relation of each query."""
        return self.order.pairs.numpy()

    def visit(
        self,
        rows: Rows,
        mode: int,
        slopes: Tensor,
        norm_weight: float,
        more: Tensor | None = None,
        weights: SideWeights = SideWeights(),  # noqa: B008
        targets: tuple[float, float] = (1.0, 0.0),
    ) -> float:
        """Visit queries with their answers, cf. ``kernels``.

        :param rows: the queries
        :param mode: what to do with their answers
        :param slopes: shape: (n,), the scores of all answers, or the derivatives of the cost by them
        :param norm_weight: the weight of each query's squared norm, once per answer
        :param more: shape: (b, m), gradients by these queries that are known already
        :param weights: the weights of all queries and answers, for the squared objective
        :param targets: its targets of positives and negatives
        :return: what they cost
        """
        all_weights, given = [weights.positives, weights.queries, weights.answers], self.given
        arrays = [x.to(slopes.dtype).contiguous() if isinstance(x, Tensor) else slopes.new_tensor([x]) for x in all_weights]
        return kernels.VISIT(
            rows.cuts,
            self.pairs,
            self.order.offsets.numpy(),
            self.order.answers.numpy(),
            *self.form,
            self.keys,
            mode,
            slopes.numpy(),
            np.array(targets, dtype=given.dtype),
            *(x.numpy() for x in arrays),
            np.array([isinstance(x, Tensor) for x in all_weights], dtype=np.int64),
            norm_weight,
            given[:0, :0] if more is None else more.numpy(),
            self.by_given,
            self.by_relation,
        )

    def collect(self, slopes: Tensor, by_answer: Tensor) -> None:
        """Add the gradients by answers, cf. ``kernels``.

        :param slopes: shape: (n,), the derivatives of the cost by the scores of answers
        :param by_answer: shape: (num_entities, m), the gradients to add to
        """
        order = self.order
        kernels.COLLECT(
            order.run_cuts,
            order.run_answers.numpy(),
            order.run_relations.numpy(),
            order.run_offsets.numpy(),
            order.run_given.numpy(),
            order.triples.numpy(),
            *self.form,
            slopes.numpy(),
            by_answer.numpy(),
        )


def _tabulate(form: TrilinearForm, given: int, relation: int, answer: int) -> tuple[Any, Any, int]:
    """Write the terms of a form as tables, for each of the three directions.

    :param form: the form
    :param given: the number of features of given entities; the next two are those of relations and answers
    :param relation: that of relations
    :param answer: that of answers
    :return: terms, coefficients, and the length of blocks that are vectors
    """
    layouts = ((form.given_layout, given), (form.relation_layout, relation), (form.answer_layout, answer))
    width = max((layout.widths(total)[0] for layout, total in layouts if layout.vectors), default=0)
    rows, coefficients = [], []
    # which of given entity, relation and answer are first, second and target
    for first, second, target in ((0, 1, 2), (2, 1, 0), (0, 2, 1)):
        for term in form.terms:
            blocks = (term.head, term.relation, term.tail)
            rows.append([*(_position(*layouts[i], blocks[i]) for i in (first, second, target)), 0])
            for i, flag in ((first, kernels.FIRST), (second, kernels.SECOND), (target, kernels.TARGET)):
                block = blocks[i]
                if block is None:
                    rows[-1][3] |= kernels.LEFT_OUT if i == target else kernels.SECOND | kernels.CONSTANT
                elif layouts[i][0].is_scalar(block):
                    rows[-1][3] |= flag
            coefficients.append(term.coefficient)
    shape = 3, len(form.terms)
    return np.array(rows, dtype=np.int64).reshape(*shape, 4), np.array(coefficients).reshape(shape), width


def _position(layout: Layout, total: int, block: int | None) -> int:
    """Return where a block begins."""
    return sum(layout.widths(total)[:block]) if block else 0
