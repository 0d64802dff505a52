"""PyKEEN's own losses have the numbers of its LCWA training loop, or are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from factorization_case import DistMultCase, FactorizationTestCase, TrilinearTestCase, make_model
from graphs import GRAPHS
from pykeen.cli import main
from pykeen.experiments.validate import get_configuration_errors
from pykeen.hpo import hpo_pipeline
from pykeen.losses import (
    CrossEntropyLoss,
    Loss,
    NoSampleWeightSupportError,
    SetwiseLoss,
    SoftplusLoss,
    UnsupportedLabelSmoothingError,
    loss_resolver,
)
from pykeen.models import ERModel
from pykeen.nn.modules import (
    ClampedInteraction,
    DistMultInteraction,
    RotatEInteraction,
    SimplEInteraction,
    TransEInteraction,
)
from pykeen.pipeline import pipeline
from pykeen.training import LCWATrainingLoop
from pykeen.triples import CoreTriplesFactory, LCWAInstances
from pykeen.triples.weights import LossWeighter
from pykeen.utils import complex_normalize
from steps import TOLERANCE, assert_first_step_equals
from torch import Tensor
from weights import QueryWeighter

from pykeen_nonsampling import FactorizedLoss, NonSamplingLCWATrainingLoop, NonSamplingTrainingLoop
from pykeen_nonsampling.distributed.group import Group
from pykeen_nonsampling.distributed.placement import Sharded
from pykeen_nonsampling.distributed.shards import Sharding, ShardingError
from pykeen_nonsampling.factorizations import factorize
from pykeen_nonsampling.losses import PykeenLoss, check_loss
from pykeen_nonsampling.losses import objective as objectives
from pykeen_nonsampling.memory.task import Counts
from pykeen_nonsampling.training import FactorizedTrainingLoop

#: The parameters to test each loss with, in addition to its defaults; none, if it is refused
PARAMETERS: Mapping[str, Mapping[str, Any] | None] = {
    "adversarialbcewithlogits": dict(inverse_softmax_temperature=0.7),
    "bceaftersigmoid": {},
    "bcewithlogits": dict(pos_weight=3.0),
    "crossentropy": {},
    "doublemargin": dict(positive_margin=2.0, offset=1.5, positive_negative_balance=0.3),
    "focal": dict(gamma=1.5, alpha=0.2),
    "infonce": dict(margin=0.3, log_adversarial_temperature=-0.5),
    "marginranking": None,
    "mse": {},
    "nssa": dict(margin=2.0, adversarial_temperature=0.7),
    "pairwiselogistic": None,
    "pointwisehinge": dict(margin=0.7),
    "softmarginranking": None,
    "softplus": {},
    "softpointwisehinge": dict(margin=0.7),
}
ACCEPTED = [name for name, parameters in PARAMETERS.items() if parameters is not None]
REFUSED = [name for name, parameters in PARAMETERS.items() if parameters is None]

#: Those that PyKEEN itself refuses to smooth labels, or weigh queries for
HARD_LABELS = {"nssa"}
UNWEIGHTED = {"adversarialbcewithlogits", "doublemargin", "nssa"}


def make_loss(name: str, **kwargs: Any) -> Loss:
    return loss_resolver.make(name, {**(PARAMETERS[name] or {}), **kwargs})


class NormCase(TrilinearTestCase):
    interaction_cls = TransEInteraction
    interaction_kwargs = dict(p=2, power_norm=False)


class SquareCase(TrilinearTestCase):
    interaction_cls = TransEInteraction
    interaction_kwargs = dict(p=2, power_norm=True)


class RotationCase(TrilinearTestCase):
    interaction_cls = RotatEInteraction
    relation_kwargs = dict(normalizer=complex_normalize)


class ClampCase(TrilinearTestCase):
    """Most scores are beyond."""

    interaction_cls = ClampedInteraction
    interaction_kwargs = dict(base=SimplEInteraction, clamp_score=(-0.1, 0.2))


class ClampedNormCase(TrilinearTestCase):
    interaction_cls = ClampedInteraction
    interaction_kwargs = dict(base=TransEInteraction, base_kwargs=dict(p=2), clamp_score=(None, -2.0))


def make_case(
    graph: str, loss: Loss, case: type[FactorizationTestCase] = DistMultCase, **kwargs: Any
) -> tuple[ERModel, FactorizedTrainingLoop, CoreTriplesFactory]:
    factory = GRAPHS[graph]
    model = make_model(factory, case)
    loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=factory, **kwargs)
    # as a pipeline leaves it, also if it is the default of the model
    model.loss = loss.double()
    return model, loop, factory


def pykeens_loss(
    model: ERModel,
    factory: CoreTriplesFactory,
    target: str = "tail",
    label_smoothing: float = 0.0,
    weighter: LossWeighter | None = None,
    pairs: set[tuple[int, int]] | None = None,
) -> Tensor:
    """Compute what PyKEEN's LCWA training loop computes of all queries, or of some, at once."""
    loop = LCWATrainingLoop(model=model, triples_factory=factory, target=target)  # type: ignore[arg-type]
    instances = LCWAInstances.from_triples_factory(factory, target=target, loss_weighter=weighter)
    rows = [instances[i] for i in range(len(instances)) if pairs is None or tuple(instances.pairs[i].tolist()) in pairs]
    # PyKEEN's labels are in single precision
    batch: Any = {
        "pairs": torch.stack([torch.as_tensor(row["pairs"]) for row in rows]),
        "target": torch.stack([row["target"] for row in rows]).double(),
    }
    if weighter is not None:
        batch["weights"] = torch.stack([torch.as_tensor(row["weights"]) for row in rows]).double()
    return loop._process_batch(batch, start=0, stop=len(rows), label_smoothing=label_smoothing)


def test_all_losses_are_known() -> None:
    theirs = {name for name, cls in loss_resolver.lookup_dict.items() if not issubclass(cls, FactorizedLoss)}
    assert theirs == set(PARAMETERS)


@pytest.mark.parametrize("name", ACCEPTED)
class TestNumbers:
    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    @pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
    @pytest.mark.parametrize(
        ("graph", "target", "memory_budget"),
        [("ordinary", "tail", None), ("ordinary", "head", 1), ("inverse triples", "tail", 1)],
    )
    def test_loss_and_gradients_equal_pykeens(
        self, name: str, reduction: str, label_smoothing: float, graph: str, target: str, memory_budget: int | None
    ) -> None:
        model, loop, factory = make_case(graph, make_loss(name, reduction=reduction), target=target)

        def reference() -> Tensor:
            return pykeens_loss(model, factory, target, label_smoothing)

        if label_smoothing and name in HARD_LABELS:
            for train in (reference, lambda: loop.train(factory, label_smoothing=label_smoothing, use_tqdm=False)):
                with pytest.raises(UnsupportedLabelSmoothingError, match=r"does not support label smoothing"):
                    train()
            return
        sweep = "scores", memory_budget
        assert_first_step_equals(loop, factory, reference, sweep=sweep, label_smoothing=label_smoothing)

    @pytest.mark.parametrize("case", [NormCase, SquareCase, RotationCase, ClampCase, ClampedNormCase])
    @pytest.mark.parametrize("target", ["tail", "head"])
    def test_scores_are_the_models_own(self, name: str, case: type[FactorizationTestCase], target: str) -> None:
        model, loop, factory = make_case("ordinary", make_loss(name), case, target=target)
        assert_first_step_equals(loop, factory, lambda: pykeens_loss(model, factory, target), sweep=("scores", None))

    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    @pytest.mark.parametrize("memory_budget", [None, 1])
    def test_weights_of_queries(self, name: str, reduction: str, memory_budget: int | None) -> None:
        weighter = QueryWeighter()
        loss = make_loss(name, reduction=reduction)
        model, loop, factory = make_case("ordinary", loss, target="tail", loss_weighter=weighter)

        def reference() -> Tensor:
            return pykeens_loss(model, factory, weighter=weighter)

        if name in UNWEIGHTED:
            for train in (reference, lambda: loop.train(factory, use_tqdm=False)):
                with pytest.raises(NoSampleWeightSupportError, match=r"does not support sample weights"):
                    train()
            return
        assert_first_step_equals(loop, factory, reference, sweep=("scores", memory_budget))

    @pytest.mark.parametrize("cached", [1, 10])
    def test_some_queries_at_a_time(self, name: str, cached: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(objectives, "CACHED_SCORES", cached)
        model, loop, factory = make_case("ordinary", make_loss(name), target="tail")
        assert_first_step_equals(loop, factory, lambda: pykeens_loss(model, factory), sweep=("scores", None))

    def test_batch_is_a_mean_over_its_own_queries(self, name: str) -> None:
        model, loop, factory = make_case("ordinary", make_loss(name), target="tail", optimizer="SGD")
        loop.train(factory, num_epochs=1, use_tqdm=False)
        whole = loop._run.batch
        # the first one has two answers
        batch = whole[[torch.tensor([0, 3])]]
        pairs = {(e, r) for e, r in batch.sides[0].index.pairs.tolist()}
        assert (len(pairs), len(batch), len(whole)) == (2, 3, 6)
        ours, theirs = loop._process_batch(batch, 0, len(batch)), pykeens_loss(model, factory, pairs=pairs)
        torch.testing.assert_close(ours, theirs, **TOLERANCE)

    @pytest.mark.parametrize("reduction", ["mean", "sum"])
    def test_sub_batches(self, name: str, reduction: str) -> None:
        """Also if a part of a batch has queries from one end only."""
        losses = []
        for sub_batch_size in (None, 1, 2):
            _, loop, factory = make_case("ordinary", make_loss(name, reduction=reduction))
            losses += loop.train(factory, num_epochs=1, sub_batch_size=sub_batch_size, use_tqdm=False) or []
        assert losses == pytest.approx([losses[0]] * 3, rel=1e-9)


def test_both_ends_are_a_mean_over_the_queries_of_both() -> None:
    model, loop, factory = make_case("ordinary", CrossEntropyLoss())
    num_tails, num_heads = (len(LCWAInstances.from_triples_factory(factory, target=x)) for x in ("tail", "head"))
    assert num_tails != num_heads

    def reference() -> Tensor:
        tails, heads = (pykeens_loss(model, factory, x) for x in ("tail", "head"))
        return (num_tails * tails + num_heads * heads) / (num_tails + num_heads)

    assert_first_step_equals(loop, factory, reference, sweep=("scores", None))


class TestRefused:
    @pytest.mark.parametrize("name", REFUSED)
    def test_pairs(self, name: str) -> None:
        with pytest.raises(ValueError, match=r"compares each answer of a query with each.*loss='crossentropy'"):
            check_loss(loss_resolver.lookup(name), closed_world=False)

    @pytest.mark.parametrize("name", ACCEPTED)
    def test_closed_world(self, name: str) -> None:
        cls = loss_resolver.lookup(name)
        check_loss(cls, closed_world=False)
        message = rf"{cls.__name__} cannot be used .*loss='nonsampling'.*training_loop='nonsamplinglcwa'"
        with pytest.raises(ValueError, match=message):
            check_loss(cls, closed_world=True)

    def test_unknown_sets(self) -> None:
        class Ranked(SetwiseLoss):
            pass

        with pytest.raises(ValueError, match=r"Ranked cannot be used .*not known to be a sum over queries"):
            check_loss(Ranked, closed_world=False)

    def test_entities_that_are_divided(self) -> None:
        placement = Sharded(Sharding(5, Group()))
        with pytest.raises(ShardingError, match=r"CrossEntropyLoss does not work with entities that are divided"):
            placement.check_loss(PykeenLoss(CrossEntropyLoss()))

    def test_closed_world_of_a_model(self) -> None:
        factory = GRAPHS["ordinary"]
        model = make_model(factory, DistMultCase)
        model.loss = CrossEntropyLoss()
        with pytest.raises(ValueError, match=r"training_loop='nonsamplinglcwa'"):
            NonSamplingTrainingLoop(model=model, triples_factory=factory)


def run(**kwargs: Any) -> Any:
    defaults: dict[str, Any] = dict(
        dataset="nations",
        model="ComplEx",
        model_kwargs=dict(embedding_dim=8),
        training_loop="nonsamplinglcwa",
        epochs=30,
        random_seed=0,
        evaluator="factorized",
        use_tqdm=False,
    )
    return pipeline(**{**defaults, **kwargs})


class TestFrontDoor:
    @pytest.mark.parametrize("name", ACCEPTED)
    def test_by_name(self, name: str, tmp_path: Path) -> None:
        """Softplus is the default of ComplEx, and yet it was asked for."""
        result = run(loss=name, loss_kwargs=PARAMETERS[name])
        assert type(result.model.loss) is loss_resolver.lookup(name)
        assert result.losses[-1] < result.losses[0]
        assert result.configuration["loss"] == name
        assert result.configuration["loss_kwargs"].items() >= (PARAMETERS[name] or {}).items()
        result.save_to_directory(tmp_path)
        assert (tmp_path / "results.json").is_file()
        again = run(loss=name, loss_kwargs=result.configuration["loss_kwargs"])
        assert again.losses == result.losses

    def test_loss_of_a_model(self) -> None:
        result = run(model_kwargs=dict(embedding_dim=8, loss="softplus"))
        assert type(result.model.loss) is SoftplusLoss
        assert result.losses == run(loss=SoftplusLoss()).losses != run().losses

    def test_recorded_parameters_of_an_instance(self) -> None:
        result = run(loss=CrossEntropyLoss(reduction="sum"), epochs=20)
        assert result.configuration["loss_kwargs"] == dict(reduction="sum")

    def test_no_loss(self) -> None:
        """The default of a model is not what the user asked for."""
        assert isinstance(run().model.loss, FactorizedLoss)

    @pytest.mark.parametrize("name", ["crossentropy", "bcewithlogits"])
    def test_study(self, name: str) -> None:
        result = hpo_pipeline(
            dataset="nations",
            model="DistMult",
            model_kwargs=dict(embedding_dim=4),
            training_loop="nonsamplinglcwa",
            loss=name,
            training_kwargs=dict(num_epochs=20),
            n_trials=2,
        )
        assert [trial.state.name for trial in result.study.trials] == ["COMPLETE"] * 2
        searched = {key.removeprefix("loss.") for key in result.study.best_params if key.startswith("loss.")}
        assert searched == set(loss_resolver.lookup(name).hpo_default)

    def test_experiment(self, tmp_path: Path) -> None:
        path = tmp_path / "experiment.json"
        settings = dict(
            dataset="nations",
            model="ComplEx",
            model_kwargs=dict(embedding_dim=4),
            training_loop="nonsamplinglcwa",
            loss="crossentropy",
            loss_kwargs=dict(reduction="sum"),
            optimizer="Adam",
            optimizer_kwargs=dict(lr=0.01),
            training_kwargs=dict(num_epochs=20, label_smoothing=0.1),
            random_seed=0,
        )
        path.write_text(json.dumps(dict(metadata={}, pipeline=settings)))
        assert not get_configuration_errors(path)
        result = CliRunner().invoke(main, ["experiments", "run", str(path), "-d", str(tmp_path), "--discard-replicates"])
        assert result.exit_code == 0, result.output
        (results,) = tmp_path.rglob("replicate-*/results.json")
        configuration = json.loads(results.read_text())["configuration"]
        assert (configuration["loss"], configuration["loss_kwargs"]) == ("crossentropy", dict(reduction="sum"))

    def test_checkpoint_of_another_loss(self, tmp_path: Path) -> None:
        """Also if it differs in what is not an attribute of the same name."""
        training_kwargs = dict(checkpoint_name="c.pt", checkpoint_directory=tmp_path, checkpoint_frequency=0)
        run(loss="infonce", loss_kwargs=dict(log_adversarial_temperature=0.0), training_kwargs=training_kwargs)
        with pytest.raises(Exception, match=r"from another training: loss.*inverse_softmax_temperature was 1.0"):
            run(loss="infonce", training_kwargs=training_kwargs)


def test_memory_estimate_knows_that_every_score_is_seen() -> None:
    counts = Counts.of(GRAPHS["ordinary"])
    task = NonSamplingLCWATrainingLoop.plan_task(CrossEntropyLoss(), factorize(DistMultInteraction()), counts)
    assert task.scores
    assert not task.weighted
    assert not task.regularized
