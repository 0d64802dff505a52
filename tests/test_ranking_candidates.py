"""Scores of all candidates equal the model's, in blocks of any size, and hidden candidates stay hidden."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from graphs import GRAPHS, make_factory
from pykeen.datasets import Nations
from pykeen.models import ComplEx, DistMult, Model, TransE
from torch import Tensor

from pykeen_nonsampling.factorizations import NotDecomposableError
from pykeen_nonsampling.ranking import candidates
from pykeen_nonsampling.ranking.candidates import Hidden, Scorer

TRIPLES = torch.tensor([(0, 0, 1), (1, 0, 2), (2, 1, 0), (3, 1, 1), (0, 0, 3), (4, 2, 4)])


def make_model(cls: Any = ComplEx, inverse: bool = False, **kwargs: Any) -> Model:
    factory = make_factory(TRIPLES.tolist(), 5, 3, create_inverse_triples=inverse)
    more = dict(scoring_fct_norm=2) if cls is TransE else {}
    model: Model = cls(triples_factory=factory, embedding_dim=4, random_seed=0, **more, **kwargs)
    return model.double().eval()


def by_model(model: Model, target: str, triples: Tensor) -> Tensor:
    """Score all candidates by the model itself."""
    with torch.inference_mode():
        return model.predict_h(triples[:, 1:]) if target == "head" else model.predict_t(triples[:, :2])


@pytest.mark.parametrize("cls", [ComplEx, DistMult, TransE])
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("target", ["head", "tail"])
@pytest.mark.parametrize("columns", [1, 2, 5, 100])
def test_blocks_together_are_the_models_scores(
    cls: Any, inverse: bool, target: Any, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "CACHED_COLUMNS", columns)
    model = make_model(cls, inverse)
    scorer = Scorer.of(model)
    assert scorer.num_columns == min(columns, 5)
    end, expected = scorer.end(target, TRIPLES), by_model(model, target, TRIPLES)
    pairs = scorer.turn(target, TRIPLES)[:, :2]
    with torch.inference_mode():
        queries = end.queries(pairs)
        out = queries.new_empty(len(queries) * scorer.num_columns)
        blocks = [(where, scores.clone()) for where, scores in end.scores(queries, out)]
        torch.testing.assert_close(end.model_scores(pairs, torch.arange(5)), expected)
    assert [e for where, _ in blocks for e in range(5)[where]] == list(range(5))
    scores = torch.cat([x for _, x in blocks], dim=1)
    # the order of candidates is the same without a constant for each query, and without a root
    torch.testing.assert_close(scores.diff(dim=1), scorer.factorization.transform(expected).diff(dim=1))


@pytest.mark.parametrize("target", ["head", "tail"])
@pytest.mark.parametrize("inverse", [False, True])
def test_known_answers_are_found(target: Any, inverse: bool) -> None:
    scorer = Scorer.of(make_model(inverse=inverse))
    end, turned = scorer.end(target, TRIPLES), scorer.turn(target, TRIPLES)
    given, column = (2, 0) if target == "head" else (0, 2)
    assert torch.equal(turned[:, [0, 2]], TRIPLES[:, [given, column]])
    rows, known = end.side.index.lookup(turned[:, :2])
    for i, triple in enumerate(TRIPLES.tolist()):
        answers = {x[column] for x in TRIPLES.tolist() if (x[given], x[1]) == (triple[given], triple[1])}
        assert set(known[rows == i].tolist()) == answers


def test_nothing_known() -> None:
    end = Scorer.of(make_model()).end("tail", TRIPLES[:0])
    assert len(end.side.index) == 0
    assert end.keys.shape[0] == 5


class TestModelScores:
    """The model decides between candidates, whatever it is asked beside."""

    @pytest.mark.parametrize("cls", [ComplEx, TransE])
    def test_one_pair_is_rounded_like_many(self, cls: Any) -> None:
        """Which PyKEEN does not do for ComplEx."""
        nations, more = Nations().training, dict(scoring_fct_norm=2) if cls is TransE else {}
        model = cls(triples_factory=nations, embedding_dim=33, random_seed=0, **more).eval()
        pairs, everyone = nations.mapped_triples[:40, :2], torch.arange(14)
        end = Scorer.of(model).end("tail", nations.mapped_triples)
        with torch.inference_mode():
            many = end.model_scores(pairs, everyone)
            one = torch.cat([end.model_scores(pair[None], everyone) for pair in pairs])
        assert torch.equal(one, many)

    def test_candidates_with_the_same_vectors_have_one_score(self) -> None:
        model: Any = make_model(TransE).float()
        with torch.no_grad():
            model.entity_representations[0]._embeddings.weight[3] = model.entity_representations[0]._embeddings.weight[1]
        end = Scorer.of(model).end("head", TRIPLES)
        asked = torch.tensor([3, 0, 1, 4])
        with torch.inference_mode():
            scores = end.model_scores(TRIPLES[:, [2, 1]], asked)
        assert torch.equal(scores[:, 0], scores[:, 2])
        torch.testing.assert_close(scores, by_model(model, "head", TRIPLES)[:, asked])


class TestRows:
    @pytest.mark.parametrize("budget", [100, 1_000, 10_000])
    @pytest.mark.parametrize("copies", [1, 3])
    def test_fit_the_budget(self, budget: int, copies: int) -> None:
        rows = Scorer.of(make_model()).num_rows(budget, copies)
        # five candidates of eight bytes
        assert rows == max(1, budget // (copies * 5 * 8))

    def test_are_at_least_one_and_fit_the_cache(self) -> None:
        scorer = Scorer.of(make_model())
        assert scorer.num_rows(1, copies=3) == 1
        assert scorer.num_rows(2**40, copies=3) == candidates.CACHED_ROWS

    def test_default_is_a_quarter_of_what_is_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(candidates, "free_memory", lambda device: 4 * 3 * 5 * 8 * 7)
        assert Scorer.of(make_model()).num_rows(None, copies=3) == 7


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10])
def test_hidden_candidates_have_the_lowest_score(size: int) -> None:
    """Each in its row, some in several, in blocks of any size."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(4, 10, generator=generator)
    rows, entities = torch.randint(4, (15,), generator=generator), torch.randint(10, (15,), generator=generator)
    expected = scores.clone()
    for row, entity in zip(rows.tolist(), entities.tolist(), strict=True):
        expected[row, entity] = -torch.inf
    hidden = Hidden(rows, entities)
    for start in range(0, 10, size):
        block = slice(start, min(start + size, 10))
        hidden.hide(scores[:, block], block)
    assert torch.equal(scores, expected)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_features_that_are_not_finite_are_refused(value: float) -> None:
    model: Any = make_model(DistMult)
    with torch.no_grad():
        model.entity_representations[0]._embeddings.weight[2, 1] = value
    with pytest.raises(NotDecomposableError, match="features are not finite"):
        Scorer.of(model)


def test_number_of_candidates() -> None:
    factory = GRAPHS["entity without triple"]
    assert Scorer.of(DistMult(triples_factory=factory, embedding_dim=2, random_seed=0)).num_entities == 5
