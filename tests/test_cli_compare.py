"""The command line: compare."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from pykeen.datasets import Nations, dataset_resolver
from pykeen.datasets.base import PathDataset

from pykeen_nonsampling.cli import main
from pykeen_nonsampling.ranking.metrics import METRICS

SMALL = ["--dim", "8", "--epochs", "20", "--slcwa-epochs", "2", "--num-negatives", "2", "--seeds", "2"]
TINY = ["--dim", "4", "--epochs", "2", "--slcwa-epochs", "1", "--num-negatives", "1", "--seeds", "1"]
#: A place where nothing can be written, which the command finds out last, just before it trains
NOWHERE = str(Path(__file__) / "out")


def compare(*args: str) -> Result:
    return CliRunner().invoke(main, ["compare", *args])


@pytest.mark.parametrize("model", ["DistMult", pytest.param("TransE", marks=pytest.mark.slow)])
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
    assert "Mean ± standard deviation over 2 seeds, on the 201 test triples." in result.output


def test_one_seed_has_no_spread(tmp_path: Path) -> None:
    result = compare("--dataset", "nations", *TINY, "--output", str(tmp_path))
    assert result.exit_code == 0, result.output
    assert "±" not in result.output
    assert "One seed, on the 201 test triples." in result.output
    table = pd.read_csv(tmp_path / "comparison.csv", index_col=0)
    assert table["MRR"].notna().all()
    assert table["MRR std"].isna().all()


def write(path: Path, *triples: str) -> str:
    path.write_text("".join("\t".join(triple.split()) + "\n" for triple in triples))
    return str(path)


class TestDroppedTriples:
    """Of test triples with labels that do not occur in training."""

    training = ["a r b", "b r c", "c r d", "d s a", "a s c"]

    def test_are_counted(self, tmp_path: Path) -> None:
        test = ["b s d", "c s b", "x r a", "a r y", "a q b", "a q b"]
        paths = [
            "--training",
            write(tmp_path / "train.tsv", *self.training),
            "--testing",
            write(tmp_path / "test.tsv", *test),
        ]
        result = compare(*paths, "--output", str(tmp_path / "out"), *TINY)
        assert result.exit_code == 0, result.output
        assert "3 of 5 test triples are left out" in result.output
        assert "'q', of which no model can know anything" in result.output
        assert "One seed, on the 2 test triples." in result.output

    @pytest.mark.parametrize("command", ["compare", "tune"])
    def test_all_of_them(self, command: str, tmp_path: Path) -> None:
        paths = ["--training", write(tmp_path / "train.tsv", *self.training)]
        if command == "tune":
            paths += ["--validation", write(tmp_path / "valid.tsv", "b s d")]
        paths += ["--testing", write(tmp_path / "test.tsv", "x r a", "A r b")]
        result = CliRunner().invoke(main, [command, *paths, "--output", str(tmp_path / "out")])
        assert result.exit_code == 1
        assert "None of the 2 test triples of train" in result.output
        assert "e.g. 'A'. Check that labels are spelled alike" in result.output
        assert not (tmp_path / "out" / "comparison.csv").exists()

    def test_of_a_dataset_by_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """They are counted again when PyKEEN's cache has no trace of them."""
        splits = {"training": self.training, "testing": ["b s d", "x r a"], "validation": ["c s b", "a q b", "y q z"]}

        class Lossy(PathDataset):
            def __init__(self, **kwargs: Any):
                paths = {f"{name}_path": write(tmp_path / f"{name}.tsv", *triples) for name, triples in splits.items()}
                super().__init__(**paths, **kwargs)

        lookup = {**dataset_resolver.lookup_dict, "lossy": Lossy}
        monkeypatch.setattr(dataset_resolver, "lookup_dict", lookup)
        for _ in range(2):
            result = compare("--dataset", "lossy", "--output", NOWHERE)
            assert f"{NOWHERE} cannot be written to" in result.output
            assert "1 of 2 test triples are left out" in result.output
            assert "2 of 3 validation triples are left out" in result.output

    def test_of_complete_datasets(self) -> None:
        result = compare("--dataset", "nations", "--output", NOWHERE)
        assert f"{NOWHERE} cannot be written to" in result.output
        assert "left out" not in result.output


def test_nothing_is_overwritten_unless_forced(tmp_path: Path) -> None:
    options = ["--dataset", "nations", *TINY, "--output"]
    paths = [tmp_path / f"with {name}" / name for name in ("comparison.csv", "curves.csv", "comparison.png")]
    for path in paths:
        path.parent.mkdir()
        path.write_text("mine")
        result = compare(*options, str(path.parent))
        assert result.exit_code == 2
        assert f"{path} exists already" in " ".join(result.output.split())
        assert "--force" in result.output
        assert [*path.parent.iterdir()] == [path]
        assert path.read_text() == "mine"
    for path in paths:
        path.rename(tmp_path / path.name)
    result = compare(*options, str(tmp_path), "--force")
    assert result.exit_code == 0, result.output
    assert all((tmp_path / path.name).read_bytes() != b"mine" for path in paths)


def test_files_of_ones_own(tmp_path: Path) -> None:
    dataset = Nations()
    paths = []
    for name, factory in (("train", dataset.training), ("test", dataset.testing)):
        path = tmp_path / f"{name}.tsv"
        pd.DataFrame(factory.label_triples(factory.mapped_triples)).to_csv(path, sep="\t", header=False, index=False)
        paths += [f"--{name}ing", str(path)]
    result = compare(*paths, "--output", str(tmp_path), *TINY)
    assert result.exit_code == 0, result.output
    assert "on train.tsv: 14 entities, 55 relations, 1,592 training triples" in result.output
    assert "left out" not in result.output


def test_graph_with_one_entity(tmp_path: Path) -> None:
    path = write(tmp_path / "one.tsv", "a r a", "a s a")
    result = compare("--training", path, "--testing", path, "--output", str(tmp_path / "out"))
    assert result.exit_code == 1
    assert "one.tsv has only one entity in its training triples" in result.output


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--dataset", "nowhere"], "PyKEEN has no dataset 'nowhere'"),
        (["--model", "nothing"], "PyKEEN has no model 'nothing'"),
        (["--model", "Complx"], "PyKEEN has no model 'Complx'. Did you mean ComplEx"),
        (["--dataset", "FB15k-273"], "Did you mean FB15k237"),
        (
            ["--dataset", "nations", "--model", "DistMultLiteral"],
            "needs numeric literals of entities, which nations does not",
        ),
        (["--dataset", "nations", "--model", "FixedModel"], "FixedModel"),
        (["--dataset", "nations", *SMALL, "--learning-rate", "1e9"], "Steps of 1e+09 are too large for nonsampling"),
        (["--dataset", "nations", *TINY, "--learning-rate", "1e38"], "Steps of 1e+38 are too large for nonsampling"),
        (["--learning-rate", "nan"], "nan is not a finite number > 0"),
        (["--learning-rate", "-0.1"], "-0.1 is not in the range x>0"),
        (["--learning-rate", "0"], "0.0 is not in the range x>0"),
        (["--dataset", "nations", "--output", NOWHERE], "cannot be written to (Not a directory)"),
        (["--dataset", "nations", "--model", "ConvE", *SMALL], "ConvEInteraction cannot be decomposed"),
        (["--training", "nowhere.tsv"], "'nowhere.tsv' does not exist"),
        (["--training", __file__], "--training and --testing go together"),
        (["--training", __file__, "--testing", __file__, "--dataset", "nations"], "mutually exclusive"),
        (["--dataset", "nations", "--negative-weight", "-1"], "negative_weight=-1.0 is out of range"),
    ],
)
def test_bad_input(args: list[str], message: str, tmp_path: Path) -> None:
    result = compare("--output", str(tmp_path / "out"), *args)
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())
    assert isinstance(result.exception, SystemExit)
    assert "not foreseen" not in result.output
    assert not (tmp_path / "out").exists()
