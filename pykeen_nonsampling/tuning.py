"""A search for the best model of a graph within a number of minutes.

Most configurations turn out to be bad. So each one first runs on a small scale, with few epochs and few dimensions, and the
better third of those on a rung go on to the next one: asynchronous successive halving [li2020]_. Optuna chooses the
configurations, and learns from all of them.

.. [li2020] Li, L., *et al.* (2020) `A System for Massively Parallel Hyperparameter Tuning
   <https://arxiv.org/abs/1810.05934>`_. MLSys '20.
"""

from __future__ import annotations

import inspect
import json
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, cast

import optuna
import pandas as pd
import torch
from optuna.trial import FrozenTrial, TrialState
from pykeen.datasets import Dataset, get_dataset
from pykeen.hpo.hpo import suggest_kwargs
from pykeen.losses import loss_resolver
from pykeen.models import Model, model_resolver
from pykeen.pipeline import PipelineResult, pipeline
from pykeen.training import TrainingCallback

from .evaluation import FactorizedRankBasedEvaluator
from .losses import MomentLoss
from .recipes import learning_rate, model_defaults
from .search import LEARNING_RATES, Outline, default_loss, fits, known_losses, limit_sizes, loss_ranges, outline
from .sweep import free_memory
from .training import NonSamplingLCWATrainingLoop

__all__ = [
    "METRICS",
    "RUNGS",
    "Graph",
    "Rung",
    "Space",
    "Tuner",
]

#: the column of each metric, and its name in PyKEEN; the first one decides
METRICS: Mapping[str, str] = {
    "MRR": "both.realistic.inverse_harmonic_mean_rank",
    "Hits@1": "both.realistic.hits_at_1",
    "Hits@3": "both.realistic.hits_at_3",
    "Hits@10": "both.realistic.hits_at_10",
}


class Rung(NamedTuple):
    """The scale of a trial, relative to the largest one."""

    dimension: float
    epochs: float


#: From a few epochs of small vectors to the whole
RUNGS = (Rung(1 / 4, 1 / 3), Rung(1 / 2, 2 / 3), Rung(1, 1))
LAST = len(RUNGS) - 1

#: One in this many trials of a rung goes on to the next one
REDUCTION = 3

#: The share of the time, at its end, in which the better half of each rung is run on the last one
FINAL_SHARE = 1 / 4

#: The shares of the largest dimension that are searched
SHARES: Mapping[str, Any] = {"type": float, "low": 1 / 4, "high": 1.0, "log": True}

#: Half of the new configurations are variations of the best ones so far, of which there are this many
PARENTS = 5

#: The standard deviation of a variation, as a share of the range, and the probability that inverse triples are switched
STEP, FLIP = 0.15, 0.2

#: How the time of an epoch grows with the dimension: by its square, if matrices are large, and less if they are small
TIME_EXPONENT = 1.5

#: Trials that fail one after the other, for reasons of their own, until the search gives up
MOST_FAILURES = 10

#: Why a trial did not finish, if it would have: it may be run again
UNFINISHED = (None, "stopped at the end of the time", "interrupted")


@dataclass(frozen=True)
class Graph:
    """A dataset with and without inverse triples, each loaded once."""

    name: str
    #: the arguments of ``pipeline()`` that load it
    reference: Mapping[str, Any]

    def load(self, inverse: bool) -> Dataset:
        """Load the dataset."""
        return get_dataset(**self.arguments(inverse))

    def arguments(self, inverse: bool) -> dict[str, Any]:
        """Return the arguments of ``pipeline()`` that load the dataset, with or without inverse triples."""
        return {**self.reference, "dataset_kwargs": dict(create_inverse_triples=inverse)}

    @cached_property
    def datasets(self) -> Mapping[bool, Dataset]:
        """The dataset, without and with inverse triples."""
        return {inverse: self.load(inverse) for inverse in (False, True)}


class Choice(NamedTuple):
    """A configuration on any scale, without what follows from graph and model."""

    model: str
    loss: str
    inverse: bool
    share: float
    learning_rate: float
    loss_kwargs: Mapping[str, Any]


class Space:
    """What is searched: model, loss and its weights, inverse triples, dimension and learning rate."""

    def __init__(self, graph: Graph, models: Sequence[str], dimension: int, epochs: int, seed: int):
        """Initialize the space.

        :param graph: the graph
        :param models: the names of the models
        :param dimension: the largest embedding dimension
        :param epochs: the largest number of epochs
        :param seed: the random seed of all training runs
        :raises ValueError: if a model does not fit the free memory
        :raises NotDecomposableError: if a model cannot be trained without sampling
        """
        self.graph = graph
        self.classes: dict[str, type[Model]] = {cls.__name__: cls for cls in map(model_resolver.lookup, models)}
        self.epochs = epochs
        self.seed = seed
        self.losses = known_losses()
        #: what trials have in common
        self.settings: dict[str, Any] = dict(
            model=list(self.classes), dim=dimension, epochs=epochs, seed=seed, loss=self.losses, graph=dict(graph.reference)
        )
        memory = free_memory(torch.device("cpu")) // 2
        #: the largest dimension of each model that fits the memory
        self.dimensions: dict[str, int] = {}
        self.families: dict[str, str] = {}
        for name in self.classes:
            self.families[name] = self._outline(name, 1, inverse=True).family

            def fitting(sizes: Mapping[str, int], name: str = name) -> bool:
                return fits(self._outline(name, sizes["d"], inverse=True), memory)

            highs = limit_sizes({"d": (1, dimension)}, fitting)
            if highs is None:
                needed = self._outline(name, 1, inverse=True).memory()
                raise ValueError(
                    f"{name} with a single dimension needs about {needed / 1e9:.3g} GB, more than half of the free memory, "
                    f"{memory / 1e9:.3g} GB. Use another model, or a smaller graph."
                )
            self.dimensions[name] = highs["d"]
        factory = graph.datasets[False].training
        self.ranges = {
            (loss, family): loss_ranges(
                NonSamplingLCWATrainingLoop, cast(MomentLoss, loss_resolver.make(loss)), factory, family
            )
            for loss in self.losses
            for family in set(self.families.values())
        }

    def _outline(self, model: str, dimension: int, inverse: bool) -> Outline:
        cls, factory = self.classes[model], self.graph.datasets[inverse].training
        return outline(cls, {**model_defaults(cls), "embedding_dim": dimension}, factory)

    def default(self, model: str) -> dict[str, Any]:
        """Return the parameters of a trial with the defaults of a model."""
        loss = default_loss(NonSamplingLCWATrainingLoop, self.graph.datasets[False].training, self.families[model])
        return dict(
            model=model,
            loss=loss_resolver.normalize_cls(loss),
            create_inverse_triples=False,
            share=1.0,
            lr=learning_rate(NonSamplingLCWATrainingLoop),
        )

    def suggest(self, trial: optuna.Trial, default: bool) -> Choice:
        """Choose the parameters of a trial.

        :param trial: the trial
        :param default: whether weights are left to be derived from the graph
        :return: the choice
        """
        model = trial.suggest_categorical("model", list(self.classes))
        loss = trial.suggest_categorical("loss", self.losses)
        inverse = trial.suggest_categorical("create_inverse_triples", [False, True])
        share = trial.suggest_float("share", SHARES["low"], SHARES["high"], log=True)
        lr = trial.suggest_float("lr", LEARNING_RATES["low"], LEARNING_RATES["high"], log=True)
        family = self.families[model]
        ranges = {} if default else self.ranges[loss, family]
        # the ranges depend on the family, so each has parameters of its own
        loss_kwargs = suggest_kwargs(trial, prefix=_prefix(loss, family), kwargs_ranges=ranges)
        return Choice(model, loss, inverse, share, lr, loss_kwargs)

    def vary(self, trial: FrozenTrial, random: Random) -> dict[str, Any]:
        """Change all parameters of a trial a little, but for model and loss.

        :param trial: the trial
        :param random: draws the changes
        :return: the new parameters
        """
        params = dict(trial.params)
        prefix = _prefix(params["loss"], self.families[params["model"]])
        spaces = {"share": SHARES, "lr": LEARNING_RATES}
        for name, space in self.ranges[params["loss"], self.families[params["model"]]].items():
            spaces[f"{prefix}.{name}"] = space
            # derived, if the trial has the defaults
            params.setdefault(f"{prefix}.{name}", trial.user_attrs["configuration"]["loss_kwargs"][name])
        params |= {name: _step(params[name], space, random) for name, space in spaces.items()}
        if random.random() < FLIP:
            params["create_inverse_triples"] = not params["create_inverse_triples"]
        return params

    def configure(self, choice: Choice, rung: int) -> dict[str, Any]:
        """Write a choice as arguments of ``pipeline()``, all but the dataset, and leave out no parameter of the model.

        :param choice: the choice
        :param rung: the rung to run it on
        :return: the arguments, as in a configuration file
        """
        scale, cls = RUNGS[rung], self.classes[choice.model]
        epochs = max(1, round(scale.epochs * self.epochs))
        dimension = max(1, round(scale.dimension * choice.share * self.dimensions[choice.model]))
        defaults = {
            name: parameter.default
            for name, parameter in inspect.signature(cls).parameters.items()
            if isinstance(parameter.default, (bool, int, float, str))
        }
        return dict(
            model=choice.model,
            model_kwargs={
                **defaults,
                **model_defaults(cls),
                "embedding_dim": dimension,
            },
            training_loop="nonsamplinglcwa",
            loss=choice.loss,
            loss_kwargs=dict(choice.loss_kwargs),
            optimizer="Adam",
            optimizer_kwargs=dict(lr=choice.learning_rate),
            lr_scheduler="CosineAnnealingLR",
            lr_scheduler_kwargs=dict(T_max=epochs),
            training_kwargs=dict(num_epochs=epochs, batch_size=None),
            evaluator="factorized",
            random_seed=self.seed,
        )


def _prefix(loss: str, family: str) -> str:
    """Name the parameters of a loss, whose ranges depend on the family of the model."""
    return f"{loss} of {family}"


def _step(value: float, space: Mapping[str, Any], random: Random) -> float:
    """Change a number a little, within its range."""
    low, high, q = float(space["low"]), float(space["high"]), space.get("q")
    if space.get("log"):
        changed = value * math.exp(random.gauss(0.0, STEP * math.log(high / low)))
    else:
        changed = random.gauss(value, STEP * (high - low))
    changed = min(max(changed, low), high)
    return low + round((changed - low) / q) * q if q else changed


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

    # docstr-coverage: inherited
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


class Tuner:
    """Runs trials, on whatever rung is most promising, until the time is over.

    Everything is recorded in Optuna's storage after each trial, so that the search can be interrupted and continued. A
    trial that reached the last rung is complete. All others count as pruned, which Optuna ranks behind, by rung.
    """

    def __init__(self, space: Space, directory: Path, storage: str):
        """Open the search, or create it.

        :param space: what to search
        :param directory: the directory for the best model
        :param storage: the address of Optuna's storage
        :raises ValueError: if the storage has a search of that graph with other settings
        """
        self.space = space
        self.directory = directory
        self.study = optuna.create_study(
            storage=storage, study_name=space.graph.name, direction="maximize", load_if_exists=True
        )
        known = self.study.user_attrs.get("settings")
        if known is None:
            self.study.set_user_attr("settings", space.settings)
            self.study.set_user_attr("dimensions", space.dimensions)
        else:
            self._check_settings(known, storage)
            # what fits the memory may have changed, but trials are compared with earlier ones
            space.dimensions = self.study.user_attrs["dimensions"]
        for trial in self._trials(TrialState.RUNNING):
            # of a process that was killed
            self.study.tell(trial.number, state=TrialState.FAIL)
        for _ in self._trials(TrialState.WAITING):
            # the same, a moment earlier: Optuna hands these out first
            self.study.tell(self.study.ask(), state=TrialState.FAIL)
        # other random numbers than before
        self.study.sampler = optuna.samplers.TPESampler(seed=space.seed + len(self.study.trials), multivariate=False)
        self.random = Random(space.seed + len(self.study.trials))  # noqa: S311
        #: the seconds of earlier runs
        self.before = max((x.user_attrs.get("finished", 0.0) for x in self.study.trials), default=0.0)
        self.started = len(self.study.trials)
        self.kept: tuple[int, PipelineResult] | None = None

    def _check_settings(self, known: Mapping[str, Any], storage: str) -> None:
        """Refuse to mix trials that cannot be compared."""
        for name, value in self.space.settings.items():
            if known.get(name) != value:
                raise ValueError(
                    f"{storage} has a search of {self.space.graph.name} with {name}={known.get(name)}, but now it is "
                    f"{name}={value}, so that trials could not be compared. Use the same options, or another --output."
                )

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=states)

    @property
    def finished(self) -> list[FrozenTrial]:
        """All trials with a result."""
        return [x for x in self._trials(TrialState.COMPLETE, TrialState.PRUNED) if x.value is not None]

    @property
    def best(self) -> FrozenTrial | None:
        """The trial with the best result on the validation triples, on any rung; the first one, if there are several."""
        return max(self.finished, key=_value, default=None)

    @property
    def best_default(self) -> FrozenTrial | None:
        """The best trial with the defaults, on the highest rung that any of them has reached."""
        defaults = [x for x in self.finished if x.user_attrs["default"]]
        return max(defaults, key=lambda x: (x.user_attrs["rung"], _value(x)), default=None)

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
                job = self._next(end - time.monotonic(), final=time.monotonic() > end - FINAL_SHARE * seconds)
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

    def _next(self, remaining: float, final: bool) -> Job | None:
        """Choose what to run next, if there is time for it."""
        if remaining <= 0:
            return None
        finished = sorted(self.finished, key=_value, reverse=True)
        reached = self._reached()

        def promote(trial: FrozenTrial, rung: int) -> Job | None:
            root, default = trial.user_attrs["root"], trial.user_attrs["default"]
            if rung <= reached[root] or self._expect(trial, rung) > remaining:
                return None
            return Job(rung, trial.params, root, default)

        jobs: list[Job | None] = []
        # the defaults first: on a small scale, to learn how long trials take, then as a whole, so that none can be missed
        tried = {x.params["model"] for x in self._attempts() if x.user_attrs["default"]}
        jobs += [Job(0, self.space.default(model), default=True) for model in self.space.classes if model not in tried]
        jobs += [promote(trial, LAST) for trial in finished if trial.user_attrs["default"]]
        rivals = [[x for x in finished if x.user_attrs["rung"] == rung] for rung in range(LAST)]
        if final:
            better = [x for trials in rivals for x in trials[: math.ceil(len(trials) / 2)]]
            jobs += [promote(trial, LAST) for trial in sorted(better, key=_value, reverse=True)]
        for rung in reversed(range(LAST)):
            jobs += [promote(trial, rung + 1) for trial in rivals[rung][: len(rivals[rung]) // REDUCTION]]
        job = next((job for job in jobs if job is not None), None)
        if job is not None:
            return job
        if finished and max(self._expect_new(model) for model in self.space.classes) > remaining:
            return None
        vary = finished and self.random.random() < 1 / 2
        return Job(0, self.space.vary(self.random.choice(finished[:PARENTS]), self.random) if vary else None)

    def _attempts(self) -> list[FrozenTrial]:
        """Return all trials that need not be run again."""
        failed = [x for x in self._trials(TrialState.FAIL) if x.user_attrs.get("reason") not in UNFINISHED]
        return self.finished + [x for x in failed if "root" in x.user_attrs and "model" in x.params]

    def _reached(self) -> dict[int, int]:
        """Find the highest rung that each configuration was tried on."""
        reached: dict[int, int] = {}
        for trial in self._attempts():
            root = trial.user_attrs["root"]
            reached[root] = max(reached.get(root, 0), trial.user_attrs["rung"])
        return reached

    def _expect(self, trial: FrozenTrial, rung: int) -> float:
        """Estimate how long a configuration takes on a rung."""
        return self._estimate(trial.params["model"], trial.params["share"], rung)

    def _expect_new(self, model: str) -> float:
        return self._estimate(model, 1.0, 0)

    def _estimate(self, model: str, share: float, rung: int) -> float:
        """Estimate the seconds of a trial from the most similar one, with the same model, if there is any."""
        finished = self.finished
        similar = [x for x in finished if x.params["model"] == model] or finished
        if not similar:
            return 0.0
        scale = RUNGS[rung]

        def ratios(trial: FrozenTrial) -> tuple[float, float]:
            other = RUNGS[trial.user_attrs["rung"]]
            return scale.dimension * share / (other.dimension * trial.params["share"]), scale.epochs / other.epochs

        closest = min(similar, key=lambda x: sum(abs(math.log(ratio)) for ratio in ratios(x)))
        dimensions, epochs = ratios(closest)
        return float(closest.user_attrs["seconds"]) * epochs * dimensions**TIME_EXPONENT

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
        configuration = self.space.configure(choice, job.rung)
        trial.set_user_attr("configuration", configuration)
        self._check_memory(configuration, choice.inverse)
        result = self.train(configuration, choice.inverse, deadline)
        metrics = {name: float(result.get_metric(key)) for name, key in METRICS.items()}
        weights = json.loads(json.dumps(result.configuration["loss_kwargs"]))
        best = self.best
        if best is None or metrics["MRR"] > _value(best):
            self.keep(trial.number, result)
        trial.set_user_attr("configuration", {**configuration, "loss_kwargs": weights})
        trial.set_user_attr("metrics", metrics)
        trial.set_user_attr("seconds", time.monotonic() - began)
        trial.set_user_attr("finished", self.before + time.monotonic() - start)
        if job.rung == LAST:
            self.study.tell(trial, metrics["MRR"])
        else:
            trial.report(metrics["MRR"], step=job.rung)
            self.study.tell(trial, state=TrialState.PRUNED)

    def _fail(self, trial: optuna.Trial, reason: str) -> str:
        """Record that a trial failed, unless its result has been recorded before."""
        if self.study.trials[trial.number].state is TrialState.RUNNING:
            trial.set_user_attr("reason", reason)
            self.study.tell(trial, state=TrialState.FAIL)
        return reason

    def _check_memory(self, configuration: Mapping[str, Any], inverse: bool) -> None:
        """Refuse a trial that other processes have left no memory for."""
        dimension = configuration["model_kwargs"]["embedding_dim"]
        needed = self.space._outline(configuration["model"], dimension, inverse).memory()
        free = free_memory(torch.device("cpu"))
        if needed > free:
            raise MemoryError(f"about {needed / 1e9:.3g} GB are needed, and {free / 1e9:.3g} GB are free")

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
        return {name: float(result.get_metric(key)) for name, key in METRICS.items()}, result

    def experiment(self, trial: FrozenTrial, **metadata: Any) -> dict[str, Any]:
        """Write a trial as an experiment that PyKEEN can run, with nothing left to defaults.

        :param trial: the trial
        :param metadata: further metadata
        :return: the experiment
        """
        configuration = trial.user_attrs["configuration"]
        return dict(
            metadata=dict(
                title=f"{configuration['model']} on {self.space.graph.name}, found by pykeen-nonsampling tune",
                trial=trial.number,
                trials=len(self.finished),
                search_seconds=round(max(x.user_attrs["finished"] for x in self.finished), 1),
                validation=trial.user_attrs["metrics"],
                **metadata,
            ),
            pipeline={**self.space.graph.arguments(trial.params["create_inverse_triples"]), **configuration},
        )

    def table(self) -> pd.DataFrame:
        """Return one row per trial, in the order in which they started."""
        rows = []
        for trial in self.study.get_trials(deepcopy=False):
            attributes = trial.user_attrs
            configuration = attributes.get("configuration", {})
            rows.append(
                {
                    "trial": trial.number,
                    "configuration": attributes.get("root"),
                    "rung": attributes.get("rung"),
                    "state": {"COMPLETE": "finished", "PRUNED": "finished"}.get(trial.state.name, trial.state.name.lower()),
                    "reason": attributes.get("reason", "killed" if trial.state is TrialState.FAIL else None),
                    "defaults": attributes.get("default"),
                    **({} if trial.state is TrialState.FAIL else attributes.get("metrics", {})),
                    "seconds": attributes.get("seconds"),
                    "finished": attributes.get("finished"),
                    "model": configuration.get("model"),
                    "embedding_dim": configuration.get("model_kwargs", {}).get("embedding_dim"),
                    "create_inverse_triples": trial.params.get("create_inverse_triples"),
                    "epochs": configuration.get("training_kwargs", {}).get("num_epochs"),
                    "lr": configuration.get("optimizer_kwargs", {}).get("lr"),
                    "loss": configuration.get("loss"),
                    **configuration.get("loss_kwargs", {}),
                }
            )
        return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _value(trial: FrozenTrial) -> float:
    return float(trial.value if trial.value is not None else -math.inf)
