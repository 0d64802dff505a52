"""Trains many models for a few epochs, alone or under torchrun, and writes what each ends with."""

from __future__ import annotations

import logging
import sys
from datetime import timedelta
from typing import Any

import torch
from pykeen.datasets import Nations
from pykeen.models import RESCAL, ComplEx, DistMult, RotatE, SimplE, TransE
from torch import distributed

from pykeen_nonsampling import (
    FactorizedRankBasedEvaluator,
    NonSamplingLCWATrainingLoop,
    NonSamplingLoss,
    NonSamplingTrainingLoop,
    StandardizedLoss,
)
from pykeen_nonsampling.recipes import model_defaults

CLOSED, LOCAL = NonSamplingTrainingLoop, NonSamplingLCWATrainingLoop

#: the training loop, the model, the loss, and the options of the training
CASES: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "closed": (CLOSED, DistMult, NonSamplingLoss(), {}),
    "closed, weighted": (CLOSED, ComplEx, NonSamplingLoss(head_weight=0.5, tail_weight=0.25), {}),
    "closed, separate tails": (CLOSED, SimplE, NonSamplingLoss(), {}),
    "closed, distance": (CLOSED, TransE, NonSamplingLoss(), {}),
    "closed, batches": (CLOSED, DistMult, NonSamplingLoss(), dict(batch_size=500)),
    "local": (LOCAL, DistMult, NonSamplingLoss(), {}),
    "local, batches": (LOCAL, ComplEx, NonSamplingLoss(), dict(batch_size=500, sub_batch_size=200)),
    "local, mean": (LOCAL, ComplEx, NonSamplingLoss(reduction="mean"), {}),
    "local, matrices": (LOCAL, RESCAL, NonSamplingLoss(), {}),
    "local, ranges": (LOCAL, DistMult, NonSamplingLoss(range_weight=0.5), {}),
    "local, smoothed and clipped": (
        LOCAL,
        SimplE,
        NonSamplingLoss(),
        dict(label_smoothing=0.1, gradient_clipping_max_norm=1.0),
    ),
    "standardized": (LOCAL, ComplEx, StandardizedLoss(), {}),
    "standardized, distance": (LOCAL, RotatE, StandardizedLoss(), {}),
}


def train(dtype: torch.dtype) -> dict[str, Any]:
    """Train all of them in some precision."""
    dataset, results = Nations(), {}
    for name, (loop, model_cls, loss, options) in CASES.items():
        kwargs = dict(model_defaults(model_cls), triples_factory=dataset.training, embedding_dim=8, random_seed=0, loss=loss)
        model = model_cls(**kwargs).to(dtype)
        trained = loop(model=model, triples_factory=dataset.training, optimizer="Adam", optimizer_kwargs=dict(lr=0.01))
        losses = trained.train(dataset.training, num_epochs=20, use_tqdm=False, **options)
        evaluation = FactorizedRankBasedEvaluator().evaluate(
            model,
            dataset.testing.mapped_triples,
            additional_filter_triples=dataset.training.mapped_triples,
            use_tqdm=False,
        )
        metrics = {key: value for key, value in evaluation.to_flat_dict().items() if value == value}
        results[name] = dict(losses=losses, parameters=[x.detach() for x in model.parameters()], metrics=metrics)
    return results


if __name__ == "__main__":
    logging.disable(logging.WARNING)
    if distributed.is_torchelastic_launched():
        distributed.init_process_group("gloo", timeout=timedelta(minutes=5))
    results = {dtype: train(getattr(torch, dtype)) for dtype in ("float64", "float32")}
    if not distributed.is_initialized() or distributed.get_rank() == 0:
        torch.save(results, sys.argv[1])
