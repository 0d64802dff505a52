"""Several processes give the result of one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from commands import ROOT, run, run_python, run_ranks
from pykeen.pipeline import pipeline
from rank_script import CASES
from restart_script import CONFIGURATION

from pykeen_nonsampling.cli import main
from pykeen_nonsampling.distributed.group import Ranks
from pykeen_nonsampling.graph.batches import Batch
from pykeen_nonsampling.graph.index import TripleIndex
from pykeen_nonsampling.graph.sides import Side

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without distributed training")

TESTS = Path(__file__).parent


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_result_is_that_of_one_process(processes: int, tmp_path: Path) -> None:
    """In groups of the first two of them, the first three, and so on."""
    run_ranks(processes, str(TESTS / "rank_script.py"), str(tmp_path / "x.pt"), cwd=tmp_path)
    results = torch.load(tmp_path / "x.pt", weights_only=True)
    assert list(results) == list(range(1, 1 + processes))
    for name, (_, _, dtype, *_) in CASES.items():
        tolerance = 1e-10 if dtype is torch.float64 else 1e-5
        one = results[1][name]
        for size in range(2, 1 + processes):
            many = results[size][name]
            assert many["losses"] == pytest.approx(one["losses"], rel=tolerance), (name, size)
            for x, y in zip(one["parameters"], many["parameters"], strict=True):
                assert (x - y).abs().max() < tolerance * x.abs().max(), (name, size)
            assert many["metrics"] == pytest.approx(one["metrics"], rel=tolerance), (name, size)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that can fork")
def test_killed_process_is_restarted(tmp_path: Path) -> None:
    """From the checkpoint, with the result of a training that nobody has killed."""
    # this also fills PyKEEN's cache, which two processes at once cannot
    result = pipeline(**CONFIGURATION, training_kwargs=dict(use_tqdm=False))
    run_python(str(TESTS / "restart_script.py"), str(tmp_path), cwd=tmp_path)
    attempt, losses, mrr = json.loads((tmp_path / "result.json").read_text())
    assert attempt == "1"
    assert losses == pytest.approx(result.losses, rel=1e-5)
    assert mrr == pytest.approx(result.get_metric("mrr"))


def test_command_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    config = json.loads((ROOT / "examples" / "configuration.json").read_text())
    config["pipeline"] |= dict(random_seed=0, optimizer="Adam")
    path, output, losses = tmp_path / "x.json", tmp_path / "results", []
    for epochs in (20, 40):
        config["pipeline"]["training_kwargs"] = dict(num_epochs=epochs)
        path.write_text(json.dumps(config))
        command = ["train", str(path), f"--output={output}"]
        if not losses:
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
            printed = run(sys.executable, *launcher, "-m", "pykeen_nonsampling", *command, cwd=tmp_path)
        else:
            refused = CliRunner().invoke(main, command)
            assert refused.exit_code == 2
            assert "results.json exists already" in refused.output
            # as if it had been stopped there
            (output / "results.json").unlink()
            printed = run_python("-m", "pykeen_nonsampling", *command, cwd=tmp_path)
        assert f"{epochs} epochs. On the test triples: MRR 0." in printed, printed
        losses.append(json.loads((output / "results.json").read_text())["losses"])
    assert losses[1][:20] == losses[0]
    assert len(losses[1]) == 40


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "is not an experiment: it needs an entry 'pipeline'"),
        ('{"pipeline": {"dataset": "nations", "model": "ConvE", "training_loop": "nonsampling"}}', "cannot be decomposed"),
    ],
)
def test_command_refuses(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.json").write_text(content)
    result = CliRunner().invoke(main, ["train", str(tmp_path / "x.json"), f"--output={tmp_path / 'results'}"])
    assert result.exit_code == 1
    assert message in result.output
    assert isinstance(result.exception, SystemExit)


class TestDivision:
    @pytest.mark.parametrize("parts", [1, 2, 3, 7, 50])
    def test_each_query_is_in_one_part(self, parts: int) -> None:
        triples = torch.randint(0, 9, (60, 3), generator=torch.Generator().manual_seed(0))
        index = TripleIndex(triples, 9, 9)
        whole = Batch([Side("tail", index), Side("head", index.reverse())])
        divided = [whole.divide(i, parts) for i in range(parts)]
        for i, side in enumerate(whole.sides):
            assert torch.equal(torch.cat([part.sides[i].index.triples for part in divided]), side.index.triples)
        assert sum(part.share for part in divided) == pytest.approx(1)
        loads = [part.num_queries for part in divided]
        assert max(loads) <= whole.num_queries / parts + 4

    def test_rows(self) -> None:
        rows = [Ranks(i, 3).rows(10) for i in range(3)]
        assert [x for part in rows for x in range(10)[part]] == list(range(10))
