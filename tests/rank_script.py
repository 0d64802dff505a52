"""Trains some models for a few epochs, in one process, in two and so on, and writes what each ends with."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from functools import partial
from typing import Any

import torch
from centered import CenteredLoss
from pykeen.datasets import Nations
from pykeen.losses import CrossEntropyLoss, NSSALoss
from pykeen.models import RESCAL, ComplEx, DistMult, RotatE, SimplE, TransE
from torch import distributed
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from pykeen_nonsampling import (
    FactorizedRankBasedEvaluator,
    NonSamplingLCWATrainingLoop,
    NonSamplingLoss,
    NonSamplingTrainingLoop,
)
from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.losses import SoftmaxLoss

CLOSED, LOCAL = NonSamplingTrainingLoop, NonSamplingLCWATrainingLoop
DOUBLE, SINGLE = torch.float64, torch.float32

#: the training loop, the model, the precision, the loss, and the options of the training
CASES: dict[str, tuple[Any, Any, torch.dtype, Any, dict[str, Any]]] = {
    "closed": (CLOSED, DistMult, SINGLE, NonSamplingLoss(), {}),
    "closed, weighted": (CLOSED, ComplEx, DOUBLE, NonSamplingLoss(head_weight=0.5, tail_weight=0.25), {}),
    "closed, separate tails": (CLOSED, SimplE, DOUBLE, NonSamplingLoss(), {}),
    "closed, distance": (CLOSED, TransE, SINGLE, NonSamplingLoss(), {}),
    "closed, batches": (CLOSED, DistMult, DOUBLE, NonSamplingLoss(), dict(batch_size=500)),
    "local": (LOCAL, ComplEx, SINGLE, NonSamplingLoss(), {}),
    "local, batches": (LOCAL, ComplEx, DOUBLE, NonSamplingLoss(), dict(batch_size=500, sub_batch_size=200)),
    "local, mean": (LOCAL, DistMult, DOUBLE, NonSamplingLoss(reduction="mean"), {}),
    "local, matrices": (LOCAL, RESCAL, DOUBLE, NonSamplingLoss(), {}),
    "local, smoothed and clipped": (
        LOCAL,
        SimplE,
        DOUBLE,
        NonSamplingLoss(),
        dict(label_smoothing=0.1, gradient_clipping_max_norm=1.0),
    ),
    "whole queries": (LOCAL, ComplEx, SINGLE, CenteredLoss(), {}),
    "whole queries, distance": (LOCAL, RotatE, DOUBLE, CenteredLoss(), {}),
    "softmax": (LOCAL, ComplEx, DOUBLE, SoftmaxLoss(), {}),
    "softmax, batches after a start": (partial(LOCAL, start_epochs=5), TransE, DOUBLE, SoftmaxLoss(), dict(batch_size=500)),
    "cross-entropy": (LOCAL, ComplEx, DOUBLE, CrossEntropyLoss(), dict(label_smoothing=0.1)),
    "self-adversarial, batches": (LOCAL, RotatE, DOUBLE, NSSALoss(margin=1.0), dict(batch_size=500)),
}


def train(name: str) -> dict[str, Any]:
    """Train one of them."""
    dataset, (loop, model_cls, dtype, loss, options) = Nations(), CASES[name]
    kwargs = dict(model_defaults(model_cls), triples_factory=dataset.training, embedding_dim=8, random_seed=0, loss=loss)
    model = model_cls(**kwargs).to(dtype)
    trained = loop(model=model, triples_factory=dataset.training, optimizer="Adam", optimizer_kwargs=dict(lr=0.01))
    losses = trained.train(dataset.training, num_epochs=20, use_tqdm=False, **options)
    known = dataset.training.mapped_triples
    evaluator = FactorizedRankBasedEvaluator()
    evaluation = evaluator.evaluate(model, dataset.testing.mapped_triples, additional_filter_triples=known, use_tqdm=False)
    metrics = {key: value for key, value in evaluation.to_flat_dict().items() if value == value}
    return dict(losses=losses, parameters=[x.detach() for x in model.parameters()], metrics=metrics)


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    store, rank, world_size = next(rendezvous("env://", timeout=timedelta(minutes=5)))
    results = {}
    for size in range(1, 1 + world_size):
        if rank < size:
            # a group of the first processes
            distributed.init_process_group("gloo", store=PrefixStore(str(size), store), rank=rank, world_size=size)
            results[size] = {name: train(name) for name in CASES}
            distributed.destroy_process_group()
    if rank == 0:
        torch.save(results, sys.argv[1])
