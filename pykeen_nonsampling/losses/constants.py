"""The constants behind default weights, in one table. No other module knows a default weight of the training loops."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..factorizations.base import Family

#: The constants behind default weights: for any model, and for families of factorizations that have others
CONSTANTS: Mapping[str, Mapping[Family | None, float]] = {
    # the total weight of a query's candidates if it has one positive, relative to that positive. No score of unit vectors
    # is far from 1/3, so for distances the sum over all candidates is large, no matter what is learned.
    "mass of a query's candidates": {None: 100.0, Family.SQUARED_DISTANCE: 10.0},
    # the same per feature of a candidate, if that is less: with few features, even unrelated vectors have large products, so
    # that answers would hardly score more than 0
    "mass per feature": {None: 0.5, Family.SQUARED_DISTANCE: math.inf},
    # the same on a graph with one triple per entity, if that is less: distances between entities that occur in few triples
    # should follow from these, and not from all the candidates that they are kept away from
    "mass on a sparse graph": {None: math.inf, Family.SQUARED_DISTANCE: 0.5},
    # the exponent by which that grows with the number of triples per entity
    "exponent of triples per entity": {None: 1.25},
    # the total weight of all triples in the closed world, relative to all positives
    "mass of all triples": {None: 20.0, Family.SQUARED_DISTANCE: 3.0},
    # the exponent of the number of a query's positives, unless negatives would weigh more than positives
    "exponent of queries": {None: 0.5},
    # the exponent of the number of triples that a candidate is the answer to
    "exponent of candidates": {None: 0.25, Family.SQUARED_DISTANCE: 0.5},
    # the weight of a triple's vectors, relative to its score; for distances, the lengths of vectors are meaningful
    "regularization": {None: 0.05, Family.SQUARED_DISTANCE: 0.0, Family.FULL_MATRIX: 0.0},
    "regularization in the closed world": {None: 0.03, Family.SQUARED_DISTANCE: 0.0},
    # the weight of a triple's query and answer, relative to its score: if relations are full matrices, it takes the place of
    # the vectors
    "duality": {None: 0.0, Family.FULL_MATRIX: 0.12},
    # what scores are multiplied with before a softmax, so that an answer that stands out as with the squared loss wins
    "scale of the softmax loss": {None: 10.0, Family.SQUARED_DISTANCE: 6.0},
    # the weight of a triple's vectors, relative to its score and with 2,000 candidates or more
    "regularization of the softmax loss": {None: 0.05, Family.FULL_MATRIX: 0.0, Family.TRANSLATION: 0.0},
    # the same for a triple's query and answer
    "duality of the softmax loss": {None: 0.0, Family.FULL_MATRIX: 0.08},
}


def format_markdown() -> str:
    """Write the constants as a table in Markdown."""
    families = (Family.FULL_MATRIX, Family.SQUARED_DISTANCE, Family.TRANSLATION)
    lines = ["| constant | any model | full matrices | squared distances | translations |", "|---|---|---|---|---|"]
    for name, values in CONSTANTS.items():
        cells = " | ".join(f"{constant(name, family):g}" for family in families)
        lines.append(f"| {name} | {values[None]:g} | {cells} |")
    return "\n".join(lines)


def constant(name: str, family: Family) -> float:
    """Look up a constant for a family of factorizations, or for the one that it is part of, or for any model."""
    values = CONSTANTS[name]
    return values.get(family, values.get(family.parent, values[None]))
