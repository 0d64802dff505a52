"""Which triples count: the training loops, registered with PyKEEN when this package is imported."""

from pykeen.training import training_loop_resolver

from .closed_world import NonSamplingTrainingLoop
from .local_closed_world import NonSamplingLCWATrainingLoop
from .loop import FactorizedTrainingLoop

__all__ = [
    "FactorizedTrainingLoop",
    "NonSamplingLCWATrainingLoop",
    "NonSamplingTrainingLoop",
]

training_loop_resolver.register(NonSamplingTrainingLoop)
training_loop_resolver.register(NonSamplingLCWATrainingLoop)
