"""Quality: how good a model is after how many seconds."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pykeen.datasets import Nations
from pykeen.models import DistMult
from pykeen.training import SLCWATrainingLoop

from benchmarks.__main__ import main
from benchmarks.quality import LOOPS, Quality, QualitySettings
from benchmarks.timed_curve import TimedCurve
from pykeen_nonsampling.cli.curves import SECONDS
from pykeen_nonsampling.cli.stopwatch import OutOfTime


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
    assert list(data["curves"]) == list(data["trials"]) == list(LOOPS)
    for loop in LOOPS:
        # the same effort for all
        assert len(data["trials"][loop]) == len(data["curves"][loop]) == 2
        for points in data["curves"][loop]:
            seconds = [point[SECONDS] for point in points]
            assert seconds == sorted(seconds)
            assert seconds[-1] > 0
            assert all(0 < point["MRR"] <= 1 for point in points)
    table = (tmp_path / "quality_nations.md").read_text(encoding="utf-8")
    assert table in result.output
    assert table.count("\n") == 2 + len(LOOPS)
    assert (tmp_path / "quality_nations.png").read_bytes().startswith(b"\x89PNG")


def test_times_to_quality_are_medians_of_first_times() -> None:
    quality = Quality(QualitySettings("nations", "ComplEx", 8, 10, 10, 1))

    def run(*points: tuple[float, float]) -> list[dict[str, float]]:
        return [{SECONDS: seconds, "MRR": mrr} for seconds, mrr in points]

    quality.curves["a"] = [run((1, 0.4), (2, 0.8), (3, 0.7)), run((1, 0.5), (4, 0.8)), run((6, 0.8))]
    quality.curves["b"] = [run((1, 0.1), (9, 0.75)), run((5, 0.75)), run((9, 0.1), (10, 0.74))]
    assert quality.highest == 0.8
    assert [quality.seconds_to("a", level) for level in (0.9, 0.99)] == [4, 4]
    assert [quality.seconds_to("b", level) for level in (0.9, 0.99)] == [9, math.inf]
    assert "| `b` | 0.750 | 9 | not reached | not reached |" in quality.markdown()


def test_evaluation_takes_no_time_and_training_ends() -> None:
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

        def evaluate(self, **labels: float) -> None:
            nonlocal now
            now += 100.0
            super().evaluate(**labels)

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
        (["--dataset", "nowhere"], "PyKEEN has no dataset 'nowhere'"),
        (["--budget-seconds", "0"], "0.0 is not in the range x>0"),
    ],
)
def test_bad_input(args: list[str], message: str, tmp_path: Path) -> None:
    result = measure(*args, "--output", str(tmp_path / "out"))
    assert result.exit_code != 0
    assert message in result.output
    assert not (tmp_path / "out").exists()
