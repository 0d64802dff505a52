"""Losses that are defined by an objective, so that moments of the negatives' scores suffice."""

from pykeen.losses import loss_resolver

from .automatic import AutomaticLoss, check_loss
from .base import POPULARITY, MomentLoss, UnsavedFunction, as_exponent, describe
from .squared import NEGATIVE_WEIGHT, NonSamplingLoss
from .standardized import StandardizedLoss

__all__ = [
    "NEGATIVE_WEIGHT",
    "POPULARITY",
    "AutomaticLoss",
    "MomentLoss",
    "NonSamplingLoss",
    "StandardizedLoss",
    "UnsavedFunction",
    "as_exponent",
    "check_loss",
    "describe",
]

loss_resolver.register(AutomaticLoss)
loss_resolver.register(NonSamplingLoss)
loss_resolver.register(StandardizedLoss)
