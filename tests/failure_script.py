"""Lets one of two processes fail before a training begins, in several ways, and writes what each of them is told."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from pykeen.datasets import Nations
from pykeen.models import DistMult
from pykeen.triples import CoreTriplesFactory
from torch import Tensor, distributed

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingLoss, NonSamplingTrainingLoop
from pykeen_nonsampling.memory import room

#: For so many seconds, a process waits for another one
PATIENCE = 60


def weigh(counts: Tensor) -> Tensor:
    return 1 + counts


def weigh_not(counts: Tensor) -> Tensor:
    raise OSError("the weights are in a file that is not there")


def train(loop_cls: Any, factory: CoreTriplesFactory, weight: Callable[[Tensor], Tensor] = weigh) -> None:
    loss = NonSamplingLoss(head_weight=weight)
    model = DistMult(triples_factory=factory, embedding_dim=16, random_seed=0, loss=loss, regularizer=None)
    loop_cls(model=model, triples_factory=factory).train(factory, num_epochs=2, use_tqdm=False)


def train_without_weights(fails: bool, loop_cls: Any) -> None:
    train(loop_cls, Nations().training, weigh_not if fails else weigh)


def train_without_memory(fails: bool, loop_cls: Any) -> None:
    free_memory = room.free_memory
    if fails:
        room.free_memory = lambda device: 1024
    try:
        train(loop_cls, Nations().training)
    finally:
        room.free_memory = free_memory


def train_with_wrong_ids(fails: bool, loop_cls: Any) -> None:
    factory = CoreTriplesFactory(Nations().training.mapped_triples.clone(), 14, 55)
    if fails:
        # later than PyKEEN looks at them
        factory.mapped_triples[0, 0] = 99
    train(loop_cls, factory)


#: What to do, and what the error says
CASES: dict[str, tuple[Callable[[bool, Any], None], str]] = {
    "weights": (train_without_weights, "the weights are in a file that is not there"),
    "memory": (train_without_memory, "DistMult with 16 dimensions needs about"),
    "ids": (train_with_wrong_ids, "There is a head id 99"),
}

LOOPS = {"closed": NonSamplingTrainingLoop, "local": NonSamplingLCWATrainingLoop}

if __name__ == "__main__":
    logging.disable(logging.WARNING)
    distributed.init_process_group("gloo", timeout=timedelta(seconds=PATIENCE))
    rank = distributed.get_rank()
    told = {}
    for name, (run, _) in CASES.items():
        for world, loop_cls in LOOPS.items():
            for failing in range(2):
                start = time.monotonic()
                try:
                    run(rank == failing, loop_cls)
                except Exception as error:
                    told[f"{name}, {world}, {failing}"] = str(error), time.monotonic() - start
    # where nothing fails, they can still train together
    train(NonSamplingTrainingLoop, Nations().training)
    distributed.destroy_process_group()
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(told))
