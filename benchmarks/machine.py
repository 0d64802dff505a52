"""The machine and the software that something is measured with."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from pykeen.version import get_version

#: What Linux tells about the processors
CPUINFO = Path("/proc/cpuinfo")

#: The instructions for products in bfloat16, each of which is enough
BFLOAT16 = frozenset({"avx512_bf16", "amx_bf16"})


def _find_version(package: str) -> str | None:
    """Find out which version of a package is installed, if any."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _read_cpuinfo(name: str) -> str | None:
    """Read a line about the first processor from Linux, if it has one of this name."""
    if not CPUINFO.exists():
        return None
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)


def has_bfloat16() -> bool:
    """Whether the processor multiplies numbers in bfloat16, and PyTorch makes use of it."""
    flags = (_read_cpuinfo("flags") or "").split()
    used = torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available()
    return used and not BFLOAT16.isdisjoint(flags)


def machine() -> dict[str, Any]:
    """Describe the machine and the software."""
    return {
        "cpu": _read_cpuinfo("model name") or platform.processor() or platform.machine(),
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
