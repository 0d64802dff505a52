"""The pictures of ``speed``."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pykeen_nonsampling.cli.console import make_figure

from .subject import NUM_NEGATIVES


def plot_speedup(path: Path, results: Sequence[Mapping[str, Any]], label: str, papers: Mapping[str, float]) -> None:
    """Draw how much longer an epoch with sampling takes, next to what [li2021]_ reports.

    :param path: the file to write
    :param results: the results of all models and dimensions
    :param label: what the results are of
    :param papers: the reported speed-ups, by model
    """
    figure = make_figure(width=1.5 + 1.5 * max(3, len(results)), height=4)
    axes = figure.add_subplot()
    dims = list(dict.fromkeys(result["dim"] for result in results))
    names = [result["model"] if len(dims) == 1 else f"{result['model']}\nd={result['dim']}" for result in results]
    ratios = [result["slcwa/epoch"] for result in results]
    reported = [papers.get(result["model"].lower(), math.nan) for result in results]
    for shift, name, heights in (
        (-0.2, label, ratios),
        (0.2, "Li et al. (2021), FB15k-237, d=200", reported),
    ):
        bars = axes.bar([i + shift for i in range(len(names))], heights, width=0.4, label=name)
        axes.bar_label(bars, labels=["" if math.isnan(height) else f"{height:.3g}×" for height in heights])
    axes.set(
        yscale="log",
        # bars start at equal times, and leave room for the legend
        ylim=(min(1.0, 0.5 * min(ratios)), 8 * max(*ratios, *papers.values())),
        ylabel="epoch of slcwa ÷ epoch of nonsampling",
        title=f"Speed-up over {NUM_NEGATIVES} sampled negatives, d={', '.join(map(str, dims))}",
    )
    axes.yaxis.set_major_formatter("{x:g}×")
    axes.yaxis.set_minor_formatter("")
    axes.set_xticks(range(len(names)), names)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=150)


def plot_growth(path: Path, growth: Mapping[str, Mapping[str, Any]], title: str) -> None:
    """Draw the seconds per epoch over each size, with the fitted power law.

    :param path: the file to write
    :param growth: sizes, seconds, exponent and factor, by what grows
    :param title: the title
    """
    figure = make_figure(width=10, height=3.5)
    panels = figure.subplots(1, len(growth), sharey=True)
    for axes, (axis, line) in zip(panels, growth.items(), strict=True):
        sizes, exponent = line["sizes"], line["exponent"]
        axes.plot(sizes, line["seconds"], "o", color="C0")
        fitted = [line["factor"] * n**exponent for n in sizes]
        axes.plot(sizes, fitted, color="C0", alpha=0.5, label=f"∝ n^{exponent:.2f}")
        axes.set(xscale="log", yscale="log", xlabel={"dim": "dimension"}.get(axis, axis))
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.set_xticks([], minor=True)
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.grid(alpha=0.3, which="both")
        axes.legend()
    panels[0].set_ylabel("seconds per epoch")
    figure.suptitle(title)
    figure.savefig(path, dpi=150)
