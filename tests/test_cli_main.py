"""The command line: what all commands have in common."""

from __future__ import annotations

import json
import socket
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from commands import ROOT, run

from benchmarks.__main__ import main as benchmarks
from pykeen_nonsampling.cli import main, models
from pykeen_nonsampling.cli.group import LazyGroup


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Break a command in a way that nobody has foreseen."""

    def fail(*args: Any) -> str:
        raise ZeroDivisionError("float division by zero")

    monkeypatch.setattr(models, "inspect_model", fail)


@pytest.mark.usefixtures("broken")
class TestErrorsThatWereNotForeseen:
    def test_are_messages(self) -> None:
        result = CliRunner().invoke(main, ["models", "--model", "DistMult"])
        assert result.exit_code == 1
        assert isinstance(result.exception, SystemExit)
        assert result.output.startswith("Error: ZeroDivisionError: float division by zero\n")
        assert "pykeen-nonsampling --debug models" in " ".join(result.output.split())
        assert "please report it" in result.output

    def test_have_a_traceback_on_request(self) -> None:
        result = CliRunner().invoke(main, ["--debug", "models", "--model", "DistMult"])
        assert isinstance(result.exception, ZeroDivisionError)


def test_is_installed_as_a_command() -> None:
    (entry_point,) = entry_points(group="console_scripts", name="pykeen-nonsampling")
    assert entry_point.load() is main


def all_commands() -> list[Any]:
    """List the commands of the wheel and of the benchmarks."""
    return [pytest.param(group, name, id=name) for group in (main, benchmarks) for name in group.descriptions]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
def test_help_and_version_are_no_errors(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0
    assert "Error" not in result.output


@pytest.mark.parametrize(("group", "name"), all_commands())
def test_help_of_a_command(group: LazyGroup, name: str) -> None:
    """It begins with the description in the list of commands, which is written without importing the command."""
    result = CliRunner().invoke(group, [name, "--help"])
    assert result.exit_code == 0
    assert group.descriptions[name] in " ".join(result.output.split())
    assert f"{name} " in CliRunner().invoke(group, ["--help"]).output


def test_commands_of_the_wheel() -> None:
    assert list(main.descriptions) == ["compare", "models", "plan", "train", "tune"]
    result = CliRunner().invoke(main, ["benchmark"])
    assert result.exit_code == 2
    assert "No such command 'benchmark'" in result.output


#: Runs a command, and prints which modules were imported for it
IMPORTED = """
import json, sys
from pykeen_nonsampling.cli import main
main(sys.argv[1:], standalone_mode=False)
print(json.dumps(sorted(name for name in sys.modules if "." not in name)))
"""


def find_imported(*arguments: str, cwd: Path) -> set[str]:
    """Return the names of the packages that a new process imports for a command."""
    return set(json.loads(run(sys.executable, "-c", IMPORTED, *arguments, cwd=cwd).splitlines()[-1]))


class TestImports:
    def test_of_help(self, tmp_path: Path) -> None:
        imported = find_imported("--help", cwd=tmp_path)
        assert "click" in imported
        assert not imported & {"matplotlib", "numba", "optuna", "pandas", "pykeen", "scipy", "torch"}

    def test_of_train(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """A process of torchrun does without what only other commands need."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for name, value in dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, WORLD_SIZE=1, RANK=0, LOCAL_RANK=0).items():
            monkeypatch.setenv(name, str(value))
        pipeline = dict(dataset="nations", model="DistMult", training_loop="nonsampling", evaluator="factorized")
        (tmp_path / "x.json").write_text(json.dumps(dict(pipeline=dict(pipeline, training_kwargs=dict(num_epochs=1)))))
        imported = find_imported("train", "x.json", cwd=tmp_path)
        assert "torch" in imported
        assert not imported & {"matplotlib", "optuna"}


def test_default_places_for_results_are_not_committed() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    places = set()
    for group in (main, benchmarks):
        for name in group.descriptions:
            command = group.get_command(click.Context(group), name)
            assert command is not None
            places |= {x.default for x in command.params if isinstance(x.default, Path)}
    assert {Path("tuning"), Path("benchmark"), Path("reproduction")} <= places
    # only at the top: docs/benchmark and pykeen_nonsampling/tuning are part of the project
    assert {f"/{place}/" for place in places} <= {*ignored}
