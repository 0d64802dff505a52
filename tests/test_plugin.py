"""PyKEEN knows the plugin, whatever is imported first, in a process that imports nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

FIRST_IMPORTS = """
pykeen pykeen.ablation pykeen.cli pykeen.contrib pykeen.datasets pykeen.datasets.base pykeen.datasets.cli
pykeen.evaluation pykeen.hpo pykeen.hpo.hpo pykeen.losses pykeen.models pykeen.models.nbase pykeen.nn pykeen.nn.modules
pykeen.nn.representation pykeen.pipeline pykeen.pipeline.api pykeen.predict pykeen.regularizers pykeen.sampling
pykeen.stoppers pykeen.trackers
pykeen.training pykeen.training.callbacks pykeen.training.lcwa pykeen.training.training_loop pykeen.triples
pykeen_nonsampling pykeen_nonsampling.datasets pykeen_nonsampling.recipes pykeen_nonsampling.factorizations
pykeen_nonsampling.evaluation pykeen_nonsampling.losses pykeen_nonsampling.features pykeen_nonsampling._plugin
pykeen_nonsampling.training pykeen_nonsampling.training.closed_world pykeen_nonsampling.cli pykeen_nonsampling.recording
pykeen_nonsampling.objectives pykeen_nonsampling.search pykeen_nonsampling.sweep pykeen_nonsampling.triples
pykeen_nonsampling.tuning pykeen_nonsampling.weighting pykeen_nonsampling.scoring pykeen_nonsampling.prediction
""".split()

#: What each process does, with nothing of PyKEEN or ours imported before
CODE = """
import importlib, sys, types
importlib.import_module(first)
from pykeen.training import training_loop_resolver
from pykeen.losses import loss_resolver
from pykeen.datasets import dataset_resolver
from pykeen.evaluation import evaluator_resolver
from pykeen.pipeline import pipeline
from pykeen.hpo import hpo_pipeline
import pykeen.hpo.hpo, pykeen.pipeline.api
names = [
    training_loop_resolver.lookup("nonsampling").__name__,
    loss_resolver.lookup("nonsampling").__name__,
    dataset_resolver.lookup("syntheticgraph").__name__,
    evaluator_resolver.lookup("factorized").__name__,
]
assert names == ["NonSamplingTrainingLoop", "NonSamplingLoss", "SyntheticGraph", "FactorizedRankBasedEvaluator"], names
# every reference to the pipelines knows the defaults
api, hpo = pykeen.pipeline.api, pykeen.hpo.hpo
for function in (pipeline, hpo_pipeline, api.pipeline, hpo.pipeline, hpo.hpo_pipeline):
    assert function.__wrapped__.__module__ == function.__module__, function
# the arrangements for it are gone again
assert {type(sys.modules[name]) for name in sys.modules if name.startswith("pykeen")} == {types.ModuleType}
assert not [finder for finder in sys.meta_path if type(finder).__module__.startswith("pykeen")]
"""


#: Starts the processes, from one that has imported what takes long and does not matter
FORKS = f"""
import os, sys, traceback
import pandas, scipy.stats, torch, torch._dynamo
assert not any(name.startswith("pykeen") for name in sys.modules)
for first in sys.argv[1:]:
    if os.fork():
        assert os.wait()[1] == 0, first
        continue
    try:
        exec({CODE!r})
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")
def test_whatever_is_imported_first() -> None:
    assert len(FIRST_IMPORTS) >= 25
    with ThreadPoolExecutor(max_workers=2) as executor:
        processes = executor.map(
            lambda names: subprocess.run(
                [sys.executable, "-W", "ignore", "-c", FORKS, *names], capture_output=True, text=True, check=False
            ),
            (FIRST_IMPORTS[::2], FIRST_IMPORTS[1::2]),
        )
    for process in processes:
        assert process.returncode == 0, process.stderr
        assert not process.stderr


@pytest.mark.parametrize("name", ["Factorization", "NonSamplingTrainingLoop", "factorization_resolver"])
def test_public_names(name: str) -> None:
    import pykeen_nonsampling

    assert name in dir(pykeen_nonsampling)
    assert getattr(pykeen_nonsampling, name).__class__


def test_unknown_name() -> None:
    import pykeen_nonsampling

    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = pykeen_nonsampling.Nothing
