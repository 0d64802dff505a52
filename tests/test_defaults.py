"""Defaults fill in what is left out, and change nothing else."""

from __future__ import annotations

import copy
import inspect
import logging
import warnings
from typing import Any

import pytest
from pykeen.datasets import Nations
from pykeen.models import ERModel, model_resolver
from pykeen.pipeline import pipeline

from pykeen_nonsampling import NonSamplingLoss, defaults
from pykeen_nonsampling.defaults import REQUIRED, SUITABLE, complete, difference
from pykeen_nonsampling.factorizations import factorize

NAMES: dict[str, Any] = dict(dataset="nations", model="TransE", training_loop="nonsamplinglcwa", epochs=30)


class TestComplete:
    def test_fills_in_everything(self) -> None:
        assert complete(NAMES) == dict(
            **NAMES,
            model_kwargs=dict(scoring_fct_norm=2),
            loss="automatic",
            training_kwargs=dict(batch_size=None),
        )

    def test_is_pure(self) -> None:
        given = dict(NAMES, model_kwargs=dict(embedding_dim=4), training_kwargs=dict(num_epochs=3))
        before = copy.deepcopy(given)
        assert complete(given) == complete(given)
        assert given == before

    def test_what_it_returns_is_complete(self) -> None:
        assert complete(complete(NAMES)) == complete(NAMES)

    def test_what_is_given_stays(self) -> None:
        given = dict(
            NAMES,
            model_kwargs=dict(scoring_fct_norm=1),
            loss=NonSamplingLoss(negative_weight=0.5),
            training_kwargs=dict(batch_size=7),
            optimizer_kwargs=dict(lr=0.5),
        )
        assert complete(given) == given

    @pytest.mark.parametrize("training_loop", [None, "slcwa", "lcwa"])
    def test_other_training_loops_get_nothing(self, training_loop: str | None) -> None:
        given = dict(NAMES, training_loop=training_loop)
        assert complete(given) == given

    def test_cosine_schedule_ends_with_the_last_epoch(self) -> None:
        given = dict(NAMES, optimizer="Adam", lr_scheduler="CosineAnnealingLR")
        assert complete(given)["lr_scheduler_kwargs"] == dict(T_max=30)
        assert complete(dict(given, lr_scheduler_kwargs=dict(T_max=None)))["lr_scheduler_kwargs"] == dict(T_max=30)
        assert complete(dict(given, lr_scheduler_kwargs=dict(T_max=7)))["lr_scheduler_kwargs"] == dict(T_max=7)
        assert "lr_scheduler_kwargs" not in complete(dict(given, lr_scheduler="ExponentialLR"))

    def test_difference(self) -> None:
        given = dict(NAMES, optimizer_kwargs=dict(lr=0.5))
        assert difference(complete(given), given) == dict(loss="automatic", model_kwargs=dict(scoring_fct_norm=2))
        assert difference(NAMES, NAMES) == {}


class TestOptimization:
    """It depends on the loss, which may be derived from the graph."""

    @pytest.mark.parametrize(
        ("kwargs", "optimizer"),
        [
            (dict(training_loop="nonsampling"), ("Adam", 0.02)),
            (dict(loss="nonsampling"), ("Adam", 0.05)),
            (dict(), ("Adagrad", 0.2)),
            (dict(loss="crossentropy"), ("Adagrad", 0.2)),
            (dict(model="RotatE"), ("Adagrad", 0.5)),
            (dict(model="RESCAL", model_kwargs=dict(embedding_dim=10)), ("Adagrad", 0.2)),
            (dict(model="RESCAL", model_kwargs=dict(embedding_dim=125)), ("Adagrad", 0.04)),
            (dict(training_loop_kwargs=dict(start_epochs=0)), ("Adagrad", 0.2)),
            # only the squared loss has targets to smooth
            (dict(training_kwargs=dict(label_smoothing=0.1)), ("Adam", 0.05)),
            (dict(optimizer="SGD", optimizer_kwargs=dict(lr=0.01)), ("SGD", 0.01)),
        ],
        ids=str,
    )
    def test_follows_from_the_loss(self, kwargs: dict[str, Any], optimizer: tuple[str, float]) -> None:
        configuration = pipeline(**{**NAMES, **kwargs}, random_seed=0, use_tqdm=False).configuration
        assert (configuration["optimizer"], configuration["optimizer_kwargs"]["lr"]) == optimizer
        assert (configuration.get("lr_scheduler") == "CosineAnnealingLR") == ("optimizer" not in kwargs)

    @pytest.mark.parametrize(
        ("kwargs", "start_epochs"),
        [
            (dict(), 100),
            (dict(loss="softmax", optimizer="SGD"), 100),
            (dict(training_loop_kwargs=dict(target="tail")), 100),
            (dict(training_loop_kwargs=dict(start_epochs=2)), 2),
            (dict(training_loop_kwargs=dict(start_epochs=0)), 0),
            # there is nothing to start from, or a reference to be equal to
            (dict(model="SimplE", model_kwargs=dict(clamp_score=3.0)), None),
            (dict(loss="nonsampling"), None),
            (dict(loss="crossentropy"), None),
            (dict(training_loop="nonsampling"), None),
        ],
        ids=str,
    )
    def test_cross_entropy_starts_from_the_squared_solution(self, kwargs: dict[str, Any], start_epochs: int | None) -> None:
        configuration = pipeline(**{**NAMES, **kwargs, "epochs": 1}, random_seed=0, use_tqdm=False).configuration
        recorded = configuration.get("training_loop_kwargs") or {}
        assert recorded.get("start_epochs") == start_epochs
        assert ("start_kwargs" in recorded) == bool(start_epochs)
        assert recorded.get("target") == kwargs.get("training_loop_kwargs", {}).get("target")

    def test_follows_from_the_graph(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pykeen_nonsampling.losses.automatic.MOST_SCORES", 10)
        configuration = pipeline(**NAMES, random_seed=0, use_tqdm=False).configuration
        assert (configuration["optimizer"], configuration["loss"]) == ("Adam", "nonsampling")


class TestModels:
    @pytest.mark.parametrize("model", REQUIRED, ids=lambda cls: cls.__name__)
    def test_requirements_are_what_a_factorization_needs(self, model: Any) -> None:
        made: ERModel = model(triples_factory=Nations().training, random_seed=0, **REQUIRED[model])
        assert factorize(made.interaction)

    @pytest.mark.parametrize("model", sorted({*REQUIRED, *SUITABLE}, key=lambda cls: cls.__name__))
    def test_defaults_are_parameters_of_the_model(self, model: Any) -> None:
        assert set(defaults.model_defaults(model)) <= set(inspect.signature(model).parameters)
        assert model_resolver.lookup(model.__name__) is model


def test_one_line_tells_everything(caplog: pytest.LogCaptureFixture) -> None:
    """And no warning is left, neither of ours nor PyTorch's."""
    caplog.set_level(logging.INFO, "pykeen_nonsampling")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        pipeline(**{**NAMES, "dataset": "umls"}, random_seed=0, use_tqdm=False)
    records = [record for record in caplog.records if record.name.startswith("pykeen_nonsampling")]
    (record,) = [record for record in records if record.getMessage().startswith("Derived")]
    assert record.levelno == logging.INFO
    for part in (
        "loss='softmax'",
        "model_kwargs={'scoring_fct_norm': 2}",
        "optimizer='Adagrad'",
        "training_loop_kwargs={'start_epochs': 100}",
        "lr_scheduler_kwargs={'T_max': 30}",
        "loss_kwargs={'scale': 3.0",
    ):
        assert part in record.getMessage()
    assert not [w for w in warned if "epoch parameter" in str(w.message)]
