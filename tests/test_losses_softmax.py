"""The softmax loss equals its definition, a candidate at a time, and is an ordinary loss through the front door."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import torch
from enumeration import enumerated_queries, softmax_cost
from factorization_case import DistMultCase, make_model
from graphs import GRAPHS, PECULIAR
from pykeen.datasets import Nations
from pykeen.models import DistMult
from pykeen.pipeline import pipeline
from pykeen.triples.weights import RelationLossWeighter
from steps import TOLERANCE, Allocations, assert_first_step_equals
from weights import UNIFORM, WEIGHTED, QueryWeighter

from pykeen_nonsampling import NonSamplingLCWATrainingLoop, NonSamplingTrainingLoop
from pykeen_nonsampling.factorizations import factorize
from pykeen_nonsampling.losses import AllScores, ScoreObjective, SoftmaxLoss, SoftmaxObjective
from pykeen_nonsampling.losses import objective as objectives
from pykeen_nonsampling.sweeps import scores as score_sweep

OBJECTIVES = [SoftmaxObjective(scale, filtered) for scale in (1.0, 2.5) for filtered in (False, True)]


def draw(dtype: torch.dtype = torch.double, weighted: bool = True, spread: float = 3.0) -> AllScores:
    """Make up scores of three queries, the second of which has no positive."""
    generator = torch.Generator().manual_seed(0)
    scores = spread * torch.randn(3, 9, dtype=torch.double, generator=generator)
    w, c, u = (torch.rand(n, dtype=torch.double, generator=generator) for n in (5, 3, 9))
    queries, answers = torch.tensor([0, 0, 0, 2, 2]), torch.tensor([1, 3, 4, 0, 8])
    if not weighted:
        return AllScores(scores.to(dtype), queries, answers)
    return AllScores(scores.to(dtype), queries, answers, w.to(dtype), c.to(dtype), u.to(dtype))


def copy(x: AllScores) -> AllScores:
    return dataclasses.replace(x, scores=x.scores.clone())


@pytest.mark.parametrize("objective", OBJECTIVES, ids=str)
class TestObjective:
    @pytest.mark.parametrize("weighted", [False, True])
    @pytest.mark.parametrize("cached", [1, 20, 2**19])
    def test_derivatives_equal_automatic_differentiation(
        self, objective: SoftmaxObjective, weighted: bool, cached: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(objectives, "CACHED_SCORES", cached)
        x, y = copy(draw(weighted=weighted)), copy(draw(weighted=weighted))
        total = objective.differentiate(x)
        torch.testing.assert_close(total, ScoreObjective.differentiate(objective, y), **TOLERANCE)
        torch.testing.assert_close(x.scores, y.scores, **TOLERANCE)
        assert x.scores.abs().sum() > 0.1

    def test_single_precision_where_answers_have_won(self, objective: SoftmaxObjective) -> None:
        """What is left to gain is a small difference of large numbers, unless it is computed with care."""
        x = draw(weighted=False)
        x.scores[x.query_index, x.answers] += 20.0
        exact, rounded = copy(x), dataclasses.replace(x, scores=x.scores.float())
        objective.differentiate(exact)
        objective.differentiate(rounded)
        # all answers of a query have won, so that those of the same query still compete, unless they are left out
        tolerance = dict(rtol=1e-4, atol=0.0) if objective.filtered else dict(rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(rounded.scores.double(), exact.scores, **tolerance)

    @pytest.mark.parametrize("spread", [1e3, 1e30])
    def test_large_scores(self, objective: SoftmaxObjective, spread: float) -> None:
        x = draw(torch.float, spread=spread)
        assert objective.differentiate(x).isfinite()
        assert x.scores.isfinite().all()


class TestTraining:
    @pytest.mark.parametrize("filtered", [False, True])
    @pytest.mark.parametrize("memory_budget", [None, 1])
    @pytest.mark.parametrize(
        "weights",
        [{}, dict(query_weight=0.5, candidate_weight=0.7, duality_weight=0.2, **WEIGHTED)],
        ids=["uniform", "weighted"],
    )
    @pytest.mark.parametrize("graph", GRAPHS)
    def test_loss_and_gradients_equal_enumeration(
        self, graph: str, memory_budget: int | None, filtered: bool, weights: Mapping[str, Any]
    ) -> None:
        factory = GRAPHS[graph]
        model = make_model(factory, DistMultCase)
        loss = model.loss = SoftmaxLoss(scale=1.3, filtered=filtered, **{**UNIFORM, **weights})
        weighter = QueryWeighter() if weights else None
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=factory, loss_weighter=weighter, target="both")
        cost = partial(softmax_cost, scale=1.3, filtered=filtered)
        assert_first_step_equals(
            loop,
            factory,
            lambda: enumerated_queries(model, factory, factorize(model.interaction), loss, cost, weighter=weighter),
            sweep=("scores", memory_budget),
        )

    def test_a_query_that_weighs_twice_as_much_counts_twice(self) -> None:
        factory = GRAPHS["ordinary"]
        losses = []
        for weight in (1.0, 2.0):
            model = make_model(factory, DistMultCase)
            model.loss = SoftmaxLoss(**UNIFORM)
            weighter = RelationLossWeighter(torch.full((factory.real_num_relations,), weight))
            loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=factory, loss_weighter=weighter)
            losses += loop.train(factory, num_epochs=1, use_tqdm=False) or []
        assert losses[1] == pytest.approx(2 * losses[0])

    def test_batches_add_up(self) -> None:
        factory = GRAPHS["ordinary"]
        losses = []
        for batch_size in (None, 2):
            model = make_model(factory, DistMultCase)
            model.loss = SoftmaxLoss(**UNIFORM)
            loop = NonSamplingLCWATrainingLoop(
                model=model, triples_factory=factory, optimizer="SGD", optimizer_kwargs=dict(lr=0.0)
            )
            losses += loop.train(factory, num_epochs=1, batch_size=batch_size, use_tqdm=False) or []
        # PyKEEN's loss of an epoch is the mean of its batches
        num_batches = round(losses[0] / losses[1])
        assert num_batches > 1
        assert losses[1] * num_batches == pytest.approx(losses[0])

    def test_there_is_never_a_matrix_of_all_queries_and_candidates(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(score_sweep, "FEWEST_QUERIES", 4)
        monkeypatch.setattr(score_sweep, "SCORES", 1)
        nations = Nations().training
        model = DistMult(triples_factory=nations, embedding_dim=4, random_seed=0, loss=SoftmaxLoss(**UNIFORM))
        loop = NonSamplingLCWATrainingLoop(model=model, triples_factory=nations)
        with Allocations() as allocations:
            loop.train(nations, num_epochs=1, use_tqdm=False)
        # no more than the triples themselves
        assert allocations.largest == 3 * nations.num_triples < min(471, 438) * nations.num_entities

    def test_every_triple_counts_once_by_default(self) -> None:
        model = make_model(GRAPHS["ordinary"], DistMultCase)
        model.loss = SoftmaxLoss()
        NonSamplingLCWATrainingLoop(model=model, triples_factory=GRAPHS["ordinary"]).train(
            GRAPHS["ordinary"], num_epochs=1, use_tqdm=False
        )
        assert model.loss.query_weight == 1.0
        assert model.loss.candidate_weight == 0.0


class TestErrors:
    def test_closed_world(self) -> None:
        model = make_model(PECULIAR, DistMultCase)
        model.loss = SoftmaxLoss()
        loop = NonSamplingTrainingLoop(model=model, triples_factory=PECULIAR)
        with pytest.raises(ValueError, match=r"needs to see whole queries.*training_loop='nonsamplinglcwa'"):
            loop.train(PECULIAR, num_epochs=1, use_tqdm=False)

    def test_label_smoothing(self) -> None:
        with pytest.raises(ValueError, match=r"label_smoothing=0.1 does not apply to SoftmaxLoss"):
            SoftmaxLoss().objective(0.1)

    @pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
    def test_scale(self, scale: float) -> None:
        with pytest.raises(ValueError, match=rf"scale={scale}"):
            SoftmaxLoss(scale=scale)

    def test_filtered(self) -> None:
        with pytest.raises(TypeError, match=r"filtered='yes' has to be True or False"):
            SoftmaxLoss(filtered="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["ComplEx", "TransE", "RESCAL"])
def test_front_door(model: str) -> None:
    result = pipeline(
        dataset="nations",
        model=model,
        model_kwargs=dict(embedding_dim=16),
        training_loop="nonsamplinglcwa",
        loss="softmax",
        loss_kwargs=dict(scale=2.0),
        epochs=30,
        random_seed=0,
        evaluator="factorized",
        use_tqdm=False,
    )
    assert result.losses[-1] < 0.98 * result.losses[0]
    assert result.configuration["loss"] == "softmax"
    assert result.configuration["loss_kwargs"]["query_weight"] == 1.0
