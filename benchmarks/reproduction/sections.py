"""What each section of a report shows, as plain data: its tables, and what the sentences around them depend on."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import pandas as pd

from ..accuracy import RECORDED
from ..quality import LEVELS
from . import paper
from .plan import DEFAULTS, LOOPS, REPORT_PARTS, SAMPLED, display_name, find_configuration
from .results import Results
from .statistics import speed, spread, summarize

#: The level of significance in the paper
SIGNIFICANT = 0.01


@dataclass(frozen=True)
class Cell:
    """A cell of a table."""

    text: str
    #: what to sort by, if it is not the text
    value: float | None = None
    bold: bool = False
    muted: bool = False


@dataclass(frozen=True)
class Table:
    """A table, whose first column names the rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""


def overview(results: Results) -> dict[str, Any]:
    """Count what was run for each part."""
    rows = []
    for name, part in REPORT_PARTS.items():
        done = results.done(name)
        stopped = sum(bool(x.result.get("stopped")) for x in done)
        failed = sum("failure" in x.result for x in done)
        numbers = len(results.planned(name)), len(done), stopped, failed, sum(x.took for x in done) / 60
        cells = [Cell(f"{x:.1f}" if isinstance(x, float) else f"{x}", x) for x in numbers]
        rows.append([Cell(name), *cells, Cell(part.shows)])
    failures = {x.result["failure"] for x in results.storage.records.values() if "failure" in x.result}
    columns = ["part", "planned", "done", "ended by budget", "failed", "minutes", "shows"]
    return {"table": Table(columns, rows), "failures": sorted(failures)}


def accuracy(results: Results) -> dict[str, Any]:
    """Make table 3 of the paper."""
    tables = []
    for dataset, rows in summarize(results.frame("accuracy")).groupby("dataset", sort=False):
        caption = f"{display_name(str(dataset))}, {int(rows['ranked'].iloc[0]):,} test triples"
        tables.append(Table(_columns("epochs"), list(_accuracy_rows(str(dataset), rows)), caption))
    return {"tables": tables}


def _columns(*more: str) -> list[str]:
    return ["model", "training loop", *paper.REPORTED_METRICS, "p", "seeds", *more]


def _accuracy_rows(dataset: str, rows: pd.DataFrame) -> Iterable[Sequence[Cell]]:
    for row in rows.to_dict("records"):
        epochs = f"{row['epochs']:.3g} of {row['planned_epochs']} †" if row["stopped"] else f"{row['epochs']:.0f}"
        yield [*_metrics(row), Cell(epochs, row["epochs"])]
        reported = paper.ACCURACY.get(dataset, {}).get(row["model"])
        if reported is not None and row["loop"] != "nonsamplinglcwa":
            accuracy, name = reported[row["loop"] != SAMPLED], "sampling" if row["loop"] == SAMPLED else "without"
            cells = [
                Cell(_format(metric, x), x, muted=True) for metric, x in zip(paper.REPORTED_METRICS, accuracy, strict=True)
            ]
            yield [
                Cell(row["model"], muted=True),
                Cell(f"{paper.CITATION}, {name}", muted=True),
                *cells,
                Cell(""),
                Cell(str(paper.SEEDS), paper.SEEDS, muted=True),
                Cell(str(paper.EPOCHS), paper.EPOCHS, muted=True),
            ]


def shipped(results: Results) -> dict[str, Any]:
    """Make the same table for the configurations of this package."""
    tables = []
    table = summarize(results.shipped())
    for dataset in results.preset.datasets:
        rows: list[Sequence[Cell]] = []
        for model in results.preset.models:
            for loop in LOOPS:
                rows += _shipped_row(table, dataset, model, loop)
        tables.append(Table(_columns("d", "training", "settings"), rows, display_name(dataset)))
    return {"tables": tables}


def _shipped_row(table: pd.DataFrame, dataset: str, model: str, loop: str) -> list[Sequence[Cell]]:
    chosen = table[(table["dataset"] == dataset) & (table["model"] == model) & (table["loop"] == loop)]
    found = None if loop == SAMPLED else find_configuration(dataset, model, loop)
    if len(chosen):
        row = chosen.iloc[0].to_dict()
        what = "paper’s" if loop == SAMPLED else DEFAULTS if found is None else found[0]
        seconds = Cell(_seconds(row["seconds"]) + (" †" if row["stopped"] else ""), row["seconds"])
        return [[*_metrics(row), Cell(f"{row['dim']}", row["dim"]), seconds, Cell(what)]]
    if found is None:
        return []
    results = found[1]["metadata"]["results"]
    means = {metric: fmean(results[name]) for metric, name in RECORDED.items()}
    dim, seconds_ = found[1]["pipeline"]["model_kwargs"]["embedding_dim"], fmean(results["training_seconds"])
    return [
        [
            Cell(model, muted=True),
            Cell(loop, muted=True),
            *(Cell(_format(metric, means[metric]), means[metric], muted=True) for metric in paper.REPORTED_METRICS),
            Cell(""),
            Cell(f"{len(results['seeds'])}", len(results["seeds"]), muted=True),
            Cell(f"{dim}", dim, muted=True),
            Cell(_seconds(seconds_), seconds_, muted=True),
            Cell(f"recorded: {found[0]}", muted=True),
        ]
    ]


def stability(results: Results) -> dict[str, Any]:
    """Make tables of the spread over seeds."""
    table = spread(results.frame("accuracy"))
    wide = table.pivot(index=["dataset", "model"], columns="loop", values="std").reindex(columns=LOOPS)
    compared = wide.dropna(subset=list(LOOPS[:2]))
    frame = results.frame("stability")
    same = frame[frame["start"].notna()]
    return {
        "compared": len(compared),
        "larger": int((compared[SAMPLED] > compared["nonsampling"]).sum()),
        "stopped": table["stopped"].any(),
        "tables": list(_spread_tables(table)),
        "same_start": list(_spread_tables(spread(same), ", from the same vectors")) if len(same) else [],
    }


def _spread_tables(table: pd.DataFrame, more: str = "") -> Iterator[Table]:
    for dataset, rows in table.groupby("dataset", sort=False):
        yield _spread_table(rows, f"{display_name(str(dataset))}{more}")


def _spread_table(table: pd.DataFrame, caption: str) -> Table:
    sampled = table[table["loop"] == SAMPLED].set_index("model")["std"]
    rows = []
    for row in table.to_dict("records"):
        ratio = sampled.get(row["model"], math.nan) / row["std"] if row["std"] else math.nan
        rows.append(
            [
                Cell(row["model"]),
                Cell(row["loop"] + (" †" if row["stopped"] else "")),
                Cell(f"{row['seeds']}", row["seeds"]),
                _number(row["MRR"], ".3f"),
                _number(row["std"], ".5f"),
                _number(row["range"] if row["seeds"] > 1 else math.nan, ".5f"),
                _number(row["relative std"], ".2%"),
                _number(ratio, ".2f"),
            ]
        )
    columns = ["model", "training loop", "seeds", "mean MRR", "std", "max − min", "std ÷ mean", "std of slcwa ÷ std"]
    return Table(columns, rows, caption)


def time(results: Results) -> dict[str, Any]:
    """Make table 5 of the paper."""
    tables = []
    for dataset, rows in speed(results.frame("accuracy")).groupby("dataset", sort=False):
        cells = []
        for row in rows.to_dict("records"):
            muted = [row["paper sampled s"], row["paper s"], row["paper speed-up"]]
            cells.append(
                [
                    Cell(row["model"]),
                    _number(row[f"{SAMPLED} epochs"], ".3g"),
                    *(_number(row[f"{loop} s"], ".3g", " s") for loop in LOOPS),
                    *(_number(row[f"{loop} speed-up"], ".3g", "×") for loop in LOOPS[1:]),
                    *(
                        replace(_number(x, ".3g", unit), muted=True)
                        for x, unit in zip(muted, (" s", " s", "×"), strict=True)
                    ),
                ]
            )
        columns = ["model", f"epochs of {SAMPLED}", *LOOPS, *(f"speed-up, {loop}" for loop in LOOPS[1:])]
        columns += [f"{paper.CITATION}, {name}" for name in ("sampling", "without", "speed-up")]
        tables.append(Table(columns, cells, display_name(str(dataset))))
    return {"tables": tables}


def sweep(results: Results, part: str) -> dict[str, Any]:
    """Make a table of figure 2 or 3 of the paper."""
    given = paper.SWEEPS[part]
    column, tables = given.column, []
    frame = results.frame(part).dropna(subset=["MRR"])
    for dataset, rows in frame.groupby("dataset", sort=False):
        values = sorted(rows[column].unique())
        cells: list[Sequence[Cell]] = []
        for model, some in rows.groupby("model", sort=False):
            by_value = some.drop_duplicates(column).set_index(column)
            known = given.curves.get(str(dataset), {}).get(str(model), {})
            for metric in ("MRR", "Hits@10"):
                measured = [_number(by_value[metric].get(x, math.nan), ".3f") for x in values]
                cells.append([Cell(str(model)), Cell(metric), *measured])
                if known:
                    reported = dict(zip(given.values, known[metric], strict=True))
                    name = Cell(f"{metric}, {paper.CITATION}", muted=True)
                    muted = [replace(_number(reported.get(x, math.nan), ".3f"), muted=True) for x in values]
                    cells.append([Cell(str(model), muted=True), name, *muted])
        columns = ["model", "metric", *(f"{given.symbol}={x:g}" for x in values)]
        tables.append(Table(columns, cells, display_name(str(dataset))))
    return {"tables": tables, "in_paper": bool(given.curves.keys() & set(results.preset.datasets))}


def examples(results: Results) -> dict[str, Any]:
    """Make table 4 of the paper, and list the true answers that are missing in it."""
    queries = []
    done = [x for x in results.done("examples") if "predicted" in x.result]
    asked = dict.fromkeys((x.run["dataset"], tuple(x.run["query"])) for x in done)
    for dataset, query in asked:
        records = {x.run["loop"]: x for x in done if x.run["dataset"] == dataset and tuple(x.run["query"]) == query}
        predicted = {loop: records[loop].result["predicted"] for loop in LOOPS if loop in records}
        without = {entity for loop, entities in predicted.items() if loop != SAMPLED for entity in entities}
        some = next(iter(records.values()))
        true = set(some.result["true"])
        rows = []
        for i in range(max(map(len, predicted.values()))):
            row = [Cell(f"{i + 1}", i + 1)]
            for loop, entities in predicted.items():
                entity = entities[i] if i < len(entities) else ""
                common = entity in (without if loop == SAMPLED else predicted.get(SAMPLED, []))
                row.append(Cell(results.label(entity), bold=entity in true, muted=common and entity not in true))
            rows.append(row)
        head, relation, tail = (x if x is None else results.label(x) for x in query)
        columns = ["rank", *(f"{loop} †" if records[loop].result["stopped"] else loop for loop in predicted)]
        caption = f"{some.run['model']} on {display_name(dataset)}: ({head or '?'}, {relation}, {tail or '?'})"
        missed = sorted(map(results.label, true - set().union(*predicted.values())))
        queries.append({"table": Table(columns, rows, caption), "missed": missed})
    return {"queries": queries}


def quality(results: Results) -> dict[str, Any]:
    """Tell how long each training loop takes to become good, and with which settings."""
    datasets = []
    parameters = {(x.run["dataset"], x.run["loop"]): x.result["parameters"] for x in results.done("quality")}
    for dataset, quality in results.qualities().items():
        rows = []
        for loop in quality.curves:
            times = [quality.seconds_to(loop, level) for level in LEVELS]
            cells = [_number(x, ".3g", " s") if x < math.inf else Cell("not reached") for x in times]
            settings = ", ".join(
                f"{name}={x:.3g}" if isinstance(x, float) else f"{name}={x}" for name, x in parameters[dataset, loop].items()
            )
            rows.append([Cell(loop), _number(quality.reached(loop), ".3f"), *cells, Cell(settings)])
        columns = ["training loop", "best MRR", *(f"to {level:.0%} of the best" for level in LEVELS), "settings found"]
        caption = f"{quality.settings.model} (d={quality.settings.dim}) on {display_name(dataset)}"
        table = Table(columns, rows, caption)
        datasets.append({"name": display_name(dataset), "figure": f"quality_{dataset}", "table": table})
    return {"datasets": datasets}


def settings_tables(results: Results) -> Iterator[Table]:
    """Make tables of all settings, and of each machine."""
    yield _values("setting", results.storage.settings)
    counts = pd.Series([x.machine for x in results.storage.records.values()]).value_counts()
    for i, machine in enumerate(results.storage.machines):
        yield _values("machine", machine, f"The machine of {counts.get(i, 0)} runs")


def _values(heading: str, values: Mapping[str, Any], caption: str = "") -> Table:
    return Table([heading, "value"], [[Cell(name), Cell(_plain(value))] for name, value in values.items()], caption)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def _format(metric: str, value: float) -> str:
    return f"{value:.1f}" if metric == "MR" else f"{value:.3f}"


def _seconds(value: float) -> str:
    return f"{value:.3g} s" if value < 1000 else f"{value:,.0f} s"


def _number(value: float, form: str, unit: str = "") -> Cell:
    return Cell("") if math.isnan(value) else Cell(f"{value:{form}}{unit}", value)


def _metrics(row: Mapping[str, Any]) -> list[Cell]:
    """Write model, training loop, all metrics, the p-value and the number of seeds."""
    cells = [Cell(row["model"]), Cell(row["loop"])]
    for metric in paper.REPORTED_METRICS:
        deviation, p = row[f"{metric} std"], row.get(f"{metric} p", math.nan)
        text = _format(metric, row[metric])
        text += "" if math.isnan(deviation) else f" ± {_format(metric, deviation)}"
        cells.append(Cell(text + (" *" if p < SIGNIFICANT else ""), row[metric]))
    p = row.get("MRR p", math.nan)
    cells.append(Cell("") if math.isnan(p) else Cell("< 0.0001" if p < 1e-4 else f"{p:.4f}", p))
    return [*cells, Cell(f"{row['seeds']}", row["seeds"])]
