"""The training loops do what PyKEEN's training loops do, on every negative."""

from __future__ import annotations

import inspect
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from factorization_case import DistMultCase, make_model
from graphs import GRAPHS
from pykeen.datasets import Nations
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import (
    NTN,
    RGCN,
    CompGCN,
    ComplEx,
    DistMult,
    ERModel,
    Model,
    SimplE,
    TransE,
    make_model_cls,
    model_resolver,
)
from pykeen.nn.modules import TransEInteraction
from pykeen.stoppers import EarlyStopper
from pykeen.trackers.base import PythonResultTracker
from pykeen.training import NonFiniteLossError, TrainingCallback
from pykeen.training.callbacks import EvaluationLossTrainingCallback
from pykeen.training.training_loop import CheckpointMismatchError, NoTrainingBatchError, SubBatchingNotSupportedError
from pykeen.triples import CoreTriplesFactory
from steps import Recorder
from torch import Tensor
from weights import UNIFORM
from worlds import World

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingLoss, NonSamplingTrainingLoop
from pykeen_nonsampling.losses import SoftmaxLoss
from pykeen_nonsampling.training.messages import advise_smaller_scores

FACTORY = GRAPHS["ordinary"]


@pytest.fixture(scope="module")
def nations() -> Nations:
    return Nations()


def assert_same_gradients(x: Recorder, y: Recorder, **tolerance: float) -> None:
    assert len(x.gradients) == len(y.gradients) > 0
    for xs, ys in zip(x.gradients, y.gradients, strict=True):
        for name, gradient in xs.items():
            assert gradient is not None
            torch.testing.assert_close(gradient, ys[name], **tolerance)


def make_distmult(factory: CoreTriplesFactory, **kwargs: Any) -> Model:
    return DistMult(
        triples_factory=factory,
        embedding_dim=4,
        random_seed=0,
        loss=NonSamplingLoss(negative_weight=1e-3, **UNIFORM),
        **kwargs,
    ).double()


def make_loss(reduction: Any) -> NonSamplingLoss:
    return NonSamplingLoss(negative_weight=0.2, reduction=reduction, **{**UNIFORM, "regularization_weight": 0.1})


class TestBatches:
    """One step an epoch by default; any other division has the same gradient, or the same in expectation."""

    def test_one_step_an_epoch_by_default(self, world: World, nations: Nations) -> None:
        recorder, losses = world.train(make_distmult(nations.training), nations.training, num_epochs=3)
        assert len(recorder.gradients) == len(losses) == 3

    @pytest.mark.parametrize("reduction", ["sum", "mean"])
    @pytest.mark.parametrize("automatic_memory_optimization", [True, False])
    def test_sub_batches_accumulate_to_the_gradient_of_the_batch(
        self, world: World, reduction: Any, automatic_memory_optimization: bool
    ) -> None:
        """Regularization and dropout included."""
        recorders = []
        for sub_batch_size in (None, 1, 2, 5, 6, 100):
            model = make_model(FACTORY, DistMultCase, regularizer="lp", regularizer_kwargs=dict(weight=0.7), dropout=0.5)
            model.loss = NonSamplingLoss(
                negative_weight=0.2, reduction=reduction, **{**UNIFORM, "regularization_weight": 0.1}
            )
            recorder, _ = world.train(
                model,
                FACTORY,
                num_epochs=3,
                sub_batch_size=sub_batch_size,
                loop_kwargs=dict(automatic_memory_optimization=automatic_memory_optimization),
            )
            recorders.append(recorder)
        for recorder in recorders[1:]:
            assert_same_gradients(recorder, recorders[0], rtol=1e-9, atol=1e-12)

    def test_sub_batch_size_is_what_was_asked_for(self, world: World) -> None:
        sizes = []

        class Sizes(world.loop):  # type: ignore[misc]
            def _process_batch(self, batch: Any, start: int, stop: int, *args: Any, **kwargs: Any) -> Tensor:
                sizes.append(stop - start)
                return super()._process_batch(batch, start, stop, *args, **kwargs)

        loop = Sizes(model=make_distmult(FACTORY), triples_factory=FACTORY)
        loop.train(FACTORY, num_epochs=1, sub_batch_size=4, use_tqdm=False)
        assert sizes == [4, 2]

    @pytest.mark.parametrize("reduction", ["sum", "mean"])
    @pytest.mark.parametrize("batch_size", [1, 2, 5])
    def test_mini_batches_of_an_epoch_add_up_to_the_whole(self, world: World, reduction: Any, batch_size: int) -> None:
        """With a step of length zero, the gradients of all batches add up to that of the full batch."""
        shares: list[float] = []

        class Sizes(world.loop):  # type: ignore[misc,name-defined]
            def _num_scores(self, batch: Any) -> float:
                shares.append(super()._num_scores(batch) / super()._num_scores(self._batch(FACTORY)))
                return super()._num_scores(batch)

        whole, parts = (
            World(loop).train(
                self._model(reduction),
                FACTORY,
                num_epochs=1,
                batch_size=size,
                loop_kwargs=dict(optimizer="sgd", optimizer_kwargs=dict(lr=0.0), loss_weighter=world.weighter),
            )
            for loop, size in ((world.loop, None), (Sizes, batch_size))
        )
        assert len(parts[0].gradients) == min(-(-6 // batch_size), 5 if world.loop is NonSamplingTrainingLoop else 6)
        if reduction == "sum":
            shares = [1.0] * len(parts[0].gradients)
        else:
            # each batch is divided by its own number of scores
            assert sum(shares) == pytest.approx(1.0)
        for name, gradient in whole[0].gradients[0].items():
            total = sum(x * gradients[name] for x, gradients in zip(shares, parts[0].gradients, strict=True))  # type: ignore[operator]
            torch.testing.assert_close(total, gradient, rtol=1e-9, atol=1e-12)
        if reduction == "sum":
            # PyKEEN reports the mean over batches
            assert parts[1][0] * len(shares) == pytest.approx(whole[1][0])

    @staticmethod
    def _model(reduction: Any) -> ERModel:
        model = make_model(FACTORY, DistMultCase)
        model.loss = make_loss(reduction)
        return model

    def test_drop_last(self, world: World) -> None:
        recorder, _ = world.train(make_distmult(FACTORY), FACTORY, num_epochs=1, batch_size=4, drop_last=True)
        assert len(recorder.gradients) == 1
        with pytest.raises(NoTrainingBatchError):
            world.train(make_distmult(FACTORY), FACTORY, num_epochs=1, batch_size=100, drop_last=True)

    def test_duplicates_count_once(self, world: World) -> None:
        factory = GRAPHS["duplicate triples"]
        distinct = CoreTriplesFactory(
            factory.mapped_triples.unique(dim=0), num_entities=factory.num_entities, num_relations=factory.num_relations
        )
        one, other = (world.train(make_distmult(f), f, num_epochs=4) for f in (factory, distinct))
        assert one[1] == other[1]


class TestLikePyKEEN:
    """What PyKEEN's own suite asks of a training loop, and the rest of what its loops offer."""

    @pytest.fixture(params=["DistMult", "SimplE", "ComplEx", "TransE"])
    def make(self, request: pytest.FixtureRequest, nations: Nations, world: World) -> Any:
        cls = {"DistMult": DistMult, "SimplE": SimplE, "ComplEx": ComplEx, "TransE": TransE}[request.param]
        kwargs = dict(scoring_fct_norm=2) if cls is TransE else {}

        def make(seed: int = 0, **more: Any) -> Any:
            model = cls(triples_factory=nations.training, embedding_dim=8, random_seed=seed, **kwargs)
            return world.loop(model=model, triples_factory=nations.training, optimizer="adam", **more)

        return make

    @pytest.mark.parametrize("batch_size", [None, 128])
    @pytest.mark.parametrize("lr_scheduler", [None, "ExponentialLR"])
    def test_resumed_run_equals_uninterrupted_one(
        self, world: World, make: Any, nations: Nations, tmp_path: Path, batch_size: int | None, lr_scheduler: str | None
    ) -> None:
        kwargs = dict(lr_scheduler=lr_scheduler, lr_scheduler_kwargs=dict(gamma=0.9)) if lr_scheduler else {}
        options: dict[str, Any] = dict(batch_size=batch_size, use_tqdm=False)
        whole = make(**kwargs)
        losses = whole.train(nations.training, num_epochs=10, **options)
        checkpoint = dict(checkpoint_name="x.pt", checkpoint_directory=tmp_path, checkpoint_frequency=0)
        make(**kwargs).train(nations.training, num_epochs=5, **checkpoint, **options)
        resumed = make(seed=123, **kwargs)
        assert resumed.train(nations.training, num_epochs=10, **checkpoint, **options) == losses
        for x, y in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
            assert torch.equal(x, y)

    def test_checkpoint_has_the_weights_and_refuses_others(self, world: World, nations: Nations, tmp_path: Path) -> None:
        """Also those that were derived; naming them changes nothing."""

        def resume(loss: NonSamplingLoss, num_epochs: int) -> list[float]:
            model = DistMult(triples_factory=nations.training, random_seed=0, loss=loss)
            loop = world.loop(model=model, triples_factory=nations.training)
            options = dict(checkpoint_name="x.pt", checkpoint_directory=tmp_path, use_tqdm=False)
            losses: list[float] = loop.train(nations.training, num_epochs=num_epochs, **options)
            return losses

        begun = resume(NonSamplingLoss(), 2)
        state = torch.load(tmp_path / "x.pt", weights_only=False)["model_state_dict"]
        recorded = state._metadata["loss"]["kwargs"]
        assert recorded["negative_weight"] > 0
        assert resume(NonSamplingLoss(**recorded), 4)[:2] == begun
        assert len(resume(NonSamplingLoss(), 5)) == 5
        with pytest.raises(CheckpointMismatchError):
            resume(NonSamplingLoss(negative_weight=0.5 * recorded["negative_weight"]), 6)

    def test_state_of_a_model_can_be_loaded_with_another_loss(self, world: World, nations: Nations) -> None:
        model = make_distmult(nations.training)
        world.train(model, nations.training, num_epochs=1)
        DistMult(triples_factory=nations.training, embedding_dim=4).double().load_state_dict(model.state_dict())

    def test_continue_training(self, world: World, make: Any, nations: Nations) -> None:
        whole = make().train(nations.training, num_epochs=6, use_tqdm=False)
        loop = make()
        loop.train(nations.training, num_epochs=3, use_tqdm=False)
        assert loop.train(nations.training, num_epochs=6, use_tqdm=False, continue_training=True) == whole

    def test_non_finite_loss_keeps_the_last_checkpoint(
        self, world: World, make: Any, nations: Nations, tmp_path: Path
    ) -> None:
        path = tmp_path / "x.pt"
        options = dict(use_tqdm=False, checkpoint_name=path.name, checkpoint_directory=tmp_path, checkpoint_frequency=0)
        saved = []

        class Poison(TrainingCallback):
            def pre_batch(self, **kwargs: Any) -> None:
                if self.training_loop._epoch == 3:
                    saved.append(path.read_bytes())
                    with torch.no_grad():
                        next(self.model.parameters()).fill_(float("nan"))

        loop = make()
        with pytest.raises(NonFiniteLossError):
            loop.train(nations.training, num_epochs=6, callbacks=Poison(), **options)
        assert saved == [path.read_bytes()]
        assert torch.load(path, weights_only=False)["epoch"] == 3

    def test_result_tracker(self, world: World, make: Any, nations: Nations) -> None:
        tracker = PythonResultTracker()
        losses = make(result_tracker=tracker).train(nations.training, num_epochs=3, use_tqdm=False)
        assert [tracker.metrics[epoch]["loss"] for epoch in (1, 2, 3)] == losses

    def test_early_stopping(self, world: World, make: Any, nations: Nations) -> None:
        loop = make(optimizer_kwargs=dict(lr=0.1))
        stopper = EarlyStopper(
            model=loop.model,
            evaluator=RankBasedEvaluator(),
            training_triples_factory=nations.training,
            evaluation_triples_factory=nations.validation,
            frequency=5,
            patience=2,
            relative_delta=0.5,
            evaluation_batch_size=256,
        )
        losses = loop.train(nations.training, num_epochs=500, stopper=stopper, use_tqdm=False)
        assert stopper.stopped
        assert len(losses) < 500

    def test_learning_rate_scheduler(self, world: World, make: Any, nations: Nations) -> None:
        loop = make(lr_scheduler="ExponentialLR", lr_scheduler_kwargs=dict(gamma=0.5), optimizer_kwargs=dict(lr=1.0))
        loop.train(nations.training, num_epochs=3, use_tqdm=False)
        assert loop.optimizer.param_groups[0]["lr"] == pytest.approx(0.125)

    def test_clear_optimizer(self, world: World, make: Any, nations: Nations) -> None:
        loop = make()
        loop.train(nations.training, num_epochs=1, use_tqdm=False, clear_optimizer=True)
        assert loop.optimizer is None

    @pytest.mark.parametrize(
        "options",
        [dict(gradient_clipping_max_norm=0.5), dict(gradient_clipping_max_abs_value=0.01)],
        ids=str,
    )
    def test_gradient_clipping(self, world: World, nations: Nations, options: dict[str, float]) -> None:
        model = make_distmult(nations.training, entity_constrainer=None)
        recorder, _ = world.train(
            model,
            nations.training,
            num_epochs=1,
            loop_kwargs=dict(optimizer="sgd", optimizer_kwargs=dict(lr=1.0)),
            **options,
        )
        gradients = {name: g for name, g in recorder.gradients[0].items() if g is not None}
        norm = torch.cat([g.view(-1) for g in gradients.values()]).norm()
        assert norm > 0.5
        for name, after in model.named_parameters():
            step = recorder.states[0][name] - after.detach()
            if "gradient_clipping_max_norm" in options:
                expected = gradients[name] * 0.5 / norm
            else:
                expected = gradients[name].clamp(-0.01, 0.01)
            torch.testing.assert_close(step, expected, rtol=1e-5, atol=1e-8)

    def test_loss_on_other_triples(self, world: World, make: Any, nations: Nations) -> None:
        """PyKEEN's callback computes the loss with the validation triples as positives."""
        tracker = PythonResultTracker()
        loop = make(result_tracker=tracker, loss_weighter=world.weighter)
        loop.model.loss = NonSamplingLoss(negative_weight=0.1, **UNIFORM)
        callback = EvaluationLossTrainingCallback(nations.validation, maximum_batch_size=nations.validation.num_triples)
        loop.train(nations.training, num_epochs=3, callbacks=callback, use_tqdm=False)
        expected = world.enumerated(loop.model.double().eval(), nations.validation, weighted=True).item()
        assert tracker.metrics[3]["validation.loss"] == pytest.approx(expected, rel=1e-4)

    def test_batch_normalization_refuses_sub_batches(self, world: World, nations: Nations) -> None:
        model = make_distmult(nations.training)
        model.extra = torch.nn.BatchNorm1d(3)
        with pytest.raises(SubBatchingNotSupportedError):
            world.train(model, nations.training, num_epochs=1, sub_batch_size=10)

    def test_progress_bar_by_epoch_with_the_loss(
        self, world: World, make: Any, nations: Nations, capsys: pytest.CaptureFixture[str]
    ) -> None:
        make().train(nations.training, num_epochs=3, batch_size=2 * nations.training.num_triples)
        text = capsys.readouterr().err
        assert "3/3" in text
        assert "loss=" in text
        assert "Training batches" not in text


class TestMessages:
    """What the loop says."""

    @pytest.mark.parametrize(("model", "warned"), [("TransE", True), ("DistMult", False)])
    def test_low_precision_for_distances(
        self, model: str, warned: bool, nations: Nations, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
        kwargs: Any = dict(scoring_fct_norm=2) if model == "TransE" else {}
        made = model_resolver.make(model, kwargs, triples_factory=nations.training, random_seed=0, loss=SoftmaxLoss())
        loop = NonSamplingLCWATrainingLoop(model=made, triples_factory=nations.training)
        loop.train(nations.training, num_epochs=20, use_tqdm=False)
        assert ("too inaccurate for distances" in caplog.text) == warned

    def test_default_loss_is_replaced_and_logged_once(
        self, world: World, nations: Nations, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "pykeen_nonsampling")
        model = DistMult(triples_factory=nations.training, random_seed=0)
        loop = world.loop(model=model, triples_factory=nations.training)
        loop.train(nations.training, num_epochs=20, use_tqdm=False)
        messages = [r.getMessage() for r in caplog.records if r.name.startswith("pykeen_nonsampling")]
        closed = world.loop.closed_world
        assert type(model.loss) is (NonSamplingLoss if closed else SoftmaxLoss)
        (message,) = messages
        assert ("loss='nonsampling', loss_kwargs={'negative_weight': " if closed else "loss='softmax', loss_kw") in message

    @pytest.mark.parametrize(("num_epochs", "batch_size", "warns"), [(5, None, True), (200, None, False), (5, 10, False)])
    def test_few_steps_are_pointed_out(
        self,
        world: World,
        nations: Nations,
        caplog: pytest.LogCaptureFixture,
        num_epochs: int,
        batch_size: int | None,
        warns: bool,
    ) -> None:
        caplog.set_level(logging.WARNING)
        world.train(make_distmult(nations.training), nations.training, num_epochs=num_epochs, batch_size=batch_size)
        messages = [r.getMessage() for r in caplog.records if "optimizer steps" in r.getMessage()]
        assert bool(messages) == warns
        if warns:
            assert "only 5 optimizer steps" in messages[0]
            assert "epochs=200" in messages[0]

    @pytest.mark.parametrize(("initializer", "warns"), [("normal", True), ("xavier_normal", False)])
    def test_scores_that_start_too_large_are_pointed_out_once(
        self, world: World, nations: Nations, caplog: pytest.LogCaptureFixture, initializer: str, warns: bool
    ) -> None:
        """PyKEEN's ComplEx starts with normally distributed vectors."""
        kwargs = dict(entity_initializer=initializer, relation_initializer=initializer)
        model = ComplEx(triples_factory=nations.training, random_seed=0, loss=NonSamplingLoss(), **kwargs)
        world.train(model, nations.training, num_epochs=3, batch_size=500, sub_batch_size=100)
        messages = [r.getMessage() for r in caplog.records if "mean square of all scores" in r.getMessage()]
        assert len(messages) == warns
        assert all("entity_initializer='xavier_normal'" in message for message in messages)

    @pytest.mark.parametrize(
        ("cls", "advice"),
        [
            (ComplEx, "model_kwargs=dict(entity_initializer='xavier_normal', relation_initializer='xavier_normal')"),
            (NTN, "model_kwargs=dict(entity_initializer='xavier_normal')."),
            (RGCN, "dict(base_entity_initializer='xavier_normal', relation_initializer='xavier_normal')"),
            (CompGCN, "optimizer_kwargs=dict(lr=1e-4)"),
            (ERModel, "entity_representations_kwargs=dict(shape=…, initializer='xavier_normal')"),
            (make_model_cls(interaction=TransEInteraction(p=2), dimensions=8), "model=pykeen.models.ERModel"),
        ],
        ids=lambda x: getattr(x, "__name__", ""),
    )
    def test_advice_fits_the_model(self, cls: type[ERModel], advice: str) -> None:
        """Only parameters that the model has are named."""
        instance = object.__new__(cls)
        message = advise_smaller_scores(instance)
        assert advice in message
        parameters = inspect.signature(cls).parameters
        assert all(
            name in parameters for name in re.findall(r"(\w*initializer)='xavier_normal'", message) if name != "initializer"
        )
