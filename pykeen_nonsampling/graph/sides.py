"""Triples seen from one end, with the weights of triples, queries and candidates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from pykeen.typing import LABEL_HEAD, Target
from torch import Tensor

from ..factorizations.base import Form
from .index import Positions, TripleIndex

EndType = TypeVar("EndType")


@dataclass(frozen=True)
class SideWeights:
    """The weights of one side's triples, queries and candidates. A number stands for equal ones."""

    #: shape: (n,), the weights of observed triples
    positives: Tensor | float = 1.0
    #: shape: (q,), the weights of the queries' negatives
    queries: Tensor | float = 1.0
    #: shape: (num_entities,), the weights of candidates as negatives; none, if they are all 1
    candidates: Tensor | None = None
    #: shape: (n,), what observed triples would weigh among the candidates of their queries
    answers: Tensor | float = 1.0

    def take(self, queries: Positions, triples: Positions) -> SideWeights:
        """Return the weights of some queries and their triples."""
        positives, answers = (x[triples] if isinstance(x, Tensor) else x for x in (self.positives, self.answers))
        weights = self.queries[queries] if isinstance(self.queries, Tensor) else self.queries
        return SideWeights(positives, weights, self.candidates, answers)


@dataclass(frozen=True)
class Side:
    """Triples seen from one end: queries made of the other end and the relation, answered by this end."""

    #: the end that answers
    target: Target
    index: TripleIndex
    weights: SideWeights = SideWeights()

    def face(self, form: Form) -> Form:
        """Turn a form, which makes queries for tails, to this end."""
        return form.reverse if self.target == LABEL_HEAD else form

    def ends(self, heads: EndType, tails: EndType) -> tuple[EndType, EndType]:
        """Sort what belongs to heads and to tails into what belongs to given entities and to answers, or vice versa."""
        return (tails, heads) if self.target == LABEL_HEAD else (heads, tails)

    def take(self, queries: Positions) -> Side:
        """Return some queries, with all their answers."""
        index = self.index.take(queries)
        if index is self.index:
            return self
        return Side(self.target, index, self.weights.take(queries, self.index.positions(queries)))
