"""Forms and factorizations of one's own equal brute force, with what the base classes make of them."""

import pytest
import torch
from factorization_case import FactorizationTestCase
from graphs import GRAPHS
from pykeen.nn.modules import DistMultInteraction

from pykeen_nonsampling.factorizations import (
    DistMultFactorization,
    Factorization,
    Form,
    FunctionForm,
    MatrixForm,
    Moments,
    NotDecomposableError,
    factorization_resolver,
)


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
