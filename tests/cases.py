"""Generic test cases: what every factorization has to satisfy, against brute force over all triples."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pytest
import torch
from enumeration import all_triples, enumerated_local_loss, enumerated_loss, enumerated_queries, enumerated_scores
from graphs import GRAPHS, PECULIAR, WIDE
from pykeen.evaluation import RankBasedEvaluator
from pykeen.models import ERModel
from pykeen.nn.modules import DistMultInteraction, Interaction
from pykeen.training.callbacks import TrainingCallback
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import LossWeighter
from pykeen.typing import LABEL_HEAD, LABEL_TAIL, RANK_OPTIMISTIC, RANK_PESSIMISTIC
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pykeen_nonsampling import (
    Factorization,
    FactorizedRankBasedEvaluator,
    MomentLoss,
    Moments,
    NonSamplingLCWATrainingLoop,
    NonSamplingLoss,
    NonSamplingTrainingLoop,
    Objective,
)
from pykeen_nonsampling.factorizations import DistMultFactorization, Form, ScoreMoments, factorize
from pykeen_nonsampling.factorizations.features import features
from pykeen_nonsampling.losses.objective import Scores
from pykeen_nonsampling.sweeps.numba.sweep import FusedSweep
from pykeen_nonsampling.sweeps.plain import PlainSweep
from pykeen_nonsampling.sweeps.problem import Sweep
from pykeen_nonsampling.sweeps.products import GatherProducts, SparseProducts
from pykeen_nonsampling.training import FactorizedTrainingLoop

TOLERANCE = dict(rtol=1e-9, atol=1e-9)


#: Weights of the loss that are the same for all
UNIFORM: dict[str, Any] = dict(
    query_weight=0.0, candidate_weight=0.0, range_weight=0.0, regularization_weight=0.0, duality_weight=0.0
)

#: Weights of negatives by each part of a triple, in each of the forms they may have
WEIGHTED: dict[str, Any] = dict(head_weight=lambda n: 0.3 + n, relation_weight="popularity", tail_weight=-0.7)


#: All ways to visit observed triples, from the memory budget. Each exactness test runs with some of them.
SWEEPS: dict[str, Callable[[int | None], Sweep]] = {
    "sparse": lambda memory_budget: PlainSweep(memory_budget, SparseProducts()),
    "gather": lambda memory_budget: PlainSweep(memory_budget, GatherProducts()),
    "fused": FusedSweep,
}


class TripleWeighter(LossWeighter):
    """Gives every triple a weight of its own."""

    def __call__(self, h: Tensor | None, r: Tensor | None, t: Tensor | None) -> Tensor:
        assert h is not None
        assert r is not None
        assert t is not None
        return 0.5 + (h + 2 * r + 3 * t) % 5


class Recorder(TrainingCallback):
    """Records parameters and gradients right before each optimizer step."""

    def __init__(self) -> None:
        super().__init__()
        self.states: list[Mapping[str, Tensor]] = []
        self.gradients: list[Mapping[str, Tensor | None]] = []

    def pre_step(self, **kwargs: Any) -> None:
        self.states.append({name: x.detach().clone() for name, x in self.model.state_dict().items()})
        self.gradients.append({name: copy(p.grad) for name, p in self.model.named_parameters()})


def copy(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.detach().clone()


class QueryWeighter(LossWeighter):
    """Gives every query a weight of its own."""

    def __call__(self, h: Tensor | None, r: Tensor | None, t: Tensor | None) -> Tensor:
        given = t if h is None else h
        assert r is not None
        assert given is not None
        return 0.5 + (given + 2 * r) % 3


def weigh_by_everything(entities: Tensor, relations: Tensor, positives: Tensor) -> Tensor:
    """Weigh queries."""
    return 1 + entities + 0.5 * relations + 0.1 * positives


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


def assert_first_step_equals(
    loop: FactorizedTrainingLoop,
    factory: CoreTriplesFactory,
    enumerate_loss: Callable[[], Tensor],
    tolerance: Mapping[str, float] = TOLERANCE,
    **kwargs: Any,
) -> None:
    """Check the loss and the gradients of the first step of a training loop."""
    recorder = Recorder()
    losses = loop.train(factory, num_epochs=1, callbacks=recorder, use_tqdm=False, **kwargs)
    assert losses is not None
    loop.model.load_state_dict(recorder.states[0])
    loop.model.zero_grad()
    # PyKEEN's regularizers have the shape (1,)
    expected = enumerate_loss().squeeze()
    expected.backward()
    torch.testing.assert_close(torch.tensor(losses[0], dtype=torch.double), expected.detach(), **tolerance)
    for name, parameter in loop.model.named_parameters():
        torch.testing.assert_close(recorder.gradients[0][name], parameter.grad, **tolerance)


class Allocations(TorchDispatchMode):
    """Counts what is allocated: the number of elements of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, tuple | list) else [result]:
            if isinstance(x, Tensor) and not x.is_sparse_csr:
                # views, e.g. of one number in all places, are no memory
                self.largest = max(self.largest, x.untyped_storage().nbytes() // x.element_size())
        return result


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
            ("fused", None, 0.0, None, dict(regularization_weight=0.3)),
            ("fused", 1, 0.1, TripleWeighter(), dict(**WEIGHTED, duality_weight=0.4)),
        ],
        ids=["plain", "weighted", "mean", "popularity", "fused", "fused and weighted"],
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
        loop._sweep = SWEEPS[sweep](memory_budget)
        assert_first_step_equals(
            loop,
            factory,
            lambda: enumerated_loss(model, factory, factorization, model.loss, label_smoothing, weighter),
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
                dict(query_weight=0.5, candidate_weight=0.7, range_weight=2, regularization_weight=0.3, duality_weight=0.4),
            ),
            (
                "gather",
                None,
                "head",
                0.1,
                QueryWeighter(),
                dict(reduction="mean", candidate_weight=lambda n: 1 + n**2, range_weight=0.6, duality_weight=0.4),
            ),
            (
                "gather",
                1,
                "both",
                0.0,
                QueryWeighter(),
                dict(query_weight=weigh_by_everything, candidate_weight="inverse-popularity", range_weight=3, **WEIGHTED),
            ),
            (
                "sparse",
                1,
                "both",
                0.2,
                None,
                dict(reduction="mean", regularization_weight=0.2, regularization_power=2.5, tail_weight=1.0),
            ),
            ("fused", None, "both", 0.0, None, {}),
            (
                "fused",
                1,
                "both",
                0.1,
                QueryWeighter(),
                dict(query_weight=weigh_by_everything, candidate_weight=0.7, duality_weight=0.4, **WEIGHTED),
            ),
        ],
        ids=["plain", "tail", "head", "weights", "mean", "fused", "fused and weighted"],
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
        loop._sweep = SWEEPS[sweep](memory_budget)
        targets = ("tail", "head") if target == "both" else (target,)
        assert_first_step_equals(
            loop,
            factory,
            lambda: enumerated_local_loss(model, factory, factorization, model.loss, targets, label_smoothing, weighter),
            label_smoothing=label_smoothing,
        )


class ObjectiveTestCase:
    """An objective equals its definition in terms of all candidates' scores, in value and gradient."""

    loss_cls: ClassVar[type[MomentLoss]]
    loss_kwargs: ClassVar[Mapping[str, Any]] = {}
    #: the label smoothing to test with
    label_smoothing: ClassVar[float] = 0.1
    #: how close to enumeration
    tolerance: ClassVar[Mapping[str, float]] = TOLERANCE

    def enumerate_cost(
        self,
        scores: Tensor,
        positive: Tensor,
        positive_weights: Tensor,
        query_weight: Tensor,
        candidate_weights: Tensor,
        label_smoothing: float,
    ) -> Tensor:
        """Compute the cost of one query by its definition.

        :param scores: shape: (num_entities,), the scores of all candidates
        :param positive: shape: (num_entities,), which of them are answers
        :param positive_weights: shape: (num_entities,), their weights as answers
        :param query_weight: shape: (), the weight of the query's negatives
        :param candidate_weights: shape: (num_entities,), the weights of candidates as negatives
        :param label_smoothing: the label smoothing
        :return: the cost
        """
        raise NotImplementedError

    def make_loss(self, **kwargs: Any) -> MomentLoss:
        return self.loss_cls(**{**UNIFORM, **self.loss_kwargs, **kwargs})

    @staticmethod
    def draw_scores() -> Scores:
        """Make up scores of three queries, the second of which has no positive."""
        generator = torch.Generator().manual_seed(0)
        f, w, u = (torch.rand(5, dtype=torch.double, generator=generator) for _ in range(3))
        moments = ScoreMoments(9.0, *(torch.rand(3, dtype=torch.double, generator=generator) for _ in range(2)))
        moments = ScoreMoments(9.0, moments.first, 5 + moments.second)
        queries = torch.tensor([0, 0, 0, 2, 2])
        return Scores(f, queries, moments, w, torch.rand(3, dtype=torch.double, generator=generator), u)

    @pytest.mark.parametrize("smoothed", [False, True])
    def test_derivatives_equal_automatic_differentiation(self, smoothed: bool) -> None:
        label_smoothing = self.label_smoothing if smoothed else 0.0
        objective, scores = self.make_loss().objective(label_smoothing, num_entities=9), self.draw_scores()
        actual, expected = objective.costs(scores), Objective.costs(objective, scores)
        torch.testing.assert_close(actual.total, expected.total, **TOLERANCE)
        torch.testing.assert_close(actual.positives, expected.positives, **TOLERANCE)
        torch.testing.assert_close(actual.second, expected.second, **TOLERANCE)
        assert expected.first is not None
        first = torch.zeros_like(expected.first) if actual.first is None else actual.first
        torch.testing.assert_close(first, expected.first, **TOLERANCE)
        assert objective.needs_first or not first.any()

    def test_positives_and_candidates_add_up_unless_queries_are_needed(self) -> None:
        objective, scores = self.make_loss().objective(self.label_smoothing, num_entities=9), self.draw_scores()
        if objective.needs_queries:
            with pytest.raises(ValueError, match="summed elsewhere"):
                objective.cost(dataclasses.replace(scores, candidates=None))
            return
        nothing = torch.empty(0, dtype=torch.long)
        positives = objective.costs(
            Scores(scores.positives, scores.query_index, None, scores.positive_weights, 0.3, scores.answer_weights)
        )
        candidates = Scores(scores.positives[:0], nothing, scores.candidates, 1.0, 0.3)
        whole = objective.cost(dataclasses.replace(scores, query_weights=0.3))
        torch.testing.assert_close(positives.total + objective.cost(candidates), whole, **TOLERANCE)

    @pytest.mark.parametrize("sweep", SWEEPS)
    @pytest.mark.parametrize("memory_budget", [None, 1])
    @pytest.mark.parametrize("graph", GRAPHS)
    @pytest.mark.parametrize("weighted", [False, True])
    def test_loss_and_gradients_equal_enumeration(
        self, sweep: str, memory_budget: int | None, graph: str, weighted: bool
    ) -> None:
        factory = GRAPHS[graph]
        kwargs = {}
        if weighted:
            kwargs = dict(positive_weight=1.5, query_weight=0.5, candidate_weight=0.7, range_weight=0.8, **WEIGHTED)
        smoothing = self.label_smoothing if weighted and factory.num_entities > 1 else 0.0
        model = make_model(factory, DistMultCase)
        model.loss = self.make_loss(**kwargs)
        weighter = QueryWeighter() if weighted else None
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=factory, loss_weighter=weighter, target="both")
        loop._sweep = SWEEPS[sweep](memory_budget)
        factorization = factorize(model.interaction)

        def enumerate_loss() -> Tensor:
            return enumerated_queries(
                model,
                factory,
                factorization,
                model.loss,
                weighter=weighter,
                cost=lambda *query: self.enumerate_cost(*query, label_smoothing=smoothing),
            )

        assert_first_step_equals(loop, factory, enumerate_loss, self.tolerance, label_smoothing=smoothing)

    def test_closed_world_refuses_what_needs_queries(self) -> None:
        model = make_model(PECULIAR, DistMultCase)
        model.loss = self.make_loss()
        loop = NonSamplingTrainingLoop(model=model, triples_factory=PECULIAR)
        if model.loss.objective().needs_queries:
            with pytest.raises(ValueError, match=r"needs to see whole queries.*training_loop='nonsamplinglcwa'"):
                loop.train(PECULIAR, num_epochs=1, use_tqdm=False)
        else:
            assert loop.train(PECULIAR, num_epochs=1, use_tqdm=False)


class DistMultCase(FactorizationTestCase):
    """What to make a simple model of; not a test."""

    __test__ = False
    cls = DistMultFactorization
    interaction_cls = DistMultInteraction
