"""How near the estimates of ``pykeen-nonsampling plan`` are to what is then measured.

    python benchmarks/planning.py

Each configuration has a process of its own, which trains it for some epochs through ``pipeline()``, and then estimates it. The
memory is the peak of the process's resident memory, less what it was before the training, of a process that has trained
something small before. The table has estimates, measurements, and the ratios of both.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click

FILE = Path(__file__).parents[1] / "docs" / "benchmark" / "planning.jsonl"

LARGE = dict(dataset="syntheticgraph", dataset_kwargs=dict(num_entities=200_000, num_relations=100, num_triples=2_000_000))

CONFIGURATIONS: list[dict[str, Any]] = [
    dict(dataset="nations", model="RESCAL", dim=200, loop="nonsamplinglcwa"),
    dict(dataset="nations", model="DistMult", dim=400, loop="nonsampling"),
    dict(dataset="umls", model="ComplEx", dim=400, loop="nonsamplinglcwa"),
    dict(dataset="umls", model="TransE", dim=100, loop="nonsampling"),
    dict(dataset="fb15k237", model="DistMult", dim=200, loop="nonsamplinglcwa"),
    dict(dataset="fb15k237", model="SimplE", dim=100, loop="nonsampling"),
    dict(dataset="fb15k237", model="RESCAL", dim=50, loop="nonsamplinglcwa"),
    dict(**LARGE, model="TransE", dim=50, loop="nonsamplinglcwa"),
    dict(**LARGE, model="DistMult", dim=100, loop="nonsamplinglcwa"),
    dict(**LARGE, model="RotatE", dim=50, loop="nonsampling"),
    dict(**LARGE, model="ComplEx", dim=200, loop="nonsampling"),
]

#: Fewer epochs than this are not enough for a median
EPOCHS = 4


def measure(configuration: dict[str, Any]) -> dict[str, Any]:
    """Train a configuration, then estimate what it takes."""
    import gc
    import logging

    from pykeen.datasets import get_dataset
    from pykeen.pipeline import pipeline
    from pykeen.triples import CoreTriplesFactory

    from pykeen_nonsampling.cli.pace import estimate_pace
    from pykeen_nonsampling.cli.timing import EpochTimer, resident_bytes
    from pykeen_nonsampling.planning import plan

    logging.disable(logging.WARNING)
    loop, model, dim = (configuration[name] for name in ("loop", "model", "dim"))

    def train(training: Any, testing: Any, dim: int, epochs: int) -> float:
        timer = EpochTimer()
        pipeline(
            training=training,
            testing=CoreTriplesFactory(testing.mapped_triples[:100], training.num_entities, training.num_relations),
            model=model,
            model_kwargs=dict(embedding_dim=dim),
            training_loop=loop,
            training_kwargs=dict(use_tqdm=False, callbacks=timer),
            epochs=epochs,
            evaluator="factorized",
            evaluation_kwargs=dict(use_tqdm=False),
            random_seed=0,
        )
        return timer.median()

    small = get_dataset(dataset="nations")
    train(small.training, small.testing, dim=4, epochs=3)
    dataset = get_dataset(dataset=configuration["dataset"], dataset_kwargs=configuration.get("dataset_kwargs"))
    training, testing = dataset.training, dataset.testing
    gc.collect()
    with contextlib.suppress(OSError):
        # resets the peak
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident_bytes("VmRSS")
    epochs = EPOCHS if training.num_triples > 10**5 else 100
    seconds = train(training, testing, dim, epochs)
    measured = dict(memory=resident_bytes("VmHWM") - before, seconds=seconds)
    gc.collect()
    memory = plan(model, dict(embedding_dim=dim), training, loop)
    began = time.perf_counter()
    pace = estimate_pace(model, dict(embedding_dim=dim), training, loop)
    took = time.perf_counter() - began
    return dict(
        configuration=configuration,
        estimated=dict(memory=memory.total, seconds=pace.seconds, parts=vars(memory), took=took),
        measured=measured,
    )
