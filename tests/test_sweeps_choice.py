"""The fastest sweep that can be used is used, and its memory given back."""

from __future__ import annotations

import gc
import importlib.util
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pykeen.datasets import Nations
from pykeen.models import DistMult
from sweeps import SWEEPS, training_with
from worlds import WORLDS, World

from pykeen_nonsampling import NonSamplingLoss, NonSamplingTrainingLoop, free
from pykeen_nonsampling.sweeps.choice import fastest_sweep
from pykeen_nonsampling.sweeps.numba.sweep import FusedSweep
from pykeen_nonsampling.sweeps.plain import PlainSweep
from pykeen_nonsampling.training import loop as loop_module
from pykeen_nonsampling.training import run


class TestFastestSweep:
    def test_fused(self) -> None:
        sweep = fastest_sweep(123)
        assert isinstance(sweep, FusedSweep)
        assert sweep.memory_budget == sweep.plain.memory_budget == 123

    def test_plain_without_numba(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        sweep = fastest_sweep(123)
        assert isinstance(sweep, PlainSweep)
        assert sweep.memory_budget == 123

    def test_plain_if_numba_cannot_be_imported(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setitem(sys.modules, "pykeen_nonsampling.sweeps.numba.sweep", None)
        assert isinstance(fastest_sweep(), PlainSweep)
        assert "Numba is installed, but cannot be imported" in caplog.text

    def test_training_loops_use_it(self) -> None:
        training = Nations().training
        model = DistMult(triples_factory=training, loss=NonSamplingLoss())
        loop = NonSamplingTrainingLoop(model=model, triples_factory=training)
        loop.train(training, num_epochs=1, use_tqdm=False)
        assert isinstance(loop._run.sweep, FusedSweep)

    def test_its_memory_is_given_back_after_training(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        made: list[weakref.ref[Any]] = []

        def make(*args: Any) -> Any:
            sweep = fastest_sweep(*args)
            made.append(weakref.ref(sweep))
            return sweep

        for module in (loop_module, run):
            monkeypatch.setattr(module, "fastest_sweep", make)
        training = Nations().training
        loop = world.loop(model=DistMult(triples_factory=training, loss=NonSamplingLoss()), triples_factory=training)
        loop.train(training, num_epochs=2, use_tqdm=False)
        gc.collect()
        assert made[0]() is None


@pytest.mark.parametrize("sweep", SWEEPS)
@pytest.mark.parametrize("batch_size", [None, 300])
def test_free_memory_is_looked_up_once_per_training(
    sweep: str, batch_size: int | None, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for every step: on a small graph, it takes as long as the step itself."""
    asked: list[str] = []

    def watch(name: str) -> Callable[[torch.device], int]:
        def ask(device: torch.device) -> int:
            asked.append(name)
            # so much that the training is not looked at closely
            return 2**40

        return ask

    for name, module in list(sys.modules.items()):
        if name.startswith("pykeen_nonsampling.") and module is not free and hasattr(module, "free_memory"):
            monkeypatch.setattr(module, "free_memory", watch(name))
    training = Nations().training
    loop = world.loop(model=DistMult(triples_factory=training, loss=NonSamplingLoss()), triples_factory=training)
    with training_with(sweep, None):
        loop.train(training, num_epochs=4, batch_size=batch_size, use_tqdm=False)
    by_sweep = [name for name in asked if name.startswith("pykeen_nonsampling.sweeps")]
    # with one visit to all queries, nothing is processed in blocks
    assert len(by_sweep) == (0 if sweep == "fused" and world is WORLDS["closed"] else 1)
    # and once more, to find out whether there is room
    assert len(asked) == len(by_sweep) + 1
