"""Commands, run as a user would: in a process of their own, in a directory of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(*command: str, cwd: Path) -> str:
    """Run a command that must not fail, and return what it prints."""
    environment = {
        **os.environ,
        # what is installed beside the interpreter, also if its environment is not activated
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYKEEN_HOME": str(cwd / "pykeen-home"),
        "PYTHONIOENCODING": "utf-8",
        # for graphs this small, threads mostly wait for each other
        "OMP_NUM_THREADS": "1",
    }
    completed = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, encoding="utf-8", errors="replace", timeout=600, check=False
    )
    assert completed.returncode == 0, f"{command} failed:\n{completed.stdout}\n{completed.stderr[-5_000:]}"
    return completed.stdout
