"""Entities that are divided among processes give the result of one process that has all of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from commands import run, run_ranks
from pykeen.datasets import Nations
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import CompGCN, DistMult
from pykeen.triples import CoreTriplesFactory
from shard_script import CASES

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingTrainingLoop
from pykeen_nonsampling.cli import main
from pykeen_nonsampling.distributed.group import Ranks
from pykeen_nonsampling.distributed.shards import Sharding, ShardingError, divide
from pykeen_nonsampling.distributed.sweep import _split
from pykeen_nonsampling.graph.index import TripleIndex

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


def test_command(tmp_path: Path) -> None:
    """Two processes train, one goes on; the model has all entities, and can be used like any other."""
    config: dict[str, Any] = dict(
        dataset="nations",
        dataset_kwargs=dict(create_inverse_triples=True),
        model="ComplEx",
        model_kwargs=dict(embedding_dim=8),
        training_loop="nonsamplinglcwa",
        optimizer="Adam",
        random_seed=0,
    )
    path, output, losses = tmp_path / "x.json", tmp_path / "results", []
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = ["train", str(path), f"--output={output}", "--sharded"]
    for epochs in (20, 30):
        path.write_text(json.dumps(dict(metadata={}, pipeline={**config, "training_kwargs": dict(num_epochs=epochs)})))
        if not losses:
            printed = run(*launcher, "-m", "pykeen_nonsampling", *command, cwd=tmp_path)
            assert "Each of the 2 processes has sent" in printed
        else:
            # as if it had been stopped there
            (output / "results.json").unlink()
            result = CliRunner().invoke(main, command[:3])
            assert result.exit_code == 0, result.output
            printed = result.output
        assert f"{epochs} epochs. On the test triples: MRR 0." in printed
        results = json.loads((output / "results.json").read_text())
        losses.append(results["losses"])
        model = torch.load(output / "trained_model.pkl", weights_only=False)
        assert model.num_entities == 14
        known = CoreTriplesFactory.from_path_binary(output / "training_triples")
        metrics = RankBasedEvaluator().evaluate(
            model,
            Nations().testing.mapped_triples,
            additional_filter_triples=[known.mapped_triples, Nations().validation.mapped_triples],
            use_tqdm=False,
        )
        mrr = metrics.get_metric("mrr")
        assert mrr == pytest.approx(results["metrics"]["both"]["realistic"]["inverse_harmonic_mean_rank"], abs=1e-6)
    assert losses[1][:20] == losses[0]
    assert len(losses[1]) == 30
    assert not list(output.glob("*.part"))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            dict(training_kwargs=dict(num_epochs=2, batch_size=100)),
            "batch_size=100 does not work with entities that are divided",
        ),
        (dict(training_kwargs=dict(num_epochs=2, gradient_clipping_max_norm=1.0)), "no process knows the norm"),
        (dict(stopper="early"), "EarlyStopper does not work with entities that are divided"),
        (dict(evaluator="rankbased"), "evaluator='rankbased' needs all entities in one place"),
        (dict(evaluation_entity_whitelist=["usa"]), "evaluation_entity_whitelist does not go together"),
        (
            dict(loss="nonsampling", loss_kwargs=dict(range_weight=0.5)),
            "range_weight=0.5 does not work with entities",
        ),
        (dict(model="RESCAL"), "cannot be divided among processes: Embedding has a regularizer, LpRegularizer"),
        (dict(training_loop_kwargs=dict(loss_weighter="relation")), "loss_weighter='relation' looks at the ids"),
        (dict(training_loop="lcwa"), "training_loop='lcwa' cannot be divided among processes"),
    ],
)
def test_command_refuses(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = dict(dataset="nations", model="DistMult", training_loop="nonsamplinglcwa", training_kwargs=dict(num_epochs=2))
    (tmp_path / "x.json").write_text(json.dumps(dict(metadata={}, pipeline={**config, **changed})))
    result = CliRunner().invoke(main, ["train", str(tmp_path / "x.json"), f"--output={tmp_path / 'results'}", "--sharded"])
    assert result.exit_code == 1, result.output
    assert message in result.output


def test_representations_without_rows() -> None:
    training = divide(Nations(create_inverse_triples=True).training, Ranks())
    model = CompGCN(triples_factory=training, embedding_dim=4)
    with pytest.raises(ShardingError, match="does not have one vector of parameters per entity"):
        NonSamplingLCWATrainingLoop(model=model, triples_factory=training)


def test_triples_of_others() -> None:
    training = divide(Nations().training, Ranks())
    loop = NonSamplingTrainingLoop(model=DistMult(triples_factory=training), triples_factory=training)
    with pytest.raises(ShardingError, match="have to be divided"):
        loop.train(Nations().training, num_epochs=1)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
class TestSharding:
    def test_numbers(self, size: int) -> None:
        entities = torch.arange(17)
        rows = []
        for rank in range(size):
            sharding = Sharding(17, Ranks(rank, size))
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
            Sharding(size, Ranks(0, size + 1))


@pytest.mark.parametrize("limit", [1, 2, 5, 100])
def test_split(limit: int) -> None:
    """All queries, in their order, with few distinct answers; a query with more is on its own."""
    triples = torch.randint(0, 9, (120, 3), generator=torch.Generator().manual_seed(0))
    index = TripleIndex(triples, 9, 9)
    parts = _split(index, limit)
    assert [x for part in parts for x in range(part.start, part.stop)] == list(range(index.num_queries))
    for part in parts:
        assert part.stop - part.start <= limit
        assert len(index.take(part).answers.unique()) <= limit or part.stop - part.start == 1
    assert _split(index.take(slice(0, 0)), limit) == []
