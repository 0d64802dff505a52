"""The pictures of a report, as PNG and SVG."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from pykeen_nonsampling.cli.console import make_figure
from pykeen_nonsampling.cli.curves import plot_curves

from . import paper
from .plan import LOOPS, display_name

FORMATS = ("png", "svg")

#: The color of each training loop
COLORS: Mapping[str, str] = dict(zip(LOOPS, ("#b45f06", "#1f77b4", "#2a8c4a"), strict=True))
#: Narrow enough to be read on a phone without magnification
WIDTH = 5.2


def draw(directory: Path, name: str, plot: Callable[[Path], None]) -> None:
    """Write a picture in all formats.

    :param directory: the directory
    :param name: the name of the files, without suffix
    :param plot: draws it into a file
    """
    # matplotlib is an extra
    from matplotlib import rc_context

    # text stays text, which is small, and can be searched
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 9}):
        for suffix in FORMATS:
            plot(directory / f"{name}.{suffix}")


def _panels(count: int, height: float) -> tuple[Any, list[Any]]:
    figure = make_figure(width=WIDTH, height=0.5 + height * count)
    return figure, list(figure.subplots(count, 1, squeeze=False)[:, 0])


def draw_accuracy(path: Path, table: pd.DataFrame) -> None:
    """Draw the MRR of each model and training loop, with its spread over seeds, and what the paper reports."""
    datasets = list(table["dataset"].unique())
    figure, panels = _panels(len(datasets), 2.4)
    for axes, dataset in zip(panels, datasets, strict=True):
        rows = table[table["dataset"] == dataset]
        models = list(rows["model"].unique())
        for shift, loop in zip((-0.27, 0.0, 0.27), LOOPS, strict=True):
            some = rows[rows["loop"] == loop].set_index("model").reindex(models)
            x = [i + shift for i in range(len(models))]
            axes.bar(x, some["MRR"], width=0.25, yerr=some["MRR std"].fillna(0), color=COLORS[loop], label=loop, capsize=2)
        reported = paper.ACCURACY.get(dataset, {})
        marks = [
            (i + shift, reported[model][k].mrr)
            for i, model in enumerate(models)
            if model in reported
            for k, shift in enumerate((-0.27, 0.0))
        ]
        if marks:
            axes.plot(*zip(*marks, strict=True), "D", color="black", fillstyle="none", markersize=5, label=paper.CITATION)
        axes.set(ylabel="MRR", title=display_name(dataset))
        axes.set_xticks(range(len(models)), models)
        axes.grid(axis="y", alpha=0.3)
    _legend(figure, panels[0])
    figure.savefig(path, dpi=150)


def draw_spread(path: Path, frame: pd.DataFrame) -> None:
    """Draw how far the MRR of each seed is from the mean over seeds."""
    done = frame.dropna(subset=["MRR"])
    datasets = list(done["dataset"].unique())
    figure, panels = _panels(len(datasets), 2.2)
    for axes, dataset in zip(panels, datasets, strict=True):
        rows = done[done["dataset"] == dataset]
        models = list(rows["model"].unique())
        for (i, model), (shift, loop) in itertools.product(enumerate(models), zip((-0.2, 0.0, 0.2), LOOPS, strict=True)):
            values = rows[(rows["model"] == model) & (rows["loop"] == loop)]["MRR"]
            label = loop if i == 0 else None
            x = [i + shift] * len(values)
            axes.plot(x, values - values.mean(), "_", color=COLORS[loop], markersize=11, markeredgewidth=2, label=label)
        axes.axhline(0, color="gray", linewidth=0.6)
        axes.set(ylabel="MRR − mean over seeds", title=display_name(dataset))
        axes.set_xticks(range(len(models)), models)
        axes.grid(axis="y", alpha=0.3)
    _legend(figure, panels[0])
    figure.savefig(path, dpi=150)


def draw_speed(path: Path, table: pd.DataFrame) -> None:
    """Draw how many times as long an epoch with sampling takes, beside what the paper reports."""
    datasets = list(table["dataset"].unique())
    figure, panels = _panels(len(datasets), 2.2)
    columns = {
        "nonsampling speed-up": ("nonsampling", COLORS["nonsampling"]),
        "nonsamplinglcwa speed-up": ("nonsamplinglcwa", COLORS["nonsamplinglcwa"]),
        "paper speed-up": (f"{paper.CITATION}, on a GPU", "#999999"),
    }
    for axes, dataset in zip(panels, datasets, strict=True):
        rows = table[table["dataset"] == dataset]
        for shift, (column, (label, color)) in zip((-0.27, 0.0, 0.27), columns.items(), strict=True):
            if rows[column].isna().all():
                continue
            bars = axes.bar([i + shift for i in range(len(rows))], rows[column], width=0.25, color=color, label=label)
            axes.bar_label(bars, labels=["" if pd.isna(x) else f"{x:.3g}×" for x in rows[column]], fontsize=6.5)
        axes.set(ylabel="epoch with sampling ÷ without", yscale="log", title=display_name(dataset))
        axes.margins(y=0.15)
        axes.yaxis.set_major_formatter("{x:g}×")
        axes.yaxis.set_minor_formatter("")
        axes.axhline(1, color="gray", linewidth=0.6)
        axes.set_xticks(range(len(rows)), rows["model"])
    _legend(figure, panels[0])
    figure.savefig(path, dpi=150)


def draw_sweep(path: Path, frame: pd.DataFrame, sweep: paper.Sweep) -> None:
    """Draw metrics over a parameter, with the curves of the paper dashed."""
    column = sweep.column
    datasets, models, metrics = list(frame["dataset"].unique()), list(frame["model"].unique()), ("MRR", "Hits@10")
    figure = make_figure(width=WIDTH + 1.2, height=0.6 + 2.4 * len(datasets))
    panels = figure.subplots(len(datasets), len(metrics), squeeze=False)
    for (dataset, metric), axes in zip(itertools.product(datasets, metrics), panels.flat, strict=True):
        rows = frame[frame["dataset"] == dataset].dropna(subset=["MRR"]).sort_values(column)
        for i, model in enumerate(models):
            line = rows[rows["model"] == model]
            axes.plot(line[column], line[metric], "o-", color=f"C{i}", markersize=3, label=model)
            known = sweep.curves.get(dataset, {}).get(model)
            if known is not None:
                axes.plot(sweep.values, known[metric], "--", color=f"C{i}", linewidth=0.9, alpha=0.7)
        axes.set(title=f"{metric}, {display_name(dataset)}", xlabel=f"{sweep.name} {sweep.symbol}")
        axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
        if sweep.logarithmic:
            axes.set_xscale("log")
        axes.grid(alpha=0.3)
    _legend(figure, panels.flat[0])
    figure.savefig(path, dpi=150)


def draw_quality(path: Path, title: str, curves: Mapping[str, Sequence[pd.DataFrame]]) -> None:
    """Draw the MRR against the seconds of training, one line per run."""
    highest = max(run["MRR"].max() for runs in curves.values() for run in runs)
    styles = {loop: dict(color=COLORS[loop]) for loop in curves}
    plot_curves(path, title, curves, "validation", highest=1.08 * highest, styles=styles)


def _legend(figure: Any, axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2)
