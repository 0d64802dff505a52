"""The command that tries what survives kills and changed bits, in short."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import run_python

COMMAND = "-m", "benchmarks", "faults"


def test_flips(tmp_path: Path) -> None:
    assert run_python(*COMMAND, "flips", "--number=50", cwd=tmp_path).startswith("50 of 50 changed bits are noticed")


@pytest.mark.skipif(sys.platform == "win32", reason="no such signal")
def test_kills(tmp_path: Path) -> None:
    printed = run_python(*COMMAND, "kills", "--number=1", "--epochs=50", "--case=softmax", cwd=tmp_path)
    assert "kills: 1, unreadable checkpoints: 0, result: the same, bit for bit" in printed
