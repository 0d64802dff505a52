"""Memory: how much is free, how much is needed, and what happens if that is more."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run_python
from pykeen.datasets import Nations
from pykeen.models import CP, RESCAL, DistMult, QuatE, RotatE, TransE, TuckER
from pykeen.pipeline import pipeline
from pykeen.triples import CoreTriplesFactory

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, SyntheticGraph
from pykeen_nonsampling import free as memory
from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.free import free_memory
from pykeen_nonsampling.hpo import fits
from pykeen_nonsampling.memory import room
from pykeen_nonsampling.memory.dry_run import outline, outline_instance
from pykeen_nonsampling.memory.outline import format_bytes
from pykeen_nonsampling.memory.room import largest_dimension
from pykeen_nonsampling.memory.task import Counts, Task

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

#: Trains under a limit of the address space, beyond what the process has, and prints the losses
LIMITED = """
import json, resource, sys
from pykeen.datasets import get_dataset
from pykeen.pipeline import pipeline
from pykeen_nonsampling.cli.timing import resident_bytes

settings, more = json.loads(sys.argv[1]), int(sys.argv[2])

def train(**kwargs):
    return pipeline(training_loop="nonsamplinglcwa", epochs=3, evaluator="factorized", random_seed=0,
                    use_tqdm=False, **kwargs)

train(dataset="nations", model="RESCAL", model_kwargs=dict(embedding_dim=4))
if more:
    limit = resident_bytes("VmSize") + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    print(json.dumps(train(**settings).losses))
except ValueError as error:
    print(json.dumps(str(error)))
"""

#: Trains each model in a process of its own, and prints the bytes that this adds to its largest size
PEAKS = """
import os, resource, sys, torch
from pykeen.pipeline import pipeline
from pykeen.triples import CoreTriplesFactory

def train(model, num_entities, num_relations, num_triples, **model_kwargs):
    triples = torch.stack([torch.randint(n, (num_triples,)) for n in (num_entities, num_relations, num_entities)], dim=1)
    training, testing = (CoreTriplesFactory(x, num_entities, num_relations) for x in (triples, triples[:20]))
    pipeline(training=training, testing=testing, model=model, model_kwargs=model_kwargs, training_loop="nonsamplinglcwa",
             epochs=2, evaluator="factorized", random_seed=0, use_tqdm=False)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

train("DistMult", 10, 2, 50, embedding_dim=4)
for arguments in eval(sys.argv[1]):
    if os.fork():
        assert os.wait()[1] == 0
        continue
    before = train("DistMult", 10, 2, 50, embedding_dim=4)
    print(train(**arguments) - before, flush=True)
    os._exit(0)
"""

#: Models of 200 MB to 1 GB: by their entities, their Gram matrices, and their relations
LARGE: list[tuple[Any, dict[str, int], dict[str, int]]] = [
    (DistMult, dict(num_entities=40_000, num_relations=10, num_triples=5_000), dict(embedding_dim=256)),
    (CP, dict(num_entities=14, num_relations=55, num_triples=1_600), dict(embedding_dim=64, rank=48)),
    (RESCAL, dict(num_entities=500, num_relations=150, num_triples=1_000), dict(embedding_dim=256)),
]


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


class TestEstimate:
    @linux
    def test_estimates_are_near_the_peaks(self, tmp_path: Path) -> None:
        arguments = [dict(model=model.__name__, **sizes, **kwargs) for model, sizes, kwargs in LARGE]
        printed = run_python("-c", PEAKS, repr(arguments), cwd=tmp_path)
        ratios = {}
        for peak, (model, sizes, kwargs) in zip(map(int, printed.split()), LARGE, strict=True):
            n = sizes["num_triples"]
            counts = Counts(sizes["num_entities"], sizes["num_relations"], n, (n, n))
            estimate = outline(model, {**model_defaults(model), **kwargs}, counts.factory(), counts=counts).memory().total
            ratios[model.__name__] = estimate / peak
        assert all(0.75 < ratio < 1.25 for ratio in ratios.values()), ratios

    @pytest.mark.parametrize("model", [CP, DistMult, QuatE, RESCAL, RotatE, TransE, TuckER])
    def test_outline_is_that_of_the_model(self, model: Any) -> None:
        kwargs = {**model_defaults(model), "embedding_dim": 6}
        nations = Nations().training
        outlined = outline(model, kwargs, nations)
        made = model(triples_factory=nations, random_seed=0, **kwargs)
        assert outlined.parameters == sum(x.numel() * x.element_size() for x in made.parameters())
        assert outlined.counts == Counts(14, 55, 1592, (471, 438))

    def test_outline_of_a_huge_model_takes_no_memory(self) -> None:
        huge = outline(CP, {**model_defaults(CP), "embedding_dim": 100_000, "rank": 10_000}, Nations().training)
        assert huge.width == 10**9
        assert huge.memory().grams > 10**18
        assert not fits(huge, memory=2**62)

    @pytest.mark.parametrize("model", [CP, TransE])
    def test_outline_draws_no_random_numbers(self, model: Any) -> None:
        before = torch.get_rng_state()
        outline(model, {**model_defaults(model), "embedding_dim": 4}, Nations().training)
        assert torch.equal(before, torch.get_rng_state())

    def test_a_smaller_model_can_be_told_from_a_larger_one(self) -> None:
        nations = Nations().training
        for model in (DistMult, RESCAL, CP):
            large, small = (outline(model, {**model_defaults(model), "embedding_dim": d}, nations) for d in (200, 50))
            shrunk = large.shrink(1 / 4).memory(memory_budget=1).training
            assert shrunk == pytest.approx(small.memory(memory_budget=1).training, rel=0.1)

    def test_optimizers_keep_different_numbers_of_tensors(self) -> None:
        x = [torch.zeros(1, requires_grad=True)]
        optim = torch.optim
        made = (optim.SGD(x), optim.SGD(x, momentum=0.9), optim.Adagrad(x), optim.Adam(x), optim.Adam(x, amsgrad=True))
        assert [Task().with_optimizer(optimizer).optimizer_copies for optimizer in made] == [0, 1, 1, 2, 3]

    def test_largest_dimension(self) -> None:
        assert largest_dimension(lambda d: d <= 37, 100) == 37
        assert largest_dimension(lambda d: d <= 99, 100) == 99
        assert largest_dimension(lambda d: False, 100) is None

    def test_bytes_are_readable(self) -> None:
        assert [format_bytes(x) for x in (12, 12_345, 1.5e6, 2.5e9, 3e12)] == [
            "0.012 kB",
            "12.3 kB",
            "1.5 MB",
            "2.5 GB",
            "3 TB",
        ]


class TestRefusal:
    settings: dict[str, Any] = dict(dataset="nations", model="DistMult", epochs=1, use_tqdm=False, random_seed=0)

    @pytest.mark.parametrize("loop", ["nonsampling", "nonsamplinglcwa"])
    def test_pipelines_refuse_before_the_model_is_made(self, loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
        # a model for which there is no memory anywhere
        with pytest.raises(ValueError, match=r"DistMult with 1000000000 dimensions needs about .* TB") as info:
            pipeline(**self.settings, training_loop=loop, model_kwargs=dict(embedding_dim=10**9))
        assert "14 entities, 55 relations and 1,592 triples" in str(info.value)
        monkeypatch.setattr(room, "free_memory", lambda _: 2**24)
        with pytest.raises(ValueError, match=r"Use at most \d+ dimensions") as info:
            pipeline(**self.settings, training_loop=loop, model_kwargs=dict(embedding_dim=10**5))
        largest = int(str(info.value).partition("embedding_dim=")[2].partition(")")[0])
        pipeline(**self.settings, training_loop=loop, model_kwargs=dict(embedding_dim=largest))
        with pytest.raises(ValueError, match=f"Use at most {largest} dimensions"):
            pipeline(**self.settings, training_loop=loop, model_kwargs=dict(embedding_dim=largest + 1))

    def test_training_loops_refuse(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nations = Nations().training
        loop = NonSamplingLCWATrainingLoop(
            model=DistMult(triples_factory=nations, embedding_dim=200, random_seed=0), triples_factory=nations
        )
        monkeypatch.setattr(room, "free_memory", lambda _: 2**19)
        with pytest.raises(ValueError, match=r"DistMult with 200 dimensions needs about .*Use at most \d+ dimensions"):
            loop.train(nations, num_epochs=1, use_tqdm=False)

    def test_a_budget_that_is_too_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        large = CoreTriplesFactory(torch.arange(3 * 10**5).view(3, -1).T % 1000, 1000, 1000)
        loop = NonSamplingLCWATrainingLoop(
            model=RESCAL(triples_factory=large, embedding_dim=2, random_seed=0), triples_factory=large, memory_budget=2**40
        )
        counts = Counts.of(large)
        least = room.check_room(loop, counts, Task())
        assert least == 2**40
        outlined = outline_instance(loop, counts, Task(sides=2))
        space = outlined.memory(memory_budget=1).training + 1000
        monkeypatch.setattr(room, "free_memory", lambda _: space)
        with pytest.raises(
            ValueError, match=r"Set a smaller budget for blocks, e.g. training_loop_kwargs=dict\(memory_budget="
        ):
            room.check_room(loop, counts, Task())


@linux
class TestLimits:
    def train(self, path: Path, more: int, **settings: Any) -> Any:
        printed = run_python("-c", LIMITED, json.dumps(settings), str(more), cwd=path)
        return json.loads(printed.splitlines()[-1])

    def test_training_under_a_limit_is_the_same(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = dict(dataset="syntheticgraph", model="RESCAL", model_kwargs=dict(embedding_dim=200))
        outlined = outline(RESCAL, {**model_defaults(RESCAL), "embedding_dim": 200}, SyntheticGraph().training)
        least, room = outlined.memory(memory_budget=1).training, 25 * 10**6
        assert outlined.memory().blocks > 2 * room
        limited = self.train(tmp_path, memory.RESERVED_ADDRESSES + least + room, **settings)
        assert limited == pytest.approx(self.train(tmp_path, 0, **settings), rel=1e-4)

    def test_what_cannot_fit_is_refused(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = dict(dataset="nations", model="DistMult", model_kwargs=dict(embedding_dim=2000))
        refused = self.train(tmp_path, memory.RESERVED_ADDRESSES + 20 * 10**6, **settings)
        assert refused.startswith("DistMult with 2000 dimensions needs about")
        assert "Use at most" in refused
