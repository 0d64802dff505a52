"""The benchmark measures what it says."""

from __future__ import annotations

import importlib.util
import itertools
import json
import logging
import math
import statistics
from pathlib import Path
from typing import Any

import numba
import pandas as pd
import pytest
import torch
from click.testing import CliRunner, Result
from pykeen.datasets import Nations
from pykeen.models import DistMult
from pykeen.training import SLCWATrainingLoop

from pykeen_nonsampling import SyntheticGraph
from pykeen_nonsampling.cli import main, timing
from pykeen_nonsampling.cli.curves import SECONDS, OutOfTime, TimedCurve
from pykeen_nonsampling.cli.quality import LOOPS, Quality, QualitySettings
from pykeen_nonsampling.cli.speed import GROWTH, RATIOS, fit_exponent
from pykeen_nonsampling.cli.timing import BatchTimer, Quantity, Subject, extrapolate, in_turns, measure_peak

TINY = ["--dim", "8", "--repeats", "2", "--batches", "2", "--growth-size", "0.02"]
MODELS = ["DistMult", "SimplE", "ComplEx", "TransE"]


def benchmark(*args: str) -> Result:
    return CliRunner().invoke(main, ["benchmark", *args])


def test_everything_is_measured_and_written(tmp_path: Path) -> None:
    path, logger = tmp_path / "all.json", logging.getLogger("pykeen_nonsampling")
    level = logger.level
    models = ["--model", "ComplEx", "--model", "transe"]
    result = benchmark("--dataset", "nations", *models, *TINY, "--json", str(path), "--output", str(tmp_path / "out"))
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
        assert row["peak_bytes"] >= 0
        # all of 1,592 triples are one batch with sampling
        assert (row["slcwa_batches_timed"], row["slcwa_batches"]) == (1, 1)
        pairs = {(h, r) for h, r, _ in Nations().training.mapped_triples.tolist()}
        assert (row["lcwa_batches_timed"], row["lcwa_batches"]) == (2, math.ceil(len(pairs) / 64))
        assert row["pykeen_evaluation_triples_timed"] == row["pykeen_evaluation_triples"] == 201
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
    result = benchmark(*sizes, "--model", "DistMult", *TINY, "--loop", "lcwa", "--no-growth", "--output", str(tmp_path))
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
        result = benchmark("--dataset", "nations", "--output", str(tmp_path))
        assert result.exit_code == 2
        assert f"{tmp_path / name} exists already" in " ".join(result.output.split())
        assert (tmp_path / name).read_text() == "mine"

    def test_are_overwritten_if_forced(self, tmp_path: Path) -> None:
        (tmp_path / "benchmark.csv").write_text("mine")
        few = ["--model", "DistMult", *TINY, "--loop", "lcwa", "--no-growth"]
        result = benchmark("--dataset", "nations", *few, "--output", str(tmp_path), "--force")
        assert result.exit_code == 0, result.output
        assert len(pd.read_csv(tmp_path / "benchmark.csv")) == 1

    def test_other_plots_are_not_in_the_way(self, tmp_path: Path) -> None:
        """Of what is not measured, nothing is written."""
        (tmp_path / "growth.png").write_text("mine")
        result = benchmark("--dataset", "nations", "--no-growth", "--model", "ConvE", "--output", str(tmp_path))
        assert "ConvEInteraction cannot be decomposed" in result.output

    def test_of_quality_are_not_overwritten(self, tmp_path: Path) -> None:
        for suffix in ("json", "md", "png"):
            path = tmp_path / f"quality_nations.{suffix}"
            path.write_text("mine")
            result = benchmark("--quality", "--dataset", "nations", "--output", str(tmp_path))
            assert result.exit_code == 2
            assert f"{path} exists already" in " ".join(result.output.split())
            path.unlink()
        # this option does have an effect with --quality
        result = benchmark("--quality", "--force", "--dataset", "nations", "--output", str(Path(__file__) / "out"))
        assert "cannot be written to" in result.output

    def test_no_directory_is_made_for_json(self, tmp_path: Path) -> None:
        result = benchmark(
            "--dataset", "nations", "--json", str(tmp_path / "x" / "y.json"), "--output", str(tmp_path / "out")
        )
        assert result.exit_code == 2
        assert f"There is no directory {tmp_path / 'x'}" in " ".join(result.output.split())
        assert not [*tmp_path.iterdir()]


class TestQuality:
    def test_curves_are_measured_and_written(self, tmp_path: Path) -> None:
        options = ["--budget-seconds", "0.5", "--search-seconds", "0.4", "--trials", "2", "--repeats", "2"]
        result = benchmark("--quality", "--dataset", "nations", "--dim", "8", *options, "--output", str(tmp_path))
        assert result.exit_code == 0, result.output
        data = json.loads((tmp_path / "quality_nations.json").read_text(encoding="utf-8"))
        assert data["settings"]["model"] == "ComplEx"
        assert list(data["curves"]) == list(data["trials"]) == list(LOOPS)
        for loop in LOOPS:
            # the same effort for all
            assert len(data["trials"][loop]) == len(data["curves"][loop]) == 2
            for points in data["curves"][loop]:
                seconds = [point[SECONDS] for point in points]
                assert seconds == sorted(seconds)
                assert seconds[-1] >= 0.5
                assert all(0 < point["MRR"] <= 1 for point in points)
        table = (tmp_path / "quality_nations.md").read_text(encoding="utf-8")
        assert table in result.output
        assert table.count("\n") == 2 + len(LOOPS)
        assert (tmp_path / "quality_nations.png").read_bytes().startswith(b"\x89PNG")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["--quality", "--json", "x.json"], "--json has no effect with --quality"),
            (["--quality", "--no-growth"], "--growth has no effect with --quality"),
            (["--trials", "3"], "--trials is for --quality"),
        ],
    )
    def test_options_without_effect_are_refused(self, options: list[str], message: str) -> None:
        result = benchmark("--dataset", "nations", *options)
        assert result.exit_code == 2
        assert message in result.output

    def test_times_to_quality_are_medians_of_first_times(self) -> None:
        quality = Quality(QualitySettings("nations", "ComplEx", 8, 10, 10, 1))

        def run(*points: tuple[float, float]) -> list[dict[str, float]]:
            return [{SECONDS: seconds, "MRR": mrr} for seconds, mrr in points]

        quality.curves["a"] = [run((1, 0.4), (2, 0.8), (3, 0.7)), run((1, 0.5), (4, 0.8)), run((6, 0.8))]
        quality.curves["b"] = [run((1, 0.1), (9, 0.75)), run((5, 0.75)), run((9, 0.1), (10, 0.74))]
        assert quality.highest == 0.8
        assert [quality.seconds_to("a", level) for level in (0.9, 0.99)] == [4, 4]
        assert [quality.seconds_to("b", level) for level in (0.9, 0.99)] == [9, math.inf]
        assert "| `b` | 0.750 | 9 | not reached | not reached |" in quality.markdown()

    def test_evaluation_takes_no_time_and_training_ends(self) -> None:
        """Each batch takes a second, and each evaluation a hundred, by a clock of its own."""
        now = 0.0
        dataset = Nations()

        class Clock(TimedCurve):
            def pre_batch(self, **kwargs: Any) -> None:
                super().pre_batch(**kwargs)
                assert self.model.training

            def post_batch(self, **kwargs: Any) -> None:
                nonlocal now
                now += 1.0

            def _evaluate(self, **labels: float) -> None:
                nonlocal now
                super()._evaluate(**labels)
                now += 100.0

        training = dataset.training
        model = DistMult(triples_factory=training, embedding_dim=2, random_seed=0)
        loop = SLCWATrainingLoop(model=model, triples_factory=training, automatic_memory_optimization=False)
        assert dataset.validation is not None
        curve = Clock(dataset.validation, [training], marks=[0.5, 3, 3.5, 9])
        curve.clock = lambda: now
        with pytest.raises(OutOfTime):
            loop.train(training, num_epochs=10, batch_size=250, use_tqdm=False, callbacks=curve)
        # in the second of 7-batch epochs
        assert [(point["step"], point[SECONDS]) for point in curve.points] == [(1, 1), (3, 3), (4, 4), (9, 9)]

    @pytest.mark.parametrize(
        ("args", "message"),
        [
            (["--model", "ConvE"], "ConvEInteraction cannot be decomposed"),
            (["--model", "DistMult", "--model", "ComplEx"], "give one --model and one --dim"),
            (["--dataset", "nowhere"], "PyKEEN has no dataset 'nowhere'"),
            (["--budget-seconds", "0"], "0.0 is not in the range x>0"),
        ],
    )
    def test_bad_input(self, args: list[str], message: str, tmp_path: Path) -> None:
        result = benchmark("--quality", *args, "--output", str(tmp_path / "out"))
        assert result.exit_code != 0
        assert message in result.output
        assert not (tmp_path / "out").exists()


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
    result = benchmark("--output", str(tmp_path / "out"), *args)
    assert isinstance(result.exception, SystemExit)
    assert message in " ".join(result.output.split())
    assert "not foreseen" not in result.output
    assert not (tmp_path / "out").exists()


def test_matplotlib_is_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    result = benchmark("--output", str(tmp_path / "out"))
    assert result.exit_code != 0
    assert 'pip install "pykeen-nonsampling[plot]"' in result.output


@pytest.mark.parametrize(("batches", "timed", "seconds"), [(1, 1, 1.0), (2, 2, 3.0), (7, 7, 28.0), (100, 7, 28.0)])
def test_batches_are_timed_with_their_steps(batches: int, timed: int, seconds: float) -> None:
    """Of the 7 batches of an epoch, the n-th takes n seconds by a clock that only steps make go on."""
    now, steps = 0.0, 0

    class Steps(timing.TrainingCallback):
        # registered after the timer, as is PyKEEN's callback for the optimizer's step
        def post_batch(self, **kwargs: Any) -> None:
            nonlocal now, steps
            steps += 1
            now += steps

    training = Nations().training
    model = DistMult(triples_factory=training, embedding_dim=2, random_seed=0)
    loop = SLCWATrainingLoop(model=model, triples_factory=training, automatic_memory_optimization=False)
    timer = BatchTimer(batches, clock=lambda: now)
    kwargs: dict[str, Any] = dict(num_epochs=1, batch_size=250, use_tqdm=False, callbacks=[timer, Steps()])
    if batches < 7:
        with pytest.raises(timing._EnoughBatches):
            loop.train(training, **kwargs)
    else:
        loop.train(training, **kwargs)
    assert timer.timed == steps == timed
    assert timer.seconds == seconds


def test_parts_are_scaled_to_the_whole() -> None:
    assert extrapolate(6.0, timed=3, total=30) == 60.0
    assert extrapolate(6.0, timed=30, total=30) == 6.0
    # what takes the same time for any part is not scaled
    assert extrapolate(6.0, timed=3, total=30, fixed=1.0) == 51.0
    assert extrapolate(6.0, timed=3, total=30, fixed=7.0) == 6.0


@pytest.mark.parametrize("name", ["slcwa", "lcwa"])
def test_the_number_of_batches_is_that_of_an_epoch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "SLCWA_BATCH_SIZE", 100)
    subject = Subject(Nations(), "DistMult", 2)
    subject.baseline(name, batches=1000)
    timed, total = subject.parts[name]
    assert timed == total > 1
    subject.baseline(name, batches=1)
    assert subject.parts[name] == (1, total)


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
    subject = Subject(Nations(), model, 8)
    subject.loop._prepare(subject.training, label_smoothing=0.0)
    graph = subject.loop._batch(subject.training)
    gradients = []
    for loss in (
        subject.loop._process_batch(graph, 0, len(graph)),
        timing.autograd_loss(subject.ours, subject.factorization, subject.loop.loss, subject.training.mapped_triples),
    ):
        subject.ours.zero_grad()
        loss.backward()
        gradients.append([loss.detach(), *(x.grad for x in subject.ours.parameters() if x.grad is not None)])
    assert len(gradients[0]) > 2
    for ours, plain in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-3, atol=1e-3 * plain.abs().max().item())


def test_peak_memory_is_less_than_all_gathered_triples() -> None:
    """It is taken in a process of its own, without parameters, gradients and state; plain autograd holds several such."""
    training = SyntheticGraph(1_000, 10, 100_000, evaluation_ratio=0.0).training
    assert 0 < measure_peak(training, "DistMult", 200) < 5 * 4 * 200 * training.num_triples
