"""Several processes give the result of one."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import ROOT, run
from rank_script import CASES

from pykeen_nonsampling.ranks import Ranks
from pykeen_nonsampling.triples import Batch, Side, TripleIndex

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without distributed training")

TESTS = Path(__file__).parent


def launch(processes: int, *arguments: str, cwd: Path, restarts: int = 0) -> str:
    """Run a script, or a module, in several processes."""
    options = ["--standalone", f"--nproc-per-node={processes}", f"--max-restarts={restarts}"]
    return run(sys.executable, "-m", "torch.distributed.run", *options, *arguments, cwd=cwd)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Train everything in one process."""
    directory = tmp_path_factory.mktemp("alone")
    run(sys.executable, str(TESTS / "rank_script.py"), str(directory / "x.pt"), cwd=directory)
    return torch.load(directory / "x.pt", weights_only=True)


@pytest.fixture(scope="module", params=[2, 3, 4])
def together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Train everything in several processes."""
    directory = tmp_path_factory.mktemp("together")
    launch(request.param, str(TESTS / "rank_script.py"), str(directory / "x.pt"), cwd=directory)
    return torch.load(directory / "x.pt", weights_only=True)


def difference(x: torch.Tensor, y: torch.Tensor) -> float:
    return float((x - y).abs().max() / x.abs().max())


@pytest.mark.parametrize("name", CASES)
def test_result_is_that_of_one_process(alone: Any, together: Any, name: str) -> None:
    for dtype, tolerance in (("float64", 1e-10), ("float32", 1e-5)):
        if dtype == "float32" and name.startswith("standardized"):
            # in single precision, this loss multiplies rounding errors in each step, also in one process
            continue
        one, many = alone[dtype][name], together[dtype][name]
        assert many["losses"] == pytest.approx(one["losses"], rel=tolerance)
        for x, y in zip(one["parameters"], many["parameters"], strict=True):
            assert difference(x, y) < tolerance
        assert many["metrics"] == pytest.approx(one["metrics"], rel=tolerance)


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_killed_process_is_restarted(tmp_path: Path) -> None:
    """From the checkpoint, with the result of a training that nobody has killed."""
    results = []
    for name, killed in (("killed", False), ("whole", True)):
        directory = tmp_path / name
        directory.mkdir()
        if killed:
            (directory / "killed").touch()
        launch(2, str(TESTS / "restart_script.py"), str(directory), cwd=tmp_path, restarts=1)
        results.append(json.loads((directory / "result.json").read_text()))
    (first_attempt, *first), (second_attempt, *second) = results
    assert (first_attempt, second_attempt) == ("1", "0")
    assert first == second


class TestCommand:
    CONFIGURATION = str(ROOT / "examples" / "configuration.json")

    def test_trains_and_goes_on_with_another_number_of_processes(self, tmp_path: Path) -> None:
        config = json.loads(Path(self.CONFIGURATION).read_text())
        losses = []
        for epochs, processes in ((20, 2), (40, 1)):
            config["pipeline"] |= dict(random_seed=0, optimizer="Adam", training_kwargs=dict(num_epochs=epochs))
            (tmp_path / "x.json").write_text(json.dumps(config))
            command = ("train", "x.json", "--output=results", *(["--force"] if losses else []))
            printed = launch(processes, "-m", "pykeen_nonsampling", *command, cwd=tmp_path)
            assert f"{epochs} epochs. On the test triples: MRR 0." in printed
            losses.append(json.loads((tmp_path / "results" / "results.json").read_text())["losses"])
            if processes > 1:
                # as if it had been stopped there
                (tmp_path / "results" / "results.json").unlink()
        assert losses[1][:20] == losses[0]
        assert len(losses[1]) == 40


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
