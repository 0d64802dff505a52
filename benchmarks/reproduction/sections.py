"""The parts of a report: which table and picture stands where, and what is said about it."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import pandas as pd

from pykeen_nonsampling.cli.quality import LEVELS

from . import paper
from .content import Block, Cell, Command, Figure, Table, Text
from .examples import UNKNOWN
from .plan import DEFAULTS, LOOPS, PARTS, PRESETS, SAMPLED, display_name, find_configuration
from .results import Results
from .statistics import METRICS, speed, spread, summarize

#: The options that change a preset, by its field
OPTIONS: Mapping[str, str] = {
    "datasets": "--dataset",
    "models": "--model",
    "seeds": "--seeds",
    "dim": "--dim",
    "epochs": "--epochs",
    "budget": "--budget",
}

#: The level of significance in the paper
SIGNIFICANT = 0.01


def write_command(settings: Mapping[str, Any], *more: str) -> str:
    """Write the command for settings, with the options in which they differ from their preset."""
    words = ["pykeen-nonsampling reproduce", f"--preset {settings['preset']}"]
    preset = PRESETS[settings["preset"]]
    for name, option in OPTIONS.items():
        value, usual = settings[name], getattr(preset, name)
        if isinstance(value, list):
            words += [f"{option} {x}" for x in value] if value != list(usual) else []
        elif value != usual:
            words.append(f"{option} {value:g}")
    return " ".join([*words, *more])


def write_queries(results: Results) -> list[str]:
    """Write the options for the queries of the examples."""
    queries = [query for some in results.queries.values() for query in some]
    return [f"--query {' '.join(shlex.quote(UNKNOWN if x is None else x) for x in query)}" for query in queries]


def overview(results: Results) -> Iterable[Block]:
    """Say what was run, and in what it differs from the paper."""
    rows = []
    for part, meaning in PARTS.items():
        runs = results.planned(part)
        done = results.done(part)
        stopped = sum(bool(x.result.get("stopped")) for x in done)
        failed = sum("failure" in x.result for x in done)
        numbers = len(runs), len(done), stopped, failed, sum(x.took for x in done) / 60
        cells = [Cell(f"{x:.1f}" if isinstance(x, float) else f"{x}", x) for x in numbers]
        rows.append([Cell(part), *cells, Cell(meaning)])
    yield Table(["part", "planned", "done", "ended by budget", "failed", "minutes", "shows"], rows)
    yield Text("`stability` and `time` include the runs of `accuracy`, which are done once. Minutes include evaluation.")
    budget, settings = results.preset.budget, results.preset
    if budget is not None:
        yield Text(
            f"Runs with sampling end after {budget:g} minutes of training each, unless they have done their "
            f"{settings.epochs} epochs before. Those that ended so are marked with †, and the epochs that they did are "
            "given. Their results say what sampling reaches in that time, not what it would reach in the end."
        )
    if settings.epochs != paper.EPOCHS:
        yield Text(
            f"The paper trains for {paper.EPOCHS:,} epochs with a learning rate of {paper.LEARNING_RATE:g}. Here, it is "
            f"{settings.epochs} epochs with a learning rate of {settings.learning_rate:g}, so that all steps together "
            "can move a parameter as far. This is the same for all training loops."
        )
    failures = {x.result["failure"] for x in results.storage.records.values() if "failure" in x.result}
    for failure in sorted(failures):
        yield Text(f"A run failed: {failure}")


def accuracy(results: Results) -> Iterable[Block]:
    """Show table 3 of the paper."""
    yield Text(
        f"d={results.preset.dim}, Adam, {results.preset.epochs} epochs, c⁺=1 and c⁻={paper.NEGATIVE_WEIGHT:g} without "
        f"sampling, {paper.NUM_NEGATIVES} negatives in batches of {paper.BATCH_SIZE:,} triples with it. There is neither "
        "regularization nor a learning rate schedule: the paper chose both by a search, and does not say which. The "
        "loss with sampling is softplus, and for TransE the margin ranking loss."
    )
    yield Text(
        "Mean ± standard deviation over seeds. * marks a difference from `slcwa` of the same seeds, for better or worse, "
        f"with p < {SIGNIFICANT:g} in a paired t-test; p is that of the MRR."
    )
    table = summarize(results.frame("accuracy"))
    for dataset, rows in table.groupby("dataset", sort=False):
        caption = f"{display_name(str(dataset))}, {int(rows['ranked'].iloc[0]):,} test triples"
        yield Table(_columns("epochs"), list(_accuracy_rows(str(dataset), rows)), caption)
    yield Figure("accuracy", "MRR of each model with each training loop, and in the paper")


def _columns(*more: str) -> list[str]:
    return ["model", "training loop", *METRICS, "p", "seeds", *more]


def _accuracy_rows(dataset: str, rows: pd.DataFrame) -> Iterable[Sequence[Cell]]:
    for row in rows.to_dict("records"):
        epochs = f"{row['epochs']:.3g} of {row['planned_epochs']} †" if row["stopped"] else f"{row['epochs']:.0f}"
        yield [*_metrics(row), Cell(epochs, row["epochs"])]
        reported = paper.ACCURACY.get(dataset, {}).get(row["model"])
        if reported is not None and row["loop"] != "nonsamplinglcwa":
            accuracy, name = reported[row["loop"] != SAMPLED], "sampling" if row["loop"] == SAMPLED else "without"
            cells = [Cell(_format(metric, x), x, muted=True) for metric, x in zip(METRICS, accuracy, strict=True)]
            yield [
                Cell(row["model"], muted=True),
                Cell(f"{paper.CITATION}, {name}", muted=True),
                *cells,
                Cell(""),
                Cell(str(paper.SEEDS), paper.SEEDS, muted=True),
                Cell(str(paper.EPOCHS), paper.EPOCHS, muted=True),
            ]


def shipped(results: Results) -> Iterable[Block]:
    """Show the same for the configurations of this package."""
    limit = results.preset.shipped_minutes
    text = (
        "The configurations in `pykeen_nonsampling/experiments`, which were chosen on validation triples, and for graphs "
        "that have none, the defaults of this package. `slcwa` is repeated from the table above. It has the paper’s "
        "settings, so p compares settings as well as training loops."
    )
    if limit is not None:
        text += (
            f" Configurations whose recorded training took more than {limit:g} minutes are not run. What was recorded "
            "with them stands in their place, and is marked."
        )
    yield Text(text)
    table = summarize(results.shipped())
    for dataset in results.preset.datasets:
        rows: list[Sequence[Cell]] = []
        for model in results.preset.models:
            for loop in LOOPS:
                rows += _shipped_row(table, dataset, model, loop)
        yield Table(_columns("d", "training", "settings"), rows, display_name(dataset))


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
    recorded = {"MRR": "mrr", "MR": "mean_rank", "Hits@10": "hits_at_10", "Hits@3": "hits_at_3", "Hits@1": "hits_at_1"}
    means = {metric: fmean(results[name]) for metric, name in recorded.items()}
    dim, seconds_ = found[1]["pipeline"]["model_kwargs"]["embedding_dim"], fmean(results["training_seconds"])
    return [
        [
            Cell(model, muted=True),
            Cell(loop, muted=True),
            *(Cell(_format(metric, means[metric]), means[metric], muted=True) for metric in METRICS),
            Cell(""),
            Cell(f"{len(results['seeds'])}", len(results["seeds"]), muted=True),
            Cell(f"{dim}", dim, muted=True),
            Cell(_seconds(seconds_), seconds_, muted=True),
            Cell(f"recorded: {found[0]}", muted=True),
        ]
    ]


def stability(results: Results) -> Iterable[Block]:
    """Show the spread over seeds."""
    table = spread(results.frame("accuracy"))
    wide = table.pivot(index=["dataset", "model"], columns="loop", values="std").reindex(columns=LOOPS)
    yield Text(
        "Sampling adds chance to training, which is the first argument of the paper against it. All training loops "
        "start from random vectors, so seeds differ without sampling, too."
    )
    compared = wide.dropna(subset=list(LOOPS[:2]))
    if len(compared):
        larger = int((compared[SAMPLED] > compared["nonsampling"]).sum())
        yield Text(
            f"The standard deviation of the MRR over seeds is larger with `slcwa` than with `nonsampling` in {larger} of "
            f"{len(compared)} cases."
        )
    if table["stopped"].any():
        yield Text(
            "Where `slcwa` was ended by its budget (†), the spread is that of models that are not trained to the end."
        )
    for dataset, rows in table.groupby("dataset", sort=False):
        yield _spread_table(rows, display_name(str(dataset)))
    yield Figure("stability", "Difference of the MRR of each seed from the mean over seeds")
    frame = results.frame("stability")
    same = frame[frame["start"].notna()]
    if len(same):
        yield Text(
            "To see what sampling alone does, the following runs start from the same vectors: seeds differ in the sampled "
            "negatives and the order of triples only. Without sampling, there is no chance left."
        )
        for dataset, rows in spread(same).groupby("dataset", sort=False):
            yield _spread_table(rows, f"{display_name(str(dataset))}, from the same vectors")


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


def time(results: Results) -> Iterable[Block]:
    """Show table 5 of the paper."""
    yield Text(
        "Seconds of training per epoch, without evaluation, medians over seeds. The speed-up is the time of an epoch of "
        "`slcwa` divided by that of the other loop, as in the paper, where all train for the same number of epochs. The "
        "paper’s times are those of a GPU. Epochs are those that the time of `slcwa` is measured on."
    )
    yield Text(
        "An epoch with sampling has a step of the optimizer for each batch, and one without has a single step. What each "
        "loop reaches in the same time is shown in the last part."
    )
    table = speed(results.frame("accuracy"))
    for dataset, rows in table.groupby("dataset", sort=False):
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
        yield Table(columns, cells, display_name(str(dataset)))
    yield Figure("time", "How many times as long an epoch with sampling takes, here and in the paper")


def sweep(results: Results, part: str) -> Iterable[Block]:
    """Show figure 2 or 3 of the paper."""
    given = paper.SWEEPS[part]
    column, what = given.column, f"the {given.name} {given.symbol}"
    dashed = " Dashed lines are the paper’s." if given.curves.keys() & set(results.preset.datasets) else ""
    yield Text(f"`nonsampling` with the paper’s settings, but for {what}. One seed.{dashed}")
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
        yield Table(["model", "metric", *(f"{given.symbol}={x:g}" for x in values)], cells, display_name(str(dataset)))
    yield Figure(part, f"MRR and Hits@10 over {what}, here and in the paper")


def examples(results: Results) -> Iterable[Block]:
    """Show table 4 of the paper."""
    yield Text(
        "The best answers to a query that are not in the training triples, with the paper’s settings and one seed. True "
        "answers, in validation or test triples, are bold. Those that the model trained with sampling and one trained "
        "without have in common are gray."
    )
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
        yield Table(columns, rows, caption)
        missed = sorted(map(results.label, true - set().union(*predicted.values())))
        if missed:
            shown = ", ".join(missed[:10]) + (f" and {len(missed) - 10} more" if len(missed) > 10 else "")
            yield Text(f"True, but not among the best {len(rows)} of any of them: {shown}.")


def quality(results: Results) -> Iterable[Block]:
    """Show the MRR against seconds."""
    preset = results.preset
    yield Text(
        f"MRR on validation triples against seconds of training, without evaluation. Each training loop first has "
        f"{preset.search_seconds:g} s to try {preset.trials} settings of its own, and then trains for "
        f"{preset.quality_seconds:g} s with the best of them. The paper’s settings play no part in this. "
        "`pykeen-nonsampling benchmark --quality` compares PyKEEN’s `lcwa`, too."
    )
    parameters = {(x.run["dataset"], x.run["loop"]): x.result["parameters"] for x in results.done("quality")}
    for dataset, quality in results.qualities().items():
        yield Figure(f"quality_{dataset}", f"MRR against seconds of training on {display_name(dataset)}")
        rows = []
        for loop in quality.curves:
            times = [quality.seconds_to(loop, level) for level in LEVELS]
            cells = [_number(x, ".3g", " s") if x < math.inf else Cell("not reached") for x in times]
            settings = ", ".join(
                f"{name}={x:.3g}" if isinstance(x, float) else f"{name}={x}" for name, x in parameters[dataset, loop].items()
            )
            rows.append([Cell(loop), _number(quality.reached(loop), ".3f"), *cells, Cell(settings)])
        columns = ["training loop", "best MRR", *(f"to {level:.0%} of the best" for level in LEVELS), "settings found"]
        yield Table(columns, rows, f"{quality.settings.model} (d={quality.settings.dim}) on {display_name(dataset)}")


def settings(results: Results) -> Iterable[Block]:
    """Show settings, versions, hardware and the command."""
    settings = results.storage.settings
    yield Text("All parts, in one command, which goes on where it was interrupted:")
    yield Command(write_command(settings))
    rows = [[Cell(name), Cell(_plain(value))] for name, value in settings.items()]
    yield Table(["setting", "value"], rows)
    counts = pd.Series([x.machine for x in results.storage.records.values()]).value_counts()
    for i, machine in enumerate(results.storage.machines):
        rows = [[Cell(name), Cell(_plain(value))] for name, value in machine.items()]
        yield Table(["machine", "value"], rows, f"The machine of {counts.get(i, 0)} runs")


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
    for metric in METRICS:
        deviation, p = row[f"{metric} std"], row.get(f"{metric} p", math.nan)
        text = _format(metric, row[metric])
        text += "" if math.isnan(deviation) else f" ± {_format(metric, deviation)}"
        cells.append(Cell(text + (" *" if p < SIGNIFICANT else ""), row[metric]))
    p = row.get("MRR p", math.nan)
    cells.append(Cell("") if math.isnan(p) else Cell("< 0.0001" if p < 1e-4 else f"{p:.4f}", p))
    return [*cells, Cell(f"{row['seeds']}", row["seeds"])]
