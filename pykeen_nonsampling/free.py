"""How much memory there is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import torch

from .validation import as_integer

#: If nothing tells how much memory there is
UNKNOWN = 2**30

#: Address space that is not for data: threads have stacks and heaps of their own, and compilers are loaded when needed
RESERVED_ADDRESSES = 2**28

#: By the controller in ``/proc/self/cgroup``: where its groups are, the files with limit and use, and the line of
#: ``memory.stat`` with the part of the use that is a cache of files, which the kernel gives up before it refuses memory
CGROUPS = {
    "": ("", "memory.max", "memory.current", "inactive_file"),
    "memory": ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def free_memory(device: torch.device) -> int:
    """Return the number of free bytes on a device; 1 GB, if the device does not tell.

    For the CPU, this is what the machine, the container (cgroup) and the limits of the process (``ulimit``) leave, whichever
    is the least.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return UNKNOWN
    return max(0, min([*_free_in_machine(), *_free_in_cgroups(), *_free_in_process()], default=UNKNOWN))


def _free_in_machine(meminfo: Path = Path("/proc/meminfo")) -> Iterator[int]:
    """Return what the machine has left. Memory that caches files is free for whoever needs it, so it counts."""
    available = _read_table(meminfo).get("MemAvailable:")
    if available is not None:
        yield 1024 * available
    elif "SC_AVPHYS_PAGES" in os.sysconf_names:
        yield os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _free_in_cgroups(groups: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Return what each of the control groups that the process is in has left, if it has a limit."""
    with suppress(OSError):
        for line in groups.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", maxsplit=2)
            for controller in CGROUPS.keys() & controllers.split(","):
                folder, *names = CGROUPS[controller]
                top = root / folder
                # a container may see its own group as the root, in which its path does not exist
                group = top / path.lstrip("/")
                for directory in (group, *group.parents):
                    yield from _free_in_cgroup(directory, *names)
                    if directory == top:
                        break


def _free_in_cgroup(directory: Path, limit_name: str, use_name: str, cache_name: str) -> Iterator[int]:
    """Return what a control group has left, if it has a limit."""
    # there is neither at the root, and "max" is no number
    with suppress(OSError, ValueError):
        limit, use = (int((directory / name).read_text(encoding="ascii")) for name in (limit_name, use_name))
        yield limit - use + _read_table(directory / "memory.stat").get(cache_name, 0)


def _free_in_process(status: Path = Path("/proc/self/status")) -> Iterator[int]:
    """Return what the limits of the process leave of its address space, and of its data."""
    try:
        import resource
    except ImportError:
        # not on Windows
        return
    used = _read_table(status)
    for limit, name in ((resource.RLIMIT_AS, "VmSize:"), (resource.RLIMIT_DATA, "VmData:")):
        soft, _ = resource.getrlimit(limit)
        if soft != resource.RLIM_INFINITY and name in used:
            yield soft - 1024 * used[name] - RESERVED_ADDRESSES


def _read_table(path: Path) -> dict[str, int]:
    """Read lines that begin with a name and a number."""
    table = {}
    with suppress(OSError):
        for line in path.read_text(encoding="utf-8").splitlines():
            name, *values = line.split()
            if values and values[0].isdecimal():
                table[name] = int(values[0])
    return table


def check_memory_budget(memory_budget: int | None) -> None:
    """Refuse a budget that is not a number of bytes, or holds nothing."""
    if memory_budget is not None:
        as_integer("memory_budget", memory_budget, 2**30, otherwise=" for 1 GiB, or leave it out to use what is free")
