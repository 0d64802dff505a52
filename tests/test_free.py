"""How much memory is free: what machine, container and process leave."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from commands import run_python

from pykeen_nonsampling import free as memory
from pykeen_nonsampling.free import free_memory

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


class TestFree:
    def test_caches_of_files_are_free(self, tmp_path: Path) -> None:
        path = tmp_path / "meminfo"
        path.write_text("MemTotal:       24000 kB\nMemFree:          100 kB\nMemAvailable:   20000 kB\n")
        assert list(memory._free_in_machine(path)) == [20_000 * 1024]

    def test_without_meminfo_free_pages_count(self, tmp_path: Path) -> None:
        (pages,) = memory._free_in_machine(tmp_path / "missing")
        assert pages > 0

    @pytest.mark.parametrize(
        ("line", "folder", "limit", "use", "cache"),
        [
            ("0::/a/b", "a/b", "memory.max", "memory.current", "inactive_file"),
            ("4:cpu,memory:/a/b", "memory/a/b", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ],
    )
    def test_cgroups(self, tmp_path: Path, line: str, folder: str, limit: str, use: str, cache: str) -> None:
        groups, inner = tmp_path / "cgroup", tmp_path / "root" / folder
        groups.write_text(f"9:name=systemd:/\n{line}\n")
        inner.mkdir(parents=True)
        assert list(memory._free_in_cgroups(groups, tmp_path / "root")) == []
        for directory, bound in ((inner, "max"), (inner.parent, "5000")):
            (directory / limit).write_text(f"{bound}\n")
            (directory / use).write_text("1000\n")
            (directory / "memory.stat").write_text(f"anon 300\n{cache} 700\n")
        # the inner group has no limit, but the one around it has
        assert list(memory._free_in_cgroups(groups, tmp_path / "root")) == [5000 - 1000 + 700]
        (inner / limit).write_text("3000\n")
        assert min(memory._free_in_cgroups(groups, tmp_path / "root")) == 3000 - 1000 + 700

    def test_a_container_that_sees_its_group_as_the_root(self, tmp_path: Path) -> None:
        groups = tmp_path / "cgroup"
        groups.write_text("0::/docker/0123\n")
        (tmp_path / "memory.max").write_text("5000\n")
        (tmp_path / "memory.current").write_text("1000\n")
        assert list(memory._free_in_cgroups(groups, tmp_path)) == [4000]

    @linux
    @pytest.mark.parametrize("limit", ["RLIMIT_AS", "RLIMIT_DATA"])
    def test_limits_of_the_process(self, tmp_path: Path, limit: str) -> None:
        code = f"""
import resource, torch
from pykeen_nonsampling.free import free_memory
before = free_memory(torch.device("cpu"))
resource.setrlimit(resource.{limit}, (8 * 2**30, 8 * 2**30))
print(before, free_memory(torch.device("cpu")))
"""
        before, after = map(int, run_python("-c", code, cwd=tmp_path).split())
        assert 0 < after < 8 * 2**30
        assert after <= before

    def test_of_this_machine(self) -> None:
        assert free_memory(torch.device("cpu")) > 0
        assert free_memory(torch.device("meta")) == 2**30
