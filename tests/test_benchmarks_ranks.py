"""Training in several processes is measured."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner, Result
from commands import run_python
from pykeen.models import ComplEx

from benchmarks import ranks
from benchmarks.__main__ import main
from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingLoss, SyntheticGraph
from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.memory.dry_run import outline
from pykeen_nonsampling.memory.traffic import estimate_traffic


def measure(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["ranks", *arguments])


@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without distributed training")
def test_one_process_and_two(tmp_path: Path) -> None:
    # the processes are forked from one that other tests use, too: let it import what they need
    run_python("-c", "", cwd=tmp_path)
    path, sizes = tmp_path / "x.json", dict(entities=20_000, relations=3, triples=5_000)
    options = ["--model", "complex", "--dim", "16", "--repeats", "1", *(f"--{name}={n}" for name, n in sizes.items())]
    result = measure("2", *options, "--json", str(path), "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    data = json.loads(path.read_text(encoding="utf-8"))
    rows = data["results"]
    assert [(row["processes"], row["way"]) for row in rows] == [(1, "alone"), (2, "data parallel"), (2, "sharded")]
    for row, samples in zip(rows, data["samples"], strict=True):
        assert [row["epoch_seconds"]] == [x["seconds"] for x in samples["measured"]]
        assert row["speedup"] == pytest.approx(rows[0]["epoch_seconds"] / row["epoch_seconds"])
        assert row["efficiency"] == pytest.approx(row["speedup"] / row["processes"])
        # parameters, their gradient, and the two moments of Adam; divided, each process has half of the entities
        entities = sizes["entities"] // (2 if row["way"] == "sharded" else 1)
        assert sys.platform != "linux" or 4 * 4 * 32 * entities < row["peak_bytes"] < 100 * 4 * 32 * entities
        assert row["way"] in result.output
    assert rows[0]["sent_bytes"] == 0
    task = partial(NonSamplingLCWATrainingLoop.plan_task, NonSamplingLoss())
    planned = outline(
        ComplEx, {**model_defaults(ComplEx), "embedding_dim": 16}, SyntheticGraph(*sizes.values()).training, task
    )
    assert rows[1]["sent_bytes"] == estimate_traffic(planned, 2).total
    assert rows[2]["sent_bytes"] > 0
    assert (data["settings"]["ranks"], data["dataset"]["entities"]) == ([1, 2], 20_000)


def test_entities_that_cannot_be_divided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ranks.Scaling, "_measure", lambda self, trial: ranks.Measurement(1 / trial.processes, 7, 7))
    options = ["--dataset", "nations", "--model", "RESCAL", "--dim", "4", "--output", str(tmp_path)]
    result = measure("4,2", *options)
    assert result.exit_code == 0, result.output
    assert "RESCAL with 4 dimensions is measured data parallel only. The entities of this RESCAL cannot" in result.output
    rows = json.loads((tmp_path / "scaling.json").read_text(encoding="utf-8"))["results"]
    assert [(row["processes"], row["speedup"], row["efficiency"]) for row in rows] == [(1, 1, 1), (2, 2, 1), (4, 4, 1)]
    again = measure("2", *options)
    assert "scaling.json exists already" in " ".join(again.output.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["0"], "'0' are not numbers of processes. Write numbers > 0, separated by commas"),
        (["1;2"], "'1;2' are not numbers of processes"),
        (["2,20"], "14 entities cannot be divided among 20 processes. Start at most 14."),
        (["2", "--model", "ConvE"], "ConvEInteraction cannot be decomposed"),
    ],
)
def test_refusals(arguments: list[str], message: str, tmp_path: Path) -> None:
    result = measure("--dataset", "nations", "--output", str(tmp_path / "out"), *arguments)
    assert isinstance(result.exception, SystemExit)
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()


def test_distributed_training_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ranks, "distributed", SimpleNamespace(is_available=lambda: False))
    result = measure("2", "--dataset", "nations", "--output", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert "Several processes need a PyTorch with torch.distributed" in result.output
