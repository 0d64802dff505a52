"""Weights to test with, in each of the forms they may have."""

from __future__ import annotations

from typing import Any

from pykeen.triples.weights import LossWeighter
from torch import Tensor

#: Weights of the loss that are the same for all
UNIFORM: dict[str, Any] = dict(query_weight=0.0, candidate_weight=0.0, regularization_weight=0.0, duality_weight=0.0)

#: Weights of negatives by each part of a triple, in each of the forms they may have
WEIGHTED: dict[str, Any] = dict(head_weight=lambda n: 0.3 + n, relation_weight="popularity", tail_weight=-0.7)


class TripleWeighter(LossWeighter):
    """Gives every triple a weight of its own."""

    def __call__(self, h: Tensor | None, r: Tensor | None, t: Tensor | None) -> Tensor:
        assert h is not None
        assert r is not None
        assert t is not None
        return 0.5 + (h + 2 * r + 3 * t) % 5


class QueryWeighter(LossWeighter):
    """Gives every query a weight of its own."""

    def __call__(self, h: Tensor | None, r: Tensor | None, t: Tensor | None) -> Tensor:
        given = t if h is None else h
        assert r is not None
        assert given is not None
        return 0.5 + (given + 2 * r) % 3


def weigh_by_everything(entities: Tensor, relations: Tensor, positives: Tensor) -> Tensor:
    """Weigh queries."""
    return 1 + entities + 0.5 * relations + 0.1 * positives
