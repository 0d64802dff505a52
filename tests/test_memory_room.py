"""What does not fit is refused, with the largest dimension that would, and what fits barely is limited."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run_python
from pykeen.datasets import Nations
from pykeen.models import RESCAL, DistMult, ERModel, TransE
from pykeen.pipeline import pipeline
from pykeen.triples import CoreTriplesFactory

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingLoss, SyntheticGraph
from pykeen_nonsampling import free as memory
from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.distributed.shards import ShardingError
from pykeen_nonsampling.memory import room
from pykeen_nonsampling.memory.dry_run import outline, outline_instance
from pykeen_nonsampling.memory.outline import Outline, format_bytes
from pykeen_nonsampling.memory.room import largest_dimension
from pykeen_nonsampling.memory.task import Counts, Task
from pykeen_nonsampling.sweeps.numba import order

NATIONS = Nations().training

#: What is trained, if nothing else is said
TASK = partial(NonSamplingLCWATrainingLoop.plan_task, None)

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


#: Trains under a limit of the address space, beyond what the process has, and prints the losses
LIMITED = """
import json, resource, sys
from pykeen.datasets import get_dataset
from pykeen.pipeline import pipeline
from benchmarks.peak import resident_bytes

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


@pytest.mark.parametrize("dimension", [1, 2, 3, 10, 37])
def test_largest_dimension(dimension: int) -> None:
    """Of any number below that one."""
    for bound in range(dimension):
        assert largest_dimension(lambda d, bound=bound: d <= bound, dimension) == (bound or None)  # type: ignore[misc]


def test_default_dimension() -> None:
    assert room.default_dimension(DistMult) == 50
    assert room.default_dimension(ERModel) == 0


class TestModels:
    """Before they are made."""

    dimension = 24

    def size(self, model: Any, dimension: int) -> int:
        """Estimate the bytes that training needs, with the smallest blocks."""
        kwargs = {**model_defaults(model), "embedding_dim": dimension}
        return outline(model, kwargs, NATIONS, TASK).memory(memory_budget=1).training

    def sizes(self, model: Any) -> list[int]:
        """Do the same for each dimension."""
        return [self.size(model, d) for d in range(1, 1 + self.dimension)]

    def check(self, model: Any, dimension: int = dimension, **kwargs: Any) -> None:
        model_kwargs = {**model_defaults(model), "embedding_dim": dimension}
        room.check_model(model, model_kwargs, NATIONS, TASK, torch.device("cpu"), **kwargs)

    @pytest.mark.parametrize("model", [DistMult, RESCAL, TransE])
    def test_the_largest_dimension_that_fits_is_named(self, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        sizes = self.sizes(model)
        assert sizes[0] < sizes[11] < sizes[-1]
        for free in (sizes[0], sizes[11], sizes[-1] - 1):
            monkeypatch.setattr(room, "free_memory", lambda _, free=free: free)
            largest = sum(size <= free for size in sizes)
            with pytest.raises(ValueError, match=rf"{model.__name__} with 24 dimensions needs about") as info:
                self.check(model, memory_budget=1)
            advice = f"Use at most {largest} dimensions, e.g. model_kwargs=dict(embedding_dim={largest}); cf. "
            assert advice in str(info.value)
            assert f"only {format_bytes(free)} are free" in str(info.value)

    def test_what_just_fits_is_not_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(room, "free_memory", lambda _: self.sizes(DistMult)[-1])
        self.check(DistMult)

    def test_no_dimension_fits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(room, "free_memory", lambda _: self.sizes(DistMult)[0] - 1)
        with pytest.raises(ValueError, match="No number of dimensions is small enough, so use a smaller graph, or another"):
            self.check(DistMult, memory_budget=1)

    def test_a_budget_of_ones_own_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(room, "free_memory", lambda _: self.size(DistMult, 256) + 1000)
        self.check(DistMult, 256, memory_budget=1)
        with pytest.raises(ValueError, match=r"Set a smaller budget for blocks, e.g. .*memory_budget=1001\), or none; cf\."):
            self.check(DistMult, 256, memory_budget=2**30)

    def test_what_cannot_be_outlined_is_left_to_the_training_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class Peculiar(DistMult):
            def __init__(self, **kwargs: Any) -> None:
                raise RuntimeError("only with values")

        monkeypatch.setattr(room, "free_memory", lambda _: 1)
        self.check(Peculiar)

    @pytest.mark.parametrize(
        ("model", "num_ranks", "message"),
        [
            (DistMult, 15, "14 entities cannot be divided among 15 processes"),
            (RESCAL, 2, "cannot be divided among processes: Embedding has a regularizer, LpRegularizer"),
        ],
    )
    def test_what_cannot_be_divided(self, model: Any, num_ranks: int, message: str) -> None:
        with pytest.raises(ShardingError, match=message):
            room.check_divided(model, model_defaults(model), Counts.of(NATIONS), num_ranks)
        room.check_divided(DistMult, {}, Counts.of(NATIONS), 14)


class TestLoops:
    """With a model that exists already."""

    @pytest.fixture
    def loop(self, monkeypatch: pytest.MonkeyPatch) -> NonSamplingLCWATrainingLoop:
        # blocks would like to be as large as possible
        monkeypatch.setattr(order, "free_memory", lambda _: 2**40)
        model = DistMult(triples_factory=NATIONS, embedding_dim=self.dimension, random_seed=0)
        return NonSamplingLCWATrainingLoop(model=model, triples_factory=NATIONS, optimizer="Adam")

    dimension, counts, task = 256, Counts.of(NATIONS), Task(sides=2)

    def outline(self, loop: NonSamplingLCWATrainingLoop) -> Outline:
        assert loop.optimizer is not None
        return outline_instance(loop, self.counts, self.task.with_optimizer(loop.optimizer))

    def check(self, loop: NonSamplingLCWATrainingLoop, space: int, monkeypatch: pytest.MonkeyPatch) -> int | None:
        """Check the room, if parameters and all else had that much."""
        monkeypatch.setattr(room, "free_memory", lambda _: space - self.outline(loop).parameters)
        return room.check_room(loop, self.counts, self.task).memory_budget

    def test_enough(self, loop: NonSamplingLCWATrainingLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        device = torch.device("cpu")
        assert self.check(loop, self.outline(loop).memory(device).training, monkeypatch) is None
        loop.memory_budget = 12_345
        assert self.check(loop, self.outline(loop).memory(device, 12_345).training, monkeypatch) == 12_345

    @pytest.mark.parametrize("more", [0, 500, 5_000])
    def test_little_is_a_limit_for_blocks(
        self, loop: NonSamplingLCWATrainingLoop, more: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        device, made = torch.device("cpu"), self.outline(loop)
        space = made.memory(device, 1).training + more
        assert space < made.memory(device).training
        budget = self.check(loop, space, monkeypatch)
        assert budget == 1 + more
        assert made.memory(device, budget).training <= space

    def test_too_little(self, loop: NonSamplingLCWATrainingLoop, monkeypatch: pytest.MonkeyPatch) -> None:
        made = self.outline(loop)
        for space in (made.memory(memory_budget=1).training - 1, made.shrink(50 / 256).memory(memory_budget=1).training):
            largest = max(d for d in range(1, 256) if made.shrink(d / 256).fits(space))
            with pytest.raises(ValueError, match=f"DistMult with 256 dimensions .* Use at most {largest} dimensions"):
                self.check(loop, space, monkeypatch)


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

    def test_the_size_of_a_run_is_judged_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        calls: list[Any] = []
        monkeypatch.setattr(room, "free_memory", lambda device: calls.append(device) or 2**24)
        pipeline(**self.settings, training_loop="nonsamplinglcwa", model_kwargs=dict(embedding_dim=50))
        assert len(calls) == 1
        assert room.known_room.get() is None

    def test_training_loops_refuse(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nations = Nations().training
        loop = NonSamplingLCWATrainingLoop(
            model=DistMult(triples_factory=nations, embedding_dim=200, random_seed=0, loss=NonSamplingLoss()),
            triples_factory=nations,
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
        assert least.memory_budget == 2**40
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
        settings["loss"] = "nonsampling"
        task = partial(NonSamplingLCWATrainingLoop.plan_task, NonSamplingLoss())
        outlined = outline(RESCAL, {**model_defaults(RESCAL), "embedding_dim": 200}, SyntheticGraph().training, task)
        least, room = outlined.memory(memory_budget=1).training, 25 * 10**6
        assert outlined.memory().blocks > 2 * room
        limited = self.train(tmp_path, memory.RESERVED_ADDRESSES + least + room, **settings)
        assert limited == pytest.approx(self.train(tmp_path, 0, **settings), rel=1e-4)

    def test_what_cannot_fit_is_refused(self, tmp_path: Path) -> None:
        settings: dict[str, Any] = dict(dataset="nations", model="DistMult", model_kwargs=dict(embedding_dim=2000))
        refused = self.train(tmp_path, memory.RESERVED_ADDRESSES + 20 * 10**6, **settings)
        assert refused.startswith("DistMult with 2000 dimensions needs about")
        assert "Use at most" in refused
