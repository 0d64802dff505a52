"""Ranges of a study follow from graph, model and memory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import run
from pykeen.datasets import Nations, get_dataset
from pykeen.hpo import hpo_pipeline
from pykeen.models import CP, RESCAL, DistMult, QuatE, RotatE, TransE, TuckER
from pykeen.pipeline import pipeline
from pykeen.training import training_loop_resolver
from pykeen.triples import CoreTriplesFactory

from pykeen_nonsampling import (
    NonSamplingLCWATrainingLoop,
    NonSamplingLoss,
    NotDecomposableError,
    StandardizedLoss,
    search,
)
from pykeen_nonsampling.recipes import model_defaults
from pykeen_nonsampling.search import (
    LEARNING_RATES,
    complete_study,
    default_weights,
    fits,
    limit_sizes,
    loss_ranges,
    outline,
)

STUDY: dict[str, Any] = dict(dataset="nations", model="ComplEx", training_loop="nonsamplinglcwa")

#: Trains each model in a process of its own, and prints the bytes that this adds to its largest size
PEAKS = """
import os, resource, sys, torch
from pykeen.pipeline import pipeline
from pykeen.triples import CoreTriplesFactory

def train(model, num_entities, num_relations, num_triples, **model_kwargs):
    triples = torch.stack([torch.randint(n, (num_triples,)) for n in (num_entities, num_relations, num_entities)], dim=1)
    training, testing = (CoreTriplesFactory(x, num_entities, num_relations) for x in (triples, triples[:20]))
    pipeline(training=training, testing=testing, model=model, model_kwargs=model_kwargs, training_loop="nonsamplinglcwa",
             epochs=2, evaluator="factorized", random_seed=0, use_tqdm=False)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

train("DistMult", 10, 2, 50, embedding_dim=4)
for arguments in eval(sys.argv[1]):
    if os.fork():
        assert os.wait()[1] == 0
        continue
    before = train("DistMult", 10, 2, 50, embedding_dim=4)
    print(train(**arguments) - before, flush=True)
    os._exit(0)
"""

#: Models of 200 MB to 1 GB: by their entities, their Gram matrices, and their relations
LARGE: list[tuple[Any, dict[str, int], dict[str, int]]] = [
    (DistMult, dict(num_entities=30_000, num_relations=10, num_triples=5_000), dict(embedding_dim=256)),
    (CP, dict(num_entities=14, num_relations=55, num_triples=1_600), dict(embedding_dim=64, rank=48)),
    (RESCAL, dict(num_entities=500, num_relations=150, num_triples=1_000), dict(embedding_dim=256)),
]


class TestMemory:
    @pytest.mark.skipif(sys.platform != "linux", reason="the largest size of a process is in other units elsewhere")
    def test_estimates_are_near_the_peaks(self, tmp_path: Path) -> None:
        arguments = [dict(model=model.__name__, **sizes, **kwargs) for model, sizes, kwargs in LARGE]
        printed = run(sys.executable, "-c", PEAKS, repr(arguments), cwd=tmp_path)
        for peak, (model, sizes, kwargs) in zip(map(int, printed.split()), LARGE, strict=True):
            triples = torch.zeros(sizes["num_triples"], 3, dtype=torch.long)
            factory = CoreTriplesFactory(triples, sizes["num_entities"], sizes["num_relations"])
            estimate = outline(model, {**model_defaults(model), **kwargs}, factory).memory()
            assert peak / 2 < estimate < 2 * peak, model

    @pytest.mark.parametrize("model", [CP, DistMult, QuatE, RESCAL, RotatE, TransE, TuckER])
    def test_outline_is_that_of_the_model(self, model: Any) -> None:
        kwargs = {**model_defaults(model), "embedding_dim": 6}
        made = pipeline(**{**STUDY, "model": model, "epochs": 1}, model_kwargs=kwargs, random_seed=0, use_tqdm=False).model
        outlined = outline(model, kwargs, Nations().training)
        assert outlined.parameters == sum(x.numel() * x.element_size() for x in made.parameters())
        assert outlined.num_entities == 14

    def test_outline_of_a_huge_model_takes_no_memory(self) -> None:
        huge = outline(CP, {**model_defaults(CP), "embedding_dim": 100_000, "rank": 10_000}, Nations().training)
        assert huge.width == 10**9
        assert huge.memory() > 10**18
        assert not fits(huge, memory=2**62)

    @pytest.mark.parametrize("model", [CP, TransE])
    def test_outline_draws_no_random_numbers(self, model: Any) -> None:
        before = torch.get_rng_state()
        outline(model, {**model_defaults(model), "embedding_dim": 4}, Nations().training)
        assert torch.equal(before, torch.get_rng_state())

    def test_limit_is_the_largest_that_fits(self) -> None:
        assert limit_sizes({"d": (1, 100)}, lambda x: x["d"] <= 200) == {"d": 100}
        assert limit_sizes({"d": (1, 100)}, lambda x: x["d"] <= 37) == {"d": 37}
        assert limit_sizes({"d": (5, 100)}, lambda x: x["d"] <= 4) is None
        both = limit_sizes({"d": (16, 256), "k": (2, 2048)}, lambda x: x["d"] * x["k"] <= 2048)
        assert both is not None
        assert 1024 < both["d"] * both["k"] <= 2048


class TestRanges:
    @pytest.mark.parametrize("loop", ["nonsampling", "nonsamplinglcwa"])
    @pytest.mark.parametrize("family", ["block-diagonal", "squared distance"])
    def test_negatives_weigh_about_as_much_as_by_default(self, loop: str, family: str) -> None:
        dataset = get_dataset(dataset="syntheticgraph")
        loss, cls = NonSamplingLoss(positive_weight=2.0), training_loop_resolver.lookup(loop)
        default = search.default_weights(cls, loss, dataset.training, family)["negative_weight"]
        space = loss_ranges(cls, loss, dataset.training, family)["negative_weight"]
        assert space["low"] == pytest.approx(default / 30)
        assert space["high"] == pytest.approx(min(10 * default, 2.0))
        assert space["log"]

    def test_distances_are_not_regularized(self) -> None:
        for loss, names in (("nonsampling", {"negative_weight"}), ("standardized", {"margin", "sharpness", "anchor"})):
            study = complete_study(dict(STUDY, model="TransE", loss=loss, loss_kwargs=dict(query_weight=0.0)))
            assert set(study["loss_kwargs_ranges"]) == {*names, "candidate_weight", "range_weight"}

    def test_the_loss_that_suits_is_searched(self) -> None:
        for model, loss in (("TransE", "standardized"), ("DistMult", "nonsampling")):
            assert complete_study(dict(STUDY, dataset="umls", model=model))["loss"] == loss
        in_the_closed_world = dict(STUDY, dataset="umls", model="TransE", training_loop="nonsampling")
        assert complete_study(in_the_closed_world)["loss"] == "nonsampling"

    def test_margin_and_anchor_lie_around_their_defaults(self) -> None:
        ranges = complete_study(dict(STUDY, loss="standardized"))["loss_kwargs_ranges"]
        for name in ("margin", "anchor"):
            default = default_weights(NonSamplingLCWATrainingLoop, StandardizedLoss(), Nations().training, "block-diagonal")[
                name
            ]
            assert ranges[name]["low"] < default < ranges[name]["high"]

    def test_products_are(self) -> None:
        space = complete_study(STUDY)["loss_kwargs_ranges"]["regularization_weight"]
        assert space["low"] < 0.03 < space["high"]

    def test_what_is_given_stays(self) -> None:
        given = dict(
            STUDY,
            model_kwargs=dict(embedding_dim=8),
            loss_kwargs_ranges=dict(negative_weight=dict(type=float, low=2.0, high=3.0)),
            optimizer_kwargs_ranges=dict(lr=dict(type=float, low=0.1, high=0.2)),
        )
        study = complete_study(given)
        assert study["model_kwargs"]["embedding_dim"] == 8
        assert study["loss_kwargs_ranges"]["negative_weight"]["high"] == 3.0
        assert study["optimizer_kwargs_ranges"] == given["optimizer_kwargs_ranges"]
        assert "model_kwargs_ranges" not in study
        assert "lr_scheduler" not in study

    @pytest.mark.parametrize("training_loop", [None, "slcwa", "lcwa"])
    def test_other_training_loops_get_nothing(self, training_loop: str | None) -> None:
        given = dict(STUDY, training_loop=training_loop)
        assert complete_study(given) == given

    @pytest.mark.parametrize("loss", search.known_losses())
    def test_each_loss_has_a_space(self, loss: str) -> None:
        study = complete_study(dict(STUDY, loss=loss))
        assert {"query_weight", "candidate_weight", "regularization_weight"} < set(study["loss_kwargs_ranges"])
        assert ("negative_weight" in study["loss_kwargs_ranges"]) == (loss == "nonsampling")

    def test_own_triples(self) -> None:
        data = Nations()
        files = dict(training=data.training, testing=data.testing, validation=data.validation)
        study = complete_study({**files, "model": "ComplEx", "training_loop": "nonsamplinglcwa"})
        assert study["loss_kwargs_ranges"] == complete_study(STUDY)["loss_kwargs_ranges"]

    def test_sizes_fit_the_memory(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(search, "free_memory", lambda _: 2**24)
        space = complete_study(dict(STUDY, model="RESCAL"))["model_kwargs_ranges"]["embedding_dim"]
        assert 16 <= space["high"] < 256
        largest = outline(RESCAL, {**model_defaults(RESCAL), "embedding_dim": space["high"]}, Nations().training)
        assert largest.memory() <= 2**23
        monkeypatch.setattr(search, "free_memory", lambda _: 2**10)
        with pytest.raises(ValueError, match=r"RESCAL with embedding_dim=16 .* half of the free memory.*embedding_dim=4"):
            complete_study(dict(STUDY, model="RESCAL"))

    def test_what_cannot_be_trained_is_refused_before_any_trial(self) -> None:
        with pytest.raises(NotDecomposableError, match="ConvEInteraction cannot be decomposed"):
            complete_study(dict(STUDY, model="ConvE"))


class TestStudies:
    def test_cp_stays_small(self) -> None:
        """Up to 2048 · 256 features, PyKEEN's own ranges, would take a terabyte for one Gram matrix."""
        result = hpo_pipeline(
            **{**STUDY, "model": "CP"},
            n_trials=2,
            training_kwargs=dict(num_epochs=20, use_tqdm=False),
            evaluator="factorized",
        )
        for trial in result.study.trials:
            assert trial.state.name == "COMPLETE"
            assert trial.params["model.embedding_dim"] * trial.params["model.rank"] <= search.WIDEST

    def test_each_schedule_ends_with_its_trial(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ends = []
        cls = torch.optim.lr_scheduler.CosineAnnealingLR
        initialize = cls.__init__

        def record(self: Any, *args: Any, T_max: int, **kwargs: Any) -> None:  # noqa: N803
            ends.append(T_max)
            initialize(self, *args, T_max=T_max, **kwargs)

        monkeypatch.setattr(cls, "__init__", record)
        result = hpo_pipeline(
            **STUDY,
            n_trials=2,
            model_kwargs=dict(embedding_dim=8),
            training_kwargs=dict(use_tqdm=False),
            training_kwargs_ranges=dict(num_epochs=dict(type=int, low=20, high=40)),
            evaluator="factorized",
        )
        assert set(ends) == {trial.params["training.num_epochs"] for trial in result.study.trials}
        for trial in result.study.trials:
            assert LEARNING_RATES["low"] <= trial.params["optimizer.lr"] <= LEARNING_RATES["high"]
            assert not [name for name in trial.params if name.startswith("lr_scheduler")]
