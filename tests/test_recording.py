"""A run records its configuration, with all weights of the loss."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pykeen.losses import loss_resolver
from pykeen.pipeline import pipeline
from pykeen.pipeline.api import PipelineResult
from pykeen.trackers import PythonResultTracker
from pykeen.utils import flatten_dictionary

from pykeen_nonsampling.defaults import optimization
from pykeen_nonsampling.recording import RecordedResult

NAMES: dict[str, Any] = dict(dataset="nations", model="TransE", training_loop="nonsamplinglcwa", epochs=30)


@pytest.fixture(scope="module", params=["nonsampling", "nonsamplinglcwa"])
def run(request: pytest.FixtureRequest) -> tuple[Any, PythonResultTracker]:
    tracker = PythonResultTracker()
    result = pipeline(
        **{**NAMES, "training_loop": request.param, "model": "DistMult"},
        random_seed=0,
        result_tracker=tracker,
        use_tqdm=False,
    )
    return result, tracker


class TestRecords:
    def test_weights_are_everywhere(self, run: tuple[Any, PythonResultTracker], tmp_path: Path) -> None:
        result, tracker = run
        kwargs = result.model.loss.kwargs
        assert kwargs["regularization_weight"] > 0
        loss = "nonsampling" if result.training_loop.closed_world else "softmax"
        assert result.configuration["loss"] == tracker.configuration["loss"] == loss
        assert result.configuration["loss_kwargs"] == tracker.configuration["loss_kwargs"] == kwargs
        assert result.configuration["model_kwargs"]["loss"] is result.model.loss
        result.save_to_directory(tmp_path)
        content = json.loads((tmp_path / "results.json").read_text())
        assert content["configuration"]["loss_kwargs"] == kwargs
        _, lr = optimization(type(result.training_loop), type(result.model), result.model.loss.needs_scores)
        assert content["configuration"]["optimizer_kwargs"]["lr"] == lr
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


class TestConversion:
    """Of a result, by itself."""

    @staticmethod
    def convert(result: Any, configuration: dict[str, Any]) -> RecordedResult:
        values = {field.name: getattr(result, field.name) for field in fields(PipelineResult)}
        return RecordedResult.of(PipelineResult(**{**values, "configuration": configuration}))

    def test_original_stays_as_it_was(self, run: tuple[Any, PythonResultTracker]) -> None:
        result, _ = run
        configuration: dict[str, Any] = dict(model="DistMult", loss=None, model_kwargs=dict(embedding_dim=3, loss="?"))
        before = copy.deepcopy(configuration)
        recorded = self.convert(result, configuration)
        assert configuration == before
        loss = result.model.loss
        recorded.configuration.pop("training_loop_kwargs", None)
        assert recorded.configuration == dict(
            model="DistMult",
            loss=loss_resolver.normalize_inst(loss),
            loss_kwargs=loss.kwargs,
            model_kwargs=dict(embedding_dim=3, loss=loss),
        )
        assert recorded.losses is result.losses
        assert recorded.model is result.model

    @pytest.mark.parametrize(
        "configuration", [{}, dict(model_kwargs=None), dict(model_kwargs=dict(embedding_dim=3))], ids=str
    )
    def test_models_without_a_loss_of_their_own_get_none(
        self, run: tuple[Any, PythonResultTracker], configuration: dict[str, Any]
    ) -> None:
        recorded = self.convert(run[0], configuration)
        assert set(recorded.configuration) - {"training_loop_kwargs"} == {"loss", "loss_kwargs", *configuration}
        assert recorded.configuration.get("model_kwargs") == configuration.get("model_kwargs")

    def test_what_json_has_no_word_for_is_described(self, run: tuple[Any, PythonResultTracker]) -> None:
        recorded = self.convert(run[0], dict(function=_weigh, numbers=[1, 2.5, None]))
        written = json.loads(json.dumps(recorded._get_results()))["configuration"]
        assert (written["function"], written["numbers"]) == ("_weigh", [1, 2.5, None])
