"""How long each training loop takes to become good, with settings of its own, found with the same effort.

Each entry is a training loop with its losses. It gets the same number of trials of the same number of seconds as the others,
on one model, to find its settings. Then it trains a few times with the best of them, in turns with the others. All times are
those of training, without evaluation. With a single thread, they are times of the processor, so that other programs do not
matter. Whether the learning rate is constant, or falls along a cosine of the seconds, is one of the settings of every entry.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import math
import statistics
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import click
import optuna
import pandas as pd
import torch
from pykeen.datasets import Dataset, dataset_resolver, get_dataset
from pykeen.hpo.hpo import suggest_kwargs
from pykeen.models import model_resolver
from pykeen.training import LCWATrainingLoop, SLCWATrainingLoop, TrainingLoop
from typing_extensions import Self

from pykeen_nonsampling._compat import cheap_garbage_collection
from pykeen_nonsampling.cli.console import POSITIVE, check_evaluation, check_matplotlib, load, lookup, silence
from pykeen_nonsampling.cli.curves import SECONDS, plot_curves, train_with_curve
from pykeen_nonsampling.cli.files import check_free, check_writable, force_option
from pykeen_nonsampling.cli.stopwatch import OutOfTime
from pykeen_nonsampling.defaults import LEARNING_RATE, is_ours, model_defaults
from pykeen_nonsampling.factorizations import Family
from pykeen_nonsampling.free import free_memory
from pykeen_nonsampling.hpo import learning_rates, loss_ranges
from pykeen_nonsampling.losses import NonSamplingLoss
from pykeen_nonsampling.losses.constants import constant
from pykeen_nonsampling.memory.dry_run import outline
from pykeen_nonsampling.training import FactorizedTrainingLoop, NonSamplingLCWATrainingLoop, NonSamplingTrainingLoop

from .cross_entropy import BATCH_QUERIES, AutogradTrainingLoop
from .machine import machine
from .options import output_option
from .subject import check_model
from .timed_curve import TimedCurve, choose_clock

#: The shares of the best MRR whose times are reported
LEVELS = (0.9, 0.95, 0.99)

BATCH_SIZES = (64, 256, 1024)
NUM_NEGATIVES = (8, 32, 128)
MARGINS = 1.0, 24.0
BASELINE_LEARNING_RATES = 1e-3, 1e-1
#: The weight of the N3 norm, or that of Adam's weight decay for models that take no regularizer
REGULARIZATION, WEIGHT_DECAYS = (1e-5, 1e-1), (1e-8, 1e-5)
LABEL_SMOOTHING = (0.0, 0.1)

#: Adagrad's learning rate, and the weight of N3 on the vectors of each triple, for cross-entropy over all candidates
ADAGRAD_LEARNING_RATES, TRIPLE_REGULARIZATION = (0.05, 0.5), (0.003, 0.2)

#: Epochs of the squared loss to start with
START_EPOCHS = (0, 60)


@dataclass(frozen=True)
class Entry:
    """A training loop with the losses that it is searched with."""

    loop: type[TrainingLoop[Any]]
    #: PyKEEN's names of them
    losses: Sequence[str]
    #: the first trials, its defaults before others; what is left out is derived from graph and model
    first: Sequence[Mapping[str, Any]]
    #: how it is drawn: the colors can be told apart by everyone
    color: str
    marker: str

    @property
    def name(self) -> str:
        """The name of the training loop."""
        return self.loop.get_normalized_name()

    @property
    def style(self) -> dict[str, str]:
        """How to draw it: dashed, if it is not this package's."""
        return dict(color=self.color, marker=self.marker, linestyle="-" if is_ours(self.loop) else "--")


def _default(loop: type[TrainingLoop[Any]]) -> list[dict[str, Any]]:
    return [dict(loss="nonsampling", lr=LEARNING_RATE[loop], cosine=True)]


_ADAM: Mapping[str, Any] = dict(lr=0.01, batch_size=256, cosine=False)
_ADAGRAD: Mapping[str, Any] = dict(lr=0.1, regularization_weight=0.05)
_CONSTANT, _COSINE = (dict(**_ADAGRAD, cosine=cosine) for cosine in (False, True))

#: What is compared. PyKEEN's loops have the losses that published comparisons use them with, one in each of the first
#: trials, since a few random ones could miss them all.
ENTRIES: Mapping[str, Entry] = {
    "nonsampling": Entry(
        NonSamplingTrainingLoop, ["nonsampling"], _default(NonSamplingTrainingLoop), color="#56b4e9", marker="o"
    ),
    "nonsamplinglcwa": Entry(
        NonSamplingLCWATrainingLoop, ["nonsampling"], _default(NonSamplingLCWATrainingLoop), color="#0072b2", marker="s"
    ),
    "softmax": Entry(
        NonSamplingLCWATrainingLoop,
        ["softmax"],
        [{**_COSINE, "lr": lr, "start_epochs": epochs} for lr, epochs in zip((0.1, 0.05), START_EPOCHS, strict=True)],
        color="#009e73",
        marker="D",
    ),
    "autograd": Entry(AutogradTrainingLoop, ["crossentropy"], [_CONSTANT, _COSINE], color="#000000", marker="^"),
    "lcwa": Entry(
        LCWATrainingLoop,
        ["crossentropy"],
        [dict(**_ADAM, regularized=True, regularization=0.01, label_smoothing=0.0)],
        color="#d55e00",
        marker="v",
    ),
    "slcwa": Entry(
        SLCWATrainingLoop,
        ["nssa", "bcewithlogits", "softplus"],
        [
            dict(**_ADAM, loss="nssa", regularized=False, num_negs_per_pos=32, margin=9.0),
            dict(**_ADAM, loss="bcewithlogits", regularized=True, regularization=0.00001, num_negs_per_pos=8),
            dict(**_ADAM, loss="softplus", regularized=True, regularization=0.001, num_negs_per_pos=8),
        ],
        color="#e69f00",
        marker="P",
    ),
}

#: What losses are called in print
LOSS_NAMES: Mapping[str, str] = {
    "nonsampling": "squared",
    "softmax": "cross-entropy",
    "crossentropy": "cross-entropy",
    "bcewithlogits": "binary cross-entropy",
    "nssa": "self-adversarial",
}

#: PyKEEN holds about this many tensors of batch × entities × features at once
LCWA_COPIES = 6

#: Evaluations of a trial, and of the run that is drawn
TRIAL_MARKS, MARKS = 3, 30


@dataclass(frozen=True)
class QualitySettings:
    """What is compared, and for how long."""

    dataset: str
    model: str
    dim: int
    #: the seconds of training that each entry gets in the end
    budget_seconds: float
    #: the seconds of training that each entry gets to find its settings, and the trials that share them
    search_seconds: float
    trials: int
    #: the number of runs of each entry in the end, with different random seeds
    repeats: int = 3
    #: the names of the entries
    loops: Sequence[str] = tuple(ENTRIES)

    def paths(self, directory: Path) -> list[Path]:
        """Return the files to be written into a directory: JSON, table and picture."""
        return [directory / f"quality_{self.dataset}.{suffix}" for suffix in ("json", "md", "png")]


@dataclass
class Quality:
    """Finds settings for each entry, and records its MRR over time."""

    settings: QualitySettings
    #: for each entry, its trials: parameters, arguments of the pipeline, seconds, epochs and the best MRR
    trials: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    #: for each entry, the points of the curve of each run
    curves: dict[str, list[list[dict[str, float]]]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read what was written before, also by versions that recorded less.

        :param path: the JSON file
        :return: settings, trials and curves
        """
        data = json.loads(path.read_text(encoding="utf-8"))
        names = {x.name for x in fields(QualitySettings)}
        settings = QualitySettings(**{name: value for name, value in data["settings"].items() if name in names})
        return cls(settings, data["trials"], data["curves"])

    @cached_property
    def _datasets(self) -> Mapping[bool, Dataset]:
        """The dataset, without and with inverse triples."""
        return {
            inverse: get_dataset(dataset=self.settings.dataset, dataset_kwargs=dict(create_inverse_triples=inverse))
            for inverse in (False, True)
        }

    def _dataset(self, loop: str) -> Dataset:
        """Return the dataset for an entry."""
        # lcwa and autograd predict only tails; those of inverse triples are the heads that evaluation also asks for
        return self._datasets[loop in ("lcwa", "autograd") or (loop == "softmax" and not self._family.is_distance)]

    def run(self, progress: Callable[[str], None]) -> None:
        """Search and train with all entries.

        :param progress: told what was done
        """
        for loop in self.settings.loops:
            self.trials[loop] = self._search(loop)
            progress(f"{self.label(loop)}: MRR {self.best(loop)['MRR']:.3f} with {self.found(loop)}")
        marks = _marks(self.settings.budget_seconds)
        for seed, loop in itertools.product(range(self.settings.repeats), self.settings.loops):
            points = self._train(loop, self.best(loop), marks, seed).points
            self.curves.setdefault(loop, []).append(points)
            progress(f"{self.label(loop)}, seed {seed}: MRR {_highest(points):.3f} within {points[-1][SECONDS]:.0f} s")

    def _search(self, loop: str) -> list[dict[str, Any]]:
        """Try settings of an entry, its defaults first."""
        settings = self.settings
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
        for parameters in ENTRIES[loop].first:
            study.enqueue_trial(dict(parameters))
        seconds = settings.search_seconds / settings.trials
        marks = [seconds * (i + 1) / TRIAL_MARKS for i in range(TRIAL_MARKS)]
        done = []
        for number in range(settings.trials):
            trial = study.ask()
            arguments = self._suggest(trial, loop, default=number == 0)
            record: dict[str, Any] = {"parameters": dict(trial.params), "arguments": arguments, "MRR": 0.0}
            try:
                curve = self._train(loop, record, marks, seed=0)
                record |= {"MRR": _highest(curve.points), "seconds": curve.seconds, "epochs": curve.epochs}
            except (ArithmeticError, MemoryError, RuntimeError, ValueError) as error:
                if number == 0:
                    # not bad luck: nothing else would work, either
                    raise
                record["reason"] = f"{type(error).__name__}: {error}"
            study.tell(trial, record["MRR"])
            done.append(record)
        return done

    def best(self, loop: str) -> dict[str, Any]:
        """Return the best trial of an entry."""
        return max(self.trials[loop], key=lambda trial: float(trial["MRR"]))

    def _suggest(self, trial: optuna.Trial, loop: str, default: bool) -> dict[str, Any]:
        """Choose settings, as arguments of ``pipeline()``; the schedule, which is none of them, is only chosen."""
        entry = ENTRIES[loop]
        loss = trial.suggest_categorical("loss", entry.losses)
        trial.suggest_categorical("cosine", [False, True])
        if loop in ("softmax", "autograd"):
            lr = trial.suggest_float("lr", *ADAGRAD_LEARNING_RATES, log=True)
            weight = trial.suggest_float("regularization_weight", *TRIPLE_REGULARIZATION, log=True)
            arguments: dict[str, Any] = dict(loss=loss, optimizer="Adagrad", optimizer_kwargs=dict(lr=lr))
            if loop == "softmax":
                epochs = trial.suggest_categorical("start_epochs", START_EPOCHS)
                # answers score about 1 in the squared solution, which is too little for a softmax
                scale = constant("scale of the softmax loss", self._family) if epochs else 1.0
                return arguments | dict(
                    loss_kwargs=dict(scale=scale, regularization_weight=scale * weight),
                    training_loop_kwargs=dict(start_epochs=epochs),
                )
            loop_kwargs = dict(regularization_weight=weight)
            return arguments | dict(training_loop_kwargs=loop_kwargs, training_kwargs=dict(batch_size=BATCH_QUERIES))
        if is_ours(entry.loop):
            model = model_resolver.lookup(self.settings.model)
            _, rates = learning_rates(cast(type[FactorizedTrainingLoop], entry.loop), model, needs_scores=False)
            lr = trial.suggest_float("lr", rates["low"], rates["high"], log=True)
            # what is left out is derived from graph and model
            ranges = {} if default else self._ranges(cast(type[FactorizedTrainingLoop], entry.loop))
            loss_kwargs = suggest_kwargs(trial, prefix="loss", kwargs_ranges=ranges)
            return dict(loss=loss, loss_kwargs=loss_kwargs, optimizer_kwargs=dict(lr=lr))
        optimizer_kwargs = dict(lr=trial.suggest_float("lr", *BASELINE_LEARNING_RATES, log=True))
        arguments = dict(loss=loss, optimizer_kwargs=optimizer_kwargs)
        if trial.suggest_categorical("regularized", [False, True]):
            if "regularizer" in inspect.signature(model_resolver.lookup(self.settings.model)).parameters:
                weight = trial.suggest_float("regularization", *REGULARIZATION, log=True)
                arguments["model_kwargs"] = dict(regularizer="powersum", regularizer_kwargs=dict(weight=weight, p=3.0))
            else:
                optimizer_kwargs["weight_decay"] = trial.suggest_float("weight_decay", *WEIGHT_DECAYS, log=True)
        batch_size = trial.suggest_categorical("batch_size", BATCH_SIZES)
        if loop == "lcwa":
            smoothing = trial.suggest_categorical("label_smoothing", LABEL_SMOOTHING)
            batch_size = min(batch_size, self._largest_batch)
            return arguments | dict(training_kwargs=dict(batch_size=batch_size, label_smoothing=smoothing))
        if loss == "nssa":
            arguments["loss_kwargs"] = dict(margin=trial.suggest_float("margin", *MARGINS, log=True))
        negatives = trial.suggest_categorical("num_negs_per_pos", NUM_NEGATIVES)
        return arguments | dict(
            negative_sampler_kwargs=dict(num_negs_per_pos=negatives), training_kwargs=dict(batch_size=batch_size)
        )

    @cached_property
    def _family(self) -> Family:
        cls = model_resolver.lookup(self.settings.model)
        return outline(cls, {**model_defaults(cls), "embedding_dim": 1}, self._datasets[False].training).family

    def _ranges(self, training_loop: type[FactorizedTrainingLoop]) -> Mapping[str, Any]:
        """Return what to search of the squared loss."""
        return loss_ranges(training_loop, NonSamplingLoss(), self._datasets[False].training, self._family)

    @property
    def _largest_batch(self) -> int:
        """The largest batch of ``lcwa`` that fits in half of the free memory."""
        size = LCWA_COPIES * 4 * 2 * self.settings.dim * self._datasets[True].num_entities
        return max(1, free_memory(torch.device("cpu")) // 2 // size)

    def _train(self, loop: str, trial: Mapping[str, Any], marks: Sequence[float], seed: int) -> TimedCurve:
        """Train with the settings of a trial until the last mark, and return the curve."""
        entry, arguments = ENTRIES[loop], dict(trial["arguments"])
        dataset = self._dataset(loop)
        if dataset.validation is None:
            raise ValueError(f"{self.settings.dataset} has no validation triples to compare on. Use another dataset.")
        known = [dataset.training, dataset.testing]
        curve = TimedCurve(dataset.validation, known, marks, cosine=trial["parameters"]["cosine"])
        if not is_ours(entry.loop):
            # PyKEEN would train on two batches before, to find out whether they fit
            arguments["training_loop_kwargs"] = {
                **arguments.get("training_loop_kwargs", {}),
                "automatic_memory_optimization": False,
            }
        # PyKEEN collects garbage after each epoch, which takes longer than one on a small graph; this package's loops do not
        with contextlib.suppress(OutOfTime), cheap_garbage_collection():
            train_with_curve(
                curve,
                dataset,
                self.settings.model,
                self.settings.dim,
                **{**arguments, "training_kwargs": {**arguments.get("training_kwargs", {}), "use_tqdm": False}},
                training_loop=entry.loop,
                # time ends training
                epochs=10**9,
                random_seed=seed,
            )
        return curve

    def label(self, loop: str) -> str:
        """Name training loop and loss of an entry."""
        loss = self.best(loop)["arguments"]["loss"]
        return f"{ENTRIES[loop].name}, {LOSS_NAMES.get(loss, loss)}"

    def found(self, loop: str) -> str:
        """Write the best settings of an entry as text."""
        return ", ".join(
            f"{name.removeprefix('loss.')}={x:.3g}" if isinstance(x, float) else f"{name}={x}"
            for name, x in self.best(loop)["parameters"].items()
            # which is in its name
            if name != "loss"
        )

    def effort(self, loop: str) -> dict[str, Any]:
        """Return what an entry has done: trials that did not fail, their seconds, and the median of epochs in the end.

        Epochs are 0 if the first one did not end. What was not recorded is none.
        """
        seconds = [trial.get("seconds") for trial in self.trials[loop] if "reason" not in trial]
        epochs = [points[-1].get("epochs") for points in self.curves[loop]]
        return {
            "trials": len(seconds),
            "search_seconds": None if None in seconds else sum(cast(list[float], seconds)),
            "epochs": None if None in epochs else statistics.median(cast(list[float], epochs)),
        }

    def reached(self, loop: str) -> float:
        """Return the best MRR of an entry, the median over its runs."""
        return statistics.median(_highest(points) for points in self.curves[loop])

    @property
    def highest(self) -> float:
        """The best MRR of all entries."""
        return max(map(self.reached, self.curves))

    def seconds_to(self, loop: str, level: float) -> float:
        """Return the seconds until an entry has this share of the best MRR, the median over its runs; infinity is never."""
        return statistics.median(
            min((point[SECONDS] for point in points if point["MRR"] >= level * self.highest), default=math.inf)
            for points in self.curves[loop]
        )

    def markdown(self) -> str:
        """Return a table of the times to quality, and of what they took."""
        head = ["training loop, loss", "best MRR", *(f"s to {level:.0%}" for level in LEVELS)]
        head += ["epochs", "trials", "s of search", "settings found"]
        rows = [head, ["---"] * len(head)]
        for loop in self.curves:
            effort = self.effort(loop)
            rows.append(
                [
                    self.label(loop),
                    f"{self.reached(loop):.3f}",
                    *(_number(self.seconds_to(loop, level)) for level in LEVELS),
                    _epochs(effort["epochs"]),
                    f"{effort['trials']} of {self.settings.trials}",
                    _number(effort["search_seconds"]),
                    self.found(loop),
                ]
            )
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def as_dict(self) -> dict[str, Any]:
        """Return everything: the machine, the settings, all trials, the curves and the times to quality."""
        return {
            "machine": machine(),
            "settings": {**asdict(self.settings), "clock": choose_clock().__name__},
            "trials": self.trials,
            "curves": self.curves,
            "effort": {loop: {**self.effort(loop), "best": self.best(loop)["parameters"]} for loop in self.curves},
            "highest": self.highest,
            "seconds": {
                loop: {
                    f"{level:.0%}": seconds if (seconds := self.seconds_to(loop, level)) < math.inf else None
                    for level in LEVELS
                }
                for loop in self.curves
            },
        }

    def write(self, directory: Path) -> None:
        """Write JSON, table and picture.

        :param directory: the directory
        """
        directory.mkdir(parents=True, exist_ok=True)
        text = json.dumps(self.as_dict(), indent=1, ensure_ascii=False)
        self.settings.paths(directory)[0].write_text(text + "\n", encoding="utf-8")
        self.draw(directory)

    def draw(self, directory: Path) -> None:
        """Write table and picture.

        :param directory: the directory
        """
        settings = self.settings
        directory.mkdir(parents=True, exist_ok=True)
        _, table, picture = settings.paths(directory)
        table.write_text(self.markdown() + "\n", encoding="utf-8")
        best_first = sorted(self.curves, key=self.reached, reverse=True)
        labels = {loop: self._describe(loop) for loop in best_first}
        plot_curves(
            picture,
            f"{settings.model} (d={settings.dim}) on {settings.dataset}: {settings.budget_seconds:g} s of training each,\n"
            f"after a search of {settings.search_seconds:g} s and {settings.trials} trials for settings of its own",
            {labels[loop]: [pd.DataFrame(run) for run in self.curves[loop]] for loop in best_first},
            "validation",
            highest=1.08 * self.highest,
            levels={f"{level:.0%} of the best": level * self.highest for level in LEVELS},
            styles={labels[loop]: ENTRIES[loop].style for loop in best_first},
            size=(7, 5 + 0.4 * len(labels)),
            legend=dict(
                title="training loop, loss: best MRR (solid: this package; dashed: autograd and PyKEEN)",
                ncols=1,
                fontsize="x-small",
                title_fontsize="small",
            ),
        )

    def _describe(self, loop: str) -> str:
        """Write what the picture says of an entry."""
        effort, seconds = self.effort(loop), self.effort(loop)["search_seconds"]
        did = [f"{_epochs(effort['epochs'])} epochs"] if effort["epochs"] is not None else []
        did.append(f"search: {effort['trials']} trials" + (f", {_number(seconds)} s" if seconds is not None else ""))
        first = f"{self.label(loop)}: {self.reached(loop):.3f} ({'; '.join(did)})"
        return "\n".join([first, *textwrap.wrap(self.found(loop), 100)])


def _highest(points: Sequence[Mapping[str, float]]) -> float:
    """Return the best MRR of a run."""
    return max(point["MRR"] for point in points)


def _marks(seconds: float) -> list[float]:
    """Return times at equal distances on a logarithmic axis, from a thousandth to the whole."""
    return [seconds * 1000 ** (i / (MARKS - 1) - 1) for i in range(MARKS)]


def _number(x: float | None) -> str:
    """Write a number of seconds, of which few are known exactly."""
    if x is None:
        return "unknown"
    return f"{x:.2g}" if x < 10 else f"{x:.0f}" if x < math.inf else "not reached"


def _epochs(x: float | None) -> str:
    """Write a number of epochs."""
    return "unknown" if x is None else f"{x:.1f}" if 0 < x < 10 else f"{x:.0f}" if x else "<1"


@click.command(name="quality")
@click.option("--dataset", default="kinships", show_default=True, help="The name of a PyKEEN dataset.")
@click.option("--model", default="ComplEx", show_default=True, help="The name of a PyKEEN model.")
@click.option("--dim", type=click.IntRange(min=1), default=64, show_default=True, help="The embedding dimension.")
@click.option(
    "--budget-seconds",
    type=POSITIVE,
    default=60.0,
    show_default=True,
    help="The seconds of training that are drawn for each entry.",
)
@click.option(
    "--search-seconds",
    type=POSITIVE,
    show_default="the same",
    help="The seconds of training that each entry has to find its settings.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="The number of settings that each entry tries in this time.",
)
@click.option(
    "--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="The number of random seeds of each entry."
)
@click.option(
    "--stored",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The numbers of an earlier run: writes their table and plot instead of measuring.",
)
@output_option("numbers, table and plot")
@force_option
def command(
    dataset: str,
    model: str,
    dim: int,
    budget_seconds: float,
    search_seconds: float | None,
    trials: int,
    repeats: int,
    stored: Path | None,
    output: Path,
    force: bool,
) -> None:
    """Measure how long each training loop takes to become how good.

    Searches good settings for each training loop of this package and of PyKEEN, and for cross-entropy of each triple with
    autograd, with the same effort, and draws the MRR on the validation triples over the seconds of training.
    """
    check_matplotlib()
    silence()
    if stored is not None:
        quality = Quality.read(stored)
        paths = quality.settings.paths(output)[1:]
        check_free(paths, force)
        check_writable(output, "--output")
        quality.draw(output)
        click.echo(f"{quality.markdown()}\n\n{', '.join(map(str, paths))}")
        return
    model = lookup(model_resolver, model, "model").__name__
    dataset_cls = lookup(dataset_resolver, dataset, "dataset")
    settings = QualitySettings(dataset, model, dim, budget_seconds, search_seconds or budget_seconds, trials, repeats)
    check_free(settings.paths(output), force)
    try:
        check_model(model, dim)
        check_evaluation(load(dataset_cls), dataset, dataset_cls)
        check_writable(output, "--output")
        quality = Quality(settings)
        click.echo(
            f"{model} with {dim} dimensions on {dataset}. Each of {len(settings.loops)} entries tries {trials} settings in "
            f"{settings.search_seconds:g} s, and then trains for {budget_seconds:g} s with the best of them, with {repeats} "
            f"random seeds."
        )
        quality.run(click.echo)
    except (NotImplementedError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    quality.write(output)
    click.echo(f"\n{quality.markdown()}\n\n{', '.join(map(str, settings.paths(output)))}")
