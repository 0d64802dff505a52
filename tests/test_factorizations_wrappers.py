"""Wrapped interactions equal brute force."""

import copy
from typing import ClassVar

import pytest
from factorization_case import FactorizationTestCase, TrilinearTestCase
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
from pykeen.triples import CoreTriplesFactory

from pykeen_nonsampling import NonSamplingLCWATrainingLoop
from pykeen_nonsampling.factorizations import (
    AffineMatrixFactorization,
    AffineTrilinearFactorization,
    AverageMatrixFactorization,
    AverageTrilinearFactorization,
    DistMultFactorization,
    NotDecomposableError,
)
from pykeen_nonsampling.losses import SoftmaxLoss


class TestClampedWithoutClamp(TrilinearTestCase):
    cls = DistMultFactorization
    interaction_cls = ClampedInteraction
    interaction_kwargs = dict(base=DistMultInteraction)


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
