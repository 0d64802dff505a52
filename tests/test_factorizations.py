"""Every factorization equals brute force."""

import pytest
import torch
from cases import FactorizationTestCase, make_factory
from pykeen.models import ERModel
from pykeen.nn.modules import (
    ClampedInteraction,
    ComplExInteraction,
    DistMultInteraction,
    SimplEInteraction,
    TransEInteraction,
)

from pykeen_nonsampling.factorizations import (
    ComplExFactorization,
    DistMultFactorization,
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


def test_every_registered_factorization_has_a_case() -> None:
    assert {cls.cls for cls in FactorizationTestCase.__subclasses__()} == set(factorization_resolver)


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
