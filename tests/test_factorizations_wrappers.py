"""Wrapped interactions equal brute force."""

import copy
from functools import partial
from typing import Any, ClassVar

import pytest
import torch
from enumeration import enumerated_queries, enumerated_scores, softmax_cost
from factorization_case import FactorizationTestCase, TrilinearTestCase, make_model
from graphs import PECULIAR, WIDE
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import ERModel
from pykeen.nn.modules import (
    ClampedInteraction,
    DirectionAverageInteraction,
    DistMultInteraction,
    Interaction,
    MonotonicAffineTransformationInteraction,
    MuREInteraction,
    RESCALInteraction,
    SimplEInteraction,
    TransEInteraction,
    UMInteraction,
)
from pykeen.predict import predict_target
from pykeen.triples import CoreTriplesFactory
from steps import Recorder, assert_first_step_equals
from weights import UNIFORM, WEIGHTED

from pykeen_nonsampling import FactorizedRankBasedEvaluator, NonSamplingLCWATrainingLoop, predict_targets
from pykeen_nonsampling.factorizations import (
    AffineMatrixFactorization,
    AffineTrilinearFactorization,
    AverageMatrixFactorization,
    AverageTrilinearFactorization,
    ClampedFactorization,
    DistMultFactorization,
    NotDecomposableError,
    factorize,
)
from pykeen_nonsampling.losses import SoftmaxLoss


class TestClampedWithoutClamp(TrilinearTestCase):
    cls = DistMultFactorization
    interaction_cls = ClampedInteraction
    interaction_kwargs = dict(base=DistMultInteraction)


class ClampedCase(FactorizationTestCase):
    """What to make a clamped model of; not a test, since there are no moments of its scores."""

    __test__ = False
    interaction_cls = ClampedInteraction


BASES: dict[str, dict[str, Any]] = {
    "DistMult": dict(base=DistMultInteraction),
    "SimplE": dict(base=SimplEInteraction),
    "RESCAL": dict(base=RESCALInteraction),
    "norm": dict(base=TransEInteraction, base_kwargs=dict(p=2)),
    "square": dict(base=TransEInteraction, base_kwargs=dict(p=2, power_norm=True)),
    "clamp": dict(base=ClampedInteraction, base_kwargs=dict(base=DistMultInteraction, clamp_score=(-1.0, 0.3))),
}


def make_clamped(factory: CoreTriplesFactory, base: str, clamp_score: Any) -> ERModel:
    case = type("Case", (ClampedCase,), dict(interaction_kwargs=dict(clamp_score=clamp_score, **BASES[base])))
    return make_model(factory, case)


def make_clamped_at(factory: CoreTriplesFactory, base: str, sides: str) -> ERModel:
    """Make a model with about a third of its scores beyond the clamp, on each side that there is."""
    model = make_clamped(factory, base, (-1e9, 1e9))
    with torch.no_grad():
        scores = torch.cat([model.score_t(torch.tensor([[h, 0]])).flatten() for h in range(model.num_entities)])
    low, high = scores.quantile(torch.tensor([0.3, 0.7]).double()).tolist()
    return make_clamped(factory, base, dict(both=(low, high), low=(low, None), high=(None, high))[sides])


class TestClamped:
    @pytest.mark.parametrize("base", BASES)
    @pytest.mark.parametrize("sides", ["both", "low", "high"])
    @pytest.mark.parametrize(
        ("memory_budget", "loss_kwargs"), [(None, {}), (1, dict(filtered=True, reduction="mean", **WEIGHTED))]
    )
    def test_softmax_and_gradients_equal_enumeration(
        self, base: str, sides: str, memory_budget: int | None, loss_kwargs: dict[str, Any]
    ) -> None:
        model = make_clamped_at(PECULIAR, base, sides)
        factorization = factorize(model.interaction)
        assert type(factorization) is ClampedFactorization
        scores = enumerated_scores(model, factorization, own=True)
        for limit in (factorization.low, factorization.high):
            assert limit is None or 0.1 < (scores == limit).double().mean() < 0.6
        loss = model.loss = SoftmaxLoss(positive_weight=1.5, **{"scale": 1.3, **UNIFORM, **loss_kwargs})
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=PECULIAR)
        cost = partial(softmax_cost, scale=1.3, filtered=loss.filtered)
        assert_first_step_equals(
            loop,
            PECULIAR,
            lambda: enumerated_queries(model, PECULIAR, factorization, loss, cost),
            sweep=("scores", memory_budget),
        )

    def test_no_gradient_beyond_the_clamp(self) -> None:
        model = make_clamped(PECULIAR, "DistMult", (-50.0, -40.0))
        model.loss = SoftmaxLoss(scale=1.0, **UNIFORM)
        loop, recorder = NonSamplingLCWATrainingLoop(model=model, triples_factory=PECULIAR), Recorder()
        losses = loop.train(PECULIAR, num_epochs=1, callbacks=recorder, use_tqdm=False)
        assert losses is not None
        assert losses[0] > 0
        for gradient in recorder.gradients[0].values():
            assert gradient is not None
            assert not gradient.any()

    def test_trains_by_default(self) -> None:
        """With a loss that sees every score."""
        model = make_clamped(WIDE, "SimplE", (-3.0, 3.0))
        model.loss = model.loss_default()
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=WIDE)
        losses = loop.train(WIDE, num_epochs=5, use_tqdm=False)
        assert type(model.loss) is SoftmaxLoss
        assert losses is not None
        assert losses[-1] < losses[0]

    @pytest.mark.parametrize("base", ["SimplE", "RESCAL", "norm"])
    @pytest.mark.parametrize("sides", ["both", "low", "high"])
    def test_ranks_equal_the_models(self, base: str, sides: str) -> None:
        """Where candidates beyond the clamp tie."""
        model = make_clamped_at(WIDE, base, sides)
        ours, theirs = (
            evaluator.evaluate(model, WIDE.mapped_triples[:50], use_tqdm=False, batch_size=8).to_flat_dict()
            for evaluator in (FactorizedRankBasedEvaluator(), RankBasedEvaluator())
        )
        assert ours == pytest.approx(theirs, nan_ok=True)
        assert ours["both.optimistic.arithmetic_mean_rank"] < ours["both.pessimistic.arithmetic_mean_rank"] - 20

    @pytest.mark.parametrize("sides", ["both", "low", "high"])
    def test_predictions_are_among_the_models_best(self, sides: str) -> None:
        model = make_clamped_at(WIDE, "SimplE", sides)
        for k in (5, 300):
            ours = predict_targets(model, head=0, relation=0, k=k).df["score"]
            theirs = predict_target(model, head=0, relation=0).df["score"]
            assert ours.tolist() == pytest.approx(theirs.tolist()[:k])

    @pytest.mark.parametrize("wrapper", [DirectionAverageInteraction, MonotonicAffineTransformationInteraction])
    def test_in_another_wrapper(self, wrapper: Any) -> None:
        clamped = ClampedInteraction(DistMultInteraction, clamp_score=2.0)
        with pytest.raises(NotDecomposableError, match=r"of clamped scores .*Clamp the result instead"):
            factorize(wrapper(clamped))

    def test_not_an_interval(self) -> None:
        """As PyKEEN leaves an integer."""
        with pytest.raises(ValueError, match=r"clamp_score=3 is not an interval.*clamp_score=3.0"):
            factorize(ClampedInteraction(DistMultInteraction, clamp_score=3))


class TestSimplE(TrilinearTestCase):
    cls = AverageTrilinearFactorization
    interaction_cls = SimplEInteraction


class AverageTestCase(FactorizationTestCase):
    """PyKEEN's wrapper does not say that it needs twice the representations, so its user has to."""

    interaction_cls = DirectionAverageInteraction

    @classmethod
    def make_interaction(cls) -> Interaction:
        interaction = super().make_interaction()
        interaction.entity_shape = (interaction.base.entity_shape[0],) * 2
        interaction.relation_shape = (*interaction.base.relation_shape, *interaction.base.relation_shape)
        return interaction


class TestAverageOfComplEx(AverageTestCase, TrilinearTestCase):
    cls = AverageTrilinearFactorization
    interaction_kwargs = dict(base="ComplEx")
    is_complex = True


class TestAverageOfTransE(AverageTestCase, TrilinearTestCase):
    cls = AverageTrilinearFactorization
    interaction_kwargs = dict(base="TransE", base_kwargs=dict(p=2, power_norm=True))


class TestAverageOfTransF(AverageTestCase, TrilinearTestCase):
    cls = AverageTrilinearFactorization
    interaction_kwargs = dict(base="TransF")


class TestAverageOfRESCAL(AverageTestCase):
    cls = AverageMatrixFactorization
    interaction_kwargs = dict(base="RESCAL")


class AffineTestCase(FactorizationTestCase):
    interaction_cls = MonotonicAffineTransformationInteraction
    base: ClassVar[Interaction]

    @classmethod
    def make_interaction(cls) -> Interaction:
        interaction = MonotonicAffineTransformationInteraction(copy.deepcopy(cls.base), initial_bias=0.3, initial_scale=1.7)
        # which it returns to before training, whatever the data type of the model
        interaction.initial_bias = interaction.initial_bias.double()
        interaction.initial_log_scale = interaction.initial_log_scale.double()
        return interaction


class TestAffineDistMult(AffineTestCase, TrilinearTestCase):
    cls = AffineTrilinearFactorization
    base = DistMultInteraction()


class TestAffineTransE(AffineTestCase, TrilinearTestCase):
    cls = AffineTrilinearFactorization
    base = TransEInteraction(p=2, power_norm=True)


class TestAffineTransEWithoutPower(AffineTestCase, TrilinearTestCase):
    cls = AffineTrilinearFactorization
    base = TransEInteraction(p=2)

    def test_softmax_and_gradients_equal_enumeration(  # type: ignore[override]
        self, factory: CoreTriplesFactory, model: ERModel
    ) -> None:
        """The learned scale is that of the square, so there is no softmax of the norm."""
        model.loss = SoftmaxLoss()
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=factory)
        with pytest.raises(NotDecomposableError, match=r"TransEInteraction itself, but its scale and bias are learned"):
            loop.train(factory, use_tqdm=False)


class TestAffineTransEWithOtherConstants(AffineTestCase, TrilinearTestCase):
    """Its scale and bias are those of other scores than the interaction's."""

    cls = AffineTrilinearFactorization
    base = TransEInteraction(p=2, power_norm=True)
    factorization_kwargs: ClassVar = dict(scale=0.7, offset=0.2)

    def test_softmax_and_gradients_equal_enumeration(  # type: ignore[override]
        self, factory: CoreTriplesFactory, model: ERModel
    ) -> None:
        model.loss = SoftmaxLoss()
        kwargs = dict(self.factorization_kwargs)
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=factory, factorization_kwargs=kwargs)
        with pytest.raises(NotDecomposableError, match=r"needs the score of TransE.*Remove factorization_kwargs"):
            loop.train(factory, use_tqdm=False)


class TestAffineUM(AffineTestCase, TrilinearTestCase):
    cls = AffineTrilinearFactorization
    base = UMInteraction(p=2)


class TestAffineMuRE(AffineTestCase, TrilinearTestCase):
    cls = AffineTrilinearFactorization
    base = MuREInteraction(p=2, power_norm=True)


class TestAffineRESCAL(AffineTestCase):
    cls = AffineMatrixFactorization
    base = RESCALInteraction()


class TestAffineSimplE(AffineTestCase, TrilinearTestCase):
    cls = AffineTrilinearFactorization
    base = SimplEInteraction()


class TestAverageOfAffineRESCAL(FactorizationTestCase):
    """A wrapper in a wrapper, with one scale and one bias for both directions."""

    cls = AverageMatrixFactorization
    interaction_cls = DirectionAverageInteraction

    @classmethod
    def make_interaction(cls) -> Interaction:
        interaction = DirectionAverageInteraction(TestAffineRESCAL.make_interaction())
        interaction.entity_shape, interaction.relation_shape = ("d", "d"), ("dd", "dd")
        return interaction
