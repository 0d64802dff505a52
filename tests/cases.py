"""Generic test cases: what every factorization has to satisfy, against brute force over all triples."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import torch
from pykeen.models import ERModel
from pykeen.nn.modules import Interaction
from pykeen.training.callbacks import TrainingCallback
from pykeen.triples import CoreTriplesFactory
from pykeen.triples.weights import LossWeighter
from torch import Tensor

from pykeen_nonsampling import Factorization, Moments, NonSamplingLoss, NonSamplingTrainingLoop, kernels
from pykeen_nonsampling.factorizations import factorize
from pykeen_nonsampling.models import features

TOLERANCE = dict(rtol=1e-9, atol=1e-9)


def make_factory(
    triples: list[tuple[int, int, int]], num_entities: int, num_relations: int, create_inverse_triples: bool = False
) -> CoreTriplesFactory:
    """Make a factory from ids."""
    return CoreTriplesFactory(
        mapped_triples=torch.as_tensor(triples, dtype=torch.long).view(-1, 3),
        num_entities=num_entities,
        num_relations=num_relations,
        create_inverse_triples=create_inverse_triples,
    )


#: Graphs with every peculiarity that a sum over all triples could trip over
GRAPHS: dict[str, CoreTriplesFactory] = {
    "ordinary": make_factory([(0, 0, 1), (1, 0, 2), (2, 1, 0), (3, 1, 1), (0, 0, 3), (4, 2, 4)], 5, 3),
    "one entity": make_factory([(0, 0, 0), (0, 1, 0)], 1, 3),
    "one relation": make_factory([(0, 0, 1), (1, 0, 2), (2, 0, 2)], 3, 1),
    "one triple": make_factory([(0, 0, 0)], 1, 1),
    "self-loops": make_factory([(0, 0, 0), (1, 0, 1), (1, 1, 1), (0, 1, 1)], 2, 2),
    "relation without triple": make_factory([(0, 0, 1), (1, 2, 0)], 2, 4),
    "entity without triple": make_factory([(0, 0, 2), (2, 1, 0)], 5, 2),
    "duplicate triples": make_factory([(0, 0, 1), (0, 0, 1), (1, 1, 0), (0, 0, 1), (2, 1, 1)], 3, 2),
    "every triple": make_factory(list(itertools.product(range(2), range(2), range(2))), 2, 2),
    "inverse triples": make_factory([(0, 0, 1), (1, 1, 2), (2, 0, 2)], 4, 2, create_inverse_triples=True),
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


def all_triples(num_entities: int, num_relations: int) -> Tensor:
    """Enumerate all triples."""
    return torch.cartesian_prod(torch.arange(num_entities), torch.arange(num_relations), torch.arange(num_entities))


def enumerated_scores(model: ERModel, factorization: Factorization) -> Tensor:
    """Score all triples, one by one, by the model's own interaction; shape: (num_entities, num_relations, num_entities)."""
    h, r, t = all_triples(model.num_entities, model.num_relations).unbind(dim=-1)
    entities = [representation(indices=None)[: model.num_entities] for representation in model.entity_representations]
    relations = [representation(indices=None) for representation in model.relation_representations]
    hh, rr, tt = (
        [x[indices] for x in xs]
        for indices, xs in (
            (h, [entities[i] for i in model.interaction.head_indices]),
            (r, relations),
            (t, [entities[i] for i in model.interaction.tail_indices]),
        )
    )
    scores = model.interaction(*(x[0] if len(x) == 1 else x for x in (hh, rr, tt)))
    return factorization.transform(scores).view(model.num_entities, model.num_relations, model.num_entities)


def enumerated_loss(
    model: ERModel,
    factory: CoreTriplesFactory,
    factorization: Factorization,
    loss: NonSamplingLoss,
    label_smoothing: float = 0.0,
    weighter: LossWeighter | None = None,
) -> Tensor:
    """Compute the loss by its definition, over all triples, one by one."""
    scores = enumerated_scores(model, factorization)
    observed = factory._add_inverse_triples_if_necessary(factory.mapped_triples).unique(dim=0)
    labels, weights = torch.zeros_like(scores), torch.full_like(scores, loss.negative_weight)
    h, r, t = observed.unbind(dim=-1)
    labels[h, r, t] = 1.0
    weights[h, r, t] = loss.positive_weight
    if weighter is not None:
        weights[h, r, t] *= weighter.weight_triples(observed)
    if label_smoothing:
        labels = labels * (1 - label_smoothing) + (1 - labels) * label_smoothing / (model.num_entities - 1)
    costs = weights * (scores - labels).square()
    total = costs.mean() if loss.reduction == "mean" else costs.sum()
    return total + model.collect_regularization_term()


def make_model(factory: CoreTriplesFactory, case: type[FactorizationTestCase], **kwargs: Any) -> ERModel:
    """Make a model in float64 whose vectors are on no sphere."""
    representation = dict(shape=case.dimension, initializer="normal_", dtype=case.dtype, **kwargs)
    interaction = case.interaction_cls(**case.interaction_kwargs)
    model: ERModel = ERModel(
        triples_factory=factory,
        interaction=interaction,
        entity_representations_kwargs=[representation] * len(interaction.entity_shape),
        relation_representations_kwargs=[representation] * len(interaction.relation_shape),
        loss=NonSamplingLoss(positive_weight=1.5, negative_weight=0.2),
        random_seed=0,
    )
    return model.double()


class FactorizationTestCase:
    """A factorization equals its interaction, and its sums equal enumeration, in value and gradient."""

    cls: ClassVar[type[Factorization]]
    interaction_cls: ClassVar[type[Interaction]]
    interaction_kwargs: ClassVar[Mapping[str, Any]] = {}
    factorization_kwargs: ClassVar[Mapping[str, Any]] = {}
    dtype: ClassVar[torch.dtype] = torch.float
    dimension: ClassVar[int] = 3

    @pytest.fixture(params=GRAPHS)
    def factory(self, request: pytest.FixtureRequest) -> CoreTriplesFactory:
        return GRAPHS[request.param]

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
        scores = (factorization.queries(heads[h], relations[r]) * tails[t]).sum(dim=-1)
        expected = enumerated_scores(model, factorization).view(-1)
        torch.testing.assert_close(scores, expected, **TOLERANCE)
        from_the_other_side = (factorization.head_queries(tails[t], relations[r]) * heads[h]).sum(dim=-1)
        torch.testing.assert_close(from_the_other_side, expected, **TOLERANCE)

    def test_gradient_of_queries_equals_automatic_differentiation(
        self, model: ERModel, factorization: Factorization
    ) -> None:
        heads, relations, _ = features(model, factorization)
        h, r, _ = all_triples(model.num_entities, model.num_relations).unbind(dim=-1)
        x, y = heads[h].detach(), relations[r].detach()
        grad = torch.randn(len(h), heads.shape[1], dtype=torch.double)
        # by its arguments, which it may overwrite
        expected = Factorization.queries_backward(factorization, x.clone(), y.clone(), grad.clone())
        actual = factorization.queries_backward(x, y, grad)
        for one, other in zip(actual, expected, strict=True):
            torch.testing.assert_close(one, other, **TOLERANCE)

    def test_query_moments_equal_enumeration(self, model: ERModel, factorization: Factorization) -> None:
        heads, relations, _ = features(model, factorization)
        h, r = torch.cartesian_prod(torch.arange(model.num_entities), torch.arange(model.num_relations)).unbind(dim=-1)
        expected = Moments.of(factorization.queries(heads[h], relations[r]))
        moments = factorization.query_moments(Moments.of(heads), relations)
        assert moments.count == expected.count
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

    @pytest.mark.parametrize("kernel", [kernels.SparseKernel(), kernels.GatherKernel()], ids=["sparse", "gather"])
    @pytest.mark.parametrize("memory_budget", [None, 1])
    @pytest.mark.parametrize(
        ("reduction", "label_smoothing", "weighter"),
        [("sum", 0.0, None), ("sum", 0.1, TripleWeighter()), ("mean", 0.0, TripleWeighter()), ("mean", 0.1, None)],
    )
    def test_loss_and_gradients_equal_enumeration(
        self,
        monkeypatch: pytest.MonkeyPatch,
        kernel: kernels.Kernel,
        memory_budget: int | None,
        factory: CoreTriplesFactory,
        model: ERModel,
        factorization: Factorization,
        reduction: Any,
        label_smoothing: float,
        weighter: LossWeighter | None,
    ) -> None:
        if label_smoothing and model.num_entities == 1:
            label_smoothing = 0.0  # refused, cf. test_errors
        model.loss = NonSamplingLoss(positive_weight=1.5, negative_weight=0.2, reduction=reduction)
        monkeypatch.setattr(kernels, "kernel_for", lambda device, dtype: kernel)
        loop = NonSamplingTrainingLoop(
            model=model,
            triples_factory=factory,
            factorization_kwargs=self.factorization_kwargs,
            loss_weighter=weighter,
            memory_budget=memory_budget,
        )
        recorder = Recorder()
        losses = loop.train(factory, num_epochs=1, label_smoothing=label_smoothing, callbacks=recorder, use_tqdm=False)
        assert losses is not None

        model.load_state_dict(recorder.states[0])
        model.zero_grad()
        expected = enumerated_loss(model, factory, factorization, model.loss, label_smoothing, weighter)
        expected.backward()
        torch.testing.assert_close(torch.tensor(losses[0], dtype=torch.double), expected.detach(), **TOLERANCE)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(recorder.gradients[0][name], parameter.grad, **TOLERANCE)
