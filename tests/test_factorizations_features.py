"""Whatever makes a representation takes part in training, with its gradient."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from factorization_case import DistMultCase, make_model
from graphs import GRAPHS
from pykeen.models import ERModel
from pykeen.nn.modules import DistMultInteraction
from pykeen.nn.representation import Embedding, LowRankRepresentation, SubsetRepresentation
from weights import UNIFORM
from worlds import World

from pykeen_nonsampling import NonSamplingLoss

FACTORY = GRAPHS["ordinary"]


class TestRepresentations:
    """Whatever makes a representation takes part, with its gradient."""

    @pytest.mark.parametrize(
        "entities",
        [
            dict(normalizer="normalize"),
            dict(constrainer="normalize"),
            dict(regularizer="lp", regularizer_kwargs=dict(weight=3.0, normalize=True)),
            dict(base=LowRankRepresentation, num_bases=2),
            dict(base=SubsetRepresentation, base_size=9),
        ],
        ids=str,
    )
    def test_gradients_equal_enumeration(self, world: World, entities: dict[str, Any]) -> None:
        model = self._model(dict(entities))
        recorder, losses = world.train(model, FACTORY, num_epochs=3)
        for state, gradients, loss in zip(recorder.states, recorder.gradients, losses, strict=True):
            model.load_state_dict(state)
            model.zero_grad()
            expected = world.enumerated(model, FACTORY)
            expected.backward()
            assert loss == pytest.approx(expected.item(), rel=1e-9)
            for name, parameter in model.named_parameters():
                torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-9, atol=1e-9)

    @staticmethod
    def _model(entities: dict[str, Any]) -> ERModel:
        base, base_size = entities.pop("base", Embedding), entities.pop("base_size", None)
        if base_size:
            entities["base"] = Embedding(max_id=base_size, shape=(4,))
        else:
            entities["shape"] = 4
        model: ERModel = ERModel(
            triples_factory=FACTORY,
            interaction=DistMultInteraction,
            entity_representations=base,
            entity_representations_kwargs=entities,
            relation_representations_kwargs=dict(shape=4),
            loss=NonSamplingLoss(negative_weight=0.2, **UNIFORM),
            random_seed=0,
        )
        return model.double()

    def test_representations_with_spare_rows(self, world: World) -> None:
        """Rows beyond the last entity are no entities, so no triples are made with them."""
        model = make_model(FACTORY, DistMultCase)
        model.entity_representations[0] = Embedding(max_id=FACTORY.num_entities + 3, shape=(3,))  # type: ignore[index]
        model.double()
        recorder, losses = world.train(model, FACTORY, num_epochs=1)
        model.load_state_dict(recorder.states[0])
        expected = world.enumerated(model, FACTORY)
        assert losses[0] == pytest.approx(expected.item(), rel=1e-9)
