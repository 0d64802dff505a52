"""Speed: what is measured is what the names say."""

from __future__ import annotations

import importlib.util
import itertools
import json
import logging
import math
import re
import statistics
from pathlib import Path
from typing import Any

import numba
import pandas as pd
import pytest
import torch
from click.testing import CliRunner, Result
from pykeen.datasets import Nations
from pykeen.training import TrainingCallback

from benchmarks import speed, subject
from benchmarks.__main__ import main
from benchmarks.peak import measure_peak
from benchmarks.speed import GROWTH, RATIOS, fit_exponent
from benchmarks.subject import Quantity, Subject, autograd_loss, in_turns
from pykeen_nonsampling import SyntheticGraph

TINY = ["--dim", "8", "--repeats", "2", "--batches", "2", "--growth-size", "0.02"]
MODELS = ["DistMult", "SimplE", "ComplEx", "TransE"]


def measure(*args: str) -> Result:
    return CliRunner().invoke(main, ["speed", *args])


def test_everything_is_measured_and_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    peaks = {("ComplEx", 8): 30 * 2**20, ("TransE", 8): 70 * 2**20}
    monkeypatch.setattr(speed, "measure_peak", lambda training, model, dim: peaks[model, dim])
    path, logger = tmp_path / "all.json", logging.getLogger("pykeen_nonsampling")
    level = logger.level
    models = ["--model", "ComplEx", "--model", "transe"]
    result = measure("--dataset", "nations", *models, *TINY, "--json", str(path), "--output", str(tmp_path / "out"))
    assert result.exit_code == 0, result.output
    assert logger.level == level
    data = json.loads(path.read_text(encoding="utf-8"))

    assert [(row["model"], row["dim"]) for row in data["results"]] == [("ComplEx", 8), ("TransE", 8)]
    for row, samples in zip(data["results"], data["samples"], strict=True):
        for name in itertools.chain(*RATIOS.values()):
            assert row[name] == statistics.median(samples[name]) > 0
            assert len(samples[name]) == (1 if name.startswith(("slcwa", "lcwa", "pykeen")) else 2)
        for ratio, (a, b) in RATIOS.items():
            assert row[ratio] == pytest.approx(row[a] / row[b])
        assert row["peak_bytes"] == peaks[row["model"], 8]
        # all of 1,592 triples are one batch with sampling
        assert (row["slcwa_batches_timed"], row["slcwa_batches"]) == (1, 1)
        pairs = {(h, r) for h, r, _ in Nations().training.mapped_triples.tolist()}
        assert (row["lcwa_batches_timed"], row["lcwa_batches"]) == (2, math.ceil(len(pairs) / 64))
        assert row["pykeen_evaluation_triples_timed"] == row["pykeen_evaluation_triples"] == 201
    assert re.search(r"^peak bytes +30 MiB +70 MiB$", result.output, re.MULTILINE)
    assert list(data["growth"]) == list(GROWTH)
    for line in data["growth"].values():
        assert len(line["sizes"]) == len(line["seconds"]) == 4
        assert min(line["seconds"]) > 0
        assert (line["exponent"], line["factor"]) == fit_exponent(line["sizes"], line["seconds"])
    assert data["dataset"] == {"name": "nations", "entities": 14, "relations": 55, "training": 1592, "testing": 201}
    assert data["settings"]["repeats"] == data["settings"]["batches"] == 2
    assert data["machine"]["torch"] == torch.__version__
    assert data["machine"]["cpu"]
    assert data["machine"]["numba"] == numba.__version__
    assert data["machine"]["instructions"] == torch.backends.cpu.get_cpu_capability()

    table = pd.read_csv(tmp_path / "out" / "benchmark.csv")
    for name in RATIOS:
        assert table[name].tolist() == pytest.approx([row[name] for row in data["results"]])
        assert name in result.output
    for name in ("growth", "speedup"):
        assert (tmp_path / "out" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_parts_can_be_left_out(tmp_path: Path) -> None:
    sizes = ["--entities", "50", "--relations", "3", "--triples", "90"]
    result = measure(*sizes, "--model", "DistMult", *TINY, "--loop", "lcwa", "--no-growth", "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "a synthetic graph: 50 entities, 3 relations" in result.output
    (row,) = json.loads((tmp_path / "benchmark.json").read_text(encoding="utf-8"))["results"]
    assert "slcwa_seconds" not in row
    assert row["lcwa/local epoch"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["benchmark.csv", "benchmark.json"]


class TestFiles:
    @pytest.mark.parametrize("name", ["benchmark.csv", "benchmark.json", "speedup.png", "growth.png"])
    def test_are_not_overwritten(self, name: str, tmp_path: Path) -> None:
        (tmp_path / name).write_text("mine")
        result = measure("--dataset", "nations", "--output", str(tmp_path))
        assert result.exit_code == 2
        assert f"{tmp_path / name} exists already" in " ".join(result.output.split())
        assert (tmp_path / name).read_text() == "mine"

    def test_are_overwritten_if_forced(self, tmp_path: Path) -> None:
        (tmp_path / "benchmark.csv").write_text("mine")
        few = ["--model", "DistMult", *TINY, "--loop", "lcwa", "--no-growth"]
        result = measure("--dataset", "nations", *few, "--output", str(tmp_path), "--force")
        assert result.exit_code == 0, result.output
        assert len(pd.read_csv(tmp_path / "benchmark.csv")) == 1

    def test_other_plots_are_not_in_the_way(self, tmp_path: Path) -> None:
        """Of what is not measured, nothing is written."""
        (tmp_path / "growth.png").write_text("mine")
        result = measure("--dataset", "nations", "--no-growth", "--model", "ConvE", "--output", str(tmp_path))
        assert "ConvEInteraction cannot be decomposed" in result.output

    def test_no_directory_is_made_for_json(self, tmp_path: Path) -> None:
        result = measure("--dataset", "nations", "--json", str(tmp_path / "x" / "y.json"), "--output", str(tmp_path / "out"))
        assert result.exit_code == 2
        assert f"There is no directory {tmp_path / 'x'}" in " ".join(result.output.split())
        assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--dataset", "nowhere"], "PyKEEN has no dataset 'nowhere'"),
        (["--model", "nothing"], "PyKEEN has no model 'nothing'"),
        (["--model", "DistMultLiteral"], "DistMultLiteral needs literals of entities"),
        (["--dataset", "nations", "--output", f"{__file__}/out"], "cannot be written to"),
        (["--growth-size", "inf"], "inf is not a finite number > 0"),
        (["--loop", "nothing"], "'nothing' is not one of 'slcwa', 'lcwa'"),
        (["--model", "ConvE", *TINY], "ConvEInteraction cannot be decomposed"),
        (["--dataset", "nations", "--entities", "10"], "mutually exclusive"),
        (["--entities", "20", "--triples", "1000000"], "num_triples=1000000 do not fit"),
        (["--entities", "50", "--triples", "5"], "no test triples to evaluate on"),
    ],
)
def test_bad_input(args: list[str], message: str, tmp_path: Path) -> None:
    result = measure("--output", str(tmp_path / "out"), *args)
    assert isinstance(result.exception, SystemExit)
    assert message in " ".join(result.output.split())
    assert "not foreseen" not in result.output
    assert not (tmp_path / "out").exists()


def test_matplotlib_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = measure("--output", str(tmp_path / "out"))
    assert result.exit_code != 0
    assert 'pip install "pykeen-nonsampling[plot]"' in result.output


@pytest.mark.parametrize("name", ["slcwa", "lcwa"])
def test_the_number_of_batches_is_that_of_an_epoch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "SLCWA_BATCH_SIZE", 100)
    measured = Subject(Nations(), "DistMult", 2)
    measured.baseline(name, batches=1000)
    timed, total = measured.parts[name]
    assert timed == total > 1
    measured.baseline(name, batches=1)
    assert measured.parts[name] == (1, total)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_exponent_of_a_power_law(exponent: float) -> None:
    sizes = [10, 20, 40, 80]
    assert fit_exponent(sizes, [3e-4 * n**exponent for n in sizes]) == pytest.approx((exponent, 3e-4))


def test_times_are_taken_in_turns() -> None:
    calls: list[str] = []

    def quantity(name: str, repeats: int) -> Quantity:
        return Quantity(lambda: calls.append(name) or float(len(calls)), lambda: calls.append(f"{name} warm"), repeats)

    samples = in_turns({"a": quantity("a", 3), "b": quantity("b", 1)}, progress=lambda name: None)
    assert calls == ["a warm", "b warm", "a", "b", "a", "a"]
    assert samples == {"a": [3.0, 5.0, 6.0], "b": [4.0]}


@pytest.mark.parametrize("model", MODELS)
def test_autograd_computes_the_same_loss(model: str) -> None:
    measured = Subject(Nations(), model, 8)
    ours, plain = [], []

    class Gradients(TrainingCallback):
        # before the optimizer's step
        def post_batch(self, **kwargs: Any) -> None:
            ours.extend(x.grad.clone() for x in self.model.parameters() if x.grad is not None)
            self.model.zero_grad()
            loss = autograd_loss(measured.ours, measured.factorization, self.model.loss, measured.training.mapped_triples)
            loss.backward()
            plain.extend([*(x.grad.clone() for x in self.model.parameters() if x.grad is not None), loss.detach().squeeze()])

    losses = measured.loop.train(measured.training, num_epochs=1, use_tqdm=False, callbacks=Gradients())
    assert losses is not None
    ours.append(torch.tensor(losses[0]))
    assert len(ours) > 2
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * b.abs().max().item())


def test_peak_memory_is_less_than_all_gathered_triples() -> None:
    """It is taken in a process of its own, without parameters, gradients and state; plain autograd holds several such."""
    training = SyntheticGraph(1_000, 10, 100_000, evaluation_ratio=0.0).training
    assert 0 < measure_peak(training, "DistMult", 200) < 5 * 4 * 200 * training.num_triples
