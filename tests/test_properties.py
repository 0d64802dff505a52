"""Whatever the graph and the settings, training gives the right number, or an error that names what is wrong."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import torch
from centered import CenteredLoss, centered_cost
from enumeration import enumerated_local_loss, enumerated_loss, enumerated_queries
from graphs import make_factory
from hypothesis import event, given, settings
from hypothesis import strategies as st
from pykeen.models import ERModel
from pykeen.pipeline import pipeline
from pykeen.training import NonFiniteLossError
from pykeen.triples import CoreTriplesFactory
from steps import assert_first_step_equals
from sweeps import SWEEPS

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingLoss, NonSamplingTrainingLoop
from pykeen_nonsampling.factorizations import factorize
from pykeen_nonsampling.losses import POPULARITY

#: The same examples each time, and as long as it takes
reproducible = partial(settings, derandomize=True, deadline=None)


@st.composite
def graphs(draw: st.DrawFn) -> CoreTriplesFactory:
    """Draw a small graph, with duplicates, self-loops, and entities and relations without triples."""
    num_entities, num_relations = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    entities, relations = st.integers(0, num_entities - 1), st.integers(0, num_relations - 1)
    triples = draw(st.lists(st.tuples(entities, relations, entities), min_size=1, max_size=12))
    return make_factory(triples, num_entities, num_relations, create_inverse_triples=draw(st.booleans()))


def twice(counts: torch.Tensor) -> torch.Tensor:
    return 1 + 2 * counts


def by_answers(entities: torch.Tensor, relations: torch.Tensor, positives: torch.Tensor) -> torch.Tensor:
    return 1 + positives


WEIGHTS = st.floats(0.01, 10.0)
EXPONENTS = st.floats(-2.0, 2.0) | st.integers(-2, 2)
BY_COUNT = EXPONENTS | st.sampled_from(sorted(POPULARITY))

#: What both losses have in common, as far as JSON can say it
COMMON: dict[str, st.SearchStrategy[Any]] = dict(
    positive_weight=WEIGHTS,
    head_weight=BY_COUNT,
    relation_weight=BY_COUNT,
    tail_weight=BY_COUNT,
    regularization_weight=st.floats(0.0, 1.0),
    regularization_power=st.floats(1.0, 4.0),
    reduction=st.sampled_from(["sum", "mean"]),
)

#: What only has a meaning for queries
LOCAL: dict[str, st.SearchStrategy[Any]] = dict(query_weight=EXPONENTS, candidate_weight=BY_COUNT)

SQUARED: dict[str, st.SearchStrategy[Any]] = dict(negative_weight=WEIGHTS)
SOFTMAX: dict[str, st.SearchStrategy[Any]] = dict(scale=WEIGHTS, filtered=st.booleans())

#: The same with functions
FUNCTIONS = dict.fromkeys(("candidate_weight", "head_weight", "relation_weight", "tail_weight"), BY_COUNT | st.just(twice))
FUNCTIONS["query_weight"] = EXPONENTS | st.just(by_answers)

#: What is not a number, not finite, or too large or too small for something
STRANGE = st.sampled_from(
    ["0.1", "", True, False, [], [1.0], {}, math.nan, math.inf, -math.inf, -1, 0, -0.5, 2, 1e9, 1e30, 1e300, 10**400, 1e-300]
)

#: What training takes
TRAINING: dict[str, st.SearchStrategy[Any]] = dict(
    batch_size=st.integers(1, 20), sub_batch_size=st.integers(1, 20), label_smoothing=st.floats(0.0, 0.5)
)

TARGETS = st.sampled_from(["tail", "head", "both"])

#: The sweep to train with, and its memory budget
TRAINED_WITH = st.tuples(st.sampled_from(sorted(SWEEPS)), st.sampled_from([None, 1]))


def some(strategies: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Draw some of the parameters, and leave out others."""
    return st.fixed_dictionaries({}, optional=strategies)  # type: ignore[arg-type]


#: The keyword arguments of models, by the name of an interaction of each family
MODELS: dict[str, dict[str, Any]] = {
    "distmult": {},
    "complex": dict(dtype=torch.cfloat),
    "transe": dict(interaction_kwargs=dict(p=2)),
    "rescal": dict(relation_shape=(3, 3)),
}


def make_model(interaction: str, factory: CoreTriplesFactory, loss: Any) -> ERModel:
    kwargs = dict(MODELS[interaction])
    dtype, relation_shape = kwargs.pop("dtype", torch.float), kwargs.pop("relation_shape", 3)
    model: ERModel = ERModel(
        triples_factory=factory,
        interaction=interaction,
        entity_representations_kwargs=dict(shape=3, dtype=dtype, initializer="xavier_normal"),
        relation_representations_kwargs=dict(shape=relation_shape, dtype=dtype, initializer="xavier_normal"),
        loss=loss,
        random_seed=0,
        **kwargs,
    )
    return model.double()


def apply_sweep(sweep: tuple[str, int | None], interaction: str) -> tuple[str, int | None]:
    """Choose another sweep for an interaction that the compiled loops are not for."""
    name, memory_budget = sweep
    if name == "fused" and interaction == "rescal":
        name = "gather"
    event(f"{name} sweep")
    return name, memory_budget


class TestRightNumbers:
    """Loss and gradients of the first step equal those of enumeration, with weights that are given or derived."""

    @reproducible(max_examples=60)
    @given(
        factory=graphs(),
        interaction=st.sampled_from(sorted(MODELS)),
        loss_kwargs=some({**COMMON, **SQUARED, "head_weight": BY_COUNT | st.just(twice)}),
        training_kwargs=some(TRAINING),
        sweep=TRAINED_WITH,
    )
    def test_closed_world(
        self, factory: Any, interaction: str, loss_kwargs: Any, training_kwargs: Any, sweep: tuple[str, int | None]
    ) -> None:
        sweep = apply_sweep(sweep, interaction)
        model = make_model(interaction, factory, NonSamplingLoss(**loss_kwargs))
        training_kwargs = allowed(training_kwargs, factory)
        assert_first_step_equals(
            NonSamplingTrainingLoop(model=model, triples_factory=factory),
            factory,
            lambda: enumerated_loss(
                model, factory, factorize(model.interaction), model.loss, training_kwargs.get("label_smoothing", 0.0)
            ),
            sweep=sweep,
            **training_kwargs,
        )

    @reproducible(max_examples=60)
    @given(
        factory=graphs(),
        interaction=st.sampled_from(sorted(MODELS)),
        loss_kwargs=some({**COMMON, **LOCAL, **SQUARED, **FUNCTIONS}),
        training_kwargs=some(TRAINING),
        target=TARGETS,
        sweep=TRAINED_WITH,
    )
    def test_local_closed_world(
        self,
        factory: Any,
        interaction: str,
        loss_kwargs: Any,
        training_kwargs: Any,
        target: str,
        sweep: tuple[str, int | None],
    ) -> None:
        sweep = apply_sweep(sweep, interaction)
        model = make_model(interaction, factory, NonSamplingLoss(**loss_kwargs))
        training_kwargs = allowed(training_kwargs, factory)
        assert_first_step_equals(
            NonSamplingLCWATrainingLoop(model=model, triples_factory=factory, target=target),
            factory,
            lambda: enumerated_local_loss(
                model,
                factory,
                factorize(model.interaction),
                model.loss,
                ends(target),
                training_kwargs.get("label_smoothing", 0.0),
            ),
            sweep=sweep,
            **training_kwargs,
        )

    @reproducible(max_examples=60)
    @given(
        factory=graphs(),
        interaction=st.sampled_from(sorted(MODELS)),
        loss_kwargs=some({**COMMON, **LOCAL, **FUNCTIONS}),
        target=TARGETS,
        sweep=TRAINED_WITH,
    )
    def test_objective_of_whole_queries(
        self, factory: Any, interaction: str, loss_kwargs: Any, target: str, sweep: tuple[str, int | None]
    ) -> None:
        sweep = apply_sweep(sweep, interaction)
        model = make_model(interaction, factory, CenteredLoss(**loss_kwargs))

        def enumerated() -> torch.Tensor:
            return enumerated_queries(model, factory, factorize(model.interaction), model.loss, centered_cost, ends(target))

        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=factory, target=target)
        assert_first_step_equals(loop, factory, enumerated, tolerance=dict(rtol=1e-6, atol=1e-6), sweep=sweep)


def ends(target: str) -> list[str]:
    return ["tail", "head"] if target == "both" else [target]


def allowed(training_kwargs: Mapping[str, Any], factory: CoreTriplesFactory) -> dict[str, Any]:
    """Leave out what would make more than one step, or cannot be done with one entity."""
    left_out = {"batch_size"} | ({"label_smoothing"} if factory.num_entities == 1 else set())
    return {name: value for name, value in training_kwargs.items() if name not in left_out}


def train(
    factory: CoreTriplesFactory, training_loop: str, model: str, loss: str, **kwargs: Mapping[str, Any]
) -> list[float]:
    """Run a pipeline with what comes out of a JSON file."""
    configuration = json.loads(
        json.dumps(
            dict(
                model=model,
                model_kwargs=dict(embedding_dim=3),
                training_loop=training_loop,
                loss=loss,
                random_seed=0,
                evaluation_kwargs=dict(use_tqdm=False),
                **{**kwargs, "training_kwargs": {"num_epochs": 3, "use_tqdm": False, **kwargs.get("training_kwargs", {})}},
            )
        )
    )
    return pipeline(training=factory, testing=factory, **configuration).losses


#: Where each parameter belongs
PLACES = {
    **dict.fromkeys([*COMMON, *LOCAL, *SQUARED, *SOFTMAX, "duality_weight"], "loss_kwargs"),
    **dict.fromkeys([*TRAINING, "num_epochs"], "training_kwargs"),
    **dict.fromkeys(["memory_budget", "target"], "training_loop_kwargs"),
}

CONFIGURATIONS = dict(
    factory=graphs(),
    training_loop=st.sampled_from(["nonsampling", "nonsamplinglcwa"]),
    model=st.sampled_from(["DistMult", "ComplEx", "TransE", "RotatE"]),
)


class TestConfigurations:
    """A pipeline from JSON trains, or names what it refuses."""

    @reproducible(max_examples=60)
    @given(
        **CONFIGURATIONS,
        name=st.sampled_from(sorted({*PLACES} - {*SOFTMAX, "target"})),
        value=st.sampled_from(["0.1", "", True, [1.0], {}, math.nan, math.inf, -math.inf]),
    )
    def test_one_wrong_value(self, factory: Any, training_loop: str, model: str, name: str, value: Any) -> None:
        with pytest.raises((TypeError, ValueError), match=re.escape(f"{name}={value!r} ")):
            train(factory, training_loop, model, "nonsampling", **{PLACES[name]: {name: value}})

    @reproducible(max_examples=100)
    @given(
        **CONFIGURATIONS,
        loss=st.sampled_from(["nonsampling", "softmax"]),
        values=some({**COMMON, **LOCAL, **SQUARED, **SOFTMAX, **TRAINING, "target": TARGETS}),
        strange=st.dictionaries(st.sampled_from(sorted(PLACES)), STRANGE, max_size=2),
    )
    def test_anything(
        self, factory: Any, training_loop: str, model: str, loss: str, values: dict[str, Any], strange: dict[str, Any]
    ) -> None:
        unknown = set(SOFTMAX) if loss == "nonsampling" else set(SQUARED)
        if training_loop == "nonsampling":
            unknown |= {"target"}
        kwargs: dict[str, dict[str, Any]] = {}
        for name, value in {**values, **strange}.items():
            if name not in unknown:
                kwargs.setdefault(PLACES[name], {})[name] = value
        try:
            losses = train(factory, training_loop, model, loss, **kwargs)
        except (TypeError, ValueError, NotImplementedError, NonFiniteLossError) as error:
            message = str(error)
        else:
            event("trained")
            assert len(losses) == kwargs.get("training_kwargs", {}).get("num_epochs", 3)
            assert all(map(math.isfinite, losses))
            return
        event("refused")
        names = [name for arguments in kwargs.values() for name in arguments]
        if loss == "softmax" and training_loop == "nonsampling":
            names.append("loss")
        assert any(f"{name}=" in message for name in names), message
