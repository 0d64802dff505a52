"""From what has been done to files: tables, pictures, and the report that shows them, as Markdown and as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import pandas as pd

from . import figures, paper
from .content import collect
from .pages import render_html, render_markdown
from .plan import REPORT_PARTS, display_name
from .results import Results
from .statistics import as_frame, speed, spread, summarize


def list_files(datasets: Iterable[str]) -> list[str]:
    """Return the names of all files that a report may have."""
    names = [*REPORT_PARTS, *(f"quality_{dataset}" for dataset in datasets)]
    pictures = [f"{name}.{suffix}" for name in names for suffix in figures.FORMATS]
    return ["report.md", "report.html", *(f"{name}.csv" for name in ("runs", *REPORT_PARTS)), *pictures]


def write_report(results: Results, directory: Path) -> list[Path]:
    """Write tables, pictures and both forms of the report.

    :param results: what has been done
    :param directory: the directory
    :return: the files written
    """
    directory.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, table in make_tables(results).items():
        paths.append(directory / f"{name}.csv")
        table.to_csv(paths[-1], index=False, lineterminator="\n")
    for name, plot in make_figures(results).items():
        figures.draw(directory, name, plot)
        paths += [directory / f"{name}.{suffix}" for suffix in figures.FORMATS]
    content = collect(results)
    pictures = {path.stem: path.read_bytes() for path in paths if path.suffix == ".svg"}
    for name, text in (("report.md", render_markdown(content)), ("report.html", render_html(content, pictures))):
        paths.append(directory / name)
        paths[-1].write_text(text, encoding="utf-8", newline="\n")
    return paths


def make_tables(results: Results) -> dict[str, pd.DataFrame]:
    """Return what is written as CSV, by name."""
    trainings = [x for x in results.storage.records.values() if x.run["kind"] == "training"]
    tables = {"runs": as_frame(trainings)}
    makers: Mapping[str, Callable[[pd.DataFrame], pd.DataFrame]] = {
        "accuracy": summarize,
        "time": speed,
        "dimension": lambda frame: frame,
        "weight": lambda frame: frame,
    }
    tables |= {part: make(results.frame(part)) for part, make in makers.items() if results.done(part)}
    if results.done("stability"):
        frame = results.frame("stability")
        parts = {"random": frame[frame["start"].isna()], "the same": frame[frame["start"].notna()]}
        tables["stability"] = pd.concat([spread(x).assign(initial_vectors=name) for name, x in parts.items() if len(x)])
    if results.done("shipped"):
        tables["shipped"] = summarize(results.shipped())
    examples, searches = results.done("examples"), results.done("quality")
    if examples:
        rows = [
            {
                "dataset": x.run["dataset"],
                "loop": x.run["loop"],
                "rank": i,
                "entity": entity,
                "true": entity in x.result["true"],
            }
            for x in examples
            for i, entity in enumerate(x.result.get("predicted", []), start=1)
        ]
        tables["examples"] = pd.DataFrame(rows)
    if searches:
        tables["quality"] = pd.DataFrame(
            {"dataset": x.run["dataset"], "loop": x.run["loop"], "run": i, **point}
            for x in searches
            for i, curve in enumerate(x.result["curves"])
            for point in curve
        )
    return tables


def make_figures(results: Results) -> dict[str, Callable[[Path], None]]:
    """Return what is drawn, by name."""
    found: dict[str, Callable[[Path], None]] = {}
    if results.done("accuracy"):
        frame = results.frame("accuracy")
        found["accuracy"] = partial(figures.draw_accuracy, table=summarize(frame))
        found["stability"] = partial(figures.draw_spread, frame=frame)
        found["time"] = partial(figures.draw_speed, table=speed(frame))
    for part, sweep in paper.SWEEPS.items():
        if results.done(part):
            found[part] = partial(figures.draw_sweep, frame=results.frame(part), sweep=sweep)
    for dataset, quality in results.qualities().items():
        curves_of_loops = {loop: [pd.DataFrame(run) for run in runs] for loop, runs in quality.curves.items()}
        title = f"{quality.settings.model} (d={quality.settings.dim}) on {display_name(dataset)}"
        found[f"quality_{dataset}"] = partial(figures.draw_quality, title=title, curves=curves_of_loops)
    return found
