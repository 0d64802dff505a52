"""Every factorization equals brute force."""

import copy
from functools import partial
from typing import Any, ClassVar

import pytest
import torch
from cases import FactorizationTestCase
from graphs import GRAPHS, make_factory
from pykeen.models import ERModel
from pykeen.nn.modules import (
    AutoSFInteraction,
    ClampedInteraction,
    ComplExInteraction,
    CPInteraction,
    CrossEInteraction,
    DirectionAverageInteraction,
    DistMAInteraction,
    DistMultInteraction,
    HolEInteraction,
    Interaction,
    LineaREInteraction,
    MonotonicAffineTransformationInteraction,
    MultiLinearTuckerInteraction,
    MuREInteraction,
    NTNInteraction,
    PairREInteraction,
    ProjEInteraction,
    QuatEInteraction,
    RESCALInteraction,
    RotatEInteraction,
    SimplEInteraction,
    TransEInteraction,
    TransFInteraction,
    TripleREInteraction,
    TuckERInteraction,
    UMInteraction,
)
from pykeen.utils import complex_normalize

from pykeen_nonsampling.factorizations import (
    AffineMatrixFactorization,
    AffineTrilinearFactorization,
    AutoSFFactorization,
    AverageMatrixFactorization,
    AverageTrilinearFactorization,
    ComplExFactorization,
    CPFactorization,
    CrossEFactorization,
    DistMAFactorization,
    DistMultFactorization,
    Factorization,
    Form,
    FunctionForm,
    HolEFactorization,
    LineaREFactorization,
    MatrixForm,
    Moments,
    MultiLinearTuckerFactorization,
    MuREFactorization,
    NotDecomposableError,
    NTNFactorization,
    PairREFactorization,
    ProjEFactorization,
    QuatEFactorization,
    RESCALFactorization,
    RotatEFactorization,
    TransEFactorization,
    TransFFactorization,
    TripleREFactorization,
    TuckERFactorization,
    UMFactorization,
    factorization_resolver,
    factorize,
)


class TestDistMult(FactorizationTestCase):
    cls = DistMultFactorization
    interaction_cls = DistMultInteraction
    graphs = GRAPHS


class TestCP(FactorizationTestCase):
    cls = CPFactorization
    interaction_cls = CPInteraction


class TestComplEx(FactorizationTestCase):
    cls = ComplExFactorization
    interaction_cls = ComplExInteraction


class TestHolE(FactorizationTestCase):
    cls = HolEFactorization
    interaction_cls = HolEInteraction


class TestHolEOfEvenDimension(FactorizationTestCase):
    cls = HolEFactorization
    interaction_cls = HolEInteraction
    sizes = dict(d=4)


class TestQuatE(FactorizationTestCase):
    cls = QuatEFactorization
    interaction_cls = QuatEInteraction
    sizes = dict(d=2, k=4)


class TestAutoSF(FactorizationTestCase):
    """Not all blocks meet, and there are fewer of relations than of entities."""

    cls = AutoSFFactorization
    interaction_cls = AutoSFInteraction
    interaction_kwargs = dict(coefficients=[(0, 0, 2, 1), (1, 1, 0, -1), (2, 1, 1, 1), (0, 1, 1, -1)])


class TestRESCAL(FactorizationTestCase):
    cls = RESCALFactorization
    interaction_cls = RESCALInteraction
    graphs = GRAPHS


class TestMultiLinearTucker(FactorizationTestCase):
    """With another number of features for heads than for tails."""

    cls = MultiLinearTuckerFactorization
    interaction_cls = MultiLinearTuckerInteraction
    interaction_kwargs = dict(head_dim=3, relation_dim=2, tail_dim=4)

    @classmethod
    def make_interaction(cls) -> Interaction:
        """Make one whose scores are not all zero, as they are in PyKEEN 1.11.1: it takes the reciprocal of an integer."""
        interaction: Any = super().make_interaction()
        interaction.reset_parameters = partial(torch.nn.init.normal_, interaction.core_tensor)
        return interaction


class TestTuckER(FactorizationTestCase):
    cls = TuckERFactorization
    interaction_cls = TuckERInteraction
    interaction_kwargs = dict(
        embedding_dim=3,
        head_dropout=0.0,
        relation_dropout=0.0,
        head_relation_dropout=0.0,
        apply_batch_normalization=False,
    )


class TestNTN(FactorizationTestCase):
    cls = NTNFactorization
    interaction_cls = NTNInteraction
    interaction_kwargs = dict(activation=torch.nn.Identity)


class TestTransE(FactorizationTestCase):
    cls = TransEFactorization
    interaction_cls = TransEInteraction
    interaction_kwargs = dict(p=2, power_norm=True)


class TestTransEWithoutPower(FactorizationTestCase):
    cls = TransEFactorization
    interaction_cls = TransEInteraction
    interaction_kwargs = dict(p=2, power_norm=False)


class TestTransEWithOptions(FactorizationTestCase):
    cls = TransEFactorization
    interaction_cls = TransEInteraction
    interaction_kwargs = dict(p=2, power_norm=True)
    factorization_kwargs = dict(scale=0.7, offset=-0.4)


class TestTransEOfOneDimension(FactorizationTestCase):
    cls = TransEFactorization
    interaction_cls = TransEInteraction
    interaction_kwargs = dict(p=2)
    sizes = dict(d=1)


class TestUM(FactorizationTestCase):
    """Relations have no representation at all."""

    cls = UMFactorization
    interaction_cls = UMInteraction
    interaction_kwargs = dict(p=2)


class TestRotatE(FactorizationTestCase):
    """Entities have any length, but relations are rotations."""

    cls = RotatEFactorization
    interaction_cls = RotatEInteraction
    relation_kwargs = dict(normalizer=complex_normalize)


class TestMuRE(FactorizationTestCase):
    """Heads have other features than tails."""

    graphs = GRAPHS
    cls = MuREFactorization
    interaction_cls = MuREInteraction
    interaction_kwargs = dict(p=2, power_norm=True)
    factorization_kwargs = dict(scale=0.7, offset=1.4)


class TestPairRE(FactorizationTestCase):
    cls = PairREFactorization
    interaction_cls = PairREInteraction
    interaction_kwargs = dict(p=2)


class TestLineaRE(FactorizationTestCase):
    cls = LineaREFactorization
    interaction_cls = LineaREInteraction
    interaction_kwargs = dict(p=2)


class TestTripleRE(FactorizationTestCase):
    cls = TripleREFactorization
    interaction_cls = TripleREInteraction
    interaction_kwargs = dict(p=2, power_norm=True, u=0.6)


class TestTripleREWithoutOffset(FactorizationTestCase):
    cls = TripleREFactorization
    interaction_cls = TripleREInteraction
    interaction_kwargs = dict(p=2, u=None)


class TestDistMA(FactorizationTestCase):
    cls = DistMAFactorization
    interaction_cls = DistMAInteraction


class TestTransF(FactorizationTestCase):
    cls = TransFFactorization
    interaction_cls = TransFInteraction


class TestProjE(FactorizationTestCase):
    cls = ProjEFactorization
    interaction_cls = ProjEInteraction
    interaction_kwargs = dict(embedding_dim=3, inner_activation=torch.nn.Identity, bias_initializer="normal_")


class TestCrossE(FactorizationTestCase):
    cls = CrossEFactorization
    interaction_cls = CrossEInteraction
    interaction_kwargs = dict(embedding_dim=3, combination_activation=torch.nn.Identity, combination_dropout=None)


class TestClampedWithoutClamp(FactorizationTestCase):
    cls = DistMultFactorization
    interaction_cls = ClampedInteraction
    interaction_kwargs = dict(base=DistMultInteraction)


class TestSimplE(FactorizationTestCase):
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


class TestAverageOfComplEx(AverageTestCase):
    cls = AverageTrilinearFactorization
    interaction_kwargs = dict(base="ComplEx")
    is_complex = True


class TestAverageOfTransE(AverageTestCase):
    cls = AverageTrilinearFactorization
    interaction_kwargs = dict(base="TransE", base_kwargs=dict(p=2, power_norm=True))


class TestAverageOfTransF(AverageTestCase):
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


class TestAffineDistMult(AffineTestCase):
    cls = AffineTrilinearFactorization
    base = DistMultInteraction()


class TestAffineTransE(AffineTestCase):
    cls = AffineTrilinearFactorization
    base = TransEInteraction(p=2, power_norm=True)


class TestAffineTransEWithoutPower(AffineTestCase):
    cls = AffineTrilinearFactorization
    base = TransEInteraction(p=2)


class TestAffineUM(AffineTestCase):
    cls = AffineTrilinearFactorization
    base = UMInteraction(p=2)


class TestAffineMuRE(AffineTestCase):
    cls = AffineTrilinearFactorization
    base = MuREInteraction(p=2, power_norm=True)


class TestAffineRESCAL(AffineTestCase):
    cls = AffineMatrixFactorization
    base = RESCALInteraction()


class TestAffineSimplE(AffineTestCase):
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


class TwistInteraction(DistMultInteraction):
    """Scores that change when head and tail change places."""

    def forward(self, h, r, t):  # type: ignore[no-untyped-def]
        return (h.roll(1, dims=-1) * r * t).sum(dim=-1)


class TwistFactorization(Factorization):
    """Says what queries are, and leaves all else to the form."""

    interaction_cls = TwistInteraction

    def heads(self, *representations: torch.Tensor) -> torch.Tensor:
        return representations[0]

    def relations(self, *representations: torch.Tensor) -> torch.Tensor:
        return representations[0]

    @property
    def form(self) -> Form:
        return FunctionForm(lambda heads, relations: heads.roll(1, dims=-1) * relations)

    def query_moments(self, heads: Moments, relations: torch.Tensor, weights: torch.Tensor | None = None) -> Moments:
        r = Moments.of(relations, weights)
        second = heads.second.roll((1, 1), dims=(0, 1))
        return Moments(heads.count * r.count, heads.first.roll(1) * r.first, second * r.second)


class TestFormOfFunctions(FactorizationTestCase):
    graphs = GRAPHS
    cls = TwistFactorization
    interaction_cls = TwistInteraction

    @pytest.fixture(autouse=True)
    def _register(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(factorization_resolver, "lookup_dict", {**factorization_resolver.lookup_dict})
        factorization_resolver.register(TwistFactorization)


def test_every_registered_factorization_has_a_case() -> None:
    assert {cls.cls for cls in FactorizationTestCase.__subclasses__() if "cls" in vars(cls)} >= set(factorization_resolver)


def test_all_graphs_are_tried_with_each_kind_of_form() -> None:
    cases = [cls for cls in FactorizationTestCase.__subclasses__() if cls.graphs is GRAPHS]
    assert len(cases) >= 4
    assert len({type(cls.cls(cls.make_interaction()).form) for cls in cases}) == 3


def test_gradient_of_changed_queries_is_not_inherited() -> None:
    """A subclass that changes the form gets the gradient that belongs to it, from either end."""

    class Scaled(DistMultFactorization):
        @property
        def form(self) -> Form:
            return FunctionForm(lambda heads, relations: 3 * heads * relations)

    h, r, grad = (torch.randn(5, 3) for _ in range(3))
    form = Scaled(DistMultInteraction()).form
    for end in (form, form.reverse, form.reverse.reverse):
        torch.testing.assert_close(end.queries(h, r), 3 * h * r)
        for one, other in zip(end.backward(h, r, grad), (3 * r * grad, 3 * h * grad), strict=True):
            torch.testing.assert_close(one, other)


def test_head_queries_that_give_other_scores_are_refused() -> None:
    class Untwisted(TwistFactorization):
        @property
        def form(self) -> Form:
            return FunctionForm(super().form.queries, lambda tails, relations: tails * relations)

    e, r = torch.randn(5, 3), torch.randn(2, 3)
    TwistFactorization(TwistInteraction()).check_head_queries(e, r, e)
    with pytest.raises(NotDecomposableError, match="Untwisted gives other scores from its other end"):
        Untwisted(TwistInteraction()).check_head_queries(e, r, e)


def test_functions_of_one_relation_at_a_time() -> None:
    form, expected = FunctionForm(lambda heads, relations: heads @ relations[0], by_relation=True), MatrixForm()
    entities, relations, pairs = torch.randn(5, 3), torch.randn(2, 3, 3), torch.tensor([[0, 0], [4, 0], [1, 1]])
    for one, other in ((form, expected), (form.reverse, expected.reverse), (form.reverse.reverse, expected)):
        torch.testing.assert_close(one.of_pairs(entities, relations, pairs), other.of_pairs(entities, relations, pairs))


def test_subclass_that_inherits_the_score_is_decomposed() -> None:
    class Renamed(DistMultInteraction):
        pass

    assert isinstance(factorize(Renamed()), DistMultFactorization)


def test_subclass_with_a_score_of_its_own_is_not() -> None:
    class Other(DistMultInteraction):
        def forward(self, h, r, t):  # type: ignore[no-untyped-def]
            return super().forward(h, r, t).tanh()

    with pytest.raises(NotDecomposableError, match="Other cannot be decomposed"):
        factorize(Other())


def test_transe_in_the_paper_is_a_special_case() -> None:
    """On the unit sphere, the paper's four terms give the same sum of squares as the lifted form."""
    model = ERModel(
        triples_factory=make_factory([(0, 0, 1)], 7, 4),
        interaction=TransEInteraction(p=2, power_norm=True),
        entity_representations_kwargs=dict(shape=5),
        relation_representations_kwargs=dict(shape=5),
        random_seed=0,
    ).double()
    e, r = (
        torch.nn.functional.normalize(x[0](indices=None).detach(), dim=-1)
        for x in (model.entity_representations, model.relation_representations)
    )
    factorization = factorize(model.interaction)
    second = factorization.score_moments(factorization.heads(e), factorization.relations(r), factorization.tails(e)).second
    gram_e, gram_r, sum_e = e.T @ e, r.T @ r, e.sum(dim=0)
    four_terms = 2 * len(e) * (gram_e * gram_r).sum() + len(r) * (gram_e * gram_e).sum() - 2 * sum_e @ gram_r @ sum_e
    torch.testing.assert_close(second, 4 / 9 * four_terms)
