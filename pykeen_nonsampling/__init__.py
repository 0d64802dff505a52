"""Train knowledge graph embedding models on every negative triple, without sampling, as a plugin for PyKEEN."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._import_order import PyKEENFirst

sys.meta_path.insert(0, PyKEENFirst())

if TYPE_CHECKING:
    from .datasets import AllEntities, SyntheticGraph
    from .factorizations import Factorization, Moments, NotDecomposableError, factorization_resolver
    from .losses import FactorizedLoss, NonSamplingLoss
    from .losses.objective import Objective
    from .ranking.evaluator import FactorizedRankBasedEvaluator
    from .ranking.predict import predict_targets
    from .training import NonSamplingLCWATrainingLoop, NonSamplingTrainingLoop

_MODULES = {
    "AllEntities": "datasets",
    "Factorization": "factorizations",
    "FactorizedRankBasedEvaluator": "ranking.evaluator",
    "FactorizedLoss": "losses",
    "Moments": "factorizations",
    "NonSamplingLCWATrainingLoop": "training",
    "NonSamplingLoss": "losses",
    "NonSamplingTrainingLoop": "training",
    "NotDecomposableError": "factorizations",
    "Objective": "losses",
    "SyntheticGraph": "datasets",
    "factorization_resolver": "factorizations",
    "predict_targets": "ranking.predict",
}

__all__ = [
    "AllEntities",
    "Factorization",
    "FactorizedLoss",
    "FactorizedRankBasedEvaluator",
    "Moments",
    "NonSamplingLCWATrainingLoop",
    "NonSamplingLoss",
    "NonSamplingTrainingLoop",
    "NotDecomposableError",
    "Objective",
    "SyntheticGraph",
    "factorization_resolver",
    "predict_targets",
]


def __getattr__(name: str) -> Any:
    """Import public names when they are first used: PyKEEN loads this package before its own parts are complete."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    """List the public names."""
    return sorted({*globals(), *__all__})
