"""The command line: tune."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from click.testing import CliRunner, Result
from commands import run_python
from optuna.trial import TrialState
from pykeen.datasets import Nations
from pykeen.experiments.validate import get_configuration_errors
from pykeen.pipeline import pipeline_from_path
from pykeen.training import NonFiniteLossError

from pykeen_nonsampling import tuning
from pykeen_nonsampling.cli import main
from pykeen_nonsampling.memory import room
from pykeen_nonsampling.tuning import LAST, REPORTED, Graph, Space, Tuner

SPLITS = ("training", "validation", "testing")
SMALL = ["--dataset", "nations", "--dim", "16", "--epochs", "24"]


def tune(output: Path, *args: str) -> Result:
    return CliRunner().invoke(main, ["tune", "--output", str(output), *args])


def read(output: Path) -> pd.DataFrame:
    return pd.read_csv(output / "trials.csv")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    """Search to the end."""
    output = tmp_path_factory.mktemp("tune") / "out"
    result = tune(output, *SMALL, "--trials", "15")
    assert result.exit_code == 0, result.output
    return output, result


class TestResult:
    def test_everything_is_written(self, found: tuple[Path, Result]) -> None:
        output, result = found
        assert (output / "search.png").read_bytes().startswith(b"\x89PNG")
        assert (output / "model" / "trained_model.pkl").is_file()
        for name in ("best.json", "model/", "trials.csv", "search.png"):
            assert str(output / name) in result.output

    def test_defaults_come_first_and_are_not_missed(self, found: tuple[Path, Result]) -> None:
        trials = read(found[0])
        assert list(trials["model"][:3]) == ["ComplEx", "DistMult", "RotatE"]
        assert trials["defaults"][:6].all()
        assert not trials["defaults"][6:].any()
        assert list(trials["rung"][:6]) == [0, 0, 0, LAST, LAST, LAST]
        assert trials["MRR"].max() >= trials["MRR"][:6].max()
        assert set(trials["state"]) == {"finished"}

    def test_better_trials_are_promoted(self, found: tuple[Path, Result]) -> None:
        trials = read(found[0])
        promoted = trials[(trials["rung"] > 0) & ~trials["defaults"]]
        assert len(promoted)
        for _, trial in promoted.iterrows():
            first = trials.loc[trial["configuration"]]
            assert (first["rung"], first["model"], first["loss"]) == (0, trial["model"], trial["loss"])
            assert first["lr"] == trial["lr"]
            assert first["embedding_dim"] < trial["embedding_dim"]
            assert first["epochs"] < trial["epochs"]

    def test_metrics_are_printed(self, found: tuple[Path, Result]) -> None:
        output, result = found
        metadata = json.loads((output / "best.json").read_text())["metadata"]
        assert metadata["validation"]["MRR"] == pytest.approx(read(output)["MRR"].max())
        for name in ("validation", "test", "default"):
            values = [f"{metadata[name][metric]:.3f}" for metric in REPORTED]
            assert any(line.split()[-len(values) :] == values for line in result.output.splitlines())
        assert set(metadata["test"]) == set(REPORTED)
        assert not metadata["repeated"]
        assert f"is {metadata['validation_mean']:.3f} with seed 0. It was not repeated with another seed" in result.output

    def test_best_is_valid_for_pykeen_and_leaves_nothing_open(self, found: tuple[Path, Result]) -> None:
        path = found[0] / "best.json"
        assert not get_configuration_errors(path)
        configuration = json.loads(path.read_text())["pipeline"]
        assert configuration["lr_scheduler_kwargs"]["T_max"] == configuration["training_kwargs"]["num_epochs"]
        assert configuration["random_seed"] == 0
        assert {"query_weight", "candidate_weight", "regularization_weight"} < set(configuration["loss_kwargs"])

    def test_repeated_run_gives_the_same_model_and_metrics(self, found: tuple[Path, Result]) -> None:
        output, _ = found
        again = pipeline_from_path(output / "best.json", use_tqdm=False)
        metadata = json.loads((output / "best.json").read_text())["metadata"]
        assert again.get_metric("mrr") == pytest.approx(metadata["test"]["MRR"])
        saved = torch.load(output / "model" / "trained_model.pkl", weights_only=False)
        for ours, theirs in zip(saved.parameters(), again.model.parameters(), strict=True):
            assert torch.allclose(ours, theirs)
        results = json.loads((output / "model" / "results.json").read_text())
        assert results["metrics"]["both"]["realistic"]["inverse_harmonic_mean_rank"] == metadata["test"]["MRR"]
        assert "callbacks" not in results["configuration"]["training_kwargs"]

    def test_runs_by_pykeens_command(self, found: tuple[Path, Result], tmp_path: Path) -> None:
        command = ["-m", "pykeen", "experiments", "run", str(found[0] / "best.json"), "-d", str(tmp_path / "again")]
        run_python(*command, cwd=tmp_path)
        assert list(tmp_path.glob("again/**/results.json"))

    def test_same_command_goes_on(self, found: tuple[Path, Result]) -> None:
        output, _ = found
        before, best = read(output), json.loads((output / "best.json").read_text())
        result = tune(output, *SMALL, "--trials", "2")
        assert result.exit_code == 0, result.output
        assert "Going on after 15 trials, 15 of them finished" in result.output
        after = read(output)
        # what only some of the new trials have makes a column of another type
        pd.testing.assert_frame_equal(after[:15][before.columns], before, check_dtype=False)
        assert len(after) == 17
        assert (after["finished"][15:] > before["finished"].max()).all()
        now = json.loads((output / "best.json").read_text())
        assert now["metadata"]["validation"]["MRR"] >= best["metadata"]["validation"]["MRR"]
        if now["metadata"]["trial"] == best["metadata"]["trial"]:
            assert now["metadata"]["test"] == pytest.approx(best["metadata"]["test"])

    def test_other_settings_do_not(self, found: tuple[Path, Result]) -> None:
        result = tune(found[0], *SMALL[:2], "--dim", "8", "--trials", "1")
        assert result.exit_code == 2
        assert "with dim=16, but now it is dim=8" in " ".join(result.output.split())


def test_the_best_is_repeated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With another seed, by a search that goes on, too; the model is that of the better one."""
    # or it would take until the last quarter of the time
    monkeypatch.setattr(tuning.tuner, "FINAL_SHARE", 1.0)
    for _ in range(10):
        result = tune(tmp_path, *SMALL, "--model", "DistMult", "--trials", "1")
        assert result.exit_code == 0, result.output
        best = json.loads((tmp_path / "best.json").read_text())
        metadata = best["metadata"]
        if metadata["repeated"]:
            break
    trials = read(tmp_path)
    found = trials.loc[metadata["trial"]]
    same = trials[(trials["configuration"] == found["configuration"]) & (trials["rung"] == found["rung"])]
    assert list(same["seed"]) == [0, 1]
    first, second = same["MRR"]
    assert first != second
    assert found["MRR"] == max(first, second)
    assert best["pipeline"]["random_seed"] == found["seed"]
    mean = (first + second) / 2
    assert metadata["validation_seeds"] == pytest.approx({"0": first, "1": second})
    assert metadata["validation_mean"] == pytest.approx(mean)
    assert f"is {first:.3f} with seed 0 and {second:.3f} with seed 1, {mean:.3f} on average." in result.output
    again = pipeline_from_path(tmp_path / "best.json", use_tqdm=False)
    saved = torch.load(tmp_path / "model" / "trained_model.pkl", weights_only=False)
    for ours, theirs in zip(saved.parameters(), again.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs)


class TestOtherResults:
    """They are not overwritten, unless that is asked for."""

    few = ["--dim", "4", "--epochs", "2", "--model", "DistMult", "--trials", "1"]

    @pytest.mark.parametrize("name", ["best.json", "trials.csv", "search.png", "settings.json", "model/notes.txt"])
    def test_from_elsewhere(self, name: str, tmp_path: Path) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
        result = tune(tmp_path, "--dataset", "nations", *self.few)
        assert result.exit_code == 2
        named = path if path.parent == tmp_path else path.parent
        assert f"{named} exists already, and not from this search" in " ".join(result.output.split())
        assert path.read_text() == "mine"

    def test_from_another_search(self, tmp_path: Path) -> None:
        """In the same directory, of another graph, in the same storage."""
        first = ["--dataset", "nations", *self.few]
        assert tune(tmp_path, *first).exit_code == 0
        best = (tmp_path / "best.json").read_text()
        for dim in ("4", "8"):
            # nothing is left of what was refused
            result = tune(tmp_path, "--dataset", "umls", *self.few, "--dim", dim)
            assert result.exit_code == 2
            assert f"{tmp_path}/best.json, {tmp_path}/model, " in " ".join(result.output.split())
        assert (tmp_path / "best.json").read_text() == best
        result = tune(tmp_path, "--dataset", "umls", *self.few, "--force")
        assert result.exit_code == 0, result.output
        assert json.loads((tmp_path / "best.json").read_text())["pipeline"]["dataset"] == "umls"
        # now the directory belongs to that one, which goes on, and the first one does not
        assert tune(tmp_path, "--dataset", "umls", *self.few).exit_code == 0
        assert tune(tmp_path, *first).exit_code == 2
        result = tune(tmp_path, *first, "--force")
        assert "Going on after 1 trials" in result.output
        again = json.loads((tmp_path / "best.json").read_text())
        assert again["pipeline"]["dataset"] == "nations"
        # by a model of its own, not the one that was there
        assert torch.load(tmp_path / "model" / "trained_model.pkl", weights_only=False).num_entities == 14


class TestInterruption:
    @pytest.fixture
    def interrupted(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
        """Press Ctrl-C during the third trial."""
        epochs: list[int] = []
        report = tuning.Deadline.post_epoch

        def interrupt(self: Any, epoch: int, *args: Any, **kwargs: Any) -> None:
            epochs.append(epoch)
            if epochs.count(1) == 3 and epoch == 2:
                raise KeyboardInterrupt
            report(self, epoch, *args, **kwargs)

        monkeypatch.setattr(tuning.Deadline, "post_epoch", interrupt)
        return epochs  # type: ignore[return-value]

    def test_finishes_with_what_there_is(self, interrupted: list[int], tmp_path: Path) -> None:
        result = tune(tmp_path, *SMALL)
        assert result.exit_code == 0, result.output
        assert "The search ended early: interrupted." in result.output
        assert "run the same command again" in result.output
        trials = read(tmp_path)
        assert list(trials["state"]) == ["finished", "finished", "fail"]
        assert trials["reason"][2] == "interrupted"
        assert (tmp_path / "best.json").is_file()
        # and it is tried again
        result = tune(tmp_path, *SMALL, "--trials", "1")
        assert result.exit_code == 0, result.output
        assert list(read(tmp_path)["model"][2:]) == ["RotatE", "RotatE"]

    @pytest.mark.parametrize("moment", ["keep", "_next"])
    def test_at_any_moment(self, moment: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Also while a result is recorded, and between trials."""
        calls: list[str] = []
        method = getattr(Tuner, moment)

        def interrupt(*args: Any, **kwargs: Any) -> Any:
            calls.append(moment)
            if len(calls) == 2:
                raise KeyboardInterrupt
            return method(*args, **kwargs)

        monkeypatch.setattr(Tuner, moment, interrupt)
        result = tune(tmp_path, *SMALL, "--model", "ComplEx")
        assert result.exit_code == 0, result.output
        assert "The search ended early: interrupted." in result.output
        assert not {"running", "waiting"} & set(read(tmp_path)["state"])

    def test_killed_trials_are_failures(self, tmp_path: Path) -> None:
        storage = f"sqlite:///{tmp_path}/trials.db"
        space = Space(Graph("nations", dict(dataset="nations")), ["DistMult"], dimension=8, epochs=10, seed=0)
        tuner = Tuner(space, tmp_path, storage)
        tuner.study.enqueue_trial(space.default("DistMult"))
        tuner.study.ask()
        tuner.study.enqueue_trial(space.default("DistMult"))
        tuner = Tuner(space, tmp_path, storage)
        assert [x.state for x in tuner.study.trials] == [TrialState.FAIL, TrialState.FAIL]
        assert tuner.run(60, trials=2) is None
        assert list(tuner.table()["reason"])[:2] == ["killed", "killed"]
        assert [x.user_attrs["rung"] for x in tuner.finished] == [0, LAST]


class TestFailures:
    def test_search_goes_on_after_one(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        train = Tuner.train

        def fail(self: Tuner, configuration: Any, *args: Any) -> Any:
            if configuration["model"] == "DistMult":
                raise NonFiniteLossError("Loss is non-finite.")
            return train(self, configuration, *args)

        monkeypatch.setattr(Tuner, "train", fail)
        result = tune(tmp_path, *SMALL, "--model", "DistMult", "--model", "TransE", "--trials", "3")
        assert result.exit_code == 0, result.output
        trials = read(tmp_path)
        assert list(trials["state"]) == ["fail", "finished", "finished"]
        assert trials["reason"][0] == "NonFiniteLossError: Loss is non-finite."
        assert "TransE, best found" in result.output

    def test_search_ends_after_many(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(tuning.space, "free_memory", lambda _: 10**9)
        # other processes have taken the rest
        monkeypatch.setattr(room, "free_memory", lambda _: 10**4)
        result = tune(tmp_path, *SMALL)
        assert result.exit_code == 1
        assert re.search(
            r"the last 10 trials failed, the last one with ValueError: \w+ with \d+ dimensions needs", result.output
        )
        assert "No trial has finished" in result.output

    def test_no_trial_runs_over_time(self, tmp_path: Path) -> None:
        result = tune(tmp_path, *SMALL[:2], "--dim", "100", "--epochs", "1000000", "--minutes", "0.005")
        assert result.exit_code == 1
        assert "stopped at the end of the time" in result.output
        assert "with more --minutes" in result.output


def test_sizes_fit_the_memory(tmp_path: Path) -> None:
    """CP has 64 vectors per entity by default."""
    result = tune(tmp_path, "--dataset", "nations", "--model", "CP", "--epochs", "2", "--trials", "2")
    assert result.exit_code == 0, result.output
    assert "CP has at most 32 dimensions" in result.output
    assert read(tmp_path)["embedding_dim"].max() <= 32


class TestFiles:
    def write(self, path: Path, *factories: Any) -> str:
        triples = pd.concat([pd.DataFrame(x.label_triples(x.mapped_triples)) for x in factories])
        triples.to_csv(path, sep="\t", header=False, index=False)
        return str(path)

    def test_three_files(self, tmp_path: Path) -> None:
        data = Nations()
        options = []
        for name in SPLITS:
            options += [f"--{name}", self.write(tmp_path / f"{name}.tsv", getattr(data, name))]
        result = tune(tmp_path / "out", *options, *SMALL[2:], "--model", "DistMult", "--trials", "1")
        assert result.exit_code == 0, result.output
        assert "training: 14 entities, 55 relations, 1,592 training triples" in result.output
        assert "left out" not in result.output
        configuration = json.loads((tmp_path / "out" / "best.json").read_text())["pipeline"]
        assert configuration["validation"] == str(tmp_path / "validation.tsv")
        again = pipeline_from_path(tmp_path / "out" / "best.json", use_tqdm=False)
        assert again.get_metric("mrr") > 0.2

    def test_a_sparse_file_is_split(self, tmp_path: Path) -> None:
        """Most entities occur in a single triple, so that 80 % of the triples do not have all of them."""
        rows = [(f"hub{i % 5}", "r", f"leaf{i}") for i in range(60)] + [
            (f"hub{i}", "s", f"hub{j}") for i in range(5) for j in range(5)
        ]
        path = tmp_path / "all.tsv"
        path.write_text("".join("\t".join(row) + "\n" for row in rows))
        result = tune(tmp_path / "out", "--training", str(path), *SMALL[2:], "--model", "DistMult", "--trials", "1")
        assert result.exit_code == 0, result.output
        parts = [pd.read_csv(tmp_path / "out" / "triples" / f"{x}.tsv", sep="\t", header=None) for x in SPLITS]
        assert sum(map(len, parts)) == 85
        assert set(parts[0][0]) | set(parts[0][2]) == {x for h, _, t in rows for x in (h, t)}
        assert all(map(len, parts))

    def test_a_file_of_leaves_cannot_be_split(self, tmp_path: Path) -> None:
        path = tmp_path / "all.tsv"
        path.write_text("".join(f"a{i}\tr\tb{i}\n" for i in range(20)))
        result = tune(tmp_path / "out", "--training", str(path), *SMALL[2:])
        assert result.exit_code == 2
        assert "almost all of its 20" in result.output

    def test_one_file_is_split(self, tmp_path: Path) -> None:
        data = Nations()
        path = self.write(tmp_path / "all.tsv", data.training, data.validation, data.testing)
        options = ["--training", path, *SMALL[2:], "--model", "DistMult"]
        result = tune(tmp_path / "out", *options, "--trials", "1")
        assert result.exit_code == 0, result.output
        assert "1,593 for training, 199 for validation, 200 for testing, with seed 0" in result.output
        parts = [pd.read_csv(tmp_path / "out" / "triples" / f"{x}.tsv", sep="\t", header=None) for x in SPLITS]
        assert not pd.concat(parts).duplicated().any()
        assert sum(map(len, parts)) == 1_992
        again = tune(tmp_path / "out", *options, "--trials", "1")
        assert again.exit_code == 0, again.output
        assert "Going on after 1 trials" in again.output
        # which are not overwritten by others
        parts[0].to_csv(path, sep="\t", header=False, index=False)
        other = tune(tmp_path / "out", *options, "--trials", "1", "--force")
        assert other.exit_code == 2
        assert f"{tmp_path}/out/triples has other triples than those of {path}" in " ".join(other.output.split())

    def test_parts_are_written_as_the_file_is(self, tmp_path: Path) -> None:
        """Labels with quotes, too: each part is a file of triples that can be given to a command."""
        path = tmp_path / "all.tsv"
        triples = [f'a"{i}\tsays "\té{j}' for i in range(6) for j in range(6)]
        path.write_text("".join(f"{triple}\n" for triple in triples), encoding="utf-8")
        result = tune(tmp_path / "out", "--training", str(path), "--model", "ConvE")
        assert "cannot be decomposed" in result.output
        parts = [(tmp_path / "out" / "triples" / f"{x}.tsv").read_text(encoding="utf-8") for x in SPLITS]
        assert sorted("".join(parts).splitlines()) == sorted(triples)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "Give either --dataset NAME or --training FILE"),
        (["--dataset", "nations", "--training", __file__], "Give either --dataset NAME or --training FILE"),
        (["--dataset", "nowhere"], "PyKEEN has no dataset 'nowhere'"),
        ([*SMALL, "--model", "nothing"], "PyKEEN has no model 'nothing'"),
        ([*SMALL, "--model", "DistMult", "--model", "ComplExLiteral"], "ComplExLiteral needs numeric literals"),
        ([*SMALL, "--minutes", "inf"], "inf is not a finite number > 0"),
        ([*SMALL, "--model", "ConvE"], "ConvEInteraction cannot be decomposed"),
        ([*SMALL, "--model", "FixedModel"], "FixedModel has no embedding_dim"),
        ([*SMALL, "--minutes", "0"], "0.0 is not in the range x>0"),
        (["--training", "nowhere.tsv"], "'nowhere.tsv' does not exist"),
        (["--training", __file__, "--testing", __file__], "--validation and --testing go together"),
        (["--training", __file__], "test_cli_tune.py, line 1: 1 column instead of 3"),
        ([*SMALL, "--storage", "nothing://nowhere"], "nothing://nowhere cannot be opened"),
        ([*SMALL, "--output", f"{__file__}/out"], "cannot be written to"),
    ],
)
def test_bad_input(args: list[str], message: str, tmp_path: Path) -> None:
    result = tune(tmp_path / "out", *args)
    assert result.exit_code != 0
    assert message in " ".join(result.output.split())
    assert isinstance(result.exception, SystemExit)
    assert "not foreseen" not in result.output
    assert not (tmp_path / "out" / "trials.csv").exists()
