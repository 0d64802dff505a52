"""Versions: two of them are timed in turns."""

from __future__ import annotations

import re
import sys

import pytest
from click.testing import CliRunner
from commands import ROOT

from benchmarks.__main__ import main

OPTIONS = "--dataset=nations", "--model=DistMult", "--loop=nonsampling", "--dim=4", "--repeats=1"


def test_both_are_timed_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is what is installed, which need not have the package benchmarks."""
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(main, ["versions", "--against", sys.executable, *OPTIONS])
    assert result.exit_code == 0, result.output
    head, *lines = result.output.splitlines()
    assert head.split() == ["this", "other", "ratio"]
    rows = [re.fullmatch(r"DistMult, d=4, (\w+) +([\d.]+)s +([\d.]+)s +([\d.]+)", line) for line in lines]
    assert [row[1] for row in rows if row] == ["nonsampling", "evaluation"]
    for row in rows:
        assert row is not None
        this, other, ratio = map(float, row.groups()[1:])
        assert min(this, other) > 0
        # one repeat; times are rounded to 0.1 ms
        assert (this - 6e-5) / (other + 6e-5) - 0.006 < ratio < (this + 6e-5) / max(other - 6e-5, 1e-9) + 0.006


def test_the_end_of_the_other_one_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(main, ["versions", "--against", "true", *OPTIONS])
    assert result.exit_code == 1
    assert "has ended; see its messages above" in " ".join(result.output.split())
