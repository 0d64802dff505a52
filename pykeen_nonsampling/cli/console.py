"""What commands have in common: checks of their input, quiet loggers, figures, and the machine."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import platform
import warnings
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
import torch
from class_resolver import ClassResolver
from pykeen.version import get_version

__all__ = [
    "check_matplotlib",
    "lookup",
    "machine",
    "make_figure",
    "parse_argument",
    "silence",
]


def check_matplotlib() -> None:
    """Refuse to start if the results could not be drawn in the end."""
    if importlib.util.find_spec("matplotlib") is None:
        raise click.UsageError('Drawing needs matplotlib: pip install "pykeen-nonsampling[plot]"')


def make_figure(width: float, height: float) -> Any:
    """Make an empty figure, without changing the canvas that the user has chosen."""
    # matplotlib is an extra
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def silence() -> None:
    """Let loggers report only errors during a command: everything else is for developers, and would break progress bars."""
    context = click.get_current_context()
    for logger in map(logging.getLogger, ("optuna", "pykeen", "torch_max_mem", "pykeen_nonsampling")):
        context.call_on_close(partial(logger.setLevel, logger.level))
        logger.setLevel(logging.ERROR)
    # without a GPU, PyTorch warns about the pinned memory that PyKEEN's training loops ask for
    context.with_resource(warnings.catch_warnings())
    warnings.filterwarnings("ignore", message="'pin_memory' argument is set", category=UserWarning)


def lookup(resolver: ClassResolver[Any], name: str, what: str) -> type[Any]:
    """Find a class by a name that the user gave."""
    try:
        return resolver.lookup(name)
    except KeyError as error:
        message = f"PyKEEN has no {what} {name!r}: for a list, run pykeen ls {what}s."
        raise click.BadParameter(message, param_hint=f"--{what}") from error


def parse_argument(argument: str) -> tuple[str, Any]:
    """Split NAME=VALUE. The value is JSON, or else plain text."""
    name, equals, value = argument.partition("=")
    if not (name and equals):
        raise click.UsageError(f"{argument!r} is not a keyword argument: write NAME=VALUE, e.g. embedding_dim=64.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


def _find_version(package: str) -> str | None:
    """Find out which version of a package is installed, if any."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def machine() -> dict[str, Any]:
    """Describe the machine and the software."""
    cpu, cpuinfo = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        # what PyTorch makes use of, e.g. AVX2 or AVX512
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "mkl": torch.backends.mkl.is_available(),
        "pykeen": get_version(),
        # with it, loops are compiled
        "numba": _find_version("numba"),
    }
