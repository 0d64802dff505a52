"""Several processes give the result of one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import failure_script
import pytest
import torch
from commands import run_python, run_ranks
from pykeen.pipeline import pipeline
from rank_script import CASES
from restart_script import CONFIGURATION

from pykeen_nonsampling.distributed.group import Group

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without distributed training")


TESTS = Path(__file__).parent


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_result_is_that_of_one_process(processes: int, tmp_path: Path) -> None:
    """In groups of the first two of them, the first three, and so on."""
    run_ranks(processes, str(TESTS / "rank_script.py"), str(tmp_path / "x.pt"), cwd=tmp_path)
    results = torch.load(tmp_path / "x.pt", weights_only=True)
    assert list(results) == list(range(1, 1 + processes))
    for name, (_, _, dtype, *_) in CASES.items():
        tolerance = 1e-10 if dtype is torch.float64 else 1e-5
        one = results[1][name]
        for size in range(2, 1 + processes):
            many = results[size][name]
            assert many["losses"] == pytest.approx(one["losses"], rel=tolerance), (name, size)
            for x, y in zip(one["parameters"], many["parameters"], strict=True):
                assert (x - y).abs().max() < tolerance * x.abs().max(), (name, size)
            assert many["metrics"] == pytest.approx(one["metrics"], rel=tolerance), (name, size)


def test_what_fails_in_one_process_fails_in_all_at_once(tmp_path: Path) -> None:
    """With the cause, instead of waiting for a process that does not answer any more."""
    run_ranks(2, str(TESTS / "failure_script.py"), str(tmp_path), cwd=tmp_path)
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    for name, (_, cause) in failure_script.CASES.items():
        for world in failure_script.LOOPS:
            for failing in range(2):
                case = f"{name}, {world}, {failing}"
                message, _ = told[failing][case]
                assert cause in message, case
                assert "Rank" not in message, case
                message, seconds = told[1 - failing][case]
                assert f"Rank {failing} of 2 has failed" in message, case
                assert cause in message, case
                assert seconds < failure_script.PATIENCE / 2, case


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")
def test_killed_process_is_restarted(tmp_path: Path) -> None:
    """From the checkpoint, with the result of a training that nobody has killed."""
    # this also fills PyKEEN's cache, which two processes at once cannot
    result = pipeline(**CONFIGURATION, training_kwargs=dict(use_tqdm=False))
    run_python(str(TESTS / "restart_script.py"), str(tmp_path), cwd=tmp_path)
    attempt, losses, mrr = json.loads((tmp_path / "result.json").read_text())
    assert attempt == "1"
    assert losses == pytest.approx(result.losses, rel=1e-5)
    assert mrr == pytest.approx(result.get_metric("mrr"))


def test_rows_of_a_matrix_are_divided() -> None:
    rows = [Group(i, 3).rows(10) for i in range(3)]
    assert [x for part in rows for x in range(10)[part]] == list(range(10))
