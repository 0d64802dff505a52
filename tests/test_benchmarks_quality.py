"""Quality: how good a model is after how many seconds."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import optuna
import pytest
from click.testing import CliRunner, Result
from pykeen.datasets import Nations
from pykeen.models import DistMult
from pykeen.training import SLCWATrainingLoop

from benchmarks.__main__ import main
from benchmarks.quality import ENTRIES, LEVELS, Quality, QualitySettings
from benchmarks.timed_curve import TimedCurve
from pykeen_nonsampling.cli.curves import SECONDS
from pykeen_nonsampling.cli.stopwatch import OutOfTime

STORED = Path(__file__).parents[1] / "docs" / "benchmark"


def measure(*args: str) -> Result:
    return CliRunner().invoke(main, ["quality", *args])


def test_files_are_not_overwritten(tmp_path: Path) -> None:
    for suffix in ("json", "md", "png"):
        path = tmp_path / f"quality_nations.{suffix}"
        path.write_text("mine")
        result = measure("--dataset", "nations", "--output", str(tmp_path))
        assert result.exit_code == 2
        assert f"{path} exists already" in " ".join(result.output.split())
        path.unlink()
    result = measure("--force", "--dataset", "nations", "--output", str(Path(__file__) / "out"))
    assert "cannot be written to" in result.output


def test_curves_are_measured_and_written(tmp_path: Path) -> None:
    options = ["--budget-seconds", "0.5", "--search-seconds", "0.4", "--trials", "2", "--repeats", "2"]
    result = measure("--dataset", "nations", "--dim", "8", *options, "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    data = json.loads((tmp_path / "quality_nations.json").read_text(encoding="utf-8"))
    assert data["settings"]["model"] == "ComplEx"
    assert list(data["curves"]) == list(data["trials"]) == list(data["effort"]) == list(ENTRIES)
    for loop, entry in ENTRIES.items():
        # the same effort for all, and defaults first
        trials, effort = data["trials"][loop], data["effort"][loop]
        assert len(trials) == len(data["curves"][loop]) == 2
        assert trials[0]["parameters"].items() >= entry.first[0].items()
        finished = [trial["seconds"] for trial in trials if "reason" not in trial]
        assert (effort["trials"], effort["search_seconds"]) == (len(finished), pytest.approx(sum(finished)))
        assert effort["best"] == max(trials, key=lambda trial: trial["MRR"])["parameters"]
        for points in data["curves"][loop]:
            seconds = [point[SECONDS] for point in points]
            assert seconds == sorted(seconds)
            assert seconds[-1] > 0
            assert all(0 < point["MRR"] <= 1 for point in points)
    table = (tmp_path / "quality_nations.md").read_text(encoding="utf-8")
    assert table in result.output
    assert table.count("\n") == 2 + len(ENTRIES)
    assert "| nonsamplinglcwa, squared |" in table
    assert "| nonsamplinglcwa, cross-entropy |" in table
    assert "| autograd, cross-entropy |" in table
    assert (tmp_path / "quality_nations.png").read_bytes().startswith(b"\x89PNG")


def test_cross_entropy_is_trained_in_the_same_way_by_both() -> None:
    """With and without this package: the same optimizer, learning rates, regularization and triples."""
    quality = Quality(QualitySettings("nations", "ComplEx", 8, 1, 1, 1))

    def suggest(loop: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
        return quality._suggest(optuna.trial.FixedTrial({"loss": ENTRIES[loop].losses[0], **parameters}), loop, False)

    first = [dict(ENTRIES[loop].first[0]) for loop in ("softmax", "autograd")]
    assert [(x["lr"], x["regularization_weight"]) for x in first] == [(0.1, 0.05)] * 2
    ours, theirs = suggest("softmax", first[0]), suggest("autograd", first[1])
    assert ours["optimizer"] == theirs["optimizer"] == "Adagrad"
    assert ours["optimizer_kwargs"] == theirs["optimizer_kwargs"] == {"lr": 0.1}
    weight = theirs["training_loop_kwargs"]["regularization_weight"]
    assert ours["loss_kwargs"] == {"scale": 1.0, "regularization_weight": weight}
    assert ours["training_loop_kwargs"] == {"start_epochs": 0}
    # relative to the scale
    started = suggest("softmax", ENTRIES["softmax"].first[1])
    assert started["training_loop_kwargs"] == {"start_epochs": 60}
    assert started["loss_kwargs"] == {"scale": 10.0, "regularization_weight": 10 * weight}
    for loop in ("softmax", "autograd", "lcwa"):
        assert quality._dataset(loop).training.create_inverse_triples
    for loop in ("nonsampling", "nonsamplinglcwa", "slcwa"):
        assert not quality._dataset(loop).training.create_inverse_triples
    assert not Quality(QualitySettings("nations", "RotatE", 8, 1, 1, 1))._dataset("softmax").training.create_inverse_triples


@pytest.mark.parametrize("path", sorted(STORED.glob("quality_*.json")), ids=lambda path: path.stem)
def test_stored_results_can_be_drawn(path: Path, tmp_path: Path) -> None:
    result = measure("--stored", str(path), "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    data = json.loads(path.read_text(encoding="utf-8"))
    quality = Quality.read(path)
    assert quality.highest == data["highest"]
    for loop, seconds in data["seconds"].items():
        assert [quality.seconds_to(loop, level) for level in LEVELS] == [
            math.inf if seconds[f"{level:.0%}"] is None else seconds[f"{level:.0%}"] for level in LEVELS
        ]
    assert {x.name for x in tmp_path.iterdir()} == {f"{path.stem}.md", f"{path.stem}.png"}
    assert "exist already" in " ".join(measure("--stored", str(path), "--output", str(tmp_path)).output.split())


def test_times_to_quality_are_medians_of_first_times() -> None:
    quality = Quality(QualitySettings("nations", "ComplEx", 8, 10, 10, 2))

    def run(*points: tuple[float, float]) -> list[dict[str, float]]:
        return [{SECONDS: seconds, "MRR": mrr, "epochs": 0.0} for seconds, mrr in points]

    for loop in ("nonsampling", "softmax"):
        arguments, parameters = {"loss": loop}, {"loss": loop, "lr": 0.1, "cosine": True}
        quality.trials[loop] = [
            {"MRR": 0.5, "seconds": 6.0, "arguments": arguments, "parameters": parameters},
            {"MRR": 0.0, "reason": "ValueError", "arguments": {}, "parameters": {}},
        ]
    a, b = quality.trials
    quality.curves[a] = [run((1, 0.4), (2, 0.8), (3, 0.7)), run((1, 0.5), (4, 0.8)), run((6, 0.8))]
    quality.curves[b] = [run((1, 0.1), (9, 0.75)), run((5, 0.75)), run((9, 0.1), (10, 0.74))]
    assert quality.highest == 0.8
    assert [quality.seconds_to(a, level) for level in (0.9, 0.99)] == [4, 4]
    assert [quality.seconds_to(b, level) for level in (0.9, 0.99)] == [9, math.inf]
    found = "0.750 | 9 | not reached | not reached | <1 | 1 of 2 | 6 | lr=0.1, cosine=True |"
    assert f"| nonsamplinglcwa, cross-entropy | {found}" in quality.markdown()


@pytest.mark.parametrize("cosine", [False, True])
def test_evaluation_takes_no_time_and_training_ends(cosine: bool) -> None:
    """Each batch takes a second, and each evaluation a hundred, by a clock of its own."""
    now = 0.0
    rates: list[float] = []
    dataset = Nations()

    class Clock(TimedCurve):
        def pre_batch(self, **kwargs: Any) -> None:
            super().pre_batch(**kwargs)
            assert self.model.training
            rates.append(self.optimizer.param_groups[0]["lr"])

        def post_batch(self, **kwargs: Any) -> None:
            nonlocal now
            now += 1.0

        def evaluate(self, **labels: float) -> None:
            nonlocal now
            now += 100.0
            super().evaluate(**labels)

    training = dataset.training
    model = DistMult(triples_factory=training, embedding_dim=2, random_seed=0)
    loop = SLCWATrainingLoop(model=model, triples_factory=training, automatic_memory_optimization=False)
    assert dataset.validation is not None
    curve = Clock(dataset.validation, [training], marks=[0.5, 3, 3.5, 9], cosine=cosine)
    curve.clock = lambda: now
    with pytest.raises(OutOfTime):
        loop.train(training, num_epochs=10, batch_size=250, use_tqdm=False, callbacks=curve)
    # in the second of 7-batch epochs
    assert [(point["step"], point[SECONDS]) for point in curve.points] == [(1, 1), (3, 3), (4, 4), (9, 9)]
    assert [point["epochs"] for point in curve.points] == pytest.approx([0, 0, 0, 9 / 7])
    expected = [(1 + math.cos(math.pi * i / 9)) / 2 if cosine else 1 for i in range(9)]
    assert [rate / rates[0] for rate in rates] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--model", "ConvE"], "ConvEInteraction cannot be decomposed"),
        (["--dataset", "nowhere"], "PyKEEN has no dataset 'nowhere'"),
        (["--budget-seconds", "0"], "0.0 is not in the range x>0"),
    ],
)
def test_bad_input(args: list[str], message: str, tmp_path: Path) -> None:
    result = measure(*args, "--output", str(tmp_path / "out"))
    assert result.exit_code != 0
    assert message in result.output
    assert not (tmp_path / "out").exists()
