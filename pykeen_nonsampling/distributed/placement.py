"""Where the entities of a model are, and which queries a process visits.

Either each process has all entities, or each has some of them. Both placements answer the same questions, so that a training
loop need not know how many processes there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from ..factorizations.moments import Moments, Weights
from ..graph.batches import Batch
from ..graph.frequencies import Frequencies
from ..graph.index import TripleIndex
from ..graph.sides import Side
from ..losses import FactorizedLoss
from ..sweeps.problem import Sweep
from .group import Group
from .model import divided_parameters
from .shards import Sharding, ShardingError, TriplesShard
from .state import take_states, whole_states
from .sweep import ShardedSweep

#: Arguments of a training that need all entities in one place, and why
REFUSED = {
    "batch_size": "all processes exchange vectors at the same time, so an epoch is one step on the whole graph",
    "sub_batch_size": "each process visits its queries in blocks already",
    "gradient_clipping_max_norm": "no process knows the norm of all gradients",
    "callbacks": "a callback would see the entities of one process only",
    "checkpoint_on_failure": "a process that fails cannot ask the others for their vectors; checkpoint_name can",
}


class Placement:
    """Each process has all entities, and visits a part of the queries of every batch; all of them, if it is alone."""

    def __init__(self, num_entities: int, group: Group):
        """Initialize the placement.

        :param num_entities: the number of entities to train, in all processes
        :param group: the processes
        """
        self.num_entities = num_entities
        self.group = group
        #: which entities this process has: all of them
        self.sharding = Sharding(num_entities, Group())
        self._mine: tuple[Batch, Batch] | None = None

    def check_arguments(self, loss_weighter: Any = None, **kwargs: Any) -> None:
        """Refuse arguments of a training that need all entities in one place."""

    def check_loss(self, loss: FactorizedLoss) -> None:
        """Refuse a loss that needs all entities in one place."""

    def count(self, factory: CoreTriplesFactory, num_relations: int, device: torch.device) -> Frequencies:
        """Index the triples of a factory, and count what occurs in them."""
        index = TripleIndex.from_factory(factory, self.num_entities, num_relations)
        return Frequencies(index.to(device), inverse=factory.create_inverse_triples)

    def count_together(self, frequencies: Frequencies) -> None:
        """Count now what is counted by all processes together, so that none waits for another one that has failed."""

    def batch(self, sides: Sequence[Side]) -> Batch:
        """Make a batch of all triples."""
        return Batch(sides)

    def own(self, weights: Weights) -> Weights:
        """Return the weights of this process's entities."""
        return weights

    def mine(self, batch: Batch) -> Batch:
        """Return the queries of a batch that this process visits. Kept for when the next batch is the same."""
        if self._mine is None or self._mine[0] is not batch:
            self._mine = batch, batch.divide(self.group.rank, self.group.size)
        return self._mine[1]

    def moments(self, x: Tensor, weights: Tensor | None = None) -> Moments:
        """Collect the moments of the features of all entities."""
        return self.group.moments(x, weights)

    def divide_sweep(self, sweep: Sweep) -> Sweep:
        """Let a sweep visit queries whose answers other processes have."""
        return sweep

    def common_parameters(self, model: nn.Module) -> Iterator[nn.Parameter]:
        """Return the parameters that all processes have."""
        return model.parameters()

    def describe_model(self, model: nn.Module, description: dict[str, Any]) -> dict[str, Any]:
        """Turn the description of this process's model into that of the whole one."""
        return description

    @contextmanager
    def whole_states(self, model: nn.Module, optimizer: torch.optim.Optimizer, directory: Path) -> Iterator[None]:
        """Let ``state_dict()`` of model and optimizer return all entities meanwhile, in the process that writes it."""
        yield

    @contextmanager
    def own_checkpoint(self, path: Path, model: nn.Module) -> Iterator[Path]:
        """Take the part of a checkpoint that belongs to this process."""
        yield path


class Sharded(Placement):
    """Each process has the vectors of its own entities, and visits the queries that it has the given entity of.

    It also has their gradients and their state of the optimizer. Gram matrices are summed over all processes, and the
    vectors of answers are exchanged.
    """

    def __init__(self, sharding: Sharding):
        """Initialize the placement.

        :param sharding: which process has which entities
        """
        super().__init__(sharding.num_entities, sharding.group)
        self.sharding = sharding

    @override
    def check_arguments(self, loss_weighter: Any = None, stopper: Any = None, **kwargs: Any) -> None:
        if loss_weighter is not None:
            raise ShardingError(
                f"{loss_weighter=} looks at the ids of entities, which are numbered anew when they are divided among "
                f"processes. Leave it out, or do not divide the entities."
            )
        for name, reason in REFUSED.items():
            if kwargs.get(name):
                raise ShardingError(
                    f"{name}={kwargs[name]!r} does not work with entities that are divided among processes: {reason}. Leave "
                    f"it out, or do not divide the entities."
                )
        if stopper is not None and not isinstance(stopper, NopStopper):
            raise ShardingError(
                f"{type(stopper).__name__} does not work with entities that are divided among processes: it keeps the best "
                f"model so far, of which each process has a part only. Set the number of epochs instead, or do not divide "
                f"the entities."
            )

    @override
    def check_loss(self, loss: FactorizedLoss) -> None:
        if loss.needs_scores:
            raise ShardingError(
                f"{loss.name} does not work with entities that are divided among processes: each query would have "
                f"to be scored by all of them. Use loss='nonsampling', or do not divide the entities."
            )

    @override
    def count(self, factory: CoreTriplesFactory, num_relations: int, device: torch.device) -> Frequencies:
        if not isinstance(factory, TriplesShard):
            raise ShardingError("The triples have to be divided among the processes like the model's entities.")
        by_head, by_tail = factory.both_ends()
        index, other_end = (TripleIndex(x, self.num_entities, num_relations).to(device) for x in (by_head, by_tail.flip(1)))
        return Frequencies(index, other_end, self.group, inverse=factory.create_inverse_triples)

    @override
    def count_together(self, frequencies: Frequencies) -> None:
        frequencies.count_together()

    @override
    def batch(self, sides: Sequence[Side]) -> Batch:
        mine = self.sharding.mine
        own = [
            replace(side, weights=replace(side.weights, candidates=_take(side.weights.candidates, mine))) for side in sides
        ]
        return _WholeBatch(own, self.sharding)

    @override
    def own(self, weights: Weights) -> Weights:
        mine = self.sharding.mine
        return Weights(_take(weights.heads, mine), weights.relations, _take(weights.tails, mine))

    @override
    def mine(self, batch: Any) -> Batch:
        own: Batch = batch.own
        return own

    @override
    def moments(self, x: Tensor, weights: Tensor | None = None) -> Moments:
        return self.group.moments_of_parts(x, weights)

    @override
    def divide_sweep(self, sweep: Sweep) -> Sweep:
        return ShardedSweep(sweep, self.sharding)

    @override
    def common_parameters(self, model: nn.Module) -> Iterator[nn.Parameter]:
        divided = divided_parameters(model)
        return (x for name, x in model.named_parameters() if name not in divided)

    @override
    def describe_model(self, model: nn.Module, description: dict[str, Any]) -> dict[str, Any]:
        description["model"]["num_entities"] = self.num_entities
        for name, part in description.items():
            if name.startswith("entity_representations."):
                part |= {key: self.num_entities for key in ("max_id", "num_embeddings") if key in part}
        for name in divided_parameters(model):
            module, _, key = name.rpartition(".")
            description[module][key][1][0] = self.num_entities
        return description

    @override
    @contextmanager
    def whole_states(self, model: nn.Module, optimizer: torch.optim.Optimizer, directory: Path) -> Iterator[None]:
        with whole_states(model, optimizer, self.sharding, directory):
            yield
        # the others go on when the checkpoint is complete
        self.group.same(None)

    @override
    @contextmanager
    def own_checkpoint(self, path: Path, model: nn.Module) -> Iterator[Path]:
        checkpoints.check(path)
        checkpoint = torch.load(path, weights_only=False, mmap=True, map_location="cpu")
        take_states(checkpoint, model, self.sharding)
        with checkpoints.temporary_directory(path.parent) as directory:
            part = directory / path.name
            with checkpoints.replacing(part) as file:
                torch.save(checkpoint, file)
            yield part


def _take(weights: Tensor | None, entities: slice) -> Tensor | None:
    # a copy, or the memory of all of them would be kept
    return None if weights is None else weights[entities].clone()


class _WholeBatch(Batch):
    """All triples: the sides are those of this process, but the sizes are those of all processes."""

    def __init__(self, sides: Sequence[Side], sharding: Sharding):
        super().__init__(sides)
        sizes = torch.tensor([[len(side.index), side.index.num_queries] for side in sides])
        sharding.group.add(sizes)
        triples, queries = sizes.unbind(dim=1)
        self._num_triples, self._num_queries = int(triples.max()), int(queries.sum())
        self.own = _OwnBatch(sides, len(sides[0].index) / int(triples[0]), sharding)

    def __len__(self) -> int:
        return self._num_triples

    @property
    @override
    def num_queries(self) -> int:
        return self._num_queries


class _OwnBatch(Batch):
    """The triples of this process, whose entities also occur in those of others."""

    def __init__(self, sides: Sequence[Side], share: float, sharding: Sharding):
        super().__init__(sides, share)
        self.sharding = sharding

    @cached_property
    @override
    def occurrences(self) -> tuple[Tensor, Tensor]:
        entities, relations = super().occurrences
        self.sharding.group.add(entities)
        return entities[self.sharding.mine].clone(), relations
