"""The command that estimates what a run needs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pykeen.datasets.nations import NATIONS_TRAIN_PATH

from pykeen_nonsampling.cli import main, plan
from pykeen_nonsampling.cli.pace import Pace
from pykeen_nonsampling.losses import FactorizedLoss, NonSamplingLoss, automatic

USAGE = Path(__file__).parents[1] / "docs" / "usage.md"

SIZES = ["--entities", "300000", "--relations", "10", "--triples", "600000"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments])


def rows(output: str) -> dict[str, str]:
    """Read the table."""
    return {m[1].strip(): m[2].strip() for m in re.finditer(r"^(\S.{24})(\S.*)$", output, flags=re.MULTILINE)}


@pytest.mark.parametrize("loop", ["nonsampling", "nonsamplinglcwa"])
@pytest.mark.parametrize("graph", [["--dataset", "nations"], ["--training", str(NATIONS_TRAIN_PATH)]])
def test_a_graph(loop: str, graph: list[str]) -> None:
    result = run(*graph, "--model", "DistMult", "--dim", "20", "--loop", loop)
    assert result.exit_code == 0, result.output
    assert f"DistMult with 20 dimensions, {loop}: 14 entities, 55 relations, 1,592 triples, 471 distinct" in result.output
    table = rows(result.output)
    assert table["parameters"] == "5.52 kB"
    assert {"gradients and optimizer", "features", "Gram matrices", "blocks", "index of triples"} < set(table)
    assert {"training", "evaluation, afterwards"} < set(table)
    assert re.fullmatch(r"\d.* [kM]B of \d.* that are free", table["total"])
    assert re.fullmatch(r"[\d.e+]+ m?s \(measured\)", table["time per epoch"])


def test_documentation_has_the_same_rows() -> None:
    command, page = ["--dataset", "nations", "--model", "ComplEx", "--dim", "200"], USAGE.read_text(encoding="utf-8")
    documented = page.partition(f"plan {' '.join(command)}\n")[2].partition("```text\n")[2].partition("```")[0]
    # below the title
    tables = [rows(text.partition("\n\n")[2]) for text in (documented, run(*command).output)]
    assert list(tables[0]) == list(tables[1])
    assert tables[0]["loss"] == tables[1]["loss"]


class TestLoss:
    def test_softmax_if_affordable(self) -> None:
        table = rows(run("--dataset", "nations", "--model", "DistMult").output)
        # from both ends, 1592 triples with 14 entities each
        reason = "at most 4.5e+04 scores per epoch, and softmax is chosen up to 2e+10"
        assert table["loss"] == f"softmax, cross-entropy over every candidate: {reason}"

    @pytest.mark.parametrize("loss", ["softmax", "crossentropy"])
    def test_given(self, loss: str) -> None:
        table = rows(run("--dataset", "nations", "--model", "DistMult", "--loss", loss).output)
        assert table["loss"] == loss

    def test_squared_otherwise(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Also for the part of the graph that stands for all, and which is small enough for softmax."""
        monkeypatch.setattr(plan, "SAMPLED_TRIPLES", 1_000)
        timed = record_losses(monkeypatch)
        table = rows(run(*SIZES, "--model", "DistMult").output)
        reason = "at most 3.6e+11 scores per epoch, and softmax is chosen up to 2e+10"
        assert table["loss"] == f"nonsampling, the squared one: {reason}"
        assert {type(loss) for loss in timed} == {NonSamplingLoss}

    def test_clamped_scores(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The squared loss cannot be used, not even to start with."""
        table = rows(run("--dataset", "nations", "--model", "SimplE", "clamp_score=3.0").output)
        assert table["loss"].startswith("softmax")
        monkeypatch.setattr(automatic, "MOST_SCORES", 0)
        assert "loss='crossentropy'" in run("--dataset", "nations", "--model", "SimplE", "clamp_score=3.0").output

    def test_closed_world(self) -> None:
        table = rows(run("--dataset", "nations", "--model", "DistMult", "--loop", "nonsampling").output)
        assert table["loss"].startswith("nonsampling, the squared one: softmax needs whole queries")

    @pytest.mark.parametrize(("loss", "seconds"), [("nonsampling", 1 + 4 * 2), ("crossentropy", 1 + 4**2 * 2)])
    def test_every_score_takes_time(self, monkeypatch: pytest.MonkeyPatch, loss: str, seconds: int) -> None:
        """With four times as many entities and queries, there are 16 times as many scores, but only 4 times the triples."""
        monkeypatch.setattr(plan, "SAMPLED_TRIPLES", 10_000)
        record_losses(monkeypatch)
        sizes = ["--entities", "2000", "--relations", "10", "--triples", "40000"]
        table = rows(run(*sizes, "--model", "DistMult", "--loss", loss).output)
        assert table["time per epoch"].startswith(f"{seconds} s ")


def record_losses(monkeypatch: pytest.MonkeyPatch) -> list[FactorizedLoss]:
    """Let an epoch take 3 seconds, or 1 on a tiny graph, and list the losses that are timed."""
    losses = []

    def estimate_pace(model: Any, model_kwargs: Any, factory: Any, training_loop: Any, loss: Any) -> Pace:
        losses.append(loss)
        return Pace(1.0 if factory.num_entities == plan.TINY["num_entities"] else 3.0, 0.0, factory.num_triples)

    monkeypatch.setattr(plan, "estimate_pace", estimate_pace)
    return losses


def test_sizes_are_those_of_a_synthetic_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SAMPLED_TRIPLES", 10_000)
    result = run("--entities", "2000", "--relations", "10", "--triples", "40000", "--model", "TransE", "--dim", "10")
    assert result.exit_code == 0, result.output
    assert "2,000 entities, 10 relations, 40,000 triples" in result.output
    assert "as in a synthetic graph" in result.output
    assert "from epochs on a synthetic graph of 1/4 of the size" in rows(result.output)["time per epoch"]
    scaled = plan.Graph.of_sizes(2000, 10, 40_000, generate=False).counts.num_queries
    generated = plan.Graph.of_sizes(2000, 10, 40_000, generate=True).counts.num_queries
    assert scaled == pytest.approx(generated, rel=0.1)


def test_a_part_of_a_graph_stands_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    result = run("--entities", "2000", "--relations", "10", "--triples", "40000", "--generate", "--model", "DistMult")
    assert result.exit_code == 0, result.output
    assert "synthetic" not in result.output
    assert re.search(r"\((measured|from epochs on [\d,]+ of 40,000 triples)\)", rows(result.output)["time per epoch"])


def test_advice_if_it_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "free_memory", lambda _: 10**9)
    arguments = [*SIZES, "--model", "DistMult"]
    result = run(*arguments, "--dim", "4000")
    assert result.exit_code == 0, result.output
    assert rows(result.output)["time per epoch"] == "unknown (not measured, since it does not fit)"
    advice = re.search(r"does not fit into 1 GB. The largest dimension that does is (\d+): --dim", result.output)
    assert advice is not None
    assert 10 < int(advice[1]) < 4000


def test_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first column is what each needs if it has the whole model, the second one with its part of the entities."""
    monkeypatch.setattr(plan, "SAMPLED_TRIPLES", 1_000)
    result = run(*SIZES, "--model", "DistMult", "--dim", "20", "--ranks", "3")
    assert result.exit_code == 0, result.output
    alone, _, together = result.output.partition("\n\neach of 3 processes ")
    assert re.split("  +", together.splitlines()[0])[-2:] == ["data parallel", "sharded"]
    table = {label: re.split("  +", row) for label, row in rows(together).items()}
    # 80 bytes for each of 300,000 entities and 10 relations
    assert rows(alone)["parameters"] == table["parameters"][0] == "24 MB"
    assert table["parameters"][1] == "8 MB"
    # to sum all gradients, 4/3 of them; or two thirds of the answers to 200,000 triples from both ends, to and fro
    assert table["sent per epoch"] == ["32 MB", "at most 42.7 MB"]


def test_processes_without_divided_entities() -> None:
    result = run("--dataset", "nations", "--model", "DistMult", "--ranks", "20")
    assert result.exit_code == 0, result.output
    assert re.search("^each of 20 processes +data parallel$", result.output, flags=re.MULTILINE)
    assert result.output.endswith("14 entities cannot be divided among 20 processes. Start at most 14.\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dataset", "nations", "--ranks", "1"], "1 is not in the range x>=2"),
        ([], "Which graph\\? Give either --dataset NAME"),
        (["--dataset", "nations", "--entities", "3"], "Which graph"),
        (["--entities", "3"], "all of --entities, --relations and --triples"),
        (["--dataset", "nations", "--generate"], "--generate goes with"),
        (["--dataset", "no-such-dataset"], "PyKEEN has no dataset 'no-such-dataset'"),
        (["--dataset", "nations", "--loss", "marginranking"], "MarginRankingLoss cannot be used without negative sampling"),
        (["--dataset", "nations", "scoring_fct_norm=1"], "TransE with p=1 cannot be decomposed"),
        (["--dataset", "nations", "dim"], "write NAME=VALUE"),
        (["--entities", "2", "--relations", "1", "--triples", "100"], "do not fit"),
    ],
)
def test_refusals(arguments: list[str], message: str) -> None:
    result = run("--model", "TransE", *arguments)
    assert result.exit_code > 0
    assert re.search(message, " ".join(result.output.split())), result.output
    assert "Traceback" not in result.output
