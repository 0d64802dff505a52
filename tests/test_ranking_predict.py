"""The best answers, found by a matrix product, are PyKEEN's."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
import torch
from pykeen.datasets import Nations
from pykeen.models import ConvE, DistMult, Model, model_resolver
from pykeen.predict import predict_target
from pykeen.triples import CoreTriplesFactory, TriplesFactory
from pykeen.typing import LABEL_HEAD, LABEL_TAIL

import pykeen_nonsampling
from pykeen_nonsampling import NotDecomposableError, predict_targets
from pykeen_nonsampling.defaults import required_kwargs
from pykeen_nonsampling.ranking import candidates as scoring

MODELS = ["DistMult", "ComplEx", "SimplE", "TransE", "RotatE", "MuRE", "RESCAL", "TuckER", "QuatE"]
ENDS = pytest.mark.parametrize("target", [LABEL_HEAD, LABEL_TAIL])


def training(inverse: bool = False) -> TriplesFactory:
    factory: TriplesFactory = Nations(create_inverse_triples=inverse).training
    return factory


def make(name: str, factory: TriplesFactory, **kwargs: Any) -> Model:
    required = required_kwargs(model_resolver.lookup(name))
    return model_resolver.make(name, triples_factory=factory, embedding_dim=6, random_seed=0, **required, **kwargs).eval()


def query(target: str, entity: Any, relation: Any) -> dict[str, Any]:
    return {LABEL_TAIL if target == LABEL_HEAD else LABEL_HEAD: entity, "relation": relation}


def assert_same(ours: pd.DataFrame, theirs: pd.DataFrame, target: str) -> None:
    """Compare what PyKEEN's data frame has: the same entities with the same scores, in the same order."""
    expected = theirs[[f"{target}_id", "score", f"{target}_label"]].reset_index(drop=True)
    pd.testing.assert_frame_equal(ours[expected.columns].reset_index(drop=True), expected, check_dtype=False, rtol=1e-4)


@pytest.fixture(autouse=True)
def _several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide candidates into several blocks, as those of larger graphs are."""
    monkeypatch.setattr(scoring, "CACHED_COLUMNS", 5)


@ENDS
@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("name", MODELS)
class TestAgainstPyKEEN:
    def test_best(self, name: str, inverse: bool, target: Any) -> None:
        factory = training(inverse)
        model = make(name, factory)
        q = query(target, "brazil", "embassy")
        theirs = predict_target(model, triples_factory=factory, **q).df
        assert_same(predict_targets(model, triples_factory=factory, k=4, **q).df, theirs.head(4), target)
        assert_same(predict_targets(model, triples_factory=factory, k=None, **q).df, theirs, target)

    def test_without_known_triples(self, name: str, inverse: bool, target: Any) -> None:
        factory, testing = training(inverse), Nations().testing
        model = make(name, factory)
        q = query(target, "usa", "embassy")
        theirs = predict_target(model, triples_factory=factory, **q).filter_triples(factory, testing).df
        ours = predict_targets(model, triples_factory=factory, filter_triples=[factory, testing], **q).df
        assert len(theirs) < 14
        assert_same(ours, theirs.head(10), target)

    def test_many_queries_at_once(self, name: str, inverse: bool, target: Any) -> None:
        factory = training(inverse)
        model = make(name, factory)
        labels = [(entity, relation) for entity in ("uk", "china", "uk") for relation in ("embassy", "treaties")]
        q = query(target, *zip(*labels, strict=True))
        ours = predict_targets(model, triples_factory=factory, k=3, filter_triples=factory, memory_budget=100, **q).df
        start = 0
        for entity, relation in labels:
            q = query(target, entity, relation)
            theirs = predict_target(model, triples_factory=factory, **q).filter_triples(factory).df.head(3)
            some = ours.iloc[start : start + len(theirs)]
            assert_same(some, theirs, target)
            for column, label in q.items():
                assert set(some[f"{column}_label"]) == {label}
            start += len(theirs)
        assert start == len(ours)


@pytest.mark.parametrize("factory", [None, CoreTriplesFactory.create(Nations().training.mapped_triples)])
def test_ids_without_labels(factory: CoreTriplesFactory | None) -> None:
    model = make("DistMult", training())
    ours = predict_targets(model, head=torch.tensor([3, 4]), relation=7, k=2, triples_factory=factory).df
    assert list(ours.columns) == ["head_id", "relation_id", "tail_id", "score"]
    assert ours["head_id"].tolist() == [3, 3, 4, 4]
    assert ours["relation_id"].tolist() == [7] * 4
    expected = predict_target(model, head=3, relation=7).df
    assert ours["tail_id"].tolist()[:2] == expected["tail_id"].tolist()[:2]


def test_columns_are_those_of_triples() -> None:
    factory = training()
    result = predict_targets(make("DistMult", factory), head="uk", relation="embassy", triples_factory=factory)
    columns = [f"{name}_{kind}" for name in ("head", "relation", "tail") for kind in ("id", "label")]
    assert list(result.df.columns) == [*columns, "score"]
    # what PyKEEN offers for predictions works
    assert result.add_membership_columns(training=factory).df["in_training"].any()
    assert len(result.filter_triples(factory).df) < 10


def test_scores_of_a_sigmoid_are_between_0_and_1() -> None:
    factory = training()
    model = make("DistMult", factory, predict_with_sigmoid=True)
    ours = predict_targets(model, head="uk", relation="embassy", triples_factory=factory, k=None).df
    assert_same(ours, predict_target(model, head="uk", relation="embassy", triples_factory=factory).df, LABEL_TAIL)
    assert ours["score"].between(0, 1).all()


def test_everything_known_leaves_nothing() -> None:
    factory = training()
    known = torch.tensor([(0, 0, t) for t in range(14)])
    ours = predict_targets(make("DistMult", factory), head=[0, 1], relation=0, filter_triples=known, k=None).df
    assert ours["head_id"].tolist() == [1] * 14


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        (dict(head="uk"), "A query is a relation with either a head or a tail"),
        (dict(relation="embassy"), "A query is a relation with either a head or a tail"),
        (dict(head="uk", tail="usa"), "pykeen.predict.predict_target"),
        (dict(head="atlantis", relation="embassy"), "no entity 'atlantis'"),
        (dict(head="uk", relation="loves"), "no relation 'loves'"),
        (dict(head=14, relation=0), "ids range from 0 to 13"),
        (dict(head=0, relation=55), "ids range from 0 to 54"),
        (dict(head=[0, 1], relation=[0, 1, 2]), "There are 2 and 3 parts of queries"),
        (dict(head=0, relation=0, k=0), "k=0 leaves nothing"),
        (dict(head=0, relation=0, memory_budget=0), "memory_budget=0 is out of range"),
        (dict(head="uk", relation=0, triples_factory=None), "is a label, which only a factory knows"),
    ],
)
def test_errors(kwargs: dict[str, Any], message: str) -> None:
    factory = training(inverse=True)
    with pytest.raises(ValueError, match=message):
        predict_targets(make("DistMult", factory), **{"triples_factory": factory, **kwargs})


def test_model_without_factorization() -> None:
    factory = training()
    with pytest.raises(NotDecomposableError, match=r"cannot be decomposed.*use pykeen\.predict\.predict_target"):
        predict_targets(ConvE(triples_factory=factory, random_seed=0), head=0, relation=0)


def test_models_in_training_are_put_into_evaluation_mode() -> None:
    factory = training()
    model = DistMult(triples_factory=factory, embedding_dim=4, random_seed=0).train()
    assert len(pykeen_nonsampling.predict_targets(model, head=0, relation=0, k=1).df) == 1
    assert not model.training
