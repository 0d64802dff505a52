"""Weights: what the user leaves out is derived from graph and model; what the user says is taken as it is."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from graphs import GRAPHS, make_factory
from pykeen.models import ComplEx, DistMult, Model, TransE
from pykeen.triples import CoreTriplesFactory
from weights import UNIFORM

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingLoss, NonSamplingTrainingLoop
from pykeen_nonsampling.factorizations import Family
from pykeen_nonsampling.graph.frequencies import Frequencies
from pykeen_nonsampling.graph.sides import Side
from pykeen_nonsampling.losses import AutomaticLoss, FactorizedLoss, SoftmaxLoss
from pykeen_nonsampling.losses.automatic import choose_loss
from pykeen_nonsampling.losses.constants import CONSTANTS, constant
from pykeen_nonsampling.losses.weights import weigh_triples
from pykeen_nonsampling.memory.task import Counts

FACTORY = GRAPHS["ordinary"]

#: One query has a hundred answers, another one has one
HUB = make_factory([(0, 0, t) for t in range(100)] + [(1, 0, 0)], 400, 1)


def make_distmult(factory: CoreTriplesFactory = FACTORY, **loss_kwargs: Any) -> Model:
    loss = NonSamplingLoss(**{"negative_weight": 0.1, **UNIFORM, **loss_kwargs})
    return DistMult(triples_factory=factory, embedding_dim=4, random_seed=0, loss=loss, regularizer=None).double()


def defaults(
    loss: FactorizedLoss, factory: CoreTriplesFactory, family: Family = Family.BLOCK_DIAGONAL, closed_world: bool = False
) -> dict[str, float]:
    return loss.default_weights(Frequencies.of(factory), family, closed_world)


def sides(model: Model, factory: CoreTriplesFactory = FACTORY, **kwargs: Any) -> dict[str, Side]:
    """Train for an epoch in the local closed world, and return the weighted sides."""
    loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=factory, **kwargs)
    loop.train(factory, num_epochs=1, use_tqdm=False)
    return {side.target: side for side in loop._batch(factory).sides}


class TestDefaults:
    @pytest.mark.parametrize("positive_weight", [1.0, 0.2])
    def test_query_weights_never_exceed_that_of_a_positive(self, positive_weight: float) -> None:
        loss = NonSamplingLoss(positive_weight=positive_weight)
        model = DistMult(triples_factory=HUB, embedding_dim=200, random_seed=0, loss=loss)
        side = sides(model, HUB)["tail"]
        assert side.weights.queries.tolist() == pytest.approx([positive_weight, positive_weight / 4])  # type: ignore[union-attr]
        assert model.loss.negative_weight == pytest.approx(positive_weight / 4)
        assert model.loss.query_weight == pytest.approx(0.301, abs=1e-3)
        assert model.loss.candidate_weight == CONSTANTS["exponent of candidates"][None]

    def test_the_other_end_has_hubs_too(self) -> None:
        """The exponent of queries looks at both ends."""
        reversed_hub = make_factory([(t, 0, 0) for t in range(100)] + [(0, 0, 1)], 400, 1)
        one, other = (defaults(NonSamplingLoss(), factory)["query_weight"] for factory in (HUB, reversed_hub))
        assert one == pytest.approx(other)

    def test_exponent_of_large_graphs(self) -> None:
        factory = make_factory([(0, 0, t) for t in range(100)], 40_000, 1)
        weights = defaults(NonSamplingLoss(), factory)
        assert (weights["negative_weight"], weights["query_weight"]) == (0.0025, 0.5)

    @pytest.mark.parametrize(
        ("model", "kwargs", "mass"),
        [
            (DistMult, dict(embedding_dim=40), 20.0),
            (DistMult, dict(embedding_dim=400), 100.0),
            # a complex number is two features
            (ComplEx, dict(embedding_dim=40), 40.0),
        ],
    )
    def test_negatives_weigh_less_with_few_features(self, model: type[Any], kwargs: dict[str, int], mass: float) -> None:
        made = model(triples_factory=HUB, random_seed=0, loss=NonSamplingLoss(), **kwargs)
        sides(made, HUB)
        assert made.loss.negative_weight == pytest.approx(mass / 400)

    @pytest.mark.parametrize("inverse", [False, True])
    @pytest.mark.parametrize(("num_triples", "mass"), [(100, 0.5), (400, 0.5 * 4**1.25), (1_600, 10.0)])
    def test_negatives_of_distances_weigh_less_with_few_triples(self, num_triples: int, mass: float, inverse: bool) -> None:
        """Inverse triples say nothing new, so they do not count."""
        numbers = torch.arange(num_triples)
        triples = torch.stack([numbers % 100, torch.zeros_like(numbers), numbers // 100], dim=1)
        factory = CoreTriplesFactory(triples, 100, 1, create_inverse_triples=inverse)
        loss = NonSamplingLoss()
        model = TransE(triples_factory=factory, random_seed=0, embedding_dim=4, scoring_fct_norm=2, loss=loss)
        sides(model, factory)
        assert model.loss.negative_weight == pytest.approx(mass / 100)

    def test_explicit_query_weights_are_not_bounded(self) -> None:
        side = sides(make_distmult(HUB, negative_weight=0.25, query_weight=0.5), HUB)["tail"]
        assert side.weights.queries.tolist() == pytest.approx([2.5, 0.25])  # type: ignore[union-attr]

    def test_small_graphs(self) -> None:
        model = DistMult(triples_factory=FACTORY, embedding_dim=50, random_seed=0, loss=NonSamplingLoss())
        # the same for all
        assert sides(model)["head"].weights.queries == 1.0
        assert model.loss.negative_weight == 1.0

    def test_families_have_their_own(self) -> None:
        model = TransE(triples_factory=HUB, random_seed=0, scoring_fct_norm=2, loss=NonSamplingLoss())
        sides(model, HUB)
        assert model.loss.candidate_weight == CONSTANTS["exponent of candidates"][Family.SQUARED_DISTANCE]
        assert model.loss.regularization_weight == 0.0
        assert constant("regularization", Family.OTHER) == CONSTANTS["regularization"][None]

    @pytest.mark.parametrize(
        ("family", "kwargs", "expected"),
        [
            (Family.BLOCK_DIAGONAL, {}, (0.05, 0.0)),
            (Family.BLOCK_DIAGONAL, dict(duality_weight=0.3), (0.0, 0.0)),
            (Family.BLOCK_DIAGONAL, dict(duality_weight=0.0), (0.05, 0.0)),
            (Family.FULL_MATRIX, {}, (0.0, 0.12)),
            (Family.FULL_MATRIX, dict(regularization_weight=0.3), (0.0, 0.0)),
            (Family.FULL_MATRIX, dict(regularization_weight=0.0), (0.0, 0.0)),
        ],
        ids=str,
    )
    def test_one_kind_of_regularization(
        self, family: Family, kwargs: dict[str, float], expected: tuple[float, float]
    ) -> None:
        weights = defaults(NonSamplingLoss(**kwargs), FACTORY, family)
        assert (weights["regularization_weight"], weights["duality_weight"]) == expected

    @pytest.mark.parametrize(("family", "mass"), [(Family.BLOCK_DIAGONAL, 20.0), (Family.SQUARED_DISTANCE, 3.0)])
    def test_closed_world(self, family: Family, mass: float) -> None:
        """All triples together weigh so many times as much as all positives."""
        factory = make_factory([(0, 0, 1), (1, 1, 2)], 100, 2)
        weight = defaults(NonSamplingLoss(positive_weight=0.5), factory, family, closed_world=True)["negative_weight"]
        assert weight * 100 * 2 * 100 == pytest.approx(mass * 0.5 * 2)
        assert defaults(NonSamplingLoss(), FACTORY, family, closed_world=True)["negative_weight"] <= 1.0

    @pytest.mark.parametrize("name", ["head_weight", "tail_weight"])
    def test_nothing_is_added_to_weights_of_entities(self, name: str) -> None:
        loss = NonSamplingLoss(**{name: 0.5})
        assert defaults(loss, FACTORY)["candidate_weight"] == 0.0


class TestRecords:
    """What is derived is on the loss, in the log, and nowhere to be guessed."""

    @pytest.mark.parametrize("loop_cls", [NonSamplingTrainingLoop, NonSamplingLCWATrainingLoop])
    def test_one_line(self, loop_cls: Any, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "pykeen_nonsampling")
        model = DistMult(triples_factory=FACTORY, random_seed=0, loss=NonSamplingLoss())
        loop_cls(model=model, triples_factory=FACTORY).train(FACTORY, num_epochs=20, use_tqdm=False)
        (message,) = [r.getMessage() for r in caplog.records if r.name.startswith("pykeen_nonsampling")]
        assert message.startswith("Derived from graph and model: loss_kwargs={'negative_weight': ")
        assert f"'regularization_weight': {model.loss.regularization_weight}" in message

    def test_nothing_is_said_if_nothing_is_left_out(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "pykeen_nonsampling")
        sides(make_distmult())
        assert not [r for r in caplog.records if "Derived" in r.getMessage()]

    def test_the_users_own_loss_is_left_as_it_was(self) -> None:
        """It may be used for another graph."""
        loss = NonSamplingLoss()
        for factory in (FACTORY, HUB):
            model = DistMult(triples_factory=factory, embedding_dim=200, random_seed=0, loss=loss)
            sides(model, factory)
            assert loss.negative_weight is None
            assert model.loss.negative_weight == min(1.0, 100 / factory.num_entities)

    def test_another_graph_gets_its_own(self) -> None:
        model = DistMult(triples_factory=HUB, embedding_dim=200, random_seed=0, loss=NonSamplingLoss())
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=HUB)
        few = make_factory([(0, 0, 1), (0, 0, 2)], 400, 1)
        exponents = []
        for factory in (HUB, few, HUB):
            loop.train(factory, num_epochs=1, use_tqdm=False)
            exponents.append(loop.loss.query_weight)
        assert exponents == pytest.approx([0.301, 0.5, 0.301], abs=1e-3)

    def test_other_triples_do_not_change_what_was_derived(self) -> None:
        model = DistMult(triples_factory=FACTORY, random_seed=0, loss=NonSamplingLoss())
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=FACTORY)
        loop.train(FACTORY, num_epochs=1, use_tqdm=False)
        loss = loop.loss
        loop._batch(make_factory([(0, 0, 1)], 5, 3))
        assert loop.loss is loss


class TestTensors:
    def test_mean_of_candidate_weights_is_one(self) -> None:
        for side in sides(make_distmult(candidate_weight=0.7)).values():
            assert side.weights.candidates is not None
            assert side.weights.candidates.mean() == pytest.approx(1.0)

    def test_weights_of_triples(self) -> None:
        loss = NonSamplingLoss(head_weight=1.0, relation_weight=lambda n: n)
        weights = weigh_triples(loss, Frequencies.of(FACTORY), torch.double)
        # of the heads, 0 has two triples, 1 to 4 have one each
        assert weights.heads is not None
        assert weights.heads.tolist() == pytest.approx([15 / 11, *[10 / 11] * 4])
        assert weights.relations is not None
        assert weights.relations.tolist() == pytest.approx([1.5, 1.0, 0.5])
        assert weights.tails is None


class TestSuitableLoss:
    @pytest.mark.parametrize(
        ("loop", "model", "loss"),
        [
            (NonSamplingLCWATrainingLoop, TransE, SoftmaxLoss),
            (NonSamplingLCWATrainingLoop, DistMult, SoftmaxLoss),
            (NonSamplingTrainingLoop, TransE, NonSamplingLoss),
        ],
    )
    def test_replaces_an_automatic_loss(self, loop: Any, model: Any, loss: type) -> None:
        """With all weights that were given."""
        given = AutomaticLoss(positive_weight=2.0, regularization_weight=0.5)
        kwargs = dict(scoring_fct_norm=2) if model is TransE else {}
        made = model(triples_factory=HUB, random_seed=0, embedding_dim=4, loss=given, **kwargs)
        loop(model=made, triples_factory=HUB).train(HUB, num_epochs=1, use_tqdm=False)
        assert type(made.loss) is loss
        assert (made.loss.positive_weight, made.loss.regularization_weight) == (2.0, 0.5)

    @pytest.mark.parametrize(
        ("num_triples", "inverse", "divided", "loss"),
        [
            (10_000, False, False, SoftmaxLoss),
            (10_001, False, False, NonSamplingLoss),
            # one end of twice as many triples
            (20_000, True, False, SoftmaxLoss),
            (100, False, True, NonSamplingLoss),
        ],
    )
    def test_depends_on_what_scores_cost(self, num_triples: int, inverse: bool, divided: bool, loss: type) -> None:
        counts = Counts(10**6, 10, num_triples, (1, 1), num_fetched=10 if divided else 0, inverse=inverse)
        assert choose_loss(counts, closed_world=False) is loss
        assert choose_loss(counts, closed_world=True) is NonSamplingLoss

    def test_with_label_smoothing_it_is_the_squared_one(self) -> None:
        model = TransE(triples_factory=HUB, random_seed=0, embedding_dim=4, scoring_fct_norm=2, loss=AutomaticLoss())
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=HUB)
        loop.train(HUB, num_epochs=1, label_smoothing=0.1, use_tqdm=False)
        assert type(model.loss) is NonSamplingLoss

    def test_has_no_objective_itself(self) -> None:
        with pytest.raises(NotImplementedError, match="depends on the graph"):
            AutomaticLoss().objective()


class TestFunctions:
    """A function that does not give weights is named, with what it gave."""

    @pytest.mark.parametrize("loop_cls", [NonSamplingTrainingLoop, NonSamplingLCWATrainingLoop])
    @pytest.mark.parametrize(
        ("function", "error", "message"),
        [
            (lambda n: 1.0, TypeError, "gives 1.0 of type float, but has to return a tensor of shape"),
            (lambda n: n.tolist(), TypeError, "gives .* of type list, but has to return a tensor of shape"),
            (lambda n: n.cfloat(), TypeError, "gives .* of type torch.complex64, but has to return a tensor of shape"),
            (lambda n: n[:2], ValueError, r"gives weights of shape \(2,\), but the shape must be"),
            (lambda n: n - 100, ValueError, "gives weights from -.* but a weight must be a finite number ≥ 0"),
            (lambda n: n / 0, ValueError, "gives weights from .*(nan|inf).* but a weight must be a finite number ≥ 0"),
            (lambda n: 0 * n, ValueError, "gives only zeros, but some weights have to be > 0"),
            (lambda n, m: n, ValueError, r"fails, called with 1 tensor\(s\).*missing 1 required positional argument"),
        ],
        ids=["number", "list", "complex", "shape", "negative", "infinite", "zeros", "arguments"],
    )
    def test_of_numbers(self, loop_cls: Any, function: Any, error: type[Exception], message: str) -> None:
        model = make_distmult(tail_weight=function)
        with pytest.raises(error, match=rf"tail_weight=.*<lambda> {message}"):
            loop_cls(model=model, triples_factory=FACTORY).train(FACTORY, num_epochs=1, use_tqdm=False)

    @pytest.mark.parametrize(
        ("function", "error", "message"),
        [
            (lambda e, r, n: 0 * n, ValueError, "gives only zeros"),
            (lambda e, r, n: 1, TypeError, r"gives 1 of type int.*e\.g\. torch.ones_like\(positives\)"),
            (lambda n: n, ValueError, r"fails, called with 3 tensor\(s\)"),
        ],
        ids=["zeros", "number", "arguments"],
    )
    def test_of_queries(self, function: Any, error: type[Exception], message: str) -> None:
        with pytest.raises(error, match=rf"query_weight=.*<lambda> {message}"):
            sides(make_distmult(query_weight=function))

    def test_weights_are_constants(self) -> None:
        """A function may compute them with parameters of its own."""
        factor = torch.nn.Parameter(torch.ones(()))
        model = make_distmult(tail_weight=lambda n: factor * (1 + n))
        loop = NonSamplingTrainingLoop(model=model, triples_factory=FACTORY)
        assert len(loop.train(FACTORY, num_epochs=3, use_tqdm=False) or []) == 3
        assert factor.grad is None

    def test_together_they_leave_no_negatives(self) -> None:
        """Each gives some weights > 0, but not to the same candidates."""
        factory = GRAPHS["entity without triple"]
        functions: dict[str, Any] = dict(candidate_weight=lambda n: n > 0, tail_weight=lambda n: n == 0)
        with pytest.raises(ValueError, match=r"candidate_weight=.*tail_weight=.*negatives weigh up to 0,"):
            sides(make_distmult(factory, **functions), factory)


class TestPrecision:
    """Weights that leave nothing of others are refused, with what they led to."""

    @pytest.mark.parametrize(
        ("kwargs", "message"),
        [
            (dict(candidate_weight=100), r"candidate_weight=100 gives weights from .* to inf in torch.float32.*base is 3"),
            (dict(query_weight=200), r"query_weight=200 gives weights from 1.0 to inf in torch.float32.*base is 2"),
            (dict(head_weight=100.0), r"head_weight=100 gives weights from .* to inf in torch.float32"),
            (dict(tail_weight=-500.0), r"tail_weight=-500 gives only zeros"),
            (dict(negative_weight=1e30), r"negative_weight=1e\+30, negatives weigh up to 1e\+30, and positives up to 1:"),
            (dict(negative_weight=1e-10, positive_weight=1e-18), r"negatives weigh up to 1e-10, and positives up to 1e-18"),
            (dict(regularization_weight=1e10), r"regularization_weight=1e\+10 swamps positive_weight=1 in float32"),
            (dict(duality_weight=1e10), r"duality_weight=1e\+10 swamps positive_weight=1 in float32"),
            (dict(positive_weight=1e20), r"positive_weight=1e\+20 is too large.*e\.g\. positive_weight=1.0"),
            (dict(positive_weight=1e-20), r"positive_weight=1e-20 is too small.*e\.g\. positive_weight=1.0"),
        ],
        ids=str,
    )
    def test_squared_loss(self, kwargs: dict[str, Any], message: str) -> None:
        """A square of 1e20 is too large for 32 bits, but not for 64."""
        model = make_distmult(**kwargs).float()
        with pytest.raises(ValueError, match=message):
            sides(model)

    def test_positives_of_a_loss_that_weighs_queries_weigh_all_of_it(self) -> None:
        def make(**kwargs: Any) -> Model:
            return DistMult(triples_factory=FACTORY, random_seed=0, loss=SoftmaxLoss(**{**UNIFORM, **kwargs}))

        sides(make(positive_weight=1e-10))
        with pytest.raises(
            ValueError, match=r"query_weight=50.0, negatives weigh up to 1.1259e\+15, and positives up to 1:"
        ):
            sides(make(positive_weight=1e10, query_weight=50))

    def test_closed_world(self) -> None:
        model = make_distmult(negative_weight=1e6, head_weight=10, tail_weight=10).float()
        loop = NonSamplingTrainingLoop(model=model, triples_factory=FACTORY)
        with pytest.raises(ValueError, match=r"negative_weight=1000000.0, head_weight=10.0, tail_weight=10.0, negatives"):
            loop.train(FACTORY, num_epochs=1, use_tqdm=False)

    @pytest.mark.parametrize(
        "kwargs", [dict(negative_weight=1e6), dict(regularization_weight=1e6), dict(positive_weight=1e18)]
    )
    def test_what_is_left_is_accepted(self, kwargs: dict[str, Any]) -> None:
        sides(make_distmult(**{"negative_weight": kwargs.get("positive_weight", 1.0), **kwargs}).float())

    def test_more_digits_for_more(self) -> None:
        sides(make_distmult(negative_weight=1e10, candidate_weight=100))
