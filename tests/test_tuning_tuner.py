"""How the time of a search is spent, and what becomes of trials that fail."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from optuna.trial import TrialState
from pykeen.training import NonFiniteLossError
from searches import add, make_space

from pykeen_nonsampling.memory import room
from pykeen_nonsampling.tuning import LAST, REPORTED, Deadline, Space, Tuner
from pykeen_nonsampling.tuning.tuner import MOST_FAILURES, Job, Overrun


@pytest.fixture(scope="module")
def space() -> Space:
    return make_space()


@pytest.fixture
def tuner(space: Space, tmp_path: Path) -> Tuner:
    return Tuner(space, tmp_path, "sqlite:///:memory:")


class TestNext:
    """What to run next, by what is known so far."""

    def test_no_trial_starts_that_would_not_finish(self, tuner: Tuner) -> None:
        add(tuner, rung=0, value=0.5, seconds=1.0)
        # three times the epochs, each of them with four times the dimension
        assert tuner._estimate("DistMult", "nonsampling", 1.0, LAST) == pytest.approx(3 * 4**1.5)
        job = tuner._next(30.0, 30.0)
        assert job is not None
        assert (job.rung, job.root) == (LAST, 0)
        job = tuner._next(20.0, 20.0)
        assert job is not None
        assert (job.rung, job.root) == (0, None)
        assert tuner._next(0.9, 20.0) is None

    def test_only_the_best_defaults_may_take_long(self, tuner: Tuner) -> None:
        for value in (0.5, 0.6):
            add(tuner, rung=0, value=value, seconds=1.0, default=True)
        job = tuner._next(300.0, 400.0)
        assert job is not None
        assert (job.rung, job.root) == (LAST, 1)
        add(tuner, rung=LAST, value=0.65, seconds=24.0, root=1, default=True)
        for seconds, root in ((400.0, None), (600.0, 0)):
            job = tuner._next(300.0, seconds)
            assert job is not None
            assert job.root == root

    def test_defaults_are_tried_with_inverse_triples(self, tuner: Tuner) -> None:
        add(tuner, rung=0, value=0.5, seconds=1.0)
        add(tuner, rung=LAST, value=0.6, seconds=2.0, root=0)
        job = tuner._next(100.0, 100.0)
        assert job is not None
        assert job.params is not None
        assert (job.rung, job.root, job.default) == (0, None, False)
        assert job.params["create_inverse_triples"]
        assert job.params["nonsampling of block-diagonal.regularization_weight"] == 0.05
        add(tuner, rung=0, value=0.4, seconds=1.0, inverse=True)
        job = tuner._next(100.0, 100.0)
        assert job is not None
        assert job.params is None or job.params["lr of DistMult with Adam"] != 0.05

    def test_best_third_goes_on(self, tuner: Tuner) -> None:
        add(tuner, rung=0, value=0.5, seconds=1.0)
        add(tuner, rung=LAST, value=0.6, seconds=2.0, root=0)
        for value in (0.4, 0.7):
            add(tuner, rung=0, value=value, seconds=1.0, inverse=True)
        job = tuner._next(100.0, 300.0)
        assert job is not None
        assert (job.rung, job.root) == (1, 3)
        add(tuner, rung=1, value=0.7, seconds=1.0, root=3)
        job = tuner._next(100.0, 300.0)
        assert job is not None
        assert job.root is None

    def test_the_last_rung_comes_last(self, tuner: Tuner) -> None:
        """In the last quarter of the time, or if there is only enough of it for two more trials on that rung."""
        add(tuner, rung=0, value=0.5, seconds=1.0)
        add(tuner, rung=LAST, value=0.6, seconds=2.0, root=0)
        for value in (0.55, 0.4, 0.7):
            add(tuner, rung=0, value=value, seconds=1.0, inverse=True)
        for remaining, seconds in ((70.0, 300.0), (4.0, 8.0)):
            job = tuner._next(remaining, seconds)
            assert job is not None
            assert (job.rung, job.root) == (LAST, 4)
        add(tuner, rung=LAST, value=0.5, seconds=2.0, root=4)
        job = tuner._next(70.0, 300.0)
        assert job is not None
        assert (job.rung, job.root) == (LAST, 2)
        add(tuner, rung=LAST, value=0.65, seconds=2.0, root=2)
        add(tuner, rung=0, value=0.6, seconds=1.0, root=4, inverse=True, seed=1)
        add(tuner, rung=LAST, value=0.7, seconds=2.0, root=2, seed=1)
        # the other one was worse than the best one was on the same rung, so that is varied
        job = tuner._next(70.0, 300.0)
        assert job is not None
        assert job.params is not None
        assert (job.rung, job.root, job.params["model"]) == (LAST, None, "DistMult")
        assert tuner._next(0.9, 300.0) is None

    def test_the_best_is_repeated_in_the_end(self, tuner: Tuner) -> None:
        """Then the one that is the best by then, and so on, until that has been repeated."""
        add(tuner, rung=0, value=0.3, seconds=1.0)
        add(tuner, rung=0, value=0.2, seconds=1.0, inverse=True)
        for value, root in ((0.6, 0), (0.5, 3), (0.4, 4)):
            add(tuner, rung=LAST, value=value, seconds=2.0, root=root)

        def following(remaining: float) -> tuple[int, int | None, int] | None:
            job = tuner._next(remaining, 100.0)
            return None if job is None else (job.rung, job.root, job.repetition)

        new = (0, None, 0)
        assert following(50.0) == new
        for remaining in (20.0, 2.0):
            assert following(remaining) == (LAST, 0, 1)
        # which does not fit any more
        assert following(1.9) == new
        add(tuner, rung=LAST, value=0.3, seconds=2.0, root=0, seed=1)
        assert following(20.0) == (LAST, 3, 1)
        add(tuner, rung=LAST, value=None, root=3, seed=1, state=TrialState.FAIL, reason="NonFiniteLossError")
        # a mean of 0.45 is best
        assert following(20.0) == (LAST, None, 0)
        add(tuner, rung=LAST, value=0.46, seconds=2.0)
        assert following(20.0) == (LAST, len(tuner.study.trials) - 1, 1)

    def test_there_is_time_to_repeat_what_starts_on_the_last_rung(self, tuner: Tuner) -> None:
        add(tuner, rung=0, value=0.3, seconds=1.0)
        add(tuner, rung=LAST, value=0.6, seconds=2.0, root=0)
        add(tuner, rung=0, value=0.4, seconds=1.0, inverse=True)
        for remaining, root, repetition in ((4.0, 2, 0), (3.9, 0, 1)):
            job = tuner._next(remaining, 100.0)
            assert job is not None
            assert (job.rung, job.root, job.repetition) == (LAST, root, repetition)
        add(tuner, rung=LAST, value=0.7, seconds=2.0, root=0, seed=1)
        for remaining, rung in ((4.0, LAST), (3.9, 0)):
            # of the others, one was worse than the best was
            add(tuner, rung=LAST, value=0.1, seconds=2.0, root=2)
            job = tuner._next(remaining, 100.0)
            assert job is not None
            assert (job.rung, job.root) == (rung, None)


class TestFinalists:
    def test_better_half_of_each_rung_unless_it_is_worse_than_the_best_was(self, tuner: Tuner) -> None:
        at_first, later, whole = ((0.5, 0), (0.7, 1), (0.6, 2), (0.4, 3)), ((0.65, 1), (0.8, 2)), ((0.9, 1),)
        for rung, results in enumerate((at_first, later, whole)):
            for value, root in results:
                add(tuner, rung, value, root=root)
        finished = sorted(tuner.finished, key=lambda x: -x.value)
        rungs = [[x for x in finished if x.user_attrs["rung"] == rung] for rung in range(1 + LAST)]
        assert [x.value for x in tuner._finalists(rungs[:LAST], rungs[LAST])] == [0.8, 0.7]
        # without one on the last rung, all of the better half
        assert [x.value for x in tuner._finalists(rungs[:LAST], [])] == [0.8, 0.7, 0.6]


class TestDeadline:
    def test_ends_training_after_an_epoch(self) -> None:
        reports: list[None] = []
        deadline = Deadline(time.monotonic() + 600, lambda: reports.append(None))
        deadline.post_epoch(epoch=1, epoch_loss=0.0)
        deadline.end = time.monotonic() - 1
        with pytest.raises(Overrun):
            deadline.post_epoch(epoch=2, epoch_loss=0.0)
        assert len(reports) == 2


class TestRun:
    """With results that nobody has trained for."""

    @pytest.fixture(autouse=True)
    def _results(self, tuner: Tuner, monkeypatch: pytest.MonkeyPatch) -> None:
        #: the results of the next trials, or what they fail with
        self.results: list[float | BaseException] = []
        self.kept: list[int] = []
        self.seeds: list[int] = []

        def train(configuration: Any, inverse: bool, callback: Any = None) -> Any:
            result = self.results.pop(0)
            self.seeds.append(configuration["random_seed"])
            if isinstance(result, BaseException):
                raise result
            weights = dict.fromkeys(tuner.space.ranges[configuration["loss"], tuner.space.families["DistMult"]], 0.01)
            loss_kwargs = {**weights, **configuration["loss_kwargs"]}
            return SimpleNamespace(get_metric=lambda key: result, configuration=dict(loss_kwargs=loss_kwargs))

        monkeypatch.setattr(tuner, "train", train)
        monkeypatch.setattr(tuner, "keep", lambda number, result: self.kept.append(number))

    def test_results_are_recorded_and_the_best_is_kept(self, tuner: Tuner) -> None:
        self.results = [0.5, 0.7, 0.6, 0.7]
        assert tuner.run(600, trials=4) is None
        assert [x.user_attrs["metrics"]["MRR"] for x in tuner.finished] == [0.5, 0.7, 0.6, 0.7]
        assert self.kept == [0, 1]
        assert tuner.finished[0].user_attrs["metrics"].keys() == set(REPORTED)
        # the defaults on a small scale, as a whole, with inverse triples
        assert [x.user_attrs["rung"] for x in tuner.finished[:3]] == [0, LAST, 0]
        assert [x.state.name for x in tuner.finished[:3]] == ["PRUNED", "COMPLETE", "PRUNED"]
        finished = [x.user_attrs["finished"] for x in tuner.finished]
        assert finished == sorted(finished)

    @pytest.mark.parametrize(
        ("repetitions", "kept", "best"),
        [
            ([0.8], [0, 1, 5], 5),
            ([0.6], [0, 1], 1),
            # the other one is the best then, and repeated, too
            ([0.3, 0.8], [0, 1, 6], 6),
            ([0.3, 0.6], [0, 1], 4),
            ([0.3, 0.3], [0, 1], 1),
            ([NonFiniteLossError("too large"), 0.8], [0, 1, 6], 6),
        ],
    )
    def test_the_best_is_repeated(
        self, repetitions: list[Any], kept: list[int], best: int, tuner: Tuner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pykeen_nonsampling.tuning.tuner.FINAL_SHARE", 1.0)
        # the defaults on a small scale and as a whole, with inverse triples and with a start, and the better one as a whole
        self.results = [0.4, 0.7, 0.45, 0.3, 0.64, *repetitions]
        assert tuner.run(600, trials=len(self.results)) is None
        assert self.seeds == [0] * 5 + [1] * len(repetitions)
        assert list(tuner.table()["seed"]) == self.seeds
        assert self.kept == kept
        assert tuner.best is not None
        assert tuner.best.number == best
        # which is enough
        job = tuner._next(500.0, 600.0)
        assert job is not None
        assert job.repetition == 0

    def test_reasons_of_failures_are_recorded(self, tuner: Tuner) -> None:
        self.results = [0.5, OSError("no disk"), Overrun(), 0.6]
        assert tuner.run(600, trials=4) is None
        reasons = list(tuner.table()["reason"].fillna(""))
        assert reasons == ["", "OSError: no disk", "stopped at the end of the time", ""]

    def test_many_failures_in_a_row_end_the_search(self, tuner: Tuner) -> None:
        error = OSError("no disk")
        self.results = [error] * (MOST_FAILURES - 1) + [0.5] + [error] * MOST_FAILURES + [0.7]
        reason = tuner.run(600)
        assert reason == f"the last {MOST_FAILURES} trials failed, the last one with OSError: no disk"
        assert self.results == [0.7]

    def test_those_that_are_stopped_do_not_count(self, tuner: Tuner) -> None:
        self.results = [0.5] + [Overrun()] * (MOST_FAILURES + 1)
        assert tuner.run(600, trials=MOST_FAILURES + 2) is None
        assert not self.results

    def test_interruption(self, tuner: Tuner) -> None:
        self.results = [0.5, KeyboardInterrupt(), 0.6]
        assert tuner.run(600) == "interrupted"
        assert self.results == [0.6]
        assert list(tuner.table()["reason"].fillna("")) == ["", "interrupted"]

    def test_no_time(self, tuner: Tuner) -> None:
        assert tuner.run(0.0) is None
        assert not tuner.study.trials


def test_no_memory_left_by_others(tuner: Tuner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "free_memory", lambda _: 1000)
    failed = tuner._run(Job(0, tuner.space.default("DistMult"), default=True), 0.0, 0.0, lambda _: None)
    assert failed is not None
    assert failed.startswith("ValueError: DistMult with 4 dimensions needs about ")
    assert list(tuner.table()["reason"]) == [failed]


def test_nothing_to_test(tuner: Tuner) -> None:
    with pytest.raises(ValueError, match="No trial has finished yet, so there is no model to test"):
        tuner.test()


def test_one_model_is_kept(tuner: Tuner) -> None:
    class Result:
        def __init__(self, name: str) -> None:
            self.name = name

        def save_to_directory(self, directory: Path) -> None:
            directory.mkdir()
            (directory / self.name).touch()

    for number, name in ((3, "one"), (8, "other")):
        tuner.keep(number, Result(name))  # type: ignore[arg-type]
        assert {x.name for x in (tuner.directory / "model").iterdir()} == {name, "trial"}
        assert (tuner.directory / "model" / "trial").read_text() == f"{number}\n"
        assert not (tuner.directory / "model.new").exists()
