"""Losses that are defined by an objective, so that moments of the negatives' scores suffice."""

from pykeen.losses import loss_resolver

from .automatic import AutomaticLoss, check_loss, resolve_loss
from .base import POPULARITY, MomentLoss, UnsavedFunction, as_exponent, describe
from .objective import Costs, Objective, Scores
from .squared import NEGATIVE_WEIGHT, NonSamplingLoss, SquaredObjective
from .standardized import StandardizedLoss, StandardizedObjective

__all__ = [
    "NEGATIVE_WEIGHT",
    "POPULARITY",
    "AutomaticLoss",
    "Costs",
    "MomentLoss",
    "NonSamplingLoss",
    "Objective",
    "Scores",
    "SquaredObjective",
    "StandardizedLoss",
    "StandardizedObjective",
    "UnsavedFunction",
    "as_exponent",
    "check_loss",
    "describe",
    "resolve_loss",
]

loss_resolver.register(AutomaticLoss)
loss_resolver.register(NonSamplingLoss)
loss_resolver.register(StandardizedLoss)
