"""From what has been done to files: tables, pictures, and the report that shows them, as Markdown and as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import pandas as pd

from . import figures, paper, sections
from .content import Block, Command, Report, Section, Text
from .html import write_html
from .markdown import write_markdown
from .plan import display_name
from .results import Results
from .statistics import as_frame, speed, spread, summarize

TITLES: Mapping[str, str] = {
    "accuracy": "Accuracy with the paper's settings",
    "shipped": "Accuracy with the configurations of this package",
    "stability": "Stability",
    "time": "Training time",
    "dimension": "Dimension",
    "weight": "Weight of negatives",
    "examples": "Examples",
    "quality": "Time to quality",
}


def list_files(datasets: Iterable[str]) -> list[str]:
    """Return the names of all files that a report may have."""
    names = [*TITLES, *(f"quality_{dataset}" for dataset in datasets)]
    pictures = [f"{name}.{suffix}" for name in names for suffix in figures.FORMATS]
    return ["report.md", "report.html", *(f"{name}.csv" for name in ("runs", *TITLES)), *pictures]


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
    report = make_report(results)
    for name, text in (("report.md", write_markdown(report)), ("report.html", write_html(report, directory))):
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


def make_report(results: Results) -> Report:
    """Put everything in order."""
    makers: Mapping[str, Callable[[], Iterable[Block]]] = {
        "accuracy": partial(sections.accuracy, results),
        "shipped": partial(sections.shipped, results),
        "stability": partial(sections.stability, results),
        "time": partial(sections.time, results),
        "dimension": partial(sections.sweep, results, "dimension"),
        "weight": partial(sections.sweep, results, "weight"),
        "examples": partial(sections.examples, results),
        "quality": partial(sections.quality, results),
    }
    found = [Section("What was run", list(sections.overview(results)))]
    for part, title in TITLES.items():
        queries = sections.write_queries(results) if part == "examples" else []
        command = Command(sections.write_command(results.storage.settings, f"--part {part}", *queries))
        blocks = list(makers[part]()) if results.done(part) else [Text("Not run.")]
        found.append(Section(title, [*blocks, Text("Made by:"), command]))
    found.append(Section("Settings and machine", list(sections.settings(results))))
    introduction: list[Block] = [
        Text(
            "The experiments of [Li et al. (2021)](https://doi.org/10.1145/3442381.3449859), “Efficient Non-Sampling "
            "Knowledge Graph Embedding”, on PyKEEN. `slcwa` is PyKEEN’s training loop with "
            f"{paper.NUM_NEGATIVES} sampled negatives per triple. `nonsampling` and `nonsamplinglcwa` train on all "
            "negatives, in the closed world and in the local closed world. All test triples are ranked, filtered, on "
            "both sides."
        ),
        Text(
            "All numbers were measured by the command that wrote this report, except for those marked "
            f"“{paper.CITATION}”, which are the paper’s, and those marked “recorded”, which are in the configurations "
            "of this package."
        ),
    ]
    return Report("Efficient non-sampling knowledge graph embedding, reproduced", introduction, found)
