"""Every factorization equals brute force."""

import pytest
import torch
from cases import FactorizationTestCase, make_factory
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import ERModel
from pykeen.nn.modules import (
    ClampedInteraction,
    ComplExInteraction,
    DistMultInteraction,
    SimplEInteraction,
    TransEInteraction,
)
from pykeen.triples import CoreTriplesFactory

from pykeen_nonsampling import FactorizedRankBasedEvaluator
from pykeen_nonsampling.factorizations import (
    ComplExFactorization,
    DistMultFactorization,
    Factorization,
    Moments,
    NotDecomposableError,
    SimplEFactorization,
    TransEFactorization,
    factorization_resolver,
    factorize,
)


class TestDistMult(FactorizationTestCase):
    cls = DistMultFactorization
    interaction_cls = DistMultInteraction


class TestSimplE(FactorizationTestCase):
    cls = SimplEFactorization
    interaction_cls = SimplEInteraction


class TestClampedSimplEWithoutClamp(FactorizationTestCase):
    cls = SimplEFactorization
    interaction_cls = ClampedInteraction
    interaction_kwargs = dict(base=SimplEInteraction)


class TestComplEx(FactorizationTestCase):
    cls = ComplExFactorization
    interaction_cls = ComplExInteraction
    dtype = torch.cfloat


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


class TestOneDimension(FactorizationTestCase):
    cls = TransEFactorization
    interaction_cls = TransEInteraction
    interaction_kwargs = dict(p=2)
    dimension = 1


class TwistInteraction(DistMultInteraction):
    """Scores that change when head and tail change places."""

    def forward(self, h, r, t):  # type: ignore[no-untyped-def]
        return (h.roll(1, dims=-1) * r * t).sum(dim=-1)


class TwistFactorization(Factorization):
    """Says what queries are, and leaves all else to the base class."""

    interaction_cls = TwistInteraction

    def heads(self, *representations: torch.Tensor) -> torch.Tensor:
        return representations[0]

    def relations(self, *representations: torch.Tensor) -> torch.Tensor:
        return representations[0]

    def queries(self, heads: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
        return heads.roll(1, dims=-1) * relations

    def query_moments(self, heads: Moments, relations: torch.Tensor) -> Moments:
        r = Moments.of(relations)
        second = heads.second.roll((1, 1), dims=(0, 1))
        return Moments(heads.count * r.count, heads.first.roll(1) * r.first, second * r.second)


class TestDefaultsOfTheBaseClass(FactorizationTestCase):
    cls = TwistFactorization
    interaction_cls = TwistInteraction

    @pytest.fixture(autouse=True)
    def _register(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(factorization_resolver, "lookup_dict", {**factorization_resolver.lookup_dict})
        factorization_resolver.register(TwistFactorization)

    def test_ranks_equal_the_models(self, factory: CoreTriplesFactory, model: ERModel) -> None:
        triples = factory.mapped_triples
        ours, theirs = (
            evaluator.evaluate(model, triples, use_tqdm=False, batch_size=4).to_flat_dict()
            for evaluator in (FactorizedRankBasedEvaluator(), RankBasedEvaluator())
        )
        assert ours == pytest.approx(theirs, nan_ok=True)


def test_every_registered_factorization_has_a_case() -> None:
    cases = {cls.cls for cls in FactorizationTestCase.__subclasses__()}
    assert cases - {TwistFactorization} == set(factorization_resolver)


def test_head_queries_that_give_other_scores_are_refused() -> None:
    class Untwisted(TwistFactorization):
        def head_queries(self, tails: torch.Tensor, relations: torch.Tensor) -> torch.Tensor:
            return tails * relations

    e, r = torch.randn(5, 3), torch.randn(2, 3)
    TwistFactorization(TwistInteraction()).check_head_queries(e, r, e)
    with pytest.raises(NotDecomposableError, match="has to define head_queries"):
        Untwisted(TwistInteraction()).check_head_queries(e, r, e)


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
