"""Entities that are divided among processes give the result of one process that has all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from commands import run_ranks
from pykeen.datasets import Nations
from pykeen.models import CompGCN, DistMult
from shard_script import CASES

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingTrainingLoop
from pykeen_nonsampling.distributed.group import Group
from pykeen_nonsampling.distributed.shards import Sharding, ShardingError, divide

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without distributed training")


SCRIPT = Path(__file__).parent / "shard_script.py"


@pytest.mark.parametrize("processes", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_result_is_that_of_one_process(processes: int, tmp_path: Path) -> None:
    """Losses, parameters as a checkpoint has them, and metrics; and no process makes a matrix of all entities."""
    run_ranks(processes, str(SCRIPT), str(tmp_path), cwd=tmp_path)
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    for size in range(2, 1 + processes):
        for name, (_, _, dtype, *_) in CASES.items():
            tolerance = 1e-10 if dtype is torch.float64 else 1e-5
            one, many = results[1][name], results[size][name]
            assert many["losses"] == pytest.approx(one["losses"], rel=tolerance), (name, size)
            assert list(many["parameters"]) == list(one["parameters"])
            for key, x in one["parameters"].items():
                y = many["parameters"][key]
                assert (x - y).abs().max() <= tolerance * x.abs().max(), (name, size, key)
            assert many["metrics"] == pytest.approx(one["metrics"], rel=tolerance), (name, size)
        largest, whole = results[size]["allocations"]
        # those of its own entities, and no more
        assert largest == -(-whole // size)


def test_representations_without_rows() -> None:
    training = divide(Nations(create_inverse_triples=True).training, Group())
    model = CompGCN(triples_factory=training, embedding_dim=4)
    with pytest.raises(ShardingError, match="does not have one vector of parameters per entity"):
        NonSamplingLCWATrainingLoop(model=model, triples_factory=training)


def test_triples_of_others() -> None:
    training = divide(Nations().training, Group())
    loop = NonSamplingTrainingLoop(model=DistMult(triples_factory=training), triples_factory=training)
    with pytest.raises(ShardingError, match="have to be divided"):
        loop.train(Nations().training, num_epochs=1)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
class TestSharding:
    def test_numbers(self, size: int) -> None:
        entities = torch.arange(17)
        rows = []
        for rank in range(size):
            sharding = Sharding(17, Group(rank, size))
            numbers = sharding.number(entities)
            assert sorted(numbers.tolist()) == entities.tolist()
            assert torch.equal(sharding.original(numbers), entities)
            assert torch.equal(sharding.owners(numbers), entities % size)
            assert torch.equal(sharding.is_mine(numbers), entities % size == rank)
            rows.append(sharding.num_rows)
        assert sum(rows) == 17
        assert max(rows) - min(rows) <= 1

    def test_too_few(self, size: int) -> None:
        with pytest.raises(ShardingError, match=f"{size} entities cannot be divided among {size + 1} processes"):
            Sharding(size, Group(0, size + 1))
