"""What a search of some minutes gains over the defaults.

    python -m benchmarks tuning run --more DIRECTORY --minutes 10

runs ``pykeen-nonsampling tune`` on the graphs of ``defaults``, and writes what it found to a file, one line
per search. Searches that are in the file already are left out. For FB15k-237 and WN18RR, the best configuration is trained
once more on ``allentities``, to test it on all test triples, like the configurations in ``pykeen_nonsampling/experiments``.

    python -m benchmarks tuning report

prints all searches as a table.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import torch
from pykeen.pipeline import pipeline
from pykeen.triples import CoreTriplesFactory

from pykeen_nonsampling.cli import main as cli
from pykeen_nonsampling.cli.curves import MRR

from .defaults import make_graphs
from .results import add_row, file_option, read_rows

#: The graphs whose test triples have entities that do not occur in training, by their names in PyKEEN
INCOMPLETE = {"FB15k-237": "fb15k237", "WN18RR": "wn18rr"}

FILE = file_option("tuning.jsonl")


def write_triples(factory: CoreTriplesFactory, path: Path) -> Path:
    """Write the ids of triples as labels."""
    path.write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in factory.mapped_triples.tolist()))
    return path


def search(name: str, more: Path | None, directory: Path, options: list[str]) -> dict[str, Any]:
    """Search as a user would, and return what was found."""
    dataset = make_graphs(more)[name]()
    splits: dict[str, Any] = dict(training=dataset.training, validation=dataset.validation, testing=dataset.testing)
    arguments = ["tune", "--output", str(directory / "tuning"), *options]
    for split, factory in splits.items():
        arguments += [f"--{split}", str(write_triples(factory, directory / f"{split}.tsv"))]
    cli(arguments, standalone_mode=False)
    best = json.loads((directory / "tuning" / "best.json").read_text())
    metadata = best["metadata"]
    configuration = {name: value for name, value in best["pipeline"].items() if name not in ("dataset_kwargs", *splits)}
    row = dict(
        trials=metadata["trials"],
        best=configuration["model"],
        default=round(metadata["default"]["MRR"], 4),
        validation=round(metadata["validation"]["MRR"], 4),
        test=round(metadata["test"]["MRR"], 4),
    )
    if name in INCOMPLETE:
        everything = dict(dataset=INCOMPLETE[name], **best["pipeline"]["dataset_kwargs"])
        result = pipeline(dataset="allentities", dataset_kwargs=everything, **configuration)
        row["all_test"] = round(float(result.get_metric(MRR)), 4)
    return {**row, **best["pipeline"]["dataset_kwargs"], "configuration": configuration}


@click.group(name="tuning")
def command() -> None:
    """Measure what a search gains."""


@command.command()
@FILE
@click.option(
    "--more", type=click.Path(exists=True, file_okay=False, path_type=Path), help="A directory with more datasets."
)
@click.option("--graph", "names", multiple=True, help="Only these graphs.")
@click.option("--minutes", default=10.0, show_default=True)
@click.option("--model", "models", multiple=True, help="Only these models, instead of those that tune has by default.")
@click.option("--dim", default=200, show_default=True)
@click.option("--epochs", default=100, show_default=True)
def run(
    file: Path,
    more: Path | None,
    names: tuple[str, ...],
    minutes: float,
    models: tuple[str, ...],
    dim: int,
    epochs: int,
) -> None:
    """Search on all graphs."""
    logging.disable(logging.WARNING)
    for name in make_graphs(more):
        threads = torch.get_num_threads()
        key = dict(graph=name, minutes=minutes, models=list(models), dim=dim, epochs=epochs, threads=threads)
        if (names and name not in names) or any(key.items() <= row.items() for row in read_rows(file)):
            continue
        options = [f"--minutes={minutes}", f"--dim={dim}", f"--epochs={epochs}", *(f"--model={model}" for model in models)]
        with TemporaryDirectory() as directory:
            row = {**key, **search(name, more, Path(directory), options)}
        add_row(file, row)


@command.command()
@FILE
def report(file: Path) -> None:
    """Print all searches as a table in Markdown."""
    order = list(make_graphs(Path()))
    metrics = ("defaults, validation", "found, validation", "found, test")
    columns = ("graph", "models", "minutes", "threads", "trials", *metrics, "best")
    click.echo(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for row in sorted(read_rows(file), key=lambda row: (row["minutes"], order.index(row["graph"]))):
        models = ", ".join(row["models"]) or "default"
        gain = row["validation"] / row["default"] - 1
        test = row.get("all_test", row["test"])
        click.echo(
            f"| {row['graph']} | {models} | {row['minutes']:g} | {row['threads']} | {row['trials']} | "
            f"{row['default']:.3f} | {row['validation']:.3f} ({gain:+.1%}) | {test:.3f} | {row['best']} |"
        )
