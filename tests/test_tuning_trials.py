"""What was tried: the best of it, what it is expected to take, and what need not be tried again."""

from __future__ import annotations

from pathlib import Path

import pytest
from optuna.trial import TrialState
from searches import add, make_space

from pykeen_nonsampling.tuning import LAST, RUNGS, Space, Trials
from pykeen_nonsampling.tuning.trials import TIME_EXPONENT, UNFINISHED, mrr

MODELS = "DistMult", "TransE"


@pytest.fixture(scope="module")
def space() -> Space:
    return make_space(MODELS)


@pytest.fixture
def trials(space: Space) -> Trials:
    return Trials(space, "sqlite:///:memory:")


class TestBest:
    def test_is_the_first_of_the_highest(self, trials: Trials) -> None:
        assert trials.best is None
        for rung, value in ((0, 0.3), (LAST, 0.5), (0, 0.7), (1, 0.7), (0, None)):
            add(trials, rung, value, state=TrialState.FAIL if value is None else None)
        assert [x.number for x in trials.finished] == [0, 1, 2, 3]
        assert trials.best is not None
        assert trials.best.number == 2

    def test_defaults_are_compared_on_the_highest_rung(self, trials: Trials) -> None:
        assert trials.best_default is None
        for rung, value, default in ((0, 0.9, True), (LAST, 0.5, True), (LAST, 0.6, True), (LAST, 0.8, False)):
            add(trials, rung, value, default=default)
        assert trials.best_default is not None
        assert trials.best_default.number == 2

    def test_mean_over_seeds_counts(self, trials: Trials) -> None:
        for value, default in ((0.7, True), (0.6, True), (0.5, False)):
            add(trials, LAST, value, default=default)
        # no better on another rung: that is another model
        add(trials, 1, 0.4, root=1)
        add(trials, LAST, 0.6, root=0, seed=1, default=True)
        assert trials.best is not None
        assert [x.number for x in trials.ranking] == [0, 1, 2, 3]
        assert [x.number for x in trials.repetitions(trials.best)] == [0, 4]
        add(trials, LAST, 0.2, root=0, seed=2, default=True)
        assert [x.number for x in trials.ranking] == [1, 0, 2, 3]
        for best in (trials.best, trials.best_default):
            assert best is not None
            assert best.number == 1
        # the model of the better seed
        add(trials, LAST, 0.9, root=1, seed=1, default=True)
        assert trials.best.number == 6

    def test_fails_with_no_seed(self, trials: Trials) -> None:
        for value in (0.7, 0.6):
            add(trials, LAST, value)
        add(trials, LAST, None, root=0, seed=1, state=TrialState.FAIL, reason="interrupted")
        assert trials.best is not None
        assert trials.best.number == 0
        add(trials, LAST, None, root=0, seed=1, state=TrialState.FAIL, reason="NonFiniteLossError: too large")
        assert [x.number for x in trials.ranking] == [1]

    def test_no_result_is_less_than_any(self, trials: Trials) -> None:
        add(trials, 0, None, state=TrialState.FAIL)
        assert mrr(trials.study.trials[0]) == -float("inf")


class TestTime:
    def test_nothing_is_known_at_first(self, trials: Trials) -> None:
        assert trials._estimate("DistMult", "nonsampling", 1.0, LAST) == 0.0

    @pytest.mark.parametrize("share", [1.0, 0.5])
    @pytest.mark.parametrize("rung", range(1 + LAST))
    def test_grows_with_epochs_and_dimensions(self, trials: Trials, rung: int, share: float) -> None:
        add(trials, 0, 0.5, seconds=7.0)
        scale, other = RUNGS[rung], RUNGS[0]
        expected = 7 * scale.epochs / other.epochs * (share * scale.dimension / other.dimension) ** TIME_EXPONENT
        assert trials._estimate("DistMult", "nonsampling", share, rung) == pytest.approx(expected)

    def test_follows_from_the_most_similar_trial(self, trials: Trials) -> None:
        add(trials, 0, 0.5, seconds=1.0)
        add(trials, LAST, 0.5, seconds=1000.0)
        add(trials, LAST, 0.5, seconds=10.0, share=0.5)
        assert trials._estimate("DistMult", "nonsampling", 1.0, 0) == pytest.approx(1.0)
        assert trials._estimate("DistMult", "nonsampling", 1.0, LAST) == pytest.approx(1000.0)
        assert trials._estimate("DistMult", "nonsampling", 0.5, LAST) == pytest.approx(10.0)

    def test_of_another_model_only_if_there_is_none(self, trials: Trials) -> None:
        add(trials, LAST, 0.5, seconds=5.0)
        assert trials._estimate("TransE", "nonsampling", 1.0, LAST) == pytest.approx(5.0)
        add(trials, 0, 0.5, seconds=1.0, model="TransE")
        assert trials._estimate("TransE", "nonsampling", 1.0, 0) == pytest.approx(1.0)
        assert trials._estimate("TransE", "nonsampling", 1.0, LAST) != pytest.approx(5.0)


class TestAttempts:
    def test_what_failed_by_itself_is_not_run_again(self, trials: Trials) -> None:
        add(trials, 0, 0.5)
        add(trials, 1, None, root=0, state=TrialState.FAIL, reason="NonFiniteLossError: too large")
        assert trials._reached() == {0: 1}

    @pytest.mark.parametrize("reason", UNFINISHED)
    def test_what_was_stopped_is(self, trials: Trials, reason: str | None) -> None:
        add(trials, 0, 0.5)
        add(trials, 1, None, root=0, state=TrialState.FAIL, **({} if reason is None else {"reason": reason}))
        assert trials._reached() == {0: 0}
        assert [x.number for x in trials._attempts()] == [0]

    def test_highest_rung_of_each_configuration(self, trials: Trials) -> None:
        for rung, root in ((0, 0), (0, 1), (2, 0), (1, 1), (0, 4)):
            add(trials, rung, 0.5, root=root)
        assert trials._reached() == {0: 2, 1: 1, 4: 0}


class TestStorage:
    def test_other_settings_are_refused(self, space: Space, tmp_path: Path) -> None:
        storage = f"sqlite:///{tmp_path}/trials.db"
        Trials(space, storage)
        with pytest.raises(ValueError, match=r"has a search of nations with epochs=30, but now it is epochs=31, so that"):
            Trials(make_space(MODELS, epochs=31), storage)

    def test_dimensions_stay_those_of_the_first_time(self, space: Space, tmp_path: Path) -> None:
        storage = f"sqlite:///{tmp_path}/trials.db"
        Trials(space, storage)
        again = make_space(MODELS)
        again.dimensions = {"DistMult": 3, "TransE": 3}
        Trials(again, storage)
        assert again.dimensions == space.dimensions

    def test_what_was_killed_has_failed(self, space: Space, tmp_path: Path) -> None:
        storage = f"sqlite:///{tmp_path}/trials.db"
        trials = Trials(space, storage)
        add(trials, 0, 0.5)
        trials.study.ask()
        trials.study.enqueue_trial(space.default("TransE"))
        states = [TrialState.COMPLETE, TrialState.RUNNING, TrialState.WAITING]
        assert [x.state for x in trials.study.trials] == states
        again = Trials(space, storage)
        assert [x.state for x in again.study.trials] == [TrialState.COMPLETE, TrialState.FAIL, TrialState.FAIL]
        assert (again.started, again.before) == (3, 0.0)
        assert list(again.table()["reason"][1:]) == ["killed", "killed"]
        add(again, 0, 0.5)
        assert Trials(space, storage).before == 3.0


def test_table_has_a_row_for_each(trials: Trials) -> None:
    add(trials, 0, 0.5, seconds=2.0)
    add(trials, 0, None, inverse=True, state=TrialState.FAIL, reason="interrupted")
    add(trials, 1, 0.6, root=0, seed=1)
    table = trials.table()
    assert list(table["trial"]) == [0, 1, 2]
    assert list(table["configuration"]) == [0, 1, 0]
    assert list(table["seed"]) == [0, 0, 1]
    assert list(table["state"]) == ["finished", "fail", "finished"]
    assert list(table["reason"].fillna("")) == ["", "interrupted", ""]
    assert list(table["MRR"].fillna(-1)) == [0.5, -1, 0.6]
    assert list(table["create_inverse_triples"]) == [False, True, False]
    assert list(table["negative_weight"]) == [0.1] * 3
    assert "lr" not in table, "a column without any value"


def test_experiment_leaves_nothing_open(trials: Trials) -> None:
    add(trials, 0, 0.5)
    add(trials, LAST, 0.6, inverse=True)
    assert trials.best is not None
    experiment = trials.experiment(trials.best, test=dict(MRR=0.4))
    assert experiment["metadata"] == dict(
        title="DistMult on nations, found by pykeen-nonsampling tune",
        trial=1,
        trials=2,
        search_seconds=1.0,
        validation=dict(MRR=0.6),
        repeated=False,
        validation_seeds={"0": 0.6},
        validation_mean=0.6,
        test=dict(MRR=0.4),
    )
    assert experiment["pipeline"]["dataset_kwargs"] == dict(create_inverse_triples=True)
    assert experiment["pipeline"]["loss_kwargs"]["regularization_weight"] == 0.05


def test_experiment_tells_of_all_seeds(trials: Trials) -> None:
    add(trials, LAST, 0.5)
    add(trials, LAST, 0.75, root=0, seed=1)
    assert trials.best is not None
    experiment = trials.experiment(trials.best)
    expected = dict(trial=1, repeated=True, validation_seeds={"0": 0.5, "1": 0.75}, validation_mean=0.625)
    assert expected.items() <= experiment["metadata"].items()
    assert experiment["pipeline"]["random_seed"] == 1
