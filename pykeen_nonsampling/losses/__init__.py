"""What scores cost: losses that need moments of the negatives' scores, and those that see every score."""

from pykeen.losses import loss_resolver

from .automatic import AutomaticLoss, check_loss, resolve_loss
from .base import POPULARITY, FactorizedLoss, UnsavedFunction, as_exponent, describe
from .objective import AllScores, Costs, FunctionObjective, Objective, ScoreObjective, Scores
from .pykeen import PykeenLoss, PykeenObjective, parameters_of
from .softmax import SoftmaxLoss, SoftmaxObjective
from .squared import NEGATIVE_WEIGHT, NonSamplingLoss, SquaredObjective

__all__ = [
    "NEGATIVE_WEIGHT",
    "POPULARITY",
    "AllScores",
    "AutomaticLoss",
    "Costs",
    "FactorizedLoss",
    "FunctionObjective",
    "NonSamplingLoss",
    "Objective",
    "PykeenLoss",
    "PykeenObjective",
    "ScoreObjective",
    "Scores",
    "SoftmaxLoss",
    "SoftmaxObjective",
    "SquaredObjective",
    "UnsavedFunction",
    "as_exponent",
    "check_loss",
    "describe",
    "parameters_of",
    "resolve_loss",
]

loss_resolver.register(AutomaticLoss)
loss_resolver.register(NonSamplingLoss)
loss_resolver.register(SoftmaxLoss)
