"""Commands, run as a user would: in a process of their own, in a directory of their own."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]

#: What takes seconds to import, also what PyTorch imports in the first step of an optimizer
PRELOADED = [
    *("pykeen.cli", "pykeen.hpo", "pykeen_nonsampling.sweeps.numba.sweep", "torch._dynamo"),
    *(f"pykeen_nonsampling.cli.{name}" for name in ("compare", "models", "plan", "train", "tune")),
]


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


def run_python(*arguments: str, cwd: Path, environment: Mapping[str, str] | None = None) -> str:
    """Do what ``run(sys.executable, ...)`` does, in a process that need not import PyKEEN again."""
    return PythonProcess(*arguments, cwd=cwd, environment=environment).printed()


def run_ranks(processes: int, *arguments: str, cwd: Path) -> None:
    """Run a script in several processes that find each other, like those of torchrun."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = dict(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]), WORLD_SIZE=str(processes))
    started = [PythonProcess(*arguments, cwd=cwd, environment={**address, "RANK": str(rank)}) for rank in range(processes)]
    for process in started:
        process.printed()


class PythonProcess:
    """A process, forked from one that has imported PyKEEN and this package and done nothing else."""

    def __init__(self, *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None):
        """Start it.

        :param arguments: those of the interpreter: a script, or ``-m`` and a module, or ``-c`` and code, and theirs
        :param cwd: the directory to run in
        :param environment: more variables of the environment
        """
        # not where forking is the system's own way: there would be what this process has done
        method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
        context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            context.set_forkserver_preload(PRELOADED)
        self.arguments = arguments
        number = len(list(cwd.glob("*.stdout")))
        self.output, self.errors = (cwd / f"process-{number}.{name}" for name in ("stdout", "stderr"))
        self.output.touch()
        more = {"OMP_NUM_THREADS": "1", **(environment or {})}
        self.process = context.Process(target=_be, args=(arguments, cwd, more, self.output, self.errors))
        self.process.start()

    def printed(self, timeout: float = 600) -> str:
        """Wait until it ends, which must not be a failure, and return what it has printed."""
        self.process.join(timeout)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        output, errors = (path.read_text(encoding="utf-8", errors="replace") for path in (self.output, self.errors))
        assert self.process.exitcode == 0, f"{self.arguments} failed:\n{output}\n{errors[-5_000:]}"
        return output


def _be(arguments: tuple[str, ...], cwd: Path, environment: Mapping[str, str], output: Path, errors: Path) -> None:
    """Be the interpreter."""
    from pykeen_nonsampling.sweeps.numba import threads

    os.chdir(cwd)
    os.environ.update(environment)
    for stream, path in ((sys.stdout, output), (sys.stderr, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), stream.fileno())
        stream.reconfigure(encoding="utf-8")
    # the process that this one was forked from had no threads that could be missing
    threads._forked = False
    first, *rest = arguments
    if first in ("-c", "-m"):
        what, *rest = rest
        sys.path.insert(0, str(cwd))
        sys.argv = [first, *rest]
        if first == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            sys.modules["__main__"] = module = ModuleType("__main__")
            exec(what, vars(module))  # noqa: S102
    else:
        sys.path.insert(0, str(Path(first).parent))
        sys.argv = [*arguments]
        runpy.run_path(first, run_name="__main__")
