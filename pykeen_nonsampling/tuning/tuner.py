"""How the time is spent: which trial to run next, and running it."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import optuna
import torch
from optuna.trial import FrozenTrial, TrialState
from pykeen.models import Model
from pykeen.pipeline import PipelineResult, pipeline
from pykeen.training import TrainingCallback
from typing_extensions import override

from ..ranking.evaluator import FactorizedRankBasedEvaluator
from ..ranking.metrics import get_metrics
from .space import LAST, REPORTED, SWITCHES, Space
from .trials import UNFINISHED, Trials, mrr

#: One in this many trials of a rung goes on to the next one
REDUCTION = 3

#: The part of the time, at its end, in which configurations are run on the last rung only: this share of it, or, if that is
#: longer, as many times as long as the best one takes there
FINAL_SHARE, FINAL_TRIALS = 1 / 4, 2.5

#: The number of seeds that the best configuration is run with, before it is called the best
SEEDS = 2

#: The best defaults on a small scale are trained as a whole, others only if that takes no more than this share of the time
DEFAULT_SHARE = 1 / 20

#: Half of the new configurations are variations of the best ones so far, of which there are this many
PARENTS = 5

#: Trials that fail one after the other, for reasons of their own, until the search gives up
MOST_FAILURES = 10


class Overrun(Exception):  # noqa: N818
    """The time is over before a trial is."""


class Deadline(TrainingCallback):
    """Ends training at the end of the time, and reports how it goes on."""

    def __init__(self, end: float, report: Callable[[], None]):
        """Initialize the callback.

        :param end: the time to end at
        :param report: called after each epoch
        """
        super().__init__()
        self.end = end
        self.report = report

    @override
    def post_epoch(self, epoch: int, epoch_loss: float, **kwargs: Any) -> None:
        self.report()
        if time.monotonic() > self.end:
            raise Overrun


class Job(NamedTuple):
    """What to run next."""

    rung: int
    #: the parameters, unless new ones are to be chosen
    params: Mapping[str, Any] | None = None
    #: the trial that first had these parameters
    root: int | None = None
    default: bool = False
    #: how often these parameters were run on this rung before, with other seeds
    repetition: int = 0


class Tuner(Trials):
    """Runs trials, on whatever rung is most promising, until the time is over.

    Everything is recorded in Optuna's storage after each trial, so that the search can be interrupted and continued. A
    trial that reached the last rung is complete. All others count as pruned, which Optuna ranks behind, by rung.

    What counts is the mean over the seeds of a configuration. In the end, whichever is the best is run with a second seed,
    until the best one is one that was, as long as there is time: a single seed flatters the winner.
    """

    def __init__(self, space: Space, directory: Path, storage: str):
        """Open the search, or create it.

        :param space: what to search
        :param directory: the directory for the best model
        :param storage: the address of Optuna's storage
        :raises ValueError: if the storage has a search of that graph with other settings
        """
        super().__init__(space, storage)
        self.directory = directory
        self.random = Random(space.seed + self.started)  # noqa: S311
        self.kept: tuple[int, PipelineResult] | None = None

    def run(self, seconds: float, trials: int | None = None, report: Callable[[float], None] = lambda _: None) -> str | None:
        """Search.

        :param seconds: the time to search for
        :param trials: the largest number of trials to run
        :param report: called with the seconds that have passed, again and again
        :return: why the search ended before its time, if it did
        """
        start = time.monotonic()
        end = start + seconds
        failures = count = 0
        try:
            while trials is None or count < trials:
                job = self._next(end - time.monotonic(), seconds)
                if job is None:
                    return None
                failed = self._run(job, start, end, report)
                count += 1
                report(time.monotonic() - start)
                failures = failures + 1 if failed and failed not in UNFINISHED else 0
                if failures == MOST_FAILURES:
                    return f"the last {failures} trials failed, the last one with {failed}"
        except KeyboardInterrupt:
            return "interrupted"
        return None

    def _next(self, remaining: float, seconds: float) -> Job | None:
        """Choose what to run next, if there is time for it.

        :param remaining: the seconds that are left
        :param seconds: the seconds that there are in total
        :return: what to run; nothing, if it would take too long
        """
        if remaining <= 0:
            return None
        finished = self.ranking
        reached = self._reached()
        whole = [x for x in finished if x.user_attrs["rung"] == LAST]
        longest = self._expect(whole[0], LAST) if whole else 0.0

        def promote(trial: FrozenTrial, rung: int) -> Job | None:
            root, default = trial.user_attrs["root"], trial.user_attrs["default"]
            # there has to be time to repeat the best one, which may be this one then
            after = longest if rung == LAST else 0.0
            if rung <= reached[root] or self._expect(trial, rung) + after > remaining:
                return None
            return Job(rung, trial.params, root, default)

        def repeat(trial: FrozenTrial) -> Job | None:
            root, rung, default = (trial.user_attrs[name] for name in ("root", "rung", "default"))
            repetition = len(self.repetitions(trial))
            if repetition >= SEEDS or self._expect(trial, rung) > remaining:
                return None
            return Job(rung, trial.params, root, default, repetition)

        jobs: list[Job | None] = []
        # the defaults first: on a small scale, to learn how long trials take, then as a whole
        attempts = self._attempts()
        tried = {x.params["model"] for x in attempts if x.user_attrs["default"]}
        jobs += [Job(0, self.space.default(model), default=True) for model in self.space.classes if model not in tried]
        defaults = [trial for trial in finished if trial.user_attrs["default"]]
        short = [trial for trial in defaults[1:] if self._expect(trial, LAST) <= DEFAULT_SHARE * seconds]
        jobs += [promote(trial, LAST) for trial in (*defaults[:1], *short)]
        # the same with inverse triples, without a start, and with squares, which often make a difference
        turned = {
            (x.params["model"], name)
            for x in attempts
            for name in SWITCHES
            if name in x.params and x.params[name] != self.space.default(x.params["model"]).get(name)
        }
        jobs += [
            Job(0, self.space.turn(trial, name))
            for name in SWITCHES
            for trial in defaults
            if name in trial.params and (trial.params["model"], name) not in turned and self._expect(trial, 0) <= remaining
        ]
        rivals = [[x for x in finished if x.user_attrs["rung"] == rung] for rung in range(LAST)]
        if remaining <= max(FINAL_SHARE * seconds, FINAL_TRIALS * longest):
            jobs += [promote(trial, LAST) for trial in self._finalists(rivals, whole)]
            jobs += map(repeat, finished[:1])
            if whole and 2 * longest <= remaining:
                jobs.append(Job(LAST, self.space.vary(whole[0], self.random)))
        for rung in reversed(range(LAST)):
            jobs += [promote(trial, rung + 1) for trial in rivals[rung][: len(rivals[rung]) // REDUCTION]]
        job = next((job for job in jobs if job is not None), None)
        if job is not None:
            return job
        if finished and max(self._expect_new(model) for model in self.space.classes) > remaining:
            return None
        vary = finished and self.random.random() < 1 / 2
        return Job(0, self.space.vary(self.random.choice(finished[:PARENTS]), self.random) if vary else None)

    @staticmethod
    def _finalists(rivals: Sequence[Sequence[FrozenTrial]], whole: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """Choose trials for the last rung: of the better half of each rung, those that are no worse than the best was there.

        :param rivals: the trials on each other rung, the best ones first
        :param whole: those on the last rung
        :return: the trials, best first
        """
        roots = [trial.user_attrs["root"] for trial in whole]
        finalists: list[FrozenTrial] = []
        for trials in rivals:
            known = [x for x in trials if x.user_attrs["root"] in roots]
            best = min(known, key=lambda x: roots.index(x.user_attrs["root"]), default=None)
            finalists += [x for x in trials[: math.ceil(len(trials) / 2)] if best is None or mrr(x) >= mrr(best)]
        return sorted(finalists, key=mrr, reverse=True)

    def _run(self, job: Job, start: float, end: float, report: Callable[[float], None]) -> str | None:
        """Run a trial; return why it failed, if it did."""
        if job.params is not None:
            self.study.enqueue_trial(dict(job.params))
        trial = self.study.ask()
        try:
            self._try(job, trial, start, Deadline(end, lambda: report(time.monotonic() - start)))
        except KeyboardInterrupt:
            self._fail(trial, "interrupted")
            raise
        except Overrun:
            return self._fail(trial, "stopped at the end of the time")
        except Exception as error:
            # e.g. a loss that is not finite: the search goes on
            return self._fail(trial, f"{type(error).__name__}: {error}")
        return None

    def _try(self, job: Job, trial: optuna.Trial, start: float, deadline: Deadline) -> None:
        """Train and evaluate, record the result, and keep the model, if it is the best so far."""
        began = time.monotonic()
        root = trial.number if job.root is None else job.root
        for name, value in (("rung", job.rung), ("default", job.default), ("root", root)):
            trial.set_user_attr(name, value)
        choice = self.space.suggest(trial, job.default)
        configuration = self.space.configure(choice, job.rung, job.repetition)
        trial.set_user_attr("configuration", configuration)
        result = self.train(configuration, choice.inverse, deadline)
        metrics = get_metrics(result, REPORTED)
        recorded = result.configuration
        derived = {name: recorded[name] for name in ("loss_kwargs", "training_loop_kwargs") if name in recorded}
        trial.set_user_attr("configuration", {**configuration, **json.loads(json.dumps(derived))})
        trial.set_user_attr("metrics", metrics)
        trial.set_user_attr("seconds", time.monotonic() - began)
        trial.set_user_attr("finished", self.before + time.monotonic() - start)
        if job.rung == LAST:
            self.study.tell(trial, metrics["MRR"])
        else:
            trial.report(metrics["MRR"], step=job.rung)
            self.study.tell(trial, state=TrialState.PRUNED)
        best = self.best
        if best is not None and best.number == trial.number:
            self.keep(trial.number, result)

    def _fail(self, trial: optuna.Trial, reason: str) -> str:
        """Record that a trial failed, unless its result has been recorded before."""
        if self.study.trials[trial.number].state is TrialState.RUNNING:
            trial.set_user_attr("reason", reason)
            self.study.tell(trial, state=TrialState.FAIL)
        return reason

    def train(
        self, configuration: Mapping[str, Any], inverse: bool, callback: TrainingCallback | None = None
    ) -> PipelineResult:
        """Train a configuration, and evaluate it on the validation triples."""
        training_kwargs = dict(configuration["training_kwargs"], use_tqdm=False, use_tqdm_batch=False)
        if callback is not None:
            training_kwargs["callbacks"] = callback
        result = pipeline(
            **{**configuration, "training_kwargs": training_kwargs},
            dataset=self.space.graph.datasets[inverse],
            use_testing_data=False,
            use_tqdm=False,
        )
        # what it was trained with, not how it was watched
        result.configuration = {**result.configuration, "training_kwargs": configuration["training_kwargs"]}
        return result

    def keep(self, number: int, result: PipelineResult) -> None:
        """Save the best model so far, in place of the one before, so that an interruption does not lose it."""
        self.kept = number, result
        new, final = self.directory / "model.new", self.directory / "model"
        shutil.rmtree(new, ignore_errors=True)
        result.save_to_directory(new)
        (new / "trial").write_text(f"{number}\n", encoding="utf-8")
        shutil.rmtree(final, ignore_errors=True)
        new.rename(final)

    def test(self) -> dict[str, float]:
        """Evaluate the best model on the test triples, and save the result along with it.

        :return: the metrics
        """
        best = self.best
        if best is None:
            raise ValueError("No trial has finished yet, so there is no model to test. Run the search for longer.")
        inverse = best.params["create_inverse_triples"]
        marker = self.directory / "model" / "trial"
        if self.kept is None or self.kept[0] != best.number:
            if marker.is_file() and marker.read_text(encoding="utf-8").strip() == str(best.number):
                # written by an earlier run of the same search
                model = torch.load(self.directory / "model" / PipelineResult.MODEL_FILE_NAME, weights_only=False)
                return self._evaluate(model, inverse)[0]
            self.keep(best.number, self.train(best.user_attrs["configuration"], inverse))
        number, result = self.kept  # type: ignore[misc]
        metrics, result.metric_results = self._evaluate(result.model, inverse)
        self.keep(number, result)
        return metrics

    def _evaluate(self, model: Model, inverse: bool) -> tuple[dict[str, float], Any]:
        """Evaluate a model on the test triples, all other true triples being left out of the ranking."""
        dataset = self.space.graph.datasets[inverse]
        known = [x.mapped_triples for x in (dataset.training, dataset.validation) if x is not None]
        result = FactorizedRankBasedEvaluator().evaluate(
            model, dataset.testing.mapped_triples, additional_filter_triples=known, use_tqdm=False
        )
        return get_metrics(result, REPORTED), result
