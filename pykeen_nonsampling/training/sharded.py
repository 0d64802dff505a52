"""Training loops that can divide the entities of a model among processes."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pykeen.stoppers import NopStopper
from pykeen.triples import CoreTriplesFactory
from torch import Tensor, nn
from typing_extensions import override

from .. import checkpoints
from ..distributed.group import Ranks
from ..distributed.shards import Shard, Sharding, ShardingError, divided_parameters, shard_model
from ..distributed.state import Stand, gather_states, take_states
from ..distributed.sweep import ShardedSweep
from ..factorizations.moments import Moments, Weights
from ..graph.batches import Batch
from ..graph.frequencies import Frequencies
from ..graph.index import TripleIndex
from ..graph.sides import Side
from ..losses import MomentLoss
from ..sweeps.problem import Sweep
from .parallel import ParallelTrainingLoop

#: What a training of all entities in one place may have, but none of divided ones
REFUSED = {
    "batch_size": "all processes exchange vectors at the same time, so an epoch is one step on the whole graph",
    "sub_batch_size": "each process visits its queries in blocks already",
    "gradient_clipping_max_norm": "no process knows the norm of all gradients",
    "callbacks": "a callback would see the entities of one process only",
    "checkpoint_on_failure": "a process that fails cannot ask the others for their vectors; checkpoint_name can",
}


class ShardedTrainingLoop(ParallelTrainingLoop, ABC):
    """A training loop that divides the entities of a model among the processes, if its triples are a :class:`Shard`.

    Each process has the vectors of its own entities, with their gradients and the state of the optimizer, and visits the
    queries that it has the given entity of. Gram matrices are summed, and the vectors of answers are exchanged.
    """

    #: which process has which entities; none, if each has all of them
    _sharding: Sharding | None = None

    def __init__(self, *, triples_factory: CoreTriplesFactory, **kwargs: Any) -> None:
        """Initialize the training loop.

        :param triples_factory: the training triples
        :param kwargs: additional keyword-based parameters passed to :class:`pykeen.training.TrainingLoop`
        """
        super().__init__(triples_factory=triples_factory, **kwargs)
        if isinstance(triples_factory, Shard):
            self._sharding = triples_factory.sharding
            self._ranks = self._sharding.ranks
            shard_model(self.model, self._sharding)
            if self.loss_weighter is not None:
                raise ShardingError(
                    f"loss_weighter={self.loss_weighter!r} looks at the ids of entities, which are numbered anew when they "
                    f"are divided among processes. Leave it out, or leave out --sharded."
                )

    @override
    def train(self, triples_factory: CoreTriplesFactory, *args: Any, **kwargs: Any) -> list[float] | None:
        if self._sharding is not None:
            self._check_arguments(**kwargs)
        return super().train(triples_factory, *args, **kwargs)

    def _check_arguments(self, stopper: Any = None, **kwargs: Any) -> None:
        """Refuse what does not go together with divided entities, before any process waits for another one."""
        for name, reason in REFUSED.items():
            if kwargs.get(name):
                raise ShardingError(
                    f"{name}={kwargs[name]!r} does not go together with --sharded: {reason}. Leave one of them out."
                )
        if stopper is not None and not isinstance(stopper, NopStopper):
            raise ShardingError(
                f"{type(stopper).__name__} does not go together with --sharded: it keeps the best model so far, of which "
                f"each process has a part only. Set the number of epochs instead, or leave out --sharded."
            )

    def _check_divisible(self, loss: MomentLoss) -> None:
        """Refuse a loss that needs all entities in one place."""
        if self._sharding is not None and loss.range_weight:
            raise ShardingError(
                f"range_weight={loss.range_weight} does not go together with --sharded: each relation would need the "
                f"vectors of all entities in its range. Set range_weight=0, or leave out --sharded."
            )

    @override
    def _find_ranks(self) -> Ranks:
        return super()._find_ranks() if self._sharding is None else self._sharding.ranks

    @override
    def _common_parameters(self) -> Iterator[nn.Parameter]:
        divided = divided_parameters(self.model)
        return (x for name, x in self.model.named_parameters() if name not in divided)

    @property
    def num_entities(self) -> int:
        """The number of entities to train, in all processes."""
        if self._sharding is not None:
            return self._sharding.num_entities
        return int(self.model._get_entity_len(mode=self.mode))

    def _numbering(self) -> Sharding:
        """Return which entities this process has, be it all of them."""
        return self._sharding or Sharding(self.num_entities, Ranks())

    @override
    def _describe_model(self) -> dict[str, Any]:
        description = super()._describe_model()
        if self._sharding is not None:
            # that of a model with all entities
            description["model"]["num_entities"] = self.num_entities
            for name, part in description.items():
                if name.startswith("entity_representations."):
                    part |= {key: self.num_entities for key in ("max_id", "num_embeddings") if key in part}
            for name in divided_parameters(self.model):
                module, _, key = name.rpartition(".")
                description[module][key][1][0] = self.num_entities
        return description

    def _count(self, triples_factory: CoreTriplesFactory) -> Frequencies:
        """Index the triples of a factory, and count what occurs in them."""
        device = self.model.device
        if self._sharding is None:
            index = TripleIndex.from_factory(triples_factory, self.num_entities, self.model.num_relations)
            return Frequencies(index.to(device), inverse=triples_factory.create_inverse_triples)
        if not isinstance(triples_factory, Shard):
            raise ShardingError("The triples have to be divided among the processes like the model's entities.")
        sizes = self.num_entities, self.model.num_relations
        by_head, by_tail = triples_factory.both_ends()
        index, other_end = (TripleIndex(x, *sizes).to(device) for x in (by_head, by_tail.flip(1)))
        return Frequencies(index, other_end, self._ranks, inverse=triples_factory.create_inverse_triples)

    def _make_batch(self, sides: Sequence[Side]) -> Batch:
        """Make a batch of all triples, of which this process may have only a part."""
        if self._sharding is None:
            return Batch(sides)
        mine = self._sharding.mine
        sides = [
            replace(side, weights=replace(side.weights, candidates=_take(side.weights.candidates, mine))) for side in sides
        ]
        return _DividedBatch(sides, self._sharding)

    def _own(self, weights: Weights) -> Weights:
        """Return the weights of this process's entities."""
        if self._sharding is None:
            return weights
        mine = self._sharding.mine
        return Weights(_take(weights.heads, mine), weights.relations, _take(weights.tails, mine))

    def _moments(self, x: Tensor, weights: Tensor | None = None) -> Moments:
        """Collect the moments of all entities' features."""
        collect = self._ranks.moments if self._sharding is None else self._ranks.moments_of_parts
        return collect(x, weights)

    def _divide_sweep(self, sweep: Sweep) -> Sweep:
        """Let a sweep visit queries whose answers other processes have."""
        return sweep if self._sharding is None else ShardedSweep(sweep, self._sharding)

    @override
    def _save_state(self, path: Any, **kwargs: Any) -> None:  # type: ignore[override]
        if self._sharding is None:
            super()._save_state(path, **kwargs)
            return
        model, optimizer, _ = self.model, self.optimizer, self._setup
        with gather_states(model, optimizer, self._sharding, Path(path).parent) as (model_state, optimizer_state):
            try:
                # PyKEEN asks them for their states
                self.model, self.optimizer = Stand(model_state, model._random_seed), Stand(optimizer_state)  # type: ignore[assignment]
                super()._save_state(path, **kwargs)
            finally:
                self.model, self.optimizer = model, optimizer
        # the others go on when it is complete
        self._ranks.same(None)

    @override
    def _load_state(
        self, path: str | Path, triples_factory: CoreTriplesFactory | None = None
    ) -> tuple[Path | None, int | None]:
        if self._sharding is None:
            return super()._load_state(path, triples_factory)
        checkpoints.check(Path(path))
        checkpoint = torch.load(path, weights_only=False, mmap=True, map_location="cpu")
        take_states(checkpoint, self.model, self._sharding)
        with checkpoints.temporary_directory(Path(path).parent) as directory:
            part = directory / Path(path).name
            with checkpoints.replacing(part) as file:
                torch.save(checkpoint, file)
            return super()._load_state(part, None)


def _take(weights: Tensor | None, entities: slice) -> Tensor | None:
    # a copy, or the memory of all of them would be kept
    return None if weights is None else weights[entities].clone()


class _DividedBatch(Batch):
    """All triples, of which this process has a part."""

    def __init__(self, sides: Sequence[Side], sharding: Sharding):
        super().__init__(sides)
        self.sharding = sharding
        sizes = torch.tensor([[len(side.index), side.index.num_queries] for side in sides])
        sharding.ranks.add(sizes)
        self._num_triples: list[int] = sizes[:, 0].tolist()
        self._num_queries = int(sizes[:, 1].sum())

    def __len__(self) -> int:
        return max(self._num_triples)

    @property
    def num_queries(self) -> int:
        return self._num_queries

    def divide(self, number: int, parts: int) -> Batch:
        return _Part(self.sides, len(self.sides[0].index) / self._num_triples[0], self.sharding)


class _Part(Batch):
    """The part of this process, whose entities occur in the parts of others, too."""

    def __init__(self, sides: Sequence[Side], share: float, sharding: Sharding):
        super().__init__(sides, share)
        self.sharding = sharding

    @cached_property
    def occurrences(self) -> tuple[Tensor, Tensor]:
        # a property of the base class cannot be called
        entities, relations = (sum(x) for x in zip(*(side.index.occurrences() for side in self.sides), strict=True))
        self.sharding.ranks.add(entities)
        return entities[self.sharding.mine].clone(), relations
