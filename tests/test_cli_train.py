"""The command line: train, in one process or several."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from commands import ROOT, run, run_python
from pykeen.datasets import Nations
from pykeen.evaluation import RankBasedEvaluator
from pykeen.triples import CoreTriplesFactory

from pykeen_nonsampling.cli import main

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without distributed training")


def test_goes_on_with_another_number_of_processes(tmp_path: Path) -> None:
    config = json.loads((ROOT / "examples" / "configuration.json").read_text())
    config["pipeline"] |= dict(random_seed=0, optimizer="Adam")
    path, output, losses = tmp_path / "x.json", tmp_path / "results", []
    for epochs in (20, 40):
        config["pipeline"]["training_kwargs"] = dict(num_epochs=epochs)
        path.write_text(json.dumps(config))
        command = ["train", str(path), f"--output={output}"]
        if not losses:
            launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
            printed = run(sys.executable, *launcher, "-m", "pykeen_nonsampling", *command, cwd=tmp_path)
        else:
            refused = CliRunner().invoke(main, command)
            assert refused.exit_code == 2
            assert "results.json exists already" in refused.output
            # as if it had been stopped there
            (output / "results.json").unlink()
            printed = run_python("-m", "pykeen_nonsampling", *command, cwd=tmp_path)
        assert f"{epochs} epochs. On the test triples: MRR 0." in printed, printed
        losses.append(json.loads((output / "results.json").read_text())["losses"])
    assert losses[1][:20] == losses[0]
    assert len(losses[1]) == 40


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "cannot be read"),
        ("[]", "is not an experiment: it needs an entry 'pipeline'"),
        ('{"pipeline": {"dataset": "nations", "model": "ConvE", "training_loop": "nonsampling"}}', "cannot be decomposed"),
    ],
)
def test_refuses(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.json").write_text(content)
    result = CliRunner().invoke(main, ["train", str(tmp_path / "x.json"), f"--output={tmp_path / 'results'}"])
    assert result.exit_code == 1
    assert message in result.output
    assert isinstance(result.exception, SystemExit)


def test_divided_entities(tmp_path: Path) -> None:
    """Two processes train, one goes on; the model has all entities, and can be used like any other."""
    config: dict[str, Any] = dict(
        dataset="nations",
        dataset_kwargs=dict(create_inverse_triples=True),
        model="ComplEx",
        model_kwargs=dict(embedding_dim=8),
        training_loop="nonsamplinglcwa",
        # which is what they choose, but one process would not
        loss="nonsampling",
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
        (dict(model="RESCAL"), "cannot be divided among processes: Embedding has a regularizer, LpRegularizer"),
        (dict(training_loop_kwargs=dict(loss_weighter="relation")), "loss_weighter='relation' looks at the ids"),
        (dict(training_loop="lcwa"), "training_loop='lcwa' cannot be divided among processes"),
    ],
)
def test_divided_entities_that_are_refused(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = dict(dataset="nations", model="DistMult", training_loop="nonsamplinglcwa", training_kwargs=dict(num_epochs=2))
    (tmp_path / "x.json").write_text(json.dumps(dict(metadata={}, pipeline={**config, **changed})))
    result = CliRunner().invoke(main, ["train", str(tmp_path / "x.json"), f"--output={tmp_path / 'results'}", "--sharded"])
    assert result.exit_code == 1, result.output
    assert message in result.output
