"""How long each training loop takes to become good, with settings of its own, found with the same effort.

Each loop gets the same number of trials of the same number of seconds, on one model, to find its settings. Then it trains a
few times with the best of them, in turns with the other loops. All times are those of training, without evaluation. With a
single thread, they are times of the processor, so that other programs do not matter. The learning rate is constant: with a
schedule, a curve would depend on when it is meant to end.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import click
import optuna
import pandas as pd
import torch
from pykeen.datasets import Dataset, dataset_resolver, get_dataset
from pykeen.hpo.hpo import suggest_kwargs
from pykeen.losses import loss_resolver
from pykeen.models import model_resolver
from pykeen.training import training_loop_resolver

from pykeen_nonsampling._compat import cheap_garbage_collection
from pykeen_nonsampling.cli.console import POSITIVE, check_evaluation, check_matplotlib, load, lookup, silence
from pykeen_nonsampling.cli.curves import SECONDS, plot_curves, train_with_curve
from pykeen_nonsampling.cli.files import check_free, check_writable, force_option
from pykeen_nonsampling.cli.stopwatch import OutOfTime
from pykeen_nonsampling.defaults import is_ours, learning_rate, model_defaults
from pykeen_nonsampling.factorizations import Family
from pykeen_nonsampling.free import free_memory
from pykeen_nonsampling.graph.frequencies import Frequencies
from pykeen_nonsampling.hpo import LEARNING_RATES, loss_ranges
from pykeen_nonsampling.losses import FactorizedLoss
from pykeen_nonsampling.losses.automatic import choose_loss
from pykeen_nonsampling.memory.dry_run import outline
from pykeen_nonsampling.training import FactorizedTrainingLoop

from .machine import machine
from .options import output_option
from .subject import check_model
from .timed_curve import TimedCurve, choose_clock

LOOPS = ("nonsamplinglcwa", "nonsampling", "lcwa", "slcwa")

#: The shares of the best MRR whose times are reported
LEVELS = (0.9, 0.95, 0.99)

#: What is searched for PyKEEN's loops: the losses that published comparisons use them with
LOSSES: Mapping[str, Sequence[str]] = {
    "lcwa": ("crossentropy", "bcewithlogits", "softplus"),
    "slcwa": ("nssa", "bcewithlogits", "softplus"),
}
BATCH_SIZES = (64, 256, 1024)
NUM_NEGATIVES = (8, 32, 128)
MARGINS = 1.0, 24.0
BASELINE_LEARNING_RATES = 1e-3, 1e-1
#: The weight of the N3 norm, or that of Adam's weight decay for models that take no regularizer
REGULARIZATION, WEIGHT_DECAYS = (1e-5, 1e-1), (1e-8, 1e-5)
LABEL_SMOOTHING = (0.0, 0.1)

_COMMON: Mapping[str, Any] = dict(lr=0.01, batch_size=256)

#: The first trials of each of PyKEEN's loops: one with each loss, since a few random ones could miss them all
BASELINES: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "lcwa": [
        dict(**_COMMON, loss="crossentropy", regularized=True, regularization=0.01, label_smoothing=0.0),
        dict(**_COMMON, loss="bcewithlogits", regularized=True, regularization=0.0001, label_smoothing=0.0),
        dict(**_COMMON, loss="softplus", regularized=False, label_smoothing=0.1),
    ],
    "slcwa": [
        dict(**_COMMON, loss="nssa", regularized=False, num_negs_per_pos=32, margin=9.0),
        dict(**_COMMON, loss="bcewithlogits", regularized=True, regularization=0.00001, num_negs_per_pos=8),
        dict(**_COMMON, loss="softplus", regularized=True, regularization=0.001, num_negs_per_pos=8),
    ],
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
    #: the seconds of training that each loop gets in the end
    budget_seconds: float
    #: the seconds of training that each loop gets to find its settings, and the trials that share them
    search_seconds: float
    trials: int
    #: the number of runs of each loop in the end, with different random seeds
    repeats: int = 3
    loops: Sequence[str] = LOOPS

    def paths(self, directory: Path) -> list[Path]:
        """Return the files to be written into a directory: JSON, table and picture."""
        return [directory / f"quality_{self.dataset}.{suffix}" for suffix in ("json", "md", "png")]


@dataclass
class Quality:
    """Finds settings for each training loop, and records its MRR over time."""

    settings: QualitySettings
    #: for each loop, its trials: parameters, arguments of the pipeline, and the best MRR
    trials: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    #: for each loop, the points of the curve of each run
    curves: dict[str, list[list[dict[str, float]]]] = field(default_factory=dict)

    @cached_property
    def _datasets(self) -> Mapping[bool, Dataset]:
        """The dataset, without and with inverse triples."""
        return {
            inverse: get_dataset(dataset=self.settings.dataset, dataset_kwargs=dict(create_inverse_triples=inverse))
            for inverse in (False, True)
        }

    def run(self, progress: Callable[[str], None]) -> None:
        """Search and train with all loops.

        :param progress: told what was done
        """
        for loop in self.settings.loops:
            self.trials[loop] = self._search(loop)
            best = self.best(loop)
            progress(f"{loop}: MRR {best['MRR']:.3f} with {_format(best['parameters'])}")
        marks = _marks(self.settings.budget_seconds)
        for seed, loop in itertools.product(range(self.settings.repeats), self.settings.loops):
            points = self._train(loop, self.best(loop)["arguments"], marks, seed)
            self.curves.setdefault(loop, []).append(points)
            progress(f"{loop}, seed {seed}: MRR {_highest(points):.3f} within {points[-1][SECONDS]:.0f} s")

    def _search(self, loop: str) -> list[dict[str, Any]]:
        """Try settings of a loop, its defaults first."""
        settings = self.settings
        study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0))
        for default in BASELINES.get(loop) or [dict(lr=learning_rate(_class(loop)))]:
            study.enqueue_trial(dict(default))
        seconds = settings.search_seconds / settings.trials
        marks = [seconds * (i + 1) / TRIAL_MARKS for i in range(TRIAL_MARKS)]
        done = []
        for number in range(settings.trials):
            trial = study.ask()
            arguments = self._suggest(trial, loop, default=number == 0)
            record: dict[str, Any] = {"parameters": dict(trial.params), "arguments": arguments, "MRR": 0.0}
            try:
                points = self._train(loop, arguments, marks, seed=0)
                record["MRR"] = _highest(points)
            except (ArithmeticError, MemoryError, RuntimeError, ValueError) as error:
                if number == 0:
                    # not bad luck: nothing else would work, either
                    raise
                record["reason"] = f"{type(error).__name__}: {error}"
            study.tell(trial, record["MRR"])
            done.append(record)
        return done

    def best(self, loop: str) -> dict[str, Any]:
        """Return the best trial of a loop."""
        return max(self.trials[loop], key=lambda trial: float(trial["MRR"]))

    def _suggest(self, trial: optuna.Trial, loop: str, default: bool) -> dict[str, Any]:
        """Choose settings, as arguments of ``pipeline()``."""
        if is_ours(loop):
            lr = trial.suggest_float("lr", LEARNING_RATES["low"], LEARNING_RATES["high"], log=True)
            # what is left out is derived from graph and model
            ranges = {} if default else self._ranges[loop]
            loss_kwargs = suggest_kwargs(trial, prefix="loss", kwargs_ranges=ranges)
            return dict(loss=self._losses[loop], loss_kwargs=loss_kwargs, optimizer_kwargs=dict(lr=lr))
        loss = trial.suggest_categorical("loss", LOSSES[loop])
        optimizer_kwargs = dict(lr=trial.suggest_float("lr", *BASELINE_LEARNING_RATES, log=True))
        arguments: dict[str, Any] = dict(loss=loss, optimizer_kwargs=optimizer_kwargs)
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

    @cached_property
    def _losses(self) -> Mapping[str, str]:
        """The losses that suit graph and model, for this package's loops."""
        training = self._datasets[False].training
        return {
            loop: loss_resolver.normalize_cls(choose_loss(Frequencies.of(training), _class(loop).closed_world))
            for loop in self.settings.loops
            if is_ours(loop)
        }

    @cached_property
    def _ranges(self) -> Mapping[str, Mapping[str, Any]]:
        """What to search of these losses."""
        training = self._datasets[False].training
        return {
            loop: loss_ranges(_class(loop), cast(FactorizedLoss, loss_resolver.make(loss)), training, self._family)
            for loop, loss in self._losses.items()
        }

    @property
    def _largest_batch(self) -> int:
        """The largest batch of ``lcwa`` that fits in half of the free memory."""
        size = LCWA_COPIES * 4 * 2 * self.settings.dim * self._datasets[True].num_entities
        return max(1, free_memory(torch.device("cpu")) // 2 // size)

    def _train(self, loop: str, arguments: Mapping[str, Any], marks: Sequence[float], seed: int) -> list[dict[str, float]]:
        """Train until the last mark, and return the points of the curve."""
        # PyKEEN's lcwa predicts only tails; those of inverse triples are the heads that evaluation also asks for
        dataset = self._datasets[loop == "lcwa"]
        if dataset.validation is None:
            raise ValueError(f"{self.settings.dataset} has no validation triples to compare on. Use another dataset.")
        curve = TimedCurve(dataset.validation, [dataset.training, dataset.testing], marks)
        # PyKEEN collects garbage after each epoch, which takes longer than one on a small graph; this package's loops do not
        with contextlib.suppress(OutOfTime), cheap_garbage_collection():
            train_with_curve(
                curve,
                dataset,
                self.settings.model,
                self.settings.dim,
                **{**arguments, "training_kwargs": {**arguments.get("training_kwargs", {}), "use_tqdm": False}},
                training_loop=loop,
                # time ends training
                epochs=10**9,
                random_seed=seed,
            )
        return curve.points

    def reached(self, loop: str) -> float:
        """Return the best MRR of a loop, the median over its runs."""
        return statistics.median(_highest(points) for points in self.curves[loop])

    @property
    def highest(self) -> float:
        """The best MRR of all loops."""
        return max(map(self.reached, self.curves))

    def seconds_to(self, loop: str, level: float) -> float:
        """Return the seconds until a loop has this share of the best MRR, the median over its runs; infinity is never."""
        return statistics.median(
            min((point[SECONDS] for point in points if point["MRR"] >= level * self.highest), default=math.inf)
            for points in self.curves[loop]
        )

    def markdown(self) -> str:
        """Return a table of the times to quality."""
        head = ["training loop", "best MRR", *(f"s to {level:.0%}" for level in LEVELS)]
        rows = [head, ["---"] * len(head)]
        for loop in self.curves:
            times = [self.seconds_to(loop, level) for level in LEVELS]
            cells = [f"{t:.2g}" if t < 10 else f"{t:.0f}" if t < math.inf else "not reached" for t in times]
            rows.append([f"`{loop}`", f"{self.reached(loop):.3f}", *cells])
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def as_dict(self) -> dict[str, Any]:
        """Return everything: the machine, the settings, all trials, the curves and the times to quality."""
        return {
            "machine": machine(),
            "settings": {**asdict(self.settings), "clock": choose_clock().__name__},
            "trials": self.trials,
            "curves": self.curves,
            "highest": self.highest,
            "seconds": {
                loop: {
                    f"{level:.0%}": seconds if (seconds := self.seconds_to(loop, level)) < math.inf else None
                    for level in LEVELS
                }
                for loop in self.curves
            },
        }

    def write(self, directory: Path) -> list[Path]:
        """Write JSON, table and picture.

        :param directory: the directory
        :return: the files written
        """
        settings = self.settings
        directory.mkdir(parents=True, exist_ok=True)
        paths = settings.paths(directory)
        text = json.dumps(self.as_dict(), indent=1, ensure_ascii=False)
        paths[0].write_text(text + "\n", encoding="utf-8")
        paths[1].write_text(self.markdown() + "\n", encoding="utf-8")
        plot_curves(
            paths[2],
            f"{settings.model} (d={settings.dim}) on {settings.dataset}, each loop with settings of its own",
            {
                f"{loop}: {self.reached(loop):.3f} within {settings.budget_seconds:g} s": [pd.DataFrame(run) for run in runs]
                for loop, runs in self.curves.items()
            },
            "validation",
            highest=1.08 * self.highest,
            levels={f"{level:.0%} of the best": level * self.highest for level in LEVELS},
        )
        return paths


def _class(loop: str) -> type[FactorizedTrainingLoop]:
    """Find one of this package's training loops by its name."""
    return cast(type[FactorizedTrainingLoop], training_loop_resolver.lookup(loop))


def _highest(points: Sequence[Mapping[str, float]]) -> float:
    """Return the best MRR of a run."""
    return max(point["MRR"] for point in points)


def _marks(seconds: float) -> list[float]:
    """Return times at equal distances on a logarithmic axis, from a thousandth to the whole."""
    return [seconds * 1000 ** (i / (MARKS - 1) - 1) for i in range(MARKS)]


def _format(parameters: Mapping[str, Any]) -> str:
    """Write parameters as text."""
    return ", ".join(f"{name}={x:.3g}" if isinstance(x, float) else f"{name}={x}" for name, x in parameters.items())


@click.command(name="quality")
@click.option("--dataset", default="kinships", show_default=True, help="The name of a PyKEEN dataset.")
@click.option("--model", default="ComplEx", show_default=True, help="The name of a PyKEEN model.")
@click.option("--dim", type=click.IntRange(min=1), default=64, show_default=True, help="The embedding dimension.")
@click.option(
    "--budget-seconds",
    type=POSITIVE,
    default=60.0,
    show_default=True,
    help="The seconds of training that are drawn for each loop.",
)
@click.option(
    "--search-seconds",
    type=POSITIVE,
    show_default="the same",
    help="The seconds of training that each loop has to find its settings.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="The number of settings that each loop tries in this time.",
)
@click.option(
    "--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="The number of random seeds of each loop."
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
    output: Path,
    force: bool,
) -> None:
    """Measure how long each training loop takes to become how good.

    Searches good settings for each training loop of this package and of PyKEEN, with the same effort, and draws the MRR on
    the validation triples over the seconds of training.
    """
    check_matplotlib()
    silence()
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
            f"{model} with {dim} dimensions on {dataset}. Each training loop tries {trials} settings in "
            f"{settings.search_seconds:g} s, and then trains for {budget_seconds:g} s with the best of them, with {repeats} "
            f"random seeds."
        )
        quality.run(click.echo)
    except (NotImplementedError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    paths = quality.write(output)
    click.echo(f"\n{quality.markdown()}\n\n{', '.join(map(str, paths))}")
