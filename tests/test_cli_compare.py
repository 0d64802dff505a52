"""The command line: compare."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from pykeen.datasets import Nations

from pykeen_nonsampling.cli import main
from pykeen_nonsampling.cli.compare import METRICS

SMALL = ["--dim", "8", "--epochs", "20", "--slcwa-epochs", "2", "--num-negatives", "2", "--seeds", "2"]


def compare(*args: str) -> Result:
    return CliRunner().invoke(main, ["compare", *args])


@pytest.mark.parametrize("model", ["DistMult", "SimplE", "ComplEx", "TransE"])
def test_table_and_picture(model: str, tmp_path: Path) -> None:
    result = compare("--dataset", "nations", "--model", model, "--output", str(tmp_path / "out"), *SMALL)
    assert result.exit_code == 0, result.output
    table = pd.read_csv(tmp_path / "out" / "comparison.csv", index_col=0)
    assert list(table.index) == ["nonsampling", "nonsamplinglcwa", "slcwa"]
    for name in (*METRICS, "training seconds"):
        assert (table[name] > 0).all()
        assert (table[f"{name} std"] >= 0).all()
        assert name in result.output
    assert table["MRR std"].gt(0).all()
    assert table["ratio"].min() == 1.0
    curves = pd.read_csv(tmp_path / "out" / "curves.csv")
    assert curves.groupby(["training loop", "seed"])["epoch"].max().to_dict() == {
        ("nonsampling", 0): 20,
        ("nonsampling", 1): 20,
        ("nonsamplinglcwa", 0): 20,
        ("nonsamplinglcwa", 1): 20,
        ("slcwa", 0): 2,
        ("slcwa", 1): 2,
    }
    assert (tmp_path / "out" / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_files_of_ones_own(tmp_path: Path) -> None:
    dataset = Nations()
    paths = []
    for name, factory in (("train", dataset.training), ("test", dataset.testing)):
        path = tmp_path / f"{name}.tsv"
        pd.DataFrame(factory.label_triples(factory.mapped_triples)).to_csv(path, sep="\t", header=False, index=False)
        paths += [f"--{name}ing", str(path)]
    result = compare(*paths, "--output", str(tmp_path), *SMALL)
    assert result.exit_code == 0, result.output
    assert "on train.tsv: 14 entities, 55 relations, 1,592 training triples" in result.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--dataset", "nowhere"], "PyKEEN has no dataset 'nowhere'"),
        (["--model", "nothing"], "PyKEEN has no model 'nothing'"),
        (["--dataset", "nations", "--model", "ConvE", *SMALL], "ConvEInteraction cannot be decomposed"),
        (["--training", "nowhere.tsv"], "'nowhere.tsv' does not exist"),
        (["--training", __file__], "--training and --testing go together"),
        (["--training", __file__, "--testing", __file__, "--dataset", "nations"], "mutually exclusive"),
        (["--dataset", "nations", "--negative-weight", "-1"], "negative_weight=-1.0 is out of range"),
    ],
)
def test_bad_input(args: list[str], message: str, tmp_path: Path) -> None:
    result = compare(*args, "--output", str(tmp_path / "out"))
    assert result.exit_code != 0
    assert message in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "out").exists()
