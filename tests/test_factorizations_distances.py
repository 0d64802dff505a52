"""Squared distances equal brute force."""

import pytest
import torch
from factorization_case import TrilinearTestCase
from graphs import GRAPHS, make_factory
from pykeen.models import ERModel
from pykeen.nn.modules import (
    ClampedInteraction,
    LineaREInteraction,
    MuREInteraction,
    PairREInteraction,
    RotatEInteraction,
    TransEInteraction,
    TripleREInteraction,
    UMInteraction,
)
from pykeen.utils import complex_normalize

from pykeen_nonsampling.factorizations import (
    LineaREFactorization,
    MuREFactorization,
    PairREFactorization,
    RotatEFactorization,
    TransEFactorization,
    TripleREFactorization,
    UMFactorization,
    factorize,
)


class TestTransE(TrilinearTestCase):
    cls = TransEFactorization
    interaction_cls = TransEInteraction
    interaction_kwargs = dict(p=2, power_norm=True)


class TestTransEWithoutPower(TrilinearTestCase):
    cls = TransEFactorization
    interaction_cls = TransEInteraction
    interaction_kwargs = dict(p=2, power_norm=False)


class TestTransEWithOptions(TrilinearTestCase):
    cls = TransEFactorization
    interaction_cls = TransEInteraction
    interaction_kwargs = dict(p=2, power_norm=True)
    factorization_kwargs = dict(scale=0.7, offset=-0.4, squared=True)


class TestTransEOfOneDimension(TrilinearTestCase):
    cls = TransEFactorization
    interaction_cls = TransEInteraction
    interaction_kwargs = dict(p=2)
    sizes = dict(d=1)


class TestUM(TrilinearTestCase):
    """Relations have no representation at all."""

    cls = UMFactorization
    interaction_cls = UMInteraction
    interaction_kwargs = dict(p=2)


class TestRotatE(TrilinearTestCase):
    """Entities have any length, but relations are rotations."""

    cls = RotatEFactorization
    interaction_cls = RotatEInteraction
    relation_kwargs = dict(normalizer=complex_normalize)


class TestRotatEWithOptions(TrilinearTestCase):
    """Trained on the square, also where the model's own score is the norm."""

    cls = RotatEFactorization
    interaction_cls = RotatEInteraction
    relation_kwargs = dict(normalizer=complex_normalize)
    factorization_kwargs = dict(scale=0.1, squared=True)
    sizes = dict(d=2)


class TestMuRE(TrilinearTestCase):
    """Heads have other features than tails."""

    graphs = GRAPHS
    cls = MuREFactorization
    interaction_cls = MuREInteraction
    interaction_kwargs = dict(p=2, power_norm=True)
    factorization_kwargs = dict(scale=0.7, offset=1.4)


class TestPairRE(TrilinearTestCase):
    cls = PairREFactorization
    interaction_cls = PairREInteraction
    interaction_kwargs = dict(p=2)


class TestLineaRE(TrilinearTestCase):
    cls = LineaREFactorization
    interaction_cls = LineaREInteraction
    interaction_kwargs = dict(p=2)


class TestTripleRE(TrilinearTestCase):
    cls = TripleREFactorization
    interaction_cls = TripleREInteraction
    interaction_kwargs = dict(p=2, power_norm=True, u=0.6)


class TestTripleREWithoutOffset(TrilinearTestCase):
    cls = TripleREFactorization
    interaction_cls = TripleREInteraction
    interaction_kwargs = dict(p=2, u=None)


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


def test_squares_are_for_scores_that_rank_like_them() -> None:
    with pytest.raises(ValueError, match=r"squared='yes' has to be True or False"):
        factorize(TransEInteraction(p=2), factorization_kwargs=dict(squared="yes"))
    clamped = ClampedInteraction(base=TransEInteraction(p=2), clamp_score=3.0)
    with pytest.raises(ValueError, match=r"squared=True trains on another score .* Remove one of them"):
        factorize(clamped, factorization_kwargs=dict(squared=True))
