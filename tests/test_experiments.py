"""The configurations that come with the package run."""

from __future__ import annotations

import copy
import inspect
import json
import logging
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from commands import run_python
from pykeen.losses import loss_resolver
from pykeen.pipeline import pipeline

DIRECTORY = Path(str(files("pykeen_nonsampling"))) / "experiments"
PATHS = sorted(DIRECTORY.glob("*/*.json"))


#: The weights that are derived from the graph, if they are left out
WEIGHTS = ("negative_weight", "query_weight", "candidate_weight", "regularization_weight", "duality_weight")


def load(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def small(configuration: dict[str, Any]) -> dict[str, Any]:
    """Replace what takes long: the dataset, the dimension and the number of epochs."""
    configuration = copy.deepcopy(configuration)
    configuration["dataset_kwargs"]["dataset"] = "nations"
    configuration["model_kwargs"]["embedding_dim"] = 8
    configuration["training_kwargs"]["num_epochs"] = 20
    return configuration


def test_one_for_each_model_dataset_and_loop() -> None:
    names = {f"{path.parent.name}/{path.stem}" for path in PATHS}
    assert names >= {
        f"{loop}/{model}_{dataset}"
        for loop in ("nonsampling", "nonsamplinglcwa")
        for model in ("distmult", "simple", "complex", "transe")
        for dataset in ("fb15k237", "wn18rr")
    } | {f"nonsamplinglcwa/{model}_{dataset}" for model in ("rescal", "rotate") for dataset in ("fb15k237", "wn18rr")}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
class TestEach:
    def test_says_what_it_is(self, path: Path) -> None:
        content = load(path)
        model, _, dataset = path.stem.partition("_")
        settings = content["pipeline"]
        assert settings["training_loop"] == path.parent.name
        assert settings["model"].lower() == model
        assert settings["dataset_kwargs"]["dataset"] == dataset
        assert settings["model"] in content["metadata"]["title"]
        assert settings["lr_scheduler_kwargs"]["T_max"] == settings["training_kwargs"]["num_epochs"]

    def test_leaves_nothing_to_be_chosen(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """So that another version, with other defaults, gives the same result."""
        caplog.set_level(logging.INFO, "pykeen_nonsampling")
        settings = load(path)["pipeline"]
        loop_kwargs = settings.get("training_loop_kwargs", {})
        if loop_kwargs.get("start_epochs"):
            assert loop_kwargs["start_kwargs"].keys() == {"lr", *WEIGHTS}
        result = pipeline(**small(settings), random_seed=0, use_tqdm=False)
        messages = [r.getMessage() for r in caplog.records if r.name.startswith("pykeen_nonsampling")]
        # of what has been set
        assert not [message for message in messages if message.startswith("Derived")]
        assert result.losses[-1] < result.losses[0]

    def test_loss_is_valid_for_pykeen(self, path: Path) -> None:
        """Its command ``pykeen experiments validate`` looks for each parameter in the signature."""
        settings = load(path)["pipeline"]
        loss = loss_resolver.lookup(settings["loss"])
        assert set(settings["loss_kwargs"]) <= set(inspect.signature(loss).parameters)

    def test_results_are_complete(self, path: Path) -> None:
        content = load(path)
        results = content["metadata"]["results"]
        names = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10", "mean_rank", "training_seconds")
        assert {len(results[name]) for name in names} == {len(results["seeds"])}
        # twenty minutes on two cores
        assert max(results["training_seconds"]) * results["threads"] < 2 * 1200
        assert content["pipeline"]["evaluator"] == "factorized"


def test_by_pykeens_command(tmp_path: Path) -> None:
    content = load(PATHS[0])
    path = tmp_path / PATHS[0].name
    path.write_text(json.dumps({**content, "pipeline": small(content["pipeline"])}))
    run_python("-m", "pykeen", "experiments", "run", str(path), "--directory", str(tmp_path / "out"), cwd=tmp_path)
    assert list((tmp_path / "out").glob("**/replicate-*/results.json"))
