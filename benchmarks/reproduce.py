"""The experiments of [li2021]_ on PyKEEN, and a report about them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import torch
from pykeen.datasets import dataset_resolver
from pykeen.models import model_resolver

from pykeen_nonsampling.cli.console import POSITIVE, check_matplotlib, lookup, silence
from pykeen_nonsampling.cli.files import check_free, check_writable

from .machine import machine
from .reproduction.examples import choose_queries, read_labels
from .reproduction.plan import PRESETS, REPORT_PARTS, Run, plan_part
from .reproduction.progress import estimate, format_time
from .reproduction.report import list_files, write_report
from .reproduction.results import Results
from .reproduction.storage import RUNS, SETTINGS, OtherSettingsError, Storage
from .reproduction.training import do, load_graph, warm_up
from .subject import check_model


@click.command(name="reproduce")
@click.option(
    "--part",
    "parts",
    type=click.Choice(list(REPORT_PARTS)),
    multiple=True,
    show_default="all",
    help="A part of the report to run; may be repeated.",
)
@click.option(
    "--preset", type=click.Choice(list(PRESETS)), default="cpu", show_default=True, help="How much is run, and for how long."
)
@click.option("--quick", is_flag=True, help="The same as --preset quick: a small version on an embedded dataset.")
@click.option("--dataset", "datasets", multiple=True, show_default="of the preset", help="A dataset; may be repeated.")
@click.option("--model", "models", multiple=True, show_default="of the preset", help="A model; may be repeated.")
@click.option("--seeds", type=click.IntRange(min=1), show_default="of the preset", help="The number of random seeds.")
@click.option("--dim", type=click.IntRange(min=1), show_default="of the preset", help="The embedding dimension.")
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    show_default="of the preset",
    help="The number of epochs with the paper's settings. The learning rate is 0.2 divided by it.",
)
@click.option(
    "--budget", type=POSITIVE, show_default="of the preset", help="Minutes of training after which a run with sampling ends."
)
@click.option("--minutes", type=POSITIVE, help="Minutes after which no further run is started.")
@click.option(
    "--query",
    "queries",
    type=(str, str, str),
    multiple=True,
    metavar="HEAD RELATION TAIL",
    help="What to predict in the part with examples, with ? for the unknown head or tail; may be repeated.",
)
@click.option(
    "--labels",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="File with readable names: an entity as in the triples, a tab, and its name, on each line; may be repeated.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reproduction"),
    show_default=True,
    help="The directory for runs and report.",
)
@click.option("--force", is_flag=True, help="Delete runs with other settings, and overwrite files of other origin.")
def command(
    parts: Sequence[str],
    preset: str,
    quick: bool,
    datasets: Sequence[str],
    models: Sequence[str],
    seeds: int | None,
    dim: int | None,
    epochs: int | None,
    budget: float | None,
    minutes: float | None,
    queries: Sequence[tuple[str, str, str]],
    labels: Sequence[Path],
    output: Path,
    force: bool,
) -> None:
    """Run the experiments of Li et al. (2021) on PyKEEN, and write a report.

    All parts are run, or those given by --part. Runs that are done are kept in the output directory: the same command goes
    on after an interruption, and other parts can be added later.
    """
    check_matplotlib()
    silence()
    name = "quick" if quick else preset
    changes = dict(datasets=_datasets(datasets), models=_models(models), seeds=seeds, dim=dim, epochs=epochs, budget=budget)
    chosen = replace(PRESETS[name], **{key: value for key, value in changes.items() if value})  # type: ignore[arg-type]
    check_writable(output, "--output")
    storage = _open(output, {"preset": name, **asdict(chosen)}, force)
    try:
        for model in chosen.models:
            check_model(model, chosen.dim)
        graphs = {dataset: load_graph(dataset) for dataset in chosen.datasets}
        names = read_labels(labels)
        asked = choose_queries(graphs, queries, names, storage.records.values())
        results = Results(storage, asked, names)
        left = _run(results, parts or list(REPORT_PARTS), 60 * minutes if minutes else None)
    except (NotImplementedError, OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if not storage.records:
        raise click.ClickException("No run is finished, so there is nothing to report. Run the same command again.")
    write_report(results, output)
    click.echo(f"Report: {output / 'report.html'} and {output / 'report.md'}, with tables and figures beside them.")
    if left:
        click.echo(f"{left} runs are left. Run the same command again to go on.")


def _datasets(names: Sequence[str]) -> tuple[str, ...]:
    """Check the names of datasets, and normalize them."""
    for name in names:
        lookup(dataset_resolver, name, "dataset")
    return tuple(dict.fromkeys(map(dataset_resolver.normalize, names)))


def _models(names: Sequence[str]) -> tuple[str, ...]:
    """Check the names of models, and normalize them."""
    return tuple(dict.fromkeys(lookup(model_resolver, name, "model").__name__ for name in names))


def _open(output: Path, settings: Mapping[str, Any], force: bool) -> Storage:
    """Go on with the runs in a directory, or begin."""
    try:
        if (output / SETTINGS).exists():
            return Storage.open(output, settings)
    except OtherSettingsError as error:
        if not force:
            raise click.UsageError(str(error)) from error
    except ValueError as error:
        raise click.ClickException(str(error)) from error
    # what is there is from other runs, or from somebody else
    paths = [output / name for name in (SETTINGS, RUNS, *list_files(settings["datasets"]))]
    check_free(paths, force)
    for path in paths:
        path.unlink(missing_ok=True)
    return Storage.open(output, settings)


def _run(results: Results, parts: Sequence[str], seconds: float | None) -> int:
    """Do what has not been done, and return how many runs are left."""
    storage = results.storage
    runs = {
        run.key: run for part in REPORT_PARTS if part in parts for run in plan_part(part, results.preset, results.queries)
    }
    waiting = [run for key, run in runs.items() if key not in storage.records]
    done = len(runs) - len(waiting)
    click.echo(f"{len(runs)} runs for {', '.join(parts)}" + (f", {done} of them done before." if done else "."))
    here, start, warm = _here(), time.perf_counter(), set()
    try:
        while waiting:
            if seconds is not None and time.perf_counter() - start >= seconds:
                click.echo(f"The {seconds / 60:g} minutes are over.")
                break
            run = waiting[0]
            if (run.loop, run.model) not in warm:
                warm_up(run)
                warm.add((run.loop, run.model))
            begin = time.perf_counter()
            result = do(run)
            storage.add(run, result, time.perf_counter() - begin, here)
            waiting.pop(0)
            left = estimate(waiting, storage.records.values()) or 0.0
            click.echo(f"[{len(runs) - len(waiting)}/{len(runs)}] {_tell(run, result)}, about {format_time(left)} left")
    except KeyboardInterrupt:
        click.echo("Interrupted: what is finished is kept.")
    return len(waiting)


def _here() -> dict[str, Any]:
    """Describe this package, the machine and the software."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {"pykeen-nonsampling": version("pykeen-nonsampling"), **machine(), "gpu": gpu}


def _tell(run: Run, result: Mapping[str, Any]) -> str:
    """Say what came out of a run."""
    if "failure" in result:
        return f"{run.describe()}: failed ({result['failure']})"
    if "curves" in result:
        highest = max(point["MRR"] for curve in result["curves"] for point in curve)
        return f"{run.describe()}: MRR {highest:.3f}"
    ended = f", ended by its budget after {result['epochs']:.3g} epochs" if result["stopped"] else ""
    return f"{run.describe()}: MRR {result['MRR']:.3f} after {result['seconds']:.3g} s{ended}"
