"""What does not fit is refused, with the largest dimension that would, and what fits barely is limited."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run_python
from pykeen.datasets import Nations
from pykeen.models import RESCAL, DistMult
from pykeen.pipeline import pipeline
from pykeen.triples import CoreTriplesFactory

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, SyntheticGraph
from pykeen_nonsampling import free as memory
from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.memory import room
from pykeen_nonsampling.memory.dry_run import outline, outline_instance
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


def test_largest_dimension() -> None:
    assert largest_dimension(lambda d: d <= 37, 100) == 37
    assert largest_dimension(lambda d: d <= 99, 100) == 99
    assert largest_dimension(lambda d: False, 100) is None


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
