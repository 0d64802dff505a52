"""How fast training and evaluation are, compared with the dense products they cannot avoid, plain autograd, and PyKEEN.

All times of a model are measured in one run, in turns: each repeat measures every time once, so a machine that slows down
does so for all of them. The median over the repeats is reported.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
import pandas as pd
from pykeen.datasets import Dataset, dataset_resolver
from pykeen.models import model_resolver
from tqdm.auto import tqdm

from ..datasets import SyntheticGraph
from ..ranks import RankError
from .console import POSITIVE, check_evaluation, check_matplotlib, load, lookup, machine, silence
from .files import check_free, check_writable, force_option
from .plots import plot_growth, plot_speedup
from .quality import QUALITY_DEFAULTS, measure_quality
from .scaling import RANKS, Scaling, check_ranks
from .timing import (
    EPOCHS,
    EVALUATION_BATCH_SIZE,
    LCWA_BATCH_SIZE,
    NUM_NEGATIVES,
    SLCWA_BATCH_SIZE,
    Quantity,
    Subject,
    check_model,
    in_turns,
    make_loop,
    measure_peak,
    train_epochs,
)

__all__ = [
    "Benchmark",
    "Settings",
    "command",
]

#: The speed-up on FB15k-237 over 25 negative samples that [li2021]_ reports
PAPER_SPEEDUPS: Mapping[str, float] = {"distmult": 66.9, "simple": 60.9, "complex": 42.9, "transe": 22.0}

#: Each ratio, and the times that it is computed from
RATIOS: Mapping[str, tuple[str, str]] = {
    "epoch/floor": ("epoch_seconds", "floor_seconds"),
    "local epoch/floor": ("local_epoch_seconds", "local_floor_seconds"),
    "autograd/epoch": ("autograd_seconds", "epoch_seconds"),
    "slcwa/epoch": ("slcwa_seconds", "epoch_seconds"),
    "lcwa/local epoch": ("lcwa_seconds", "local_epoch_seconds"),
    "pykeen evaluation/ours": ("pykeen_evaluation_seconds", "evaluation_seconds"),
}

#: The synthetic graph that grows in one direction at a time, with four sizes each
GROWTH_RELATIONS = 20
GROWTH_BASE: Mapping[str, int] = {"entities": 10_000, "triples": 100_000, "dim": 128}
GROWTH: Mapping[str, Sequence[int]] = {
    "entities": (5_000, 10_000, 20_000, 40_000),
    "triples": (50_000, 100_000, 200_000, 400_000),
    "dim": (32, 64, 128, 256),
}

SPEEDUP, GROWTH_PLOT = "speedup.png", "growth.png"

#: What else can be measured instead: the options that are only for it, and others that have an effect on it
INSTEAD: Mapping[str, tuple[set[str], set[str]]] = {
    "--quality": ({"quality", "budget_seconds", "search_seconds", "trials"}, {*QUALITY_DEFAULTS}),
    "--ranks": ({"ranks"}, {"dataset", "entities", "relations", "triples", "models", "dims", "repeats", "json_path"}),
}


@dataclass(frozen=True)
class Settings:
    """What is measured, and how often."""

    models: Sequence[str]
    dims: Sequence[int]
    #: PyKEEN's training loops to compare with: slcwa, lcwa
    loops: Sequence[str] = ("slcwa", "lcwa")
    repeats: int = 5
    #: PyKEEN's own training and evaluation take far longer, and are repeated at most this often
    baseline_repeats: int = 1
    #: the number of batches of PyKEEN's training and evaluation that are timed
    batches: int = 3
    growth: bool = True
    #: a factor for the sizes of the growing graph
    growth_size: float = 1.0

    def paths(self, directory: Path, json_path: Path) -> list[Path]:
        """Return the files to be written.

        :param directory: the directory for table and plots
        :param json_path: the file for the JSON
        """
        plots = [SPEEDUP] * ("slcwa" in self.loops) + [GROWTH_PLOT] * self.growth
        return [directory / "benchmark.csv", json_path, *(directory / name for name in plots)]


def fit_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    r"""Fit $\log s = \log a + b \log n$ by least squares.

    :return: the exponent b and the factor a
    """
    slope, intercept = statistics.linear_regression([math.log(n) for n in sizes], [math.log(s) for s in seconds])
    return slope, math.exp(intercept)


@dataclass
class Benchmark:
    """Measures all times on one dataset, and reports them."""

    name: str
    dataset: Dataset
    settings: Settings
    results: list[dict[str, Any]] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    growth: dict[str, dict[str, Any]] = field(default_factory=dict)

    def run(self) -> None:
        """Measure all times, with a progress bar."""
        settings = self.settings
        subjects = [(model, dim) for model in settings.models for dim in settings.dims]
        baselines = (1 + min(settings.repeats, settings.baseline_repeats)) * (1 + len(settings.loops))
        total = len(subjects) * (1 + 6 * (1 + settings.repeats) + baselines)
        total += settings.growth * (1 + settings.repeats) * sum(len(sizes) for sizes in GROWTH.values())
        with tqdm(total=total, unit="step", leave=False) as bar:
            for model, dim in subjects:
                with _reporting(bar, f"{model}, d={dim}") as progress:
                    self._measure(model, dim, progress)
            if settings.growth:
                with _reporting(bar, "growth") as progress:
                    self._grow(progress)

    def _measure(self, model: str, dim: int, progress: Callable[[str], None]) -> None:
        subject = Subject(self.dataset, model, dim)
        settings = self.settings
        quantities = subject.quantities(settings.loops, settings.repeats, settings.baseline_repeats, settings.batches)
        samples = in_turns(quantities, progress)
        result: dict[str, Any] = {"model": model, "dim": dim}
        result.update((name, statistics.median(values)) for name, values in samples.items())
        result.update((ratio, result[a] / result[b]) for ratio, (a, b) in RATIOS.items() if a in samples and b in samples)
        for name, (timed, everything) in subject.parts.items():
            unit = "triples" if name == "pykeen_evaluation" else "batches"
            result.update({f"{name}_{unit}_timed": timed, f"{name}_{unit}": everything})
        progress("peak_bytes")
        result["peak_bytes"] = measure_peak(self.dataset.training, model, dim)
        self.results.append(result)
        self.samples.append({"model": model, "dim": dim, **samples})

    def _grow(self, progress: Callable[[str], None]) -> None:
        """Time epochs on synthetic graphs, over their entities, their triples, and the dimension."""
        quantities = {}
        for axis, size in [(axis, size) for axis, sizes in GROWTH.items() for size in sizes]:
            sizes = self._growth_sizes(**{axis: size})
            graph = SyntheticGraph(sizes["entities"], GROWTH_RELATIONS, sizes["triples"], evaluation_ratio=0.0).training
            measure = partial(train_epochs, make_loop(self.settings.models[0], graph, sizes["dim"]), graph)
            self.growth.setdefault(axis, {"sizes": []})["sizes"].append(sizes[axis])
            quantities[f"{axis}={sizes[axis]:,}"] = Quantity(measure, measure, self.settings.repeats)
        samples = in_turns(quantities, progress)
        for axis, line in self.growth.items():
            line["seconds"] = [statistics.median(samples[f"{axis}={size:,}"]) for size in line["sizes"]]
            line["exponent"], line["factor"] = fit_exponent(line["sizes"], line["seconds"])

    def _growth_sizes(self, **sizes: int) -> dict[str, int]:
        """Return the sizes of a synthetic graph; those that are not given do not grow."""
        factors = {"dim": 1.0}
        return {
            name: int(size * factors.get(name, self.settings.growth_size)) for name, size in {**GROWTH_BASE, **sizes}.items()
        }

    def table(self) -> pd.DataFrame:
        """Return one row per model and dimension."""
        return pd.DataFrame(self.results)

    def format_table(self) -> str:
        """Return the table as readable text, one column per model and dimension."""
        rows = {}
        for result in self.results:
            column = {name: f"{value:.4g} s" for name, value in result.items() if name.endswith("_seconds")}
            column |= {name: f"{result[name]:.1f}×" for name in RATIOS if name in result}
            column["peak_bytes"] = f"{result['peak_bytes'] / 2**20:.0f} MiB"
            rows[f"{result['model']}, d={result['dim']}"] = column
        return str(pd.DataFrame(rows).rename(index=lambda name: name.removesuffix("_seconds").replace("_", " ")).to_string())

    def as_dict(self) -> dict[str, Any]:
        """Return everything: the machine, the settings, the dataset, all results and the times they are medians of."""
        return {
            "machine": machine(),
            "settings": {
                **asdict(self.settings),
                "optimizer": "Adam(fused=True)",
                "slcwa_batch_size": SLCWA_BATCH_SIZE,
                "slcwa_negatives": NUM_NEGATIVES,
                "lcwa_batch_size": LCWA_BATCH_SIZE,
                "evaluation_batch_size": EVALUATION_BATCH_SIZE,
                "epochs_a_repeat": EPOCHS,
            },
            "dataset": {
                "name": self.name,
                "entities": self.dataset.num_entities,
                "relations": self.dataset.num_relations,
                "training": self.dataset.training.num_triples,
                "testing": self.dataset.testing.num_triples,
            },
            "results": self.results,
            "samples": self.samples,
            "growth": self.growth,
        }

    def write(self, directory: Path, json_path: Path) -> list[Path]:
        """Write table, JSON and plots.

        :param directory: the directory for table and plots
        :param json_path: the file for the JSON
        :return: the files written
        """
        directory.mkdir(parents=True, exist_ok=True)
        paths = self.settings.paths(directory, json_path)
        self.table().to_csv(paths[0], index=False)
        json_path.write_text(json.dumps(self.as_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        if "slcwa" in self.settings.loops:
            plot_speedup(directory / SPEEDUP, self.results, f"pykeen-nonsampling, {self.name}", PAPER_SPEEDUPS)
        if self.growth:
            base = self._growth_sizes()
            fixed = f"{base['entities']:,} entities, {base['triples']:,} triples, d={base['dim']}"
            title = f"{self.settings.models[0]} on synthetic graphs; fixed sizes: {fixed}"
            plot_growth(directory / GROWTH_PLOT, self.growth, title)
        return paths


@contextlib.contextmanager
def _reporting(bar: Any, subject: str) -> Iterator[Callable[[str], None]]:
    """Show each step on a progress bar when it begins, and count it when the next one does."""
    begun = False

    def progress(step: str) -> None:
        nonlocal begun
        bar.update(int(begun))
        begun = True
        bar.set_description(f"{subject}: {step}")

    yield progress
    bar.update(int(begun))


@click.command(name="benchmark")
@click.option("--dataset", default="fb15k237", show_default=True, help="The name of a PyKEEN dataset.")
@click.option("--entities", type=click.IntRange(min=1), help="Use a synthetic graph with this many entities instead.")
@click.option("--relations", type=click.IntRange(min=1), help="The number of relations of the synthetic graph.")
@click.option("--triples", type=click.IntRange(min=1), help="The number of triples of the synthetic graph.")
@click.option(
    "--model",
    "models",
    multiple=True,
    default=["DistMult", "SimplE", "ComplEx", "TransE"],
    show_default=True,
    help="The name of a PyKEEN model. The first one is also used for the growing graphs.",
)
@click.option(
    "--dim",
    "dims",
    multiple=True,
    type=click.IntRange(min=1),
    default=[200],
    show_default=True,
    help="The embedding dimension.",
)
@click.option(
    "--loop",
    "loops",
    multiple=True,
    type=click.Choice(["slcwa", "lcwa"]),
    default=["slcwa", "lcwa"],
    show_default=True,
    help="PyKEEN's training loop to compare with.",
)
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=5,
    show_default=True,
    help="How often each time is measured; medians are reported.",
)
@click.option(
    "--baseline-repeats",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="The same for PyKEEN's training loops and evaluation, which take far longer.",
)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="The number of batches of PyKEEN's training and evaluation to time; their time is scaled to the whole.",
)
@click.option("--growth/--no-growth", default=True, show_default=True, help="Whether to time growing graphs, too.")
@click.option("--growth-size", type=POSITIVE, default=1.0, hidden=True)
@click.option(
    "--quality",
    is_flag=True,
    help="Measure the time to quality instead: the validation MRR over the seconds of training, for each training loop. "
    "Defaults are then kinships, ComplEx, 64 dimensions and 3 repeats.",
)
@click.option(
    "--budget-seconds",
    type=POSITIVE,
    default=60.0,
    show_default=True,
    help="With --quality, the seconds of training that are drawn for each loop.",
)
@click.option(
    "--search-seconds",
    type=POSITIVE,
    show_default="the same",
    help="With --quality, the seconds of training that each loop has to find its settings.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="With --quality, the number of settings that each loop tries in this time.",
)
@click.option(
    "--ranks",
    type=RANKS,
    help="Measure training in several processes instead, e.g. 1,2,4: data parallel, and with divided entities.",
)
@click.option(
    "--json",
    "json_path",
    type=click.Path(dir_okay=False, path_type=Path),
    show_default="benchmark.json in the output directory; with --ranks, scaling.json",
    help="The file for all numbers.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("benchmark"),
    show_default=True,
    help="The directory for table and plots.",
)
@force_option
@click.pass_context
def command(
    context: click.Context,
    /,
    dataset: str,
    entities: int | None,
    relations: int | None,
    triples: int | None,
    quality: bool,
    budget_seconds: float,
    search_seconds: float | None,
    trials: int,
    ranks: Sequence[int] | None,
    json_path: Path | None,
    output: Path,
    force: bool,
    **settings: Any,
) -> None:
    """Measure how fast training and evaluation are.

    Times an epoch without sampling, next to the dense products that it cannot avoid, plain automatic differentiation of the
    same loss, and PyKEEN's own training loops; evaluation, next to PyKEEN's own; the memory that an epoch takes; and how
    the time per epoch grows with the graph. Prints a table, and writes it along with all numbers and plots.

    With --quality, searches good settings for each training loop of this package and of PyKEEN, with the same effort, and
    measures how long it takes to become how good.

    With --ranks, trains in several processes on this machine, and compares their time, memory and traffic with those of one.
    Each has one thread, unless OMP_NUM_THREADS is set.
    """
    if ranks is None:
        check_matplotlib()
    _check_options(context, "--quality" if quality else "--ranks" if ranks is not None else None)
    if quality:
        given = {"dataset": dataset, **settings}
        chosen = {
            name: default if context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT else given[name]
            for name, default in QUALITY_DEFAULTS.items()
        }
        measure_quality(chosen, budget_seconds, search_seconds or budget_seconds, trials, output, force)
        return
    sizes = {"num_entities": entities, "num_relations": relations, "num_triples": triples}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    if sizes and context.get_parameter_source("dataset") is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--dataset and --entities/--relations/--triples are mutually exclusive: give one of them.")
    json_path = json_path or output / ("benchmark.json" if ranks is None else "scaling.json")
    if json_path.parent != output and not json_path.parent.is_dir():
        message = f"There is no directory {json_path.parent}. Create it first, or choose another file."
        raise click.BadParameter(message, param_hint="--json")
    silence()
    settings["models"] = [lookup(model_resolver, model, "model").__name__ for model in settings["models"]]
    measured = Settings(**settings)
    check_free(measured.paths(output, json_path) if ranks is None else [json_path], force)
    dataset_cls = lookup(dataset_resolver, "syntheticgraph" if sizes else dataset, "dataset")
    try:
        for model, dim in itertools.product(settings["models"], settings["dims"]):
            check_model(model, dim)
        data = load(dataset_cls, **sizes)
    except (NotImplementedError, TypeError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    name = "a synthetic graph" if sizes else dataset
    if ranks is not None:
        check_ranks(ranks, data.num_entities)
        check_writable(json_path.parent, "--json")
        _measure_scaling(Scaling(name, data, measured.models, measured.dims, ranks, measured.repeats), json_path)
        return
    if not data.testing.num_triples:
        raise click.ClickException(f"There are no test triples to evaluate on among {triples} in total: use more --triples.")
    if not sizes:
        check_evaluation(data, name, dataset_cls)
    check_writable(output, "--output")
    check_writable(json_path.parent, "--json")
    click.echo(
        f"{', '.join(settings['models'])} on {name}: {data.num_entities:,} entities, {data.num_relations:,} relations, "
        f"{data.training.num_triples:,} training and {data.testing.num_triples:,} test triples."
    )
    result = Benchmark(name=name, dataset=data, settings=measured)
    result.run()
    paths = result.write(output, json_path)
    click.echo(f"\n{result.format_table()}\n")
    for axis, line in result.growth.items():
        click.echo(f"Seconds per epoch grow with {axis} to the power of {line['exponent']:.2f}.")
    click.echo(f"Table, numbers and plots: {', '.join(map(str, paths))}")


def _measure_scaling(scaling: Scaling, json_path: Path) -> None:
    """Measure training in several processes, and report it."""
    training = scaling.dataset.training
    click.echo(
        f"{', '.join(scaling.models)} on {scaling.name}, nonsamplinglcwa: {training.num_entities:,} entities, "
        f"{training.num_relations:,} relations, {training.num_triples:,} training triples; processes with "
        f"{scaling.threads} thread{'s' if scaling.threads > 1 else ''} each, on {os.cpu_count()} cores."
    )
    try:
        scaling.run()
    except BrokenProcessPool as error:
        raise click.ClickException(
            "A process has died, perhaps for want of memory. Use fewer processes or dimensions; pykeen-nonsampling plan "
            "--ranks estimates what each needs."
        ) from error
    except (RankError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    scaling.write(json_path)
    click.echo(f"\n{scaling.format_table()}\n")
    for problem in scaling.problems:
        click.echo(problem)
    click.echo(f"All numbers: {json_path}")


def _check_options(context: click.Context, mode: str | None) -> None:
    """Refuse options that have no effect on what is measured."""
    always = {"output", "force"}
    for parameter in context.command.params:
        name, option = parameter.name or "", parameter.opts[0]
        if context.get_parameter_source(name) is click.core.ParameterSource.DEFAULT or name in always:
            continue
        if mode is not None and name not in set.union(*INSTEAD[mode]):
            raise click.UsageError(f"{option} has no effect with {mode}: remove one of them.")
        needed = next((other for other, (only, _) in INSTEAD.items() if name in only and other != mode), None)
        if needed is not None:
            raise click.UsageError(f"{option} is for {needed}: add it, or remove {option}.")
