"""What scores cost: objectives that need the positives' scores, and moments of all others."""

from .base import Costs, Objective, Scores
from .norms import sum_of_norms
from .squared import SquaredObjective

__all__ = [
    "Costs",
    "Objective",
    "Scores",
    "SquaredObjective",
    "sum_of_norms",
]
