"""The training loops, each with what it is compared with."""

from __future__ import annotations

from typing import Any

from enumeration import enumerated_local_loss, enumerated_loss
from pykeen.models import ERModel, Model
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import LossWeighter
from steps import Recorder
from torch import Tensor
from weights import QueryWeighter, TripleWeighter

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingTrainingLoop
from pykeen_nonsampling.factorizations import factorize


class World:
    """A training loop under test, and what it is compared with."""

    def __init__(self, loop: Any):
        self.loop = loop

    @property
    def weighter(self) -> LossWeighter:
        """A loss weighter of the kind that the training loop can use."""
        return TripleWeighter() if self.loop is NonSamplingTrainingLoop else QueryWeighter()

    def enumerated(self, model: ERModel, factory: CoreTriplesFactory, weighted: bool = False) -> Tensor:
        """Compute the loss by its definition."""
        loss = enumerated_loss if self.loop is NonSamplingTrainingLoop else enumerated_local_loss
        weighter = self.weighter if weighted else None
        return loss(model, factory, factorize(model.interaction), model.loss, weighter=weighter)

    def train(
        self, model: Model, factory: CoreTriplesFactory, loop_kwargs: Any = None, **kwargs: Any
    ) -> tuple[Recorder, list[float]]:
        recorder = Recorder()
        loop = self.loop(model=model, triples_factory=factory, **(loop_kwargs or {}))
        losses = loop.train(factory, callbacks=recorder, use_tqdm=False, **kwargs)
        assert losses is not None
        return recorder, losses


#: The training loops, by their assumption
WORLDS: dict[str, World] = {"closed": World(NonSamplingTrainingLoop), "local": World(NonSamplingLCWATrainingLoop)}
