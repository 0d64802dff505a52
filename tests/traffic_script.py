"""Trains some models, with the whole model and with a part of it in each process, and counts what is sent."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from pykeen.datasets import Nations
from pykeen.models import ComplEx, SimplE
from torch import distributed

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingLoss, NonSamplingTrainingLoop
from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.distributed.group import Group
from pykeen_nonsampling.distributed.shards import divide

CLOSED, LOCAL = NonSamplingTrainingLoop, NonSamplingLCWATrainingLoop

#: the training loop, the model, and the loss
CASES: dict[str, tuple[Any, Any, Any]] = {
    "closed": (CLOSED, ComplEx, NonSamplingLoss()),
    "closed, weighted": (CLOSED, ComplEx, NonSamplingLoss(head_weight=0.5)),
    "closed, separate tails": (CLOSED, SimplE, NonSamplingLoss()),
    "local": (LOCAL, ComplEx, NonSamplingLoss(candidate_weight=0.0)),
    "local, weighted": (LOCAL, ComplEx, NonSamplingLoss(candidate_weight=0.5)),
    "local, separate tails": (LOCAL, SimplE, NonSamplingLoss(candidate_weight=0.0)),
}


def model_kwargs(cls: Any) -> dict[str, Any]:
    """Return what a model is made with."""
    return dict(model_defaults(cls), embedding_dim=6)


def count(name: str, ranks: Group, sharded: bool) -> int:
    """Train one of them, and return the number of bytes that this process has sent in the last epoch."""
    loop_cls, cls, loss = CASES[name]
    training: Any = Nations().training
    if sharded:
        training = divide(training if ranks.is_first else None, ranks)
    model = cls(**model_kwargs(cls), triples_factory=training, random_seed=0, loss=loss)
    loop = loop_cls(model=model, triples_factory=training, optimizer="Adam")
    loop.train(training, num_epochs=2, use_tqdm=False)
    return loop.num_bytes


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    distributed.init_process_group("gloo")
    ranks = Group.current()
    counted = {name: [count(name, ranks, sharded) for sharded in (False, True)] for name in CASES}
    distributed.destroy_process_group()
    Path(f"{ranks.rank}.json").write_text(json.dumps(counted))
