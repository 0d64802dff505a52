"""The factorized evaluator gives PyKEEN's ranks."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from graphs import GRAPHS, make_factory
from pykeen.datasets import Dataset, get_dataset
from pykeen.evaluation import RankBasedEvaluator, evaluator_resolver
from pykeen.models import ConvE, DistMult, ERModel, Model, QuatE, TuckER
from pykeen.nn.modules import DistMultInteraction
from pykeen.pipeline import pipeline
from pykeen.typing import LABEL_HEAD, LABEL_TAIL, RANK_OPTIMISTIC, RANK_PESSIMISTIC

from pykeen_nonsampling.factorizations import DistMultFactorization, Form, FunctionForm
from pykeen_nonsampling.ranking import candidates as scoring
from pykeen_nonsampling.ranking import ranks as ranking
from pykeen_nonsampling.ranking.evaluator import FactorizedRankBasedEvaluator

XAVIER = dict(entity_initializer="xavier_normal", relation_initializer="xavier_normal")
MODELS: dict[str, dict[str, Any]] = {
    "DistMult": {},
    "SimplE": XAVIER,
    "ComplEx": XAVIER,
    "TransE": dict(scoring_fct_norm=2),
}


def assert_same_ranks(model: Model, triples: torch.Tensor, evaluator_kwargs: Any = None, **kwargs: Any) -> None:
    """Compare all ranks of all types and sides, one by one, and the numbers of candidates."""
    options = dict(clear_on_finalize=False, **(evaluator_kwargs or {}))
    ours, pykeens = FactorizedRankBasedEvaluator(**options), RankBasedEvaluator(**options)
    mine = ours.evaluate(model, triples, use_tqdm=False, **kwargs)
    theirs = pykeens.evaluate(model, triples, use_tqdm=False, **{**kwargs, "batch_size": 128})
    for actual, expected in ((ours.ranks, pykeens.ranks), (ours.num_candidates, pykeens.num_candidates)):
        assert actual.keys() == expected.keys()
        for key, values in expected.items():
            np.testing.assert_array_equal(np.concatenate(actual[key]), np.concatenate(values), err_msg=str(key))
            assert np.concatenate(actual[key]).dtype == np.concatenate(values).dtype
    assert mine.to_flat_dict() == pytest.approx(theirs.to_flat_dict(), nan_ok=True)


#: Models with and without symmetric scores, with and without inverse triples, on each of two graphs
TRAINED = {
    "DistMult": "kinships",
    "SimplE": "umls",
    "ComplEx": "umls",
    "TransE": "kinships",
    "DistMult with inverse triples": "umls",
    "ComplEx with inverse triples": "kinships",
}


@pytest.fixture(scope="module", params=TRAINED)
def trained(request: pytest.FixtureRequest) -> tuple[Model, Dataset]:
    """Train a model, well enough to have good and bad ranks."""
    dataset = get_dataset(dataset=TRAINED[request.param])
    name, _, inverse = request.param.partition(" with ")
    training = dataset.training
    if inverse:
        training = type(training)(
            training.mapped_triples, training.entity_to_id, training.relation_to_id, create_inverse_triples=True
        )
    result = pipeline(
        training=training,
        testing=dataset.testing,
        model=name,
        model_kwargs=dict(embedding_dim=20, **MODELS[name]),
        training_loop="nonsampling",
        loss_kwargs=dict(negative_weight=0.1),
        evaluator="factorized",
        optimizer_kwargs=dict(lr=0.02),
        epochs=60,
        random_seed=0,
        use_tqdm=False,
    )
    assert isinstance(result.training_loop.model, ERModel)
    return result.model, dataset


class TestTrainedModels:
    def test_filtered(self, trained: tuple[Model, Dataset]) -> None:
        model, dataset = trained
        assert dataset.validation is not None
        known = [dataset.training.mapped_triples, dataset.validation.mapped_triples]
        assert_same_ranks(model, dataset.testing.mapped_triples, additional_filter_triples=known)

    @pytest.mark.parametrize("batch_size", [None, 1, 7, 10**6])
    def test_any_batch_size(self, trained: tuple[Model, Dataset], batch_size: int | None) -> None:
        model, dataset = trained
        triples = dataset.testing.mapped_triples[:100]
        assert_same_ranks(model, triples, additional_filter_triples=dataset.training.mapped_triples, batch_size=batch_size)

    @pytest.mark.parametrize("columns", [1, 7, 64])
    @pytest.mark.parametrize("restricted", [False, True])
    def test_any_block_of_candidates(
        self, trained: tuple[Model, Dataset], columns: int, restricted: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """These graphs would fit into one block, and larger ones do not."""
        monkeypatch.setattr(scoring, "CACHED_COLUMNS", columns)
        model, dataset = trained
        assert_same_ranks(
            model,
            dataset.testing.mapped_triples[:100],
            additional_filter_triples=dataset.training.mapped_triples,
            restrict_entities_to=list(range(0, dataset.num_entities, 3)) if restricted else None,
            pre_filtered_triples=False,
            batch_size=64,
        )

    @pytest.mark.parametrize("targets", [[LABEL_HEAD], [LABEL_TAIL]])
    def test_one_side(self, trained: tuple[Model, Dataset], targets: list[Any]) -> None:
        model, dataset = trained
        assert_same_ranks(model, dataset.testing.mapped_triples[:100], targets=targets)

    def test_some_entities_only(self, trained: tuple[Model, Dataset]) -> None:
        model, dataset = trained
        assert_same_ranks(
            model,
            dataset.testing.mapped_triples,
            additional_filter_triples=dataset.training.mapped_triples,
            restrict_entities_to=list(range(0, dataset.num_entities, 2)),
            pre_filtered_triples=False,
        )

    @pytest.mark.parametrize("columns", [7, 512])
    def test_unfiltered(self, trained: tuple[Model, Dataset], columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
        """PyKEEN's own evaluator does not work unfiltered, so its ranks come from its scores."""
        monkeypatch.setattr(scoring, "CACHED_COLUMNS", columns)
        model, dataset = trained
        triples = dataset.testing.mapped_triples
        evaluator = FactorizedRankBasedEvaluator(filtered=False, clear_on_finalize=False)
        evaluator.evaluate(model, triples, use_tqdm=False)
        for target, column in ((LABEL_HEAD, 0), (LABEL_TAIL, 2)):
            # in batches as above: how PyKEEN rounds depends on their size
            scores = torch.cat([model.predict(batch, target=target) for batch in triples.split(128)])
            true = scores.gather(1, triples[:, [column]])
            ranks = dict(optimistic=(scores > true).sum(dim=1) + 1, pessimistic=(scores >= true).sum(dim=1))
            for rank_type, expected in ranks.items():
                np.testing.assert_array_equal(np.concatenate(evaluator.ranks[target, rank_type]), expected.numpy())
            assert (np.concatenate(evaluator.num_candidates[target]) == dataset.num_entities).all()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("filtered_more", [False, True])
@pytest.mark.parametrize("settled_rows", [3, 64])
def test_ties_are_ties(model: str, filtered_more: bool, settled_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entities with the same vectors have the same scores, and there are many of them."""
    monkeypatch.setattr(ranking, "SETTLED_ROWS", settled_rows)
    monkeypatch.setattr(scoring, "CACHED_COLUMNS", 5)
    dataset = get_dataset(dataset="nations")
    result = pipeline(
        dataset=dataset,
        model=model,
        model_kwargs=dict(embedding_dim=7, **MODELS[model]),
        training_loop="nonsampling",
        epochs=20,
        random_seed=0,
        use_tqdm=False,
    )
    with torch.no_grad():
        for representation in result.model.entity_representations:
            weight = representation._embeddings.weight
            weight[1::3] = weight[0]
            weight[2::3] = weight[2]
    known = [dataset.training.mapped_triples] if filtered_more else None
    assert_same_ranks(result.model, dataset.testing.mapped_triples, additional_filter_triples=known)


@pytest.mark.parametrize("model", [TuckER, QuatE])
@pytest.mark.parametrize("batch_size", [1, 32])
def test_ties_that_rounding_hides_from_pykeen(model: type[ERModel], batch_size: int) -> None:
    """Where PyKEEN's rounding depends on the batch, its ranks are between those with all ties of equal vectors."""
    factory = get_dataset(dataset="umls").training
    more = dict(dropout_0=0.0, dropout_1=0.0, dropout_2=0.0, apply_batch_normalization=False) if model is TuckER else {}
    instance = model(triples_factory=factory, embedding_dim=8, random_seed=0, **more)
    with torch.no_grad():
        weight = instance.entity_representations[0]._embeddings.weight
        weight[67:134] = weight[:67]
    ours, pykeens = (cls(clear_on_finalize=False) for cls in (FactorizedRankBasedEvaluator, RankBasedEvaluator))
    for evaluator in (ours, pykeens):
        triples = factory.mapped_triples[:60]
        evaluator.evaluate(
            instance, triples, additional_filter_triples=factory.mapped_triples, batch_size=batch_size, use_tqdm=False
        )
    for target in (LABEL_HEAD, LABEL_TAIL):
        (low, their_low), (high, their_high) = (
            [np.concatenate(evaluator.ranks[target, rank_type]) for evaluator in (ours, pykeens)]
            for rank_type in (RANK_OPTIMISTIC, RANK_PESSIMISTIC)
        )
        assert (low < high).sum() > 20
        assert (low <= their_low).all()
        assert (their_high <= high).all()


def test_near_ties_are_decided_by_the_model() -> None:
    """Entities whose scores differ by rounding only: a matrix product rounds in another way than PyKEEN does."""
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(50, generator=generator)
    factory = make_factory([(0, 0, t) for t in range(1, 200)], 200, 1)
    model = DistMult(triples_factory=factory, embedding_dim=50, random_seed=0)
    with torch.no_grad():
        entities = model.entity_representations[0]._embeddings.weight
        entities[:] = torch.stack([vector[torch.randperm(50, generator=generator)] for _ in range(200)])
        entities[0] = 1.0
        model.relation_representations[0]._embeddings.weight.fill_(1.0)
    triples = factory.mapped_triples[:10]
    assert len(model.predict(triples[:1], target=LABEL_TAIL).unique()) > 2
    assert_same_ranks(model, triples, targets=[LABEL_TAIL])


def test_all_scores_equal() -> None:
    dataset = get_dataset(dataset="nations")
    model = DistMult(triples_factory=dataset.training, random_seed=0)
    with torch.no_grad():
        model.entity_representations[0]._embeddings.weight.fill_(1.0)
    assert_same_ranks(model, dataset.testing.mapped_triples, additional_filter_triples=dataset.training.mapped_triples)


@pytest.mark.parametrize("memory_budget", [1, 10_000, None])
def test_any_memory_budget(memory_budget: int | None) -> None:
    dataset = get_dataset(dataset="nations")
    model = DistMult(triples_factory=dataset.training, random_seed=0)
    results = [
        FactorizedRankBasedEvaluator(memory_budget=budget).evaluate(model, dataset.testing.mapped_triples, use_tqdm=False)
        for budget in (memory_budget, 2**30)
    ]
    assert results[0].to_flat_dict() == pytest.approx(results[1].to_flat_dict(), nan_ok=True)
    with pytest.raises(ValueError, match="memory_budget=0 is out of range: use an integer ≥ 1"):
        FactorizedRankBasedEvaluator(memory_budget=0)


def test_metrics_and_options_are_pykeens() -> None:
    dataset = get_dataset(dataset="nations")
    model = DistMult(triples_factory=dataset.training, random_seed=0)
    options = dict(metrics=["hits@k", "mrr"], metrics_kwargs=[dict(k=7), None], add_defaults=False)
    assert_same_ranks(model, dataset.testing.mapped_triples, evaluator_kwargs=options)


@pytest.mark.parametrize("known", [True, False])
def test_missing_filter_triples_are_pointed_out(known: bool, caplog: pytest.LogCaptureFixture) -> None:
    factory = GRAPHS["ordinary"]
    model = DistMult(triples_factory=factory, random_seed=0)
    kwargs = dict(additional_filter_triples=[factory.mapped_triples]) if known else {}
    FactorizedRankBasedEvaluator().evaluate(model, factory.mapped_triples, use_tqdm=False, **kwargs)
    assert any("there were no `additional_filter_triples`" in r.getMessage() for r in caplog.records) != known


class TestFallback:
    def test_model_without_factorization(self, caplog: pytest.LogCaptureFixture) -> None:
        dataset = get_dataset(dataset="nations")
        caplog.set_level(logging.WARNING)
        assert_same_ranks(ConvE(triples_factory=dataset.training, random_seed=0), dataset.testing.mapped_triples[:50])
        assert any(
            "RankBasedEvaluator instead: ConvEInteraction cannot be decomposed" in r.getMessage() for r in caplog.records
        )

    def test_sigmoid(self, caplog: pytest.LogCaptureFixture) -> None:
        dataset = get_dataset(dataset="nations")
        model = DistMult(triples_factory=dataset.training, random_seed=0, predict_with_sigmoid=True)
        assert_same_ranks(model, dataset.testing.mapped_triples)
        assert any("A sigmoid" in r.getMessage() for r in caplog.records)

    def test_factorization_whose_head_queries_are_unknown(self, caplog: pytest.LogCaptureFixture) -> None:
        class CubicInteraction(DistMultInteraction):
            def forward(self, h, r, t):  # type: ignore[no-untyped-def]
                return (h**3 * r * t).sum(dim=-1)

        class CubicFactorization(DistMultFactorization):
            interaction_cls = CubicInteraction

            @property
            def form(self) -> Form:
                return FunctionForm(lambda heads, relations: heads**3 * relations)

        model: Any = ERModel(
            triples_factory=GRAPHS["ordinary"],
            interaction=CubicInteraction,
            entity_representations_kwargs=dict(shape=4),
            relation_representations_kwargs=dict(shape=4),
            random_seed=0,
        )
        triples = GRAPHS["ordinary"].mapped_triples
        evaluator = FactorizedRankBasedEvaluator(factorization=CubicFactorization)
        expected = RankBasedEvaluator().evaluate(model, triples, use_tqdm=False, batch_size=4)
        assert evaluator.evaluate(model, triples, use_tqdm=False, batch_size=4).to_flat_dict() == pytest.approx(
            expected.to_flat_dict(), nan_ok=True
        )
        assert any("CubicFactorization gives other scores from its other end" in r.getMessage() for r in caplog.records)


@pytest.mark.parametrize("name", ["factorized", "factorizedrankbased", "FactorizedRankBasedEvaluator"])
def test_by_name(name: str) -> None:
    assert evaluator_resolver.lookup(name) is FactorizedRankBasedEvaluator


def test_early_stopping_and_pipeline() -> None:
    results = [
        pipeline(
            dataset="nations",
            model="DistMult",
            training_loop="nonsampling",
            stopper="early",
            stopper_kwargs=dict(frequency=5, patience=2, relative_delta=0.02),
            evaluator=evaluator,
            optimizer_kwargs=dict(lr=0.05),
            epochs=200,
            random_seed=0,
            use_tqdm=False,
        )
        for evaluator in ("factorized", "rankbased")
    ]
    assert results[0].losses == results[1].losses
    assert results[0].stopper.results == pytest.approx(results[1].stopper.results)
    assert results[0].metric_results.to_flat_dict() == pytest.approx(results[1].metric_results.to_flat_dict(), nan_ok=True)


def test_progress_bar(capsys: pytest.CaptureFixture[str]) -> None:
    dataset = get_dataset(dataset="nations")
    model = DistMult(triples_factory=dataset.training, random_seed=0)
    FactorizedRankBasedEvaluator().evaluate(model, dataset.testing.mapped_triples)
    assert "Evaluating on cpu: 100%" in capsys.readouterr().err
