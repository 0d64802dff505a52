"""What every factorization has to satisfy, against brute force over all triples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import pytest
import torch
from enumeration import (
    all_triples,
    enumerated_local_loss,
    enumerated_loss,
    enumerated_queries,
    enumerated_scores,
    softmax_cost,
)
from graphs import PECULIAR, WIDE
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import ERModel
from pykeen.nn.modules import DistMultInteraction, Interaction
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import LossWeighter
from pykeen.typing import LABEL_HEAD, LABEL_TAIL, RANK_OPTIMISTIC, RANK_PESSIMISTIC
from steps import TOLERANCE, Allocations, assert_first_step_equals
from weights import UNIFORM, WEIGHTED, QueryWeighter, TripleWeighter, weigh_by_everything

from pykeen_nonsampling import (
    Factorization,
    FactorizedRankBasedEvaluator,
    Moments,
    NonSamplingLCWATrainingLoop,
    NonSamplingLoss,
    NonSamplingTrainingLoop,
)
from pykeen_nonsampling.factorizations import DistMultFactorization, Form, TrilinearForm, factorize
from pykeen_nonsampling.factorizations.features import features
from pykeen_nonsampling.losses import SoftmaxLoss


def make_model(factory: CoreTriplesFactory, case: type[FactorizationTestCase], **kwargs: Any) -> ERModel:
    """Make a model in float64 whose vectors are on no sphere."""
    interaction = case.make_interaction()
    dtype = torch.cfloat if interaction.is_complex or case.is_complex else torch.float

    def representations(shapes: Sequence[str], **more: Any) -> list[dict[str, Any]]:
        return [
            dict(shape=[case.sizes[symbol] for symbol in shape], initializer="normal_", dtype=dtype, **{**kwargs, **more})
            for shape in shapes
        ]

    entities, relations = representations(interaction.entity_shape), representations(interaction.relation_shape)
    for representation in relations:
        representation.update(case.relation_kwargs)
    model: ERModel = ERModel(
        triples_factory=factory,
        interaction=interaction,
        entity_representations_kwargs=entities,
        relation_representations=None if relations else [],
        relation_representations_kwargs=relations or None,
        loss=NonSamplingLoss(positive_weight=1.5, negative_weight=0.2, **UNIFORM),
        random_seed=0,
        skip_checks=True,
    )
    return model.double()


class FactorizationTestCase:
    """A factorization equals its interaction, and its sums equal enumeration, in value and gradient."""

    cls: ClassVar[type[Factorization]]
    interaction_cls: ClassVar[type[Interaction]]
    interaction_kwargs: ClassVar[Mapping[str, Any]] = {}
    factorization_kwargs: ClassVar[Mapping[str, Any]] = {}
    is_complex: ClassVar[bool] = False
    #: the length of each dimension of PyKEEN's shapes
    sizes: ClassVar[Mapping[str, int]] = dict(d=3, e=2, f=4, k=2)
    relation_kwargs: ClassVar[Mapping[str, Any]] = {}
    #: the graphs to test on: a graph's peculiarities test the index, so representatives of each form suffice for them
    graphs: ClassVar[Mapping[str, CoreTriplesFactory]] = {"peculiar": PECULIAR}

    @classmethod
    def make_interaction(cls) -> Interaction:
        return cls.interaction_cls(**cls.interaction_kwargs)

    @pytest.fixture
    def factory(self, graph: str) -> CoreTriplesFactory:
        return self.graphs[graph]

    @pytest.fixture
    def model(self, factory: CoreTriplesFactory) -> ERModel:
        return make_model(factory, type(self))

    @pytest.fixture
    def factorization(self, model: ERModel) -> Factorization:
        return factorize(model.interaction, factorization_kwargs=self.factorization_kwargs)

    def test_found_for_the_interaction(self, factorization: Factorization) -> None:
        assert type(factorization) is self.cls

    def test_compiled_loops_are_tested_where_they_apply(self) -> None:
        form = factorize(self.make_interaction(), factorization_kwargs=self.factorization_kwargs).form
        assert isinstance(self, TrilinearTestCase) == (type(form) is TrilinearForm)

    def test_scores_equal_the_interaction(self, model: ERModel, factorization: Factorization) -> None:
        heads, relations, tails = features(model, factorization)
        h, r, t = all_triples(model.num_entities, model.num_relations).unbind(dim=-1)
        scores = (factorization.form.queries(heads[h], relations[r]) * tails[t]).sum(dim=-1)
        expected = enumerated_scores(model, factorization).view(-1)
        torch.testing.assert_close(scores, expected, **TOLERANCE)
        from_the_other_side = (factorization.form.reverse.queries(tails[t], relations[r]) * heads[h]).sum(dim=-1)
        torch.testing.assert_close(from_the_other_side, expected, **TOLERANCE)

    def test_gradient_of_queries_equals_automatic_differentiation(
        self, model: ERModel, factorization: Factorization
    ) -> None:
        heads, relations, tails = features(model, factorization)
        h, r, _ = all_triples(model.num_entities, model.num_relations).unbind(dim=-1)
        x, y = heads[h].detach(), relations[r].detach()
        grad = torch.randn(len(h), tails.shape[1], dtype=torch.double)
        before = [z.clone() for z in (x, y, grad)]
        expected = Form.backward(factorization.form, x, y, grad)
        for one, other in zip(factorization.form.backward(x, y, grad), expected, strict=True):
            torch.testing.assert_close(one, other, **TOLERANCE)
        assert all(torch.equal(one, other) for one, other in zip(before, (x, y, grad), strict=True))

    def test_gradient_of_head_queries_equals_automatic_differentiation(
        self, model: ERModel, factorization: Factorization
    ) -> None:
        heads, relations, tails = features(model, factorization)
        t, r, _ = all_triples(model.num_entities, model.num_relations).unbind(dim=-1)
        x, y = tails[t].detach(), relations[r].detach()
        grad = torch.randn(len(t), heads.shape[1], dtype=torch.double)
        before = [z.clone() for z in (x, y, grad)]
        expected = Form.backward(factorization.form.reverse, x, y, grad)
        for one, other in zip(factorization.form.reverse.backward(x, y, grad), expected, strict=True):
            torch.testing.assert_close(one, other, **TOLERANCE)
        assert all(torch.equal(one, other) for one, other in zip(before, (x, y, grad), strict=True))

    def test_query_moments_equal_enumeration(self, model: ERModel, factorization: Factorization) -> None:
        heads, relations, _ = features(model, factorization)
        h, r = torch.cartesian_prod(torch.arange(model.num_entities), torch.arange(model.num_relations)).unbind(dim=-1)
        expected = Moments.of(factorization.form.queries(heads[h], relations[r]))
        moments = factorization.query_moments(Moments.of(heads), relations)
        assert moments.count == expected.count
        torch.testing.assert_close(moments.first, expected.first, **TOLERANCE)
        torch.testing.assert_close(moments.second, expected.second, **TOLERANCE)
        w_h, w_r = (torch.rand(n, dtype=torch.double) for n in (model.num_entities, model.num_relations))
        expected = Moments.of(factorization.form.queries(heads[h], relations[r]), w_h[h] * w_r[r])
        moments = factorization.query_moments(Moments.of(heads, w_h), relations, w_r)
        assert moments.count == pytest.approx(expected.count)
        torch.testing.assert_close(moments.first, expected.first, **TOLERANCE)
        torch.testing.assert_close(moments.second, expected.second, **TOLERANCE)

    def test_score_moments_equal_enumeration_in_value_and_gradient(
        self, model: ERModel, factorization: Factorization
    ) -> None:
        scores = enumerated_scores(model, factorization)
        moments = factorization.score_moments(*features(model, factorization))
        assert moments.count == scores.numel()
        for power, moment in ((1, moments.first), (2, moments.second)):
            expected = scores.pow(power).sum()
            torch.testing.assert_close(moment, expected, **TOLERANCE)
            parameters = list(model.get_grad_params())
            for actual, wanted in zip(
                torch.autograd.grad(moment, parameters, retain_graph=True, materialize_grads=True),
                torch.autograd.grad(expected, parameters, retain_graph=True, materialize_grads=True),
                strict=True,
            ):
                torch.testing.assert_close(actual, wanted, **TOLERANCE)

    @pytest.mark.parametrize("loop_cls", [NonSamplingTrainingLoop, NonSamplingLCWATrainingLoop], ids=["closed", "local"])
    def test_nothing_of_the_size_of_all_pairs_is_allocated(self, loop_cls: Any) -> None:
        """Not of entities and relations, nor of two entities, nor anything else beside features, matrices and triples."""
        model = make_model(WIDE, type(self))
        loop = loop_cls(model=model, triples_factory=WIDE, factorization_kwargs=self.factorization_kwargs)
        factorization = factorize(model.interaction, factorization_kwargs=self.factorization_kwargs)
        with Allocations() as allocations:
            loop.train(WIDE, num_epochs=1, use_tqdm=False)
        heads, relations, tails = features(model, factorization)
        width = max(x[0].numel() for x in (heads, relations, tails))
        # a Fourier transform has twice as many numbers in between
        assert 0 < allocations.largest <= 2 * 400 * max(width, 4)
        assert allocations.largest < 400 * 100

    def test_ranks_equal_the_models(self, factory: CoreTriplesFactory, model: ERModel) -> None:
        ours, theirs = (
            evaluator.evaluate(model, factory.mapped_triples, use_tqdm=False, batch_size=4).to_flat_dict()
            for evaluator in (
                FactorizedRankBasedEvaluator(factorization_kwargs=self.factorization_kwargs),
                RankBasedEvaluator(),
            )
        )
        assert ours == pytest.approx(theirs, nan_ok=True)

    @pytest.mark.parametrize("batch_size", [None, 7, 1])
    def test_entities_with_the_same_vectors_tie(self, batch_size: int | None) -> None:
        """Also where rounding in PyKEEN depends on a candidate's position."""
        model, triples = make_model(WIDE, type(self)), WIDE.mapped_triples[:30]
        twin = torch.arange(400).roll(200)
        with torch.no_grad():
            for parameter in model.entity_representations.parameters():
                parameter[200:] = parameter[:200]
        evaluator = FactorizedRankBasedEvaluator(factorization_kwargs=self.factorization_kwargs, clear_on_finalize=False)
        evaluator.evaluate(model, triples, use_tqdm=False, batch_size=batch_size)
        known = {tuple(triple) for triple in triples.tolist()}
        for target, column in ((LABEL_HEAD, 0), (LABEL_TAIL, 2)):
            others = triples.clone()
            others[:, column] = twin[triples[:, column]]
            candidates = [tuple(triple) not in known for triple in others.tolist()]
            assert sum(candidates) > 15
            low, high = (torch.as_tensor(evaluator.ranks[target, x][0]) for x in (RANK_OPTIMISTIC, RANK_PESSIMISTIC))
            assert (high - low == torch.as_tensor(candidates)).all()

    @pytest.mark.parametrize(
        ("sweep", "memory_budget", "label_smoothing", "weighter", "loss_kwargs"),
        [
            ("sparse", None, 0.0, None, {}),
            ("gather", 1, 0.1, TripleWeighter(), WEIGHTED),
            ("sparse", 1, 0.0, TripleWeighter(), dict(reduction="mean", regularization_weight=0.3, duality_weight=0.4)),
            ("gather", None, 0.1, None, dict(reduction="mean", tail_weight="sqrt-popularity")),
        ],
        ids=["sparse", "weighted, gather", "mean, sparse", "popularity, gather"],
    )
    def test_loss_and_gradients_equal_enumeration(
        self,
        sweep: str,
        memory_budget: int | None,
        factory: CoreTriplesFactory,
        model: ERModel,
        factorization: Factorization,
        label_smoothing: float,
        weighter: LossWeighter | None,
        loss_kwargs: Mapping[str, Any],
    ) -> None:
        if label_smoothing and model.num_entities == 1:
            label_smoothing = 0.0  # refused, cf. test_errors
        if factorization.family.is_distance:
            loss_kwargs = {**loss_kwargs, "duality_weight": 0.0}  # refused, cf. test_errors
        model.loss = NonSamplingLoss(positive_weight=1.5, negative_weight=0.2, **{**UNIFORM, **loss_kwargs})
        loop = NonSamplingTrainingLoop(
            model=model,
            triples_factory=factory,
            factorization_kwargs=self.factorization_kwargs,
            loss_weighter=weighter,
        )
        assert_first_step_equals(
            loop,
            factory,
            lambda: enumerated_loss(model, factory, factorization, model.loss, label_smoothing, weighter),
            sweep=(sweep, memory_budget),
            label_smoothing=label_smoothing,
        )

    @pytest.mark.parametrize(
        ("sweep", "memory_budget", "target", "label_smoothing", "weighter", "loss_kwargs"),
        [
            ("sparse", None, "both", 0.0, None, {}),
            (
                "sparse",
                1,
                "tail",
                0.1,
                None,
                dict(query_weight=0.5, candidate_weight=0.7, regularization_weight=0.3, duality_weight=0.4),
            ),
            (
                "gather",
                None,
                "head",
                0.1,
                QueryWeighter(),
                dict(reduction="mean", candidate_weight=lambda n: 1 + n**2, duality_weight=0.4),
            ),
            (
                "gather",
                1,
                "both",
                0.0,
                QueryWeighter(),
                dict(query_weight=weigh_by_everything, candidate_weight="inverse-popularity", **WEIGHTED),
            ),
            (
                "sparse",
                1,
                "both",
                0.2,
                None,
                dict(reduction="mean", regularization_weight=0.2, regularization_power=2.5, tail_weight=1.0),
            ),
        ],
        ids=["sparse", "tail, sparse", "head, gather", "weights, gather", "mean, sparse"],
    )
    def test_local_loss_and_gradients_equal_enumeration(
        self,
        sweep: str,
        memory_budget: int | None,
        factory: CoreTriplesFactory,
        model: ERModel,
        factorization: Factorization,
        target: str,
        label_smoothing: float,
        weighter: LossWeighter | None,
        loss_kwargs: Mapping[str, Any],
    ) -> None:
        if label_smoothing and model.num_entities == 1:
            label_smoothing = 0.0  # refused, cf. test_errors
        if factorization.family.is_distance:
            loss_kwargs = {**loss_kwargs, "duality_weight": 0.0}  # refused, cf. test_errors
        model.loss = NonSamplingLoss(positive_weight=1.5, negative_weight=0.2, **{**UNIFORM, **loss_kwargs})
        loop = NonSamplingLCWATrainingLoop(
            model=model,
            triples_factory=factory,
            target=target,
            factorization_kwargs=self.factorization_kwargs,
            loss_weighter=weighter,
        )
        targets = ("tail", "head") if target == "both" else (target,)
        assert_first_step_equals(
            loop,
            factory,
            lambda: enumerated_local_loss(model, factory, factorization, model.loss, targets, label_smoothing, weighter),
            sweep=(sweep, memory_budget),
            label_smoothing=label_smoothing,
        )

    @pytest.mark.parametrize(
        ("memory_budget", "target", "weighter", "loss_kwargs"),
        [
            (None, "both", None, {}),
            (1, "tail", QueryWeighter(), dict(filtered=True, scale=0.7, regularization_weight=0.3, duality_weight=0.4)),
            (1, "head", None, dict(query_weight=0.5, candidate_weight=0.7, reduction="mean", **WEIGHTED)),
        ],
        ids=["uniform", "tail, filtered", "head, weighted"],
    )
    def test_softmax_and_gradients_equal_enumeration(
        self,
        memory_budget: int | None,
        factory: CoreTriplesFactory,
        model: ERModel,
        factorization: Factorization,
        target: str,
        weighter: LossWeighter | None,
        loss_kwargs: Mapping[str, Any],
    ) -> None:
        if factorization.family.is_distance:
            loss_kwargs = {**loss_kwargs, "duality_weight": 0.0}  # refused, cf. test_errors
        loss = model.loss = SoftmaxLoss(positive_weight=1.5, **{"scale": 1.0, **UNIFORM, **loss_kwargs})
        loop = NonSamplingLCWATrainingLoop(
            model=model,
            triples_factory=factory,
            target=target,
            factorization_kwargs=self.factorization_kwargs,
            loss_weighter=weighter,
        )
        targets = ("tail", "head") if target == "both" else (target,)
        cost = partial(softmax_cost, scale=loss.scale, filtered=loss.filtered)
        assert_first_step_equals(
            loop,
            factory,
            lambda: enumerated_queries(model, factory, factorization, loss, cost, targets, weighter),
            sweep=("scores", memory_budget),
        )


class TrilinearTestCase(FactorizationTestCase):
    """Forms made of trilinear products go through the compiled loops, too."""

    @pytest.mark.parametrize(
        ("memory_budget", "label_smoothing", "weighter", "loss_kwargs"),
        [
            (None, 0.0, None, dict(regularization_weight=0.3)),
            (1, 0.1, TripleWeighter(), dict(**WEIGHTED, duality_weight=0.4)),
        ],
        ids=["fused", "weighted, fused"],
    )
    def test_compiled_loss_and_gradients_equal_enumeration(
        self,
        memory_budget: int | None,
        factory: CoreTriplesFactory,
        model: ERModel,
        factorization: Factorization,
        label_smoothing: float,
        weighter: LossWeighter | None,
        loss_kwargs: Mapping[str, Any],
    ) -> None:
        self.test_loss_and_gradients_equal_enumeration(
            "fused", memory_budget, factory, model, factorization, label_smoothing, weighter, loss_kwargs
        )

    @pytest.mark.parametrize(
        ("memory_budget", "target", "label_smoothing", "weighter", "loss_kwargs"),
        [
            (None, "both", 0.0, None, {}),
            (
                1,
                "both",
                0.1,
                QueryWeighter(),
                dict(query_weight=weigh_by_everything, candidate_weight=0.7, duality_weight=0.4, **WEIGHTED),
            ),
            (None, "head", 0.0, QueryWeighter(), dict(reduction="mean", candidate_weight=lambda n: 1 + n**2)),
        ],
        ids=["fused", "weighted, fused", "head, fused"],
    )
    def test_compiled_local_loss_and_gradients_equal_enumeration(
        self,
        memory_budget: int | None,
        factory: CoreTriplesFactory,
        model: ERModel,
        factorization: Factorization,
        target: str,
        label_smoothing: float,
        weighter: LossWeighter | None,
        loss_kwargs: Mapping[str, Any],
    ) -> None:
        self.test_local_loss_and_gradients_equal_enumeration(
            "fused", memory_budget, factory, model, factorization, target, label_smoothing, weighter, loss_kwargs
        )


class DistMultCase(TrilinearTestCase):
    """What to make a simple model of; not a test."""

    __test__ = False
    cls = DistMultFactorization
    interaction_cls = DistMultInteraction
