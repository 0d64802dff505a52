"""The pictures that commands draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .console import make_figure
from .curves import SECONDS

if TYPE_CHECKING:
    import pandas as pd


def plot_curves(
    path: Path,
    title: str,
    lines: Mapping[str, Sequence[pd.DataFrame]],
    triples: str,
    highest: float,
    levels: Mapping[str, float] | None = None,
) -> None:
    """Draw the MRR over the training time, one line per run, one color per label.

    :param path: the file to write
    :param title: the title
    :param lines: the runs of each label
    :param triples: the triples that were evaluated on
    :param highest: the upper end of the axis
    :param levels: values to mark with a line, by label
    """
    figure = make_figure(width=7, height=5)
    axes = figure.add_subplot()
    for number, (label, runs) in enumerate(lines.items()):
        for i, run in enumerate(runs):
            name = label if i == 0 else None
            axes.plot(run[SECONDS], run["MRR"], color=f"C{number}", marker="o", markersize=3, alpha=0.8, label=name)
    for label, level in (levels or {}).items():
        axes.axhline(level, color="gray", linewidth=0.8, linestyle=":")
        axes.text(
            0.005,
            level,
            label,
            transform=axes.get_yaxis_transform(),
            fontsize="x-small",
            color="gray",
            va="center",
            bbox=dict(facecolor="white", edgecolor="none", pad=0.5),
        )
    axes.set(
        xscale="log",
        xlabel="training time [s]",
        ylabel=f"MRR on the {triples} triples",
        ylim=(0, highest),
        title=title,
    )
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(alpha=0.3)
    # lines may be anywhere on the axes
    figure.legend(title="training loop", loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=150)
