"""Trains models whose entities are divided among processes for a few epochs, and writes what each ends with."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from centered import CenteredLoss
from pykeen.datasets import Nations
from pykeen.models import RESCAL, ComplEx, DistMult, RotatE, SimplE, TransE
from pykeen.regularizers import NoRegularizer
from pykeen.triples import CoreTriplesFactory
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pykeen_nonsampling import (
    FactorizedRankBasedEvaluator,
    NonSamplingLCWATrainingLoop,
    NonSamplingLoss,
    NonSamplingTrainingLoop,
)
from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.distributed import model as divided
from pykeen_nonsampling.distributed import sweep as sharded
from pykeen_nonsampling.distributed.group import Group
from pykeen_nonsampling.distributed.shards import divide

CLOSED, LOCAL = NonSamplingTrainingLoop, NonSamplingLCWATrainingLoop
DOUBLE, SINGLE = torch.float64, torch.float32

#: the training loop, the model, the precision, the loss, whether there are inverse triples, and the options of the training
CASES: dict[str, tuple[Any, Any, torch.dtype, Any, bool, dict[str, Any]]] = {
    "closed": (CLOSED, DistMult, SINGLE, NonSamplingLoss(), False, {}),
    "closed, weighted": (CLOSED, ComplEx, DOUBLE, NonSamplingLoss(head_weight=0.5, tail_weight=0.25), False, {}),
    "closed, separate tails": (CLOSED, SimplE, DOUBLE, NonSamplingLoss(reduction="mean"), False, {}),
    "closed, distance": (CLOSED, TransE, SINGLE, NonSamplingLoss(), False, {}),
    "local": (LOCAL, ComplEx, SINGLE, NonSamplingLoss(), False, {}),
    "local, mean": (LOCAL, DistMult, DOUBLE, NonSamplingLoss(reduction="mean"), False, dict(label_smoothing=0.1)),
    "local, inverse": (LOCAL, SimplE, DOUBLE, NonSamplingLoss(), True, {}),
    "local, matrices": (LOCAL, RESCAL, DOUBLE, NonSamplingLoss(), False, {}),
    "whole queries": (LOCAL, ComplEx, DOUBLE, CenteredLoss(), False, {}),
    "whole queries, distance": (LOCAL, RotatE, DOUBLE, CenteredLoss(), False, {}),
}


def train(name: str, ranks: Group | None, directory: Path) -> dict[str, Any]:
    """Train one of them, with divided entities, if there are processes to divide them among."""
    loop, model_cls, dtype, loss, inverse, options = CASES[name]
    dataset = Nations(create_inverse_triples=inverse)
    training: Any = dataset.training
    if ranks is not None:
        training = divide(training if ranks.is_first else None, ranks)
    kwargs = dict(model_defaults(model_cls), triples_factory=training, embedding_dim=8, random_seed=0, loss=loss)
    if model_cls is RESCAL:
        # its default looks at all entities
        kwargs["regularizer"] = NoRegularizer()
    model = model_cls(**kwargs).to(dtype)
    trained = loop(model=model, triples_factory=training, optimizer="Adam", optimizer_kwargs=dict(lr=0.01))
    torch.manual_seed(0)
    checkpoint: dict[str, Any] = {}
    if ranks is not None:
        checkpoint = dict(checkpoint_name=f"{name}.pt", checkpoint_directory=directory, checkpoint_frequency=0)
    losses = trained.train(training, num_epochs=20, use_tqdm=False, **options, **checkpoint)
    testing = dataset.testing.mapped_triples
    if ranks is not None:
        testing = training.sharding.number_triples(testing)
    evaluator, known = FactorizedRankBasedEvaluator(), training.mapped_triples
    evaluation = evaluator.evaluate(model, testing, additional_filter_triples=known, use_tqdm=False)
    metrics = {key: value for key, value in evaluation.to_flat_dict().items() if value == value}
    state = model.state_dict()
    if ranks is not None:
        state = torch.load(directory / f"{name}.pt", weights_only=False)["model_state_dict"]
    return dict(losses=losses, parameters=dict(state), metrics=metrics)


class Allocations(TorchDispatchMode):
    """Counts the elements of the largest tensor of real numbers that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and x.is_floating_point():
                self.largest = max(self.largest, x.untyped_storage().nbytes() // x.element_size())
        return result


def count(ranks: Group) -> tuple[int, int]:
    """Train on a graph of 3,000 entities; return the size of the largest tensor, and that of all vectors of entities."""
    generator = torch.Generator().manual_seed(0)
    triples = torch.stack([torch.randint(high, (4000,), generator=generator) for high in (3000, 2, 3000)], dim=-1)
    training = divide(CoreTriplesFactory(triples, 3000, 2) if ranks.is_first else None, ranks)
    largest = 0
    for loop in (CLOSED, LOCAL):
        with Allocations() as allocations:
            model = DistMult(triples_factory=training, embedding_dim=32, random_seed=0, loss=NonSamplingLoss())
            loop(model=model, triples_factory=training, optimizer="Adam").train(training, num_epochs=2, use_tqdm=False)
        largest = max(largest, allocations.largest)
    return largest, 3000 * 32


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    # several blocks, although there are only a few entities
    sharded.FEWEST_ROWS, divided.ROWS_AT_ONCE = 200, 512
    directory = Path(sys.argv[1])
    store, rank, world_size = next(rendezvous("env://", timeout=timedelta(minutes=5)))
    results: dict[Any, Any] = {}
    for size in range(2, 1 + world_size):
        if rank < size:
            # a group of the first processes
            distributed.init_process_group("gloo", store=PrefixStore(str(size), store), rank=rank, world_size=size)
            place = directory / str(size)
            if rank == 0:
                place.mkdir()
            distributed.barrier()
            results[size] = {name: train(name, Group.current(), place) for name in CASES}
            results[size]["allocations"] = count(Group.current())
            distributed.destroy_process_group()
    if rank == 0:
        results[1] = {name: train(name, None, directory) for name in CASES}
        torch.save(results, directory / "results.pt")
