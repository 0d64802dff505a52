"""The outline of a model that is not made, and the memory it would need."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run_python
from pykeen.datasets import Nations
from pykeen.models import CP, RESCAL, DistMult, QuatE, RotatE, TransE, TuckER

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingLoss
from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.hpo import fits
from pykeen_nonsampling.memory.dry_run import outline
from pykeen_nonsampling.memory.task import Counts

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


#: Trains each model in a process of its own, and prints the bytes that this adds to its largest size
PEAKS = """
import os, resource, sys, torch
from pykeen.pipeline import pipeline
from pykeen.triples import CoreTriplesFactory

def train(model, num_entities, num_relations, num_triples, **model_kwargs):
    triples = torch.stack([torch.randint(n, (num_triples,)) for n in (num_entities, num_relations, num_entities)], dim=1)
    training, testing = (CoreTriplesFactory(x, num_entities, num_relations) for x in (triples, triples[:20]))
    pipeline(training=training, testing=testing, model=model, model_kwargs=model_kwargs, training_loop="nonsamplinglcwa",
             loss="nonsampling", epochs=2, evaluator="factorized", random_seed=0, use_tqdm=False)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

train("DistMult", 10, 2, 50, embedding_dim=4)
for arguments in eval(sys.argv[1]):
    if os.fork():
        assert os.wait()[1] == 0
        continue
    before = train("DistMult", 10, 2, 50, embedding_dim=4)
    print(train(**arguments) - before, flush=True)
    os._exit(0)
"""


#: Models of 200 MB to 1 GB: by their entities, their Gram matrices, and their relations
LARGE: list[tuple[Any, dict[str, int], dict[str, int]]] = [
    (DistMult, dict(num_entities=40_000, num_relations=10, num_triples=5_000), dict(embedding_dim=256)),
    (CP, dict(num_entities=14, num_relations=55, num_triples=1_600), dict(embedding_dim=64, rank=48)),
    (RESCAL, dict(num_entities=500, num_relations=150, num_triples=1_000), dict(embedding_dim=256)),
]


@linux
def test_estimates_are_near_the_peaks(tmp_path: Path) -> None:
    arguments = [dict(model=model.__name__, **sizes, **kwargs) for model, sizes, kwargs in LARGE]
    printed = run_python("-c", PEAKS, repr(arguments), cwd=tmp_path)
    ratios = {}
    for peak, (model, sizes, kwargs) in zip(map(int, printed.split()), LARGE, strict=True):
        n = sizes["num_triples"]
        counts = Counts(sizes["num_entities"], sizes["num_relations"], n, (n, n))
        task = partial(NonSamplingLCWATrainingLoop.plan_task, NonSamplingLoss())
        outlined = outline(model, {**model_defaults(model), **kwargs}, counts.factory(), task, counts)
        estimate = outlined.memory().total
        ratios[model.__name__] = estimate / peak
    assert all(0.75 < ratio < 1.25 for ratio in ratios.values()), ratios


@pytest.mark.parametrize("model", [CP, DistMult, QuatE, RESCAL, RotatE, TransE, TuckER])
def test_outline_is_that_of_the_model(model: Any) -> None:
    kwargs = {**model_defaults(model), "embedding_dim": 6}
    nations = Nations().training
    outlined = outline(model, kwargs, nations)
    made = model(triples_factory=nations, random_seed=0, **kwargs)
    assert outlined.parameters == sum(x.numel() * x.element_size() for x in made.parameters())
    assert outlined.counts == Counts(14, 55, 1592, (471, 438))


def test_outline_of_a_huge_model_takes_no_memory() -> None:
    huge = outline(CP, {**model_defaults(CP), "embedding_dim": 100_000, "rank": 10_000}, Nations().training)
    assert huge.width == 10**9
    assert huge.memory().grams > 10**18
    assert not fits(huge, memory=2**62)


@pytest.mark.parametrize("model", [CP, TransE])
def test_outline_draws_no_random_numbers(model: Any) -> None:
    before = torch.get_rng_state()
    outline(model, {**model_defaults(model), "embedding_dim": 4}, Nations().training)
    assert torch.equal(before, torch.get_rng_state())
