"""Every example runs, and the models in it learn."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import ROOT, run_python

EXAMPLES = ROOT / "examples"


def mrr(output: str) -> float:
    """Find the last MRR that an example prints."""
    return float(re.findall(r"MRR: (\d\.\d+)", output)[-1])


def check_pipeline_by_strings(output: str) -> None:
    assert mrr(output) > 0.65


def check_own_tsv(output: str) -> None:
    assert mrr(output) > 0.65
    held_out = re.search(r"\((.+), which was held out\)", output)
    assert held_out is not None
    assert any(line.endswith(" " + held_out.group(1)) for line in output.splitlines()[-3:])


def check_early_stopping_and_checkpoints(output: str) -> None:
    assert "MRR after 50 epochs" in output
    assert "went on from there: True" in output
    epochs = re.search(r"stopped early: True\nepochs: (\d+), best: (\d+)", output)
    assert epochs is not None
    total, best = map(int, epochs.groups())
    assert best == total - 3 * 20
    assert mrr(output) > 0.6


def check_hpo(output: str) -> None:
    assert mrr(output) > 0.4
    assert "loss.negative_weight" in output
    assert "training.num_epochs" in output


def check_own_factorization(output: str) -> None:
    sums = re.search(r"sum over 196 triples: (.+)\nby enumeration: (.+)", output)
    assert sums is not None
    assert sums.group(1) == sums.group(2)
    assert mrr(output) > 0.65


def check_own_objective(output: str) -> None:
    assert mrr(output) > 0.8


CHECKS: dict[str, Callable[[str], None]] = {
    "early_stopping_and_checkpoints.py": check_early_stopping_and_checkpoints,
    "hpo.py": check_hpo,
    "own_factorization.py": check_own_factorization,
    "own_objective.py": check_own_objective,
    "own_tsv.py": check_own_tsv,
    "pipeline_by_strings.py": check_pipeline_by_strings,
}


@pytest.mark.parametrize("name", CHECKS)
def test_script(name: str, tmp_path: Path) -> None:
    CHECKS[name](run_python(str(EXAMPLES / name), cwd=tmp_path))


def test_configuration(tmp_path: Path) -> None:
    path = EXAMPLES / "configuration.json"
    run_python("-m", "pykeen", "experiments", "run", str(path), "--directory", "results", cwd=tmp_path)
    (results,) = tmp_path.glob("results/*/replicates/replicate-00000/results.json")
    result = json.loads(results.read_text())
    assert len(result["losses"]) == json.loads(path.read_text())["pipeline"]["training_kwargs"]["num_epochs"]
    assert result["metrics"]["both"]["realistic"]["inverse_harmonic_mean_rank"] > 0.6


def test_every_example_is_tested() -> None:
    files = {path.name for path in EXAMPLES.glob("[!.]*.*")}
    assert files == {*CHECKS, "configuration.json", "ruff.toml"}
