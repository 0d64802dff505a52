"""What scores cost: objectives that need the positives' scores, and moments of all others."""

from .base import Costs, Objective, Scores
from .norms import sum_of_norms
from .squared import SquaredObjective
from .standardized import StandardizedObjective

__all__ = [
    "Costs",
    "Objective",
    "Scores",
    "SquaredObjective",
    "StandardizedObjective",
    "sum_of_norms",
]
