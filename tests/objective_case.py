"""What every objective has to satisfy, against its definition, a candidate at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
import torch
from enumeration import enumerated_queries
from factorization_case import DistMultCase, make_model
from graphs import GRAPHS, PECULIAR
from steps import TOLERANCE, assert_first_step_equals
from sweeps import SWEEPS
from torch import Tensor
from weights import UNIFORM, WEIGHTED, QueryWeighter

from pykeen_nonsampling import FactorizedLoss, NonSamplingLCWATrainingLoop, NonSamplingTrainingLoop, Objective
from pykeen_nonsampling.factorizations import ScoreMoments, factorize
from pykeen_nonsampling.losses.objective import Scores

#: Weights of positives, queries, candidates and all parts of a triple
BY_ALL: dict[str, Any] = dict(positive_weight=1.5, query_weight=0.5, candidate_weight=0.7, **WEIGHTED)


class ObjectiveTestCase:
    """An objective equals its definition in terms of all candidates' scores, in value and gradient."""

    loss_cls: ClassVar[type[FactorizedLoss]]
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

    def make_loss(self, **kwargs: Any) -> FactorizedLoss:
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
    @pytest.mark.parametrize("weights", [{}, BY_ALL], ids=["uniform", "weighted"])
    @pytest.mark.parametrize("memory_budget", [None, 1])
    @pytest.mark.parametrize("graph", GRAPHS)
    def test_loss_and_gradients_equal_enumeration(
        self, sweep: str, memory_budget: int | None, graph: str, weights: Mapping[str, Any]
    ) -> None:
        factory = GRAPHS[graph]
        smoothing = self.label_smoothing if weights and factory.num_entities > 1 else 0.0
        model = make_model(factory, DistMultCase)
        model.loss = self.make_loss(**weights)
        weighter = QueryWeighter() if weights else None
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=factory, loss_weighter=weighter, target="both")
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

        assert_first_step_equals(
            loop, factory, enumerate_loss, self.tolerance, sweep=(sweep, memory_budget), label_smoothing=smoothing
        )

    def test_closed_world_refuses_what_needs_queries(self) -> None:
        model = make_model(PECULIAR, DistMultCase)
        model.loss = self.make_loss()
        loop = NonSamplingTrainingLoop(model=model, triples_factory=PECULIAR)
        if model.loss.objective().needs_queries:
            with pytest.raises(ValueError, match=r"needs to see whole queries.*training_loop='nonsamplinglcwa'"):
                loop.train(PECULIAR, num_epochs=1, use_tqdm=False)
        else:
            assert loop.train(PECULIAR, num_epochs=1, use_tqdm=False)
