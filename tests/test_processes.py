"""Several trainings at once, in threads and processes, are what they would be one by one.

Each test runs a function of this module in a process of its own, so that nothing can keep the others waiting.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run_python
from pykeen.datasets import Nations
from pykeen.hpo import hpo_pipeline
from pykeen.nn.init import PretrainedInitializer
from pykeen.pipeline import pipeline
from pykeen.training.callbacks import TrainingCallback

from pykeen_nonsampling import FactorizedRankBasedEvaluator

#: Which loop trains which model, for how many epochs: one uses compiled loops, the other one does not
RUNS = (("nonsamplinglcwa", "DistMult", 20), ("nonsampling", "RESCAL", 25))


class Meeting(TrainingCallback):
    """Lets the training that starts first also end first, with the other one under way all the while between."""

    def __init__(self, begun: threading.Event, awaited: threading.Event):
        super().__init__()
        self.begun = begun
        self.awaited = awaited

    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        self.begun.set()
        assert self.awaited.wait(120)


def train(training_loop: str, model: str, epochs: int, **kwargs: Any) -> Any:
    """Train from given vectors: threads share PyTorch's random numbers."""
    generator = torch.Generator().manual_seed(epochs)
    shape = dict(DistMult=(8,), RESCAL=(8, 8))[model]
    return pipeline(
        dataset="nations",
        model=model,
        model_kwargs=dict(
            embedding_dim=8,
            entity_initializer=PretrainedInitializer(torch.rand(14, 8, generator=generator)),
            relation_initializer=PretrainedInitializer(torch.rand(55, *shape, generator=generator)),
        ),
        training_loop=training_loop,
        # whose batches are not random
        loss="nonsampling",
        evaluator="factorized",
        epochs=epochs,
        random_seed=0,
        use_tqdm=False,
        **kwargs,
    )


def outcome(result: Any) -> tuple[list[float], list[float], list[list[float]]]:
    """Return losses, metrics and vectors, in a form that can be compared and sent to another process."""
    metrics = [float(result.get_metric(name)) for name in ("mrr", "hits_at_1", "mr")]
    return result.losses, metrics, [x.flatten().tolist() for x in result.model.state_dict().values()]


def train_one(number: int) -> Any:
    """Train as one of several processes."""
    return outcome(train(*RUNS[number]))


def train_in_two_threads(num_threads: int) -> None:
    """Each of them also uses as many threads of PyTorch and Numba."""
    torch.set_num_threads(num_threads)
    alone = [train_one(i) for i in range(2)]
    filters = list(warnings.filters)
    begun, ended = [threading.Event(), threading.Event()], threading.Event()

    def first() -> Any:
        try:
            return outcome(train(*RUNS[0], training_kwargs=dict(callbacks=Meeting(begun[0], begun[1]))))
        finally:
            ended.set()

    def second() -> Any:
        assert begun[0].wait(120)
        assert torch.get_num_threads() == num_threads
        return outcome(train(*RUNS[1], training_kwargs=dict(callbacks=Meeting(begun[1], ended))))

    with ThreadPoolExecutor(max_workers=2) as executor:
        together = [future.result() for future in [executor.submit(first), executor.submit(second)]]
    assert together == alone
    assert gc.get_freeze_count() == 0
    assert list(warnings.filters) == filters


def evaluate_beside_training() -> None:
    alone, model, dataset = train_one(0), train(*RUNS[1]).model, Nations()
    begun, ended = threading.Event(), threading.Event()

    def evaluate() -> dict[str, float]:
        evaluator = FactorizedRankBasedEvaluator()
        result = evaluator.evaluate(
            model,
            dataset.testing.mapped_triples,
            additional_filter_triples=[dataset.training.mapped_triples],
            use_tqdm=False,
        )
        return {key: value for key, value in result.to_flat_dict().items() if value == value}

    def evaluate_meanwhile() -> list[dict[str, float]]:
        assert begun.wait(120)
        try:
            return [evaluate() for _ in range(3)]
        finally:
            ended.set()

    expected = evaluate()
    with ThreadPoolExecutor(max_workers=1) as executor:
        evaluations = executor.submit(evaluate_meanwhile)
        assert outcome(train(*RUNS[0], training_kwargs=dict(callbacks=Meeting(begun, ended)))) == alone
    assert len(expected) > 100
    assert evaluations.result() == [expected] * 3


def train_in_two_processes(method: str) -> None:
    # after this, a forked process lacks threads that PyTorch and Numba believe to have
    torch.set_num_threads(2)
    train_one(0)
    # as in workers of PyTorch's own: forked ones would wait for such a thread
    torch.set_num_threads(1)
    alone = [train_one(i) for i in range(2)]
    context: Any = multiprocessing.get_context(method)
    pool: Pool
    with context.Pool(2) as pool:
        assert pool.map_async(train_one, range(2), chunksize=1).get(timeout=240) == alone


def search_in_two_threads() -> None:
    result = hpo_pipeline(
        dataset="nations",
        model="DistMult",
        training_loop="nonsamplinglcwa",
        n_trials=4,
        n_jobs=2,
        training_kwargs=dict(num_epochs=20),
        training_kwargs_ranges=dict(),
    )
    assert [trial.state.name for trial in result.study.trials] == ["COMPLETE"] * 4
    assert gc.get_freeze_count() == 0


CALLS = [
    "train_in_two_threads(1)",
    pytest.param("train_in_two_threads(2)", marks=pytest.mark.slow),
    "evaluate_beside_training()",
    pytest.param(
        "train_in_two_processes('fork')",
        marks=pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork"),
    ),
    pytest.param("train_in_two_processes('spawn')", marks=pytest.mark.slow),
    "search_in_two_threads()",
]


@pytest.mark.parametrize("call", CALLS)
def test_in_a_process_of_its_own(call: str, tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_processes; test_processes.{call}"
    run_python("-c", code, cwd=tmp_path)
