"""Times of training and evaluation, beside the dense products they cannot avoid, plain autograd, and PyKEEN's.

All times of a model are measured in one run, in turns: each repeat measures every time once, so a machine that slows down
does so for all of them. The median over the repeats is reported.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import click
import pandas as pd
from pykeen.datasets import Dataset
from tqdm.auto import tqdm

from pykeen_nonsampling.cli.console import POSITIVE, check_evaluation, check_matplotlib, silence
from pykeen_nonsampling.cli.files import check_free, check_writable, force_option
from pykeen_nonsampling.cli.stopwatch import time_epochs
from pykeen_nonsampling.datasets import SyntheticGraph

from .machine import machine
from .options import check_json, find_models, graph_options, json_option, load_graph, model_options, output_option
from .peak import measure_peak
from .plots import plot_growth, plot_speedup
from .subject import (
    EPOCHS,
    EVALUATION_BATCH_SIZE,
    LCWA_BATCH_SIZE,
    NUM_NEGATIVES,
    SLCWA_BATCH_SIZE,
    Quantity,
    Subject,
    in_turns,
    make_loop,
)

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
            measure = partial(time_epochs, make_loop(self.settings.models[0], graph, sizes["dim"]), graph, EPOCHS)
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


@click.command(name="speed")
@graph_options
@model_options()
@click.option(
    "--loop",
    "loops",
    multiple=True,
    type=click.Choice(["slcwa", "lcwa"]),
    default=["slcwa", "lcwa"],
    show_default=True,
    help="PyKEEN's training loop to compare with; may be repeated.",
)
@click.option(
    "--baseline-repeats",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How often PyKEEN's training loops and evaluation are measured, which take far longer.",
)
@click.option(
    "--batches",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="The number of batches of PyKEEN's training and evaluation to time; their time is scaled to the whole.",
)
@click.option(
    "--growth/--no-growth",
    default=True,
    show_default=True,
    help="Whether to time growing graphs, too, with the first model.",
)
@click.option("--growth-size", type=POSITIVE, default=1.0, hidden=True)
@json_option("benchmark.json")
@output_option("table and plots")
@force_option
def command(
    dataset: str,
    entities: int | None,
    relations: int | None,
    triples: int | None,
    models: Sequence[str],
    json_path: Path | None,
    output: Path,
    force: bool,
    **options: Any,
) -> None:
    """Measure how fast training and evaluation are, beside PyKEEN's.

    Times an epoch without sampling, next to the dense products that it cannot avoid, plain automatic differentiation of the
    same loss, and PyKEEN's own training loops; evaluation, next to PyKEEN's own; the memory that an epoch takes; and how
    the time per epoch grows with the graph. Prints a table, and writes it along with all numbers and plots.
    """
    check_matplotlib()
    json_path = json_path or output / "benchmark.json"
    check_json(json_path, output)
    silence()
    settings = Settings(models=find_models(models), **options)
    check_free(settings.paths(output, json_path), force)
    graph = load_graph(dataset, entities, relations, triples, settings.models, settings.dims)
    data = graph.dataset
    if not data.testing.num_triples:
        raise click.ClickException(f"There are no test triples to evaluate on among {triples} in total: use more --triples.")
    if graph.cls is not None:
        check_evaluation(data, graph.name, graph.cls)
    check_writable(output, "--output")
    check_writable(json_path.parent, "--json")
    click.echo(
        f"{', '.join(settings.models)} on {graph.name}: {data.num_entities:,} entities, {data.num_relations:,} relations, "
        f"{data.training.num_triples:,} training and {data.testing.num_triples:,} test triples."
    )
    benchmark = Benchmark(name=graph.name, dataset=data, settings=settings)
    benchmark.run()
    paths = benchmark.write(output, json_path)
    click.echo(f"\n{benchmark.format_table()}\n")
    for axis, line in benchmark.growth.items():
        click.echo(f"Seconds per epoch grow with {axis} to the power of {line['exponent']:.2f}.")
    click.echo(f"Table, numbers and plots: {', '.join(map(str, paths))}")
