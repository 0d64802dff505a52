"""What users do: strings for pipeline(), configuration files, studies, PyKEEN's command line."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from commands import run_python
from pykeen.datasets import get_dataset
from pykeen.hpo import hpo_pipeline
from pykeen.models import DistMult, ERModel
from pykeen.nn.modules import TransEInteraction
from pykeen.pipeline import pipeline, pipeline_from_config

from pykeen_nonsampling import NonSamplingLoss, NonSamplingTrainingLoop
from pykeen_nonsampling.defaults import optimization

FREE = dict(entity_constrainer=None, regularizer=None)
SETTINGS: dict[str, Any] = dict(
    training_loop="nonsampling",
    loss_kwargs=dict(negative_weight=0.1),
    optimizer_kwargs=dict(lr=0.02),
    epochs=100,
    random_seed=0,
    use_tqdm=False,
)


@pytest.mark.parametrize(
    ("model", "model_kwargs", "mrr"),
    [
        ("DistMult", dict(embedding_dim=32, **FREE), 0.6),
        ("SimplE", dict(embedding_dim=32, entity_initializer="xavier_normal", relation_initializer="xavier_normal"), 0.55),
        ("ComplEx", dict(embedding_dim=32, entity_initializer="xavier_normal", relation_initializer="xavier_normal"), 0.6),
        ("TransE", dict(embedding_dim=32, scoring_fct_norm=2), 0.35),
    ],
)
@pytest.mark.parametrize("create_inverse_triples", [False, True])
def test_pipeline_by_strings(model: str, model_kwargs: dict[str, Any], mrr: float, create_inverse_triples: bool) -> None:
    result = pipeline(
        dataset="nations",
        dataset_kwargs=dict(create_inverse_triples=create_inverse_triples),
        model=model,
        model_kwargs=model_kwargs,
        **SETTINGS,
    )
    assert isinstance(result.training_loop, NonSamplingTrainingLoop)
    assert isinstance(result.model.loss, NonSamplingLoss)
    assert len(result.losses) == 100
    # at random it is about 0.2
    assert result.get_metric("mrr") > mrr


@pytest.mark.parametrize("training_loop", ["nonsampling", "nonsamplinglcwa"])
@pytest.mark.parametrize(("model", "mrr"), [("DistMult", 0.6), ("SimplE", 0.6), ("ComplEx", 0.6), ("TransE", 0.35)])
def test_names_are_enough(training_loop: str, model: str, mrr: float) -> None:
    result = pipeline(
        dataset="nations",
        model=model,
        model_kwargs=dict(embedding_dim=32),
        training_loop=training_loop,
        epochs=100,
        random_seed=0,
        use_tqdm=False,
    )
    name, lr = optimization(type(result.training_loop), type(result.model), result.model.loss.needs_scores)
    assert (result.configuration["optimizer"], result.configuration["optimizer_kwargs"]["lr"]) == (name, lr)
    assert result.configuration["lr_scheduler_kwargs"] == {"T_max": 100}
    assert result.get_metric("mrr") > mrr


@pytest.mark.parametrize(
    ("kwargs", "lr"),
    [(dict(optimizer="Adamax"), 2e-3), (dict(optimizer_kwargs=dict(lr=0.5)), 0.5), (dict(lr_scheduler="LinearLR"), 1e-3)],
    ids=str,
)
def test_who_says_something_about_the_optimizer_decides(kwargs: dict[str, Any], lr: float) -> None:
    settings: dict[str, Any] = dict(epochs=2, use_tqdm=False, random_seed=0)
    result = pipeline(dataset="nations", model="DistMult", training_loop="nonsamplinglcwa", **settings, **kwargs)
    assert result.configuration["optimizer"] == kwargs.get("optimizer", "Adam")
    assert result.configuration["optimizer_kwargs"]["lr"] == lr
    assert result.configuration.get("lr_scheduler") == kwargs.get("lr_scheduler")


def test_no_schedule_with_an_early_stopper() -> None:
    result = pipeline(
        dataset="nations",
        model="DistMult",
        training_loop="nonsamplinglcwa",
        epochs=20,
        stopper="early",
        use_tqdm=False,
        random_seed=0,
    )
    name, lr = optimization(type(result.training_loop), type(result.model), result.model.loss.needs_scores)
    assert (result.configuration["optimizer"], result.configuration["optimizer_kwargs"]["lr"]) == (name, lr)
    assert "lr_scheduler" not in result.configuration


def test_pipeline_with_an_interaction() -> None:
    result = pipeline(
        dataset="nations",
        interaction=TransEInteraction,
        interaction_kwargs=dict(p=2, power_norm=True),
        dimensions=dict(d=16),
        training_loop_kwargs=dict(factorization_kwargs=dict(scale=0.5, offset=1.0)),
        **SETTINGS,
    )
    assert isinstance(result.model, ERModel)
    assert result.losses[-1] < 0.8 * result.losses[0]


def test_defaults_are_recorded_as_such(caplog: pytest.LogCaptureFixture) -> None:
    """The configuration says what was done, so that it can be done again."""
    caplog.set_level(logging.INFO, "pykeen_nonsampling")
    settings = {key: value for key, value in SETTINGS.items() if key not in ("loss_kwargs", "epochs")}
    result = pipeline(dataset="nations", model="DistMult", **settings)
    assert result.configuration["batch_size"] is None
    assert result.configuration["num_epochs"] == len(result.losses) == 5
    assert isinstance(result.configuration["model_kwargs"]["loss"], NonSamplingLoss)
    assert result.configuration["model_kwargs"]["entity_constrainer"] is None
    records = [record for record in caplog.records if record.name.startswith("pykeen_nonsampling")]
    assert [record.levelname for record in records] == ["INFO", "WARNING"]
    derived, few = (record.getMessage() for record in records)
    assert derived.startswith("Derived from graph and model: loss='nonsampling', model_kwargs={'entity_initializer': ")
    assert "loss_kwargs={'negative_weight': " in derived
    assert "pipeline() trains for 5 epochs unless told otherwise" in few


def test_explicit_batch_size_is_kept() -> None:
    result = pipeline(dataset="nations", model="DistMult", training_kwargs=dict(batch_size=256), **SETTINGS)
    assert result.configuration["batch_size"] == 256


def test_model_instance_keeps_its_loss() -> None:
    dataset = get_dataset(dataset="nations")
    model = DistMult(triples_factory=dataset.training, random_seed=0, loss=NonSamplingLoss(negative_weight=0.5))
    settings = {key: value for key, value in SETTINGS.items() if key != "loss_kwargs"}
    result = pipeline(dataset=dataset, model=model, **settings)
    assert result.model.loss.negative_weight == 0.5


def test_other_training_loops_are_left_alone() -> None:
    result = pipeline(dataset="nations", model="DistMult", epochs=1, use_tqdm=False)
    assert result.configuration["batch_size"] == 256
    assert type(result.model.loss).__name__ == "MarginRankingLoss"


def test_early_stopping() -> None:
    result = pipeline(
        dataset="nations",
        model="DistMult",
        model_kwargs=FREE,
        stopper="early",
        stopper_kwargs=dict(frequency=10, patience=2, relative_delta=0.02),
        **{**SETTINGS, "epochs": 1000},
    )
    assert len(result.losses) < 1000
    assert result.stopper.stopped


CONFIGURATION: dict[str, Any] = dict(
    metadata=dict(title="DistMult on Nations without negative sampling"),
    pipeline=dict(
        dataset="nations",
        model="DistMult",
        model_kwargs=dict(embedding_dim=16, entity_constrainer=None),
        loss="nonsampling",
        loss_kwargs=dict(negative_weight=0.1),
        training_loop="nonsampling",
        training_kwargs=dict(num_epochs=50),
        optimizer="adam",
        optimizer_kwargs=dict(lr=0.02),
        evaluation_kwargs=dict(batch_size=256),
        random_seed=0,
    ),
)


def test_configuration() -> None:
    assert pipeline_from_config(CONFIGURATION).get_metric("mrr") > 0.5


class TestCommandLine:
    def test_experiments_run(self, tmp_path: Path) -> None:
        path = tmp_path / "configuration.json"
        path.write_text(json.dumps(CONFIGURATION))
        run_python("-m", "pykeen", "experiments", "run", str(path), "--directory", str(tmp_path / "out"), cwd=tmp_path)
        (results,) = (tmp_path / "out").glob("**/replicate-*/results.json")
        metrics = json.loads(results.read_text())["metrics"]
        assert metrics["both"]["realistic"]["inverse_harmonic_mean_rank"] > 0.5

    def test_train(self, tmp_path: Path) -> None:
        """Its default batch size and learning rate are not the user's wish, but those that are given are."""
        losses = []
        for name, *options in (["default"], ["batches", "--batch-size", "256"], ["slow", "--learning-rate", "1e-6"]):
            directory = tmp_path / name
            run_python(
                *"-m pykeen train distmult --dataset nations --training-loop nonsampling -n 20 --embedding-dim 16".split(),
                *("--output-directory", str(directory), "--random-seed", "0", *options),
                cwd=tmp_path,
            )
            losses.append(json.loads((directory / "results.json").read_text())["losses"])
        default, batches, slow = losses
        assert len(default) == len(batches) == len(slow) == 20
        # of the mean over the 7 batches of an epoch
        assert batches[0] == pytest.approx(default[0] / 7, rel=0.2)
        assert default[-1] < 0.9 * default[0]
        assert slow[-1] == pytest.approx(slow[0], rel=1e-3)

    def test_lists(self, tmp_path: Path) -> None:
        for what, text in (
            ("training-loops", "nonsampling"),
            ("losses", "NonSamplingLoss"),
            ("datasets", "Synthetic Graph"),
        ):
            assert text in run_python("-m", "pykeen", "ls", what, cwd=tmp_path)

    @pytest.mark.parametrize("command", ["summarize", "verify", "degree"])
    def test_dataset_commands(self, command: str, tmp_path: Path) -> None:
        arguments = ("-m", "pykeen.datasets", command, "--dataset-regex", "syntheticgraph")
        assert "Failed" not in run_python(*arguments, cwd=tmp_path)


class TestStudies:
    @pytest.mark.parametrize("training_loop", ["nonsampling", "nonsamplinglcwa"])
    @pytest.mark.parametrize("model", ["DistMult", "TransE"])
    def test_default_loss_is_searched(self, training_loop: str, model: str) -> None:
        result = hpo_pipeline(
            dataset="nations",
            model=model,
            training_loop=training_loop,
            epochs=20,
            n_trials=2,
            training_kwargs=dict(use_tqdm=False),
        )
        loss, name = ("nonsampling", "negative_weight") if training_loop == "nonsampling" else ("softmax", "scale")
        assert result.study.user_attrs["loss"] == loss
        for trial in result.study.trials:
            assert trial.state.name == "COMPLETE"
            assert f"loss.{name}" in trial.params
            assert ("loss.regularization_weight" in trial.params) == (model == "DistMult")
            assert "training.batch_size" not in trial.params

    def test_batch_size_can_be_searched(self) -> None:
        result = hpo_pipeline(
            dataset="nations",
            model="DistMult",
            training_loop="nonsampling",
            training_kwargs=dict(num_epochs=2, use_tqdm=False),
            training_kwargs_ranges=dict(batch_size=dict(type=int, low=6, high=8, scale="power_two")),
            n_trials=1,
        )
        assert result.study.trials[0].params["training.batch_size"] in {64, 128, 256}

    def test_best_trial_can_be_replicated(self, tmp_path: Path) -> None:
        result = hpo_pipeline(
            dataset="nations",
            model="DistMult",
            training_loop="nonsampling",
            epochs=20,
            n_trials=1,
            training_kwargs=dict(use_tqdm=False),
        )
        result.replicate_best_pipeline(directory=tmp_path, replicates=1)
        assert list(tmp_path.glob("**/results.json"))

    def test_incompatible_loss_is_refused_before_any_trial(self) -> None:
        with pytest.raises(ValueError, match="SoftplusLoss cannot be used"):
            hpo_pipeline(dataset="nations", model="DistMult", loss="softplus", training_loop="nonsampling", n_trials=1)
