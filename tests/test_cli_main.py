"""The command line: what all commands have in common."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from commands import ROOT

from pykeen_nonsampling.cli import main, models


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


def test_help_and_version_are_no_errors() -> None:
    for arguments in (["--help"], ["--version"], *([name, "--help"] for name in main.commands)):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0
        assert "Error" not in result.output


def test_default_places_for_results_are_not_committed() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    places = {
        parameter.default
        for command in main.commands.values()
        for parameter in command.params
        if isinstance(parameter.default, Path)
    }
    assert Path("tuning") in places
    # only at the top: docs/benchmark and pykeen_nonsampling/tuning are part of the project
    assert {f"/{place}/" for place in places} <= {*ignored}
