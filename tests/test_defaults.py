"""Recipes fill in what is left out, change nothing else, and record it."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import pickle
import warnings
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pykeen.datasets import Nations
from pykeen.models import ERModel, model_resolver
from pykeen.pipeline import pipeline
from pykeen.trackers import PythonResultTracker
from pykeen.utils import flatten_dictionary

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingLoss
from pykeen_nonsampling import defaults as recipes
from pykeen_nonsampling.defaults import REQUIRED, SUITABLE, complete, difference, learning_rate
from pykeen_nonsampling.factorizations import factorize

NAMES: dict[str, Any] = dict(dataset="nations", model="TransE", training_loop="nonsamplinglcwa", epochs=30)


class TestComplete:
    def test_fills_in_everything(self) -> None:
        assert complete(NAMES) == dict(
            **NAMES,
            model_kwargs=dict(scoring_fct_norm=2),
            loss="automatic",
            training_kwargs=dict(batch_size=None),
            optimizer="Adam",
            optimizer_kwargs=dict(lr=learning_rate(NonSamplingLCWATrainingLoop)),
            lr_scheduler="CosineAnnealingLR",
            lr_scheduler_kwargs=dict(T_max=30),
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


class TestModels:
    @pytest.mark.parametrize("model", REQUIRED, ids=lambda cls: cls.__name__)
    def test_requirements_are_what_a_factorization_needs(self, model: Any) -> None:
        made: ERModel = model(triples_factory=Nations().training, random_seed=0, **REQUIRED[model])
        assert factorize(made.interaction)

    @pytest.mark.parametrize("model", sorted({*REQUIRED, *SUITABLE}, key=lambda cls: cls.__name__))
    def test_defaults_are_parameters_of_the_model(self, model: Any) -> None:
        assert set(recipes.model_defaults(model)) <= set(inspect.signature(model).parameters)
        assert model_resolver.lookup(model.__name__) is model


class TestRecords:
    @pytest.fixture(scope="class", params=["nonsampling", "nonsamplinglcwa"])
    def run(self, request: pytest.FixtureRequest) -> tuple[Any, PythonResultTracker]:
        tracker = PythonResultTracker()
        result = pipeline(
            **{**NAMES, "training_loop": request.param, "model": "DistMult"},
            random_seed=0,
            result_tracker=tracker,
            use_tqdm=False,
        )
        return result, tracker

    def test_weights_are_everywhere(self, run: tuple[Any, PythonResultTracker], tmp_path: Path) -> None:
        result, tracker = run
        kwargs = result.model.loss.kwargs
        assert kwargs["negative_weight"] > 0
        assert kwargs["regularization_weight"] > 0
        assert result.configuration["loss"] == tracker.configuration["loss"] == "nonsampling"
        assert result.configuration["loss_kwargs"] == tracker.configuration["loss_kwargs"] == kwargs
        assert result.configuration["model_kwargs"]["loss"] is result.model.loss
        result.save_to_directory(tmp_path)
        content = json.loads((tmp_path / "results.json").read_text())
        assert content["configuration"]["loss_kwargs"] == kwargs
        assert content["configuration"]["optimizer_kwargs"]["lr"] == learning_rate(type(result.training_loop))
        assert content["losses"] == result.losses

    def test_repeated_run_gives_the_same_losses(self, run: tuple[Any, PythonResultTracker], tmp_path: Path) -> None:
        result, _ = run
        result.save_to_directory(tmp_path)
        recorded = json.loads((tmp_path / "results.json").read_text())["configuration"]
        again = pipeline(
            **{**NAMES, "training_loop": recorded["training_loop"], "model": "DistMult"},
            loss=recorded["loss"],
            loss_kwargs=recorded["loss_kwargs"],
            optimizer=recorded["optimizer"],
            optimizer_kwargs=recorded["optimizer_kwargs"],
            lr_scheduler=recorded["lr_scheduler"],
            lr_scheduler_kwargs=recorded["lr_scheduler_kwargs"],
            random_seed=0,
            use_tqdm=False,
        )
        assert again.losses == result.losses

    def test_result_can_be_pickled(self, run: tuple[Any, PythonResultTracker]) -> None:
        result, _ = run
        assert type(pickle.loads(pickle.dumps(result))) is type(result)  # noqa: S301

    @pytest.mark.parametrize("loss_kwargs", [None, dict(negative_weight=None, candidate_weight="popularity")], ids=str)
    def test_no_tracker_sees_a_value_change(self, loss_kwargs: Any) -> None:
        """Some refuse that."""

        class Strict(PythonResultTracker):
            def log_params(self, params: Any, prefix: Any = None) -> None:
                for key, value in flatten_dictionary(params, prefix=prefix).items():
                    assert self.seen.setdefault(key, value) == value
                    json.dumps(value, default=lambda x: type(x).__name__)

            seen: ClassVar[dict[str, Any]] = {}

        pipeline(
            **NAMES, loss="nonsampling", loss_kwargs=loss_kwargs, result_tracker=Strict(), use_tqdm=False, random_seed=0
        )
        assert Strict.seen["loss_kwargs.negative_weight"] > 0

    def test_functions_have_names_in_results(self, tmp_path: Path) -> None:
        result = pipeline(
            **NAMES, loss="nonsampling", loss_kwargs=dict(candidate_weight=_weigh), use_tqdm=False, random_seed=0
        )
        result.save_to_directory(tmp_path)
        recorded = json.loads((tmp_path / "results.json").read_text())["configuration"]
        assert recorded["loss_kwargs"]["candidate_weight"] == "_weigh"
        assert result.configuration["loss_kwargs"]["candidate_weight"] is _weigh


def _weigh(counts: Any) -> Any:
    return 1 + counts


def test_one_line_tells_everything(caplog: pytest.LogCaptureFixture) -> None:
    """And no warning is left, neither of ours nor PyTorch's."""
    caplog.set_level(logging.INFO, "pykeen_nonsampling")
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        pipeline(**{**NAMES, "dataset": "umls"}, random_seed=0, use_tqdm=False)
    records = [record for record in caplog.records if record.name.startswith("pykeen_nonsampling")]
    (record,) = records
    assert record.levelno == logging.INFO
    for part in (
        "loss='standardized'",
        "model_kwargs={'scoring_fct_norm': 2}",
        "optimizer='Adam'",
        "lr_scheduler_kwargs={'T_max': 30}",
        "loss_kwargs={'margin': ",
    ):
        assert part in record.getMessage()
    assert not [w for w in warned if "epoch parameter" in str(w.message)]
