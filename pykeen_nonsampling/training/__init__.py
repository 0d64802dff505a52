"""Which triples count: the training loops, registered with PyKEEN when this package is imported."""

from pykeen.training import training_loop_resolver

from .closed_world import NonSamplingTrainingLoop

__all__ = [
    "NonSamplingTrainingLoop",
]

training_loop_resolver.register(NonSamplingTrainingLoop)
