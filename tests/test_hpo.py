"""Ranges of a study follow from graph, model and memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import torch
from pykeen.datasets import Nations, get_dataset
from pykeen.hpo import hpo_pipeline
from pykeen.models import RESCAL, ERModel
from pykeen.nn.modules import MonotonicAffineTransformationInteraction, TransEInteraction
from pykeen.training import training_loop_resolver

from pykeen_nonsampling import NonSamplingLoss, NotDecomposableError
from pykeen_nonsampling import hpo as search
from pykeen_nonsampling.defaults import START_EPOCHS, model_defaults
from pykeen_nonsampling.factorizations import Family
from pykeen_nonsampling.graph.frequencies import Frequencies
from pykeen_nonsampling.hpo import complete_study, limit_sizes, loss_ranges
from pykeen_nonsampling.memory.dry_run import outline

STUDY: dict[str, Any] = dict(dataset="nations", model="ComplEx", training_loop="nonsamplinglcwa")


class LearnedScale(ERModel):
    """TransE with a learned scale and bias."""

    hpo_default: ClassVar[Mapping[str, Any]] = dict(embedding_dim=dict(type=int, low=8, high=16))

    def __init__(self, embedding_dim: int, **kwargs: Any):
        super().__init__(
            interaction=MonotonicAffineTransformationInteraction(TransEInteraction(p=2)),
            entity_representations_kwargs=dict(shape=embedding_dim),
            relation_representations_kwargs=dict(shape=embedding_dim),
            **kwargs,
        )


class TestSizes:
    def test_limit_is_the_largest_that_fits(self) -> None:
        assert limit_sizes({"d": (1, 100)}, lambda x: x["d"] <= 200) == {"d": 100}
        assert limit_sizes({"d": (1, 100)}, lambda x: x["d"] <= 37) == {"d": 37}
        assert limit_sizes({"d": (5, 100)}, lambda x: x["d"] <= 4) is None
        both = limit_sizes({"d": (16, 256), "k": (2, 2048)}, lambda x: x["d"] * x["k"] <= 2048)
        assert both is not None
        assert 1024 < both["d"] * both["k"] <= 2048


class TestRanges:
    @pytest.mark.parametrize("loop", ["nonsampling", "nonsamplinglcwa"])
    @pytest.mark.parametrize("family", [Family.BLOCK_DIAGONAL, Family.SQUARED_DISTANCE])
    def test_negatives_weigh_about_as_much_as_by_default(self, loop: str, family: Family) -> None:
        dataset = get_dataset(dataset="syntheticgraph")
        loss, cls = NonSamplingLoss(positive_weight=2.0), training_loop_resolver.lookup(loop)
        default = loss.default_weights(Frequencies.of(dataset.training), family, cls.closed_world)["negative_weight"]
        space = loss_ranges(cls, loss, dataset.training, family)["negative_weight"]
        assert space["low"] == pytest.approx(default / 30)
        assert space["high"] == pytest.approx(min(10 * default, 2.0))
        assert space["log"]

    def test_distances_are_not_regularized(self) -> None:
        for loss, name in (("nonsampling", "negative_weight"), ("softmax", "scale")):
            study = complete_study(dict(STUDY, model="TransE", loss=loss, loss_kwargs=dict(query_weight=0.0)))
            assert set(study["loss_kwargs_ranges"]) == {name, "candidate_weight"}

    def test_the_loss_that_suits_is_searched(self) -> None:
        for model in ("TransE", "DistMult"):
            assert complete_study(dict(STUDY, dataset="umls", model=model))["loss"] == "softmax"
        in_the_closed_world = dict(STUDY, dataset="umls", model="TransE", training_loop="nonsampling")
        assert complete_study(in_the_closed_world)["loss"] == "nonsampling"

    def test_the_loss_suits_the_model_too(self) -> None:
        """A learned scale and bias around a norm, of which only the square is factorized."""
        study = complete_study(dict(STUDY, model=LearnedScale, model_kwargs=dict(embedding_dim=8)))
        assert study["loss"] == "nonsampling"

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
        assert largest.memory().total <= 2**23
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
        assert set(ends) == {START_EPOCHS} | {trial.params["training.num_epochs"] for trial in result.study.trials}
        for trial in result.study.trials:
            # a fifth to five times Adagrad's default
            assert 0.02 <= trial.params["optimizer.lr"] <= 0.5
            assert not [name for name in trial.params if name.startswith("lr_scheduler")]
