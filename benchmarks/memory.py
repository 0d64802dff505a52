"""How near the estimates of ``pykeen-nonsampling plan`` are to what is then measured.

    python -m benchmarks memory run

Each configuration has a process of its own, which trains it for some epochs through ``pipeline()``, and then estimates it.
The memory is the peak of the process's resident memory, less what it was before the training, of a process that has trained
something small before. The table has estimates, measurements, and the ratios of both.

    python -m benchmarks memory report

prints it again.
"""

from __future__ import annotations

import json
import logging
import time
import warnings
from pathlib import Path
from typing import Any

import click
from pykeen.datasets import get_dataset
from pykeen.models import model_resolver
from pykeen.pipeline import pipeline
from pykeen.training import training_loop_resolver
from pykeen.triples import CoreTriplesFactory

from pykeen_nonsampling.cli.plan import Graph, make_plan
from pykeen_nonsampling.cli.stopwatch import Stopwatch
from pykeen_nonsampling.defaults import model_defaults

from .peak import in_new_process, reset_peak, resident_bytes
from .results import file_option, read_rows

LARGE = dict(dataset="syntheticgraph", dataset_kwargs=dict(num_entities=200_000, num_relations=100, num_triples=2_000_000))

CONFIGURATIONS: list[dict[str, Any]] = [
    dict(dataset="nations", model="RESCAL", dim=200, loop="nonsamplinglcwa"),
    dict(dataset="nations", model="DistMult", dim=400, loop="nonsampling"),
    dict(dataset="umls", model="ComplEx", dim=400, loop="nonsamplinglcwa"),
    dict(dataset="umls", model="TransE", dim=100, loop="nonsampling"),
    dict(dataset="fb15k237", model="DistMult", dim=200, loop="nonsamplinglcwa"),
    dict(dataset="fb15k237", model="SimplE", dim=100, loop="nonsampling"),
    dict(dataset="fb15k237", model="RESCAL", dim=50, loop="nonsamplinglcwa"),
    dict(**LARGE, model="TransE", dim=50, loop="nonsamplinglcwa"),
    dict(**LARGE, model="RotatE", dim=50, loop="nonsampling"),
    dict(**LARGE, model="ComplEx", dim=200, loop="nonsampling"),
]

#: The number of epochs that are timed, of small graphs and of others
EPOCHS, FEW_EPOCHS = 50, 3


def measure(configuration: dict[str, Any]) -> dict[str, Any]:
    """Train a configuration, then estimate what it takes."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    loop, model = configuration["loop"], configuration["model"]

    def train(data: Any, dim: int, epochs: int) -> float:
        watch, training = Stopwatch(), data.training
        pipeline(
            training=training,
            testing=CoreTriplesFactory(data.testing.mapped_triples[:100], training.num_entities, training.num_relations),
            model=model,
            model_kwargs=dict(embedding_dim=dim),
            training_loop=loop,
            training_kwargs=dict(use_tqdm=False, callbacks=watch),
            epochs=1 + epochs,
            evaluator="factorized",
            evaluation_kwargs=dict(use_tqdm=False),
            random_seed=0,
        )
        return watch.epoch_seconds()

    # what exists once per process, such as libraries and threads, does not count
    train(get_dataset(dataset="nations"), dim=4, epochs=2)
    data = get_dataset(dataset=configuration["dataset"], dataset_kwargs=configuration.get("dataset_kwargs"))
    before = reset_peak()
    seconds = train(data, configuration["dim"], EPOCHS if data.training.num_triples < 20_000 else FEW_EPOCHS)
    memory = resident_bytes("VmHWM") - before
    began = time.perf_counter()
    cls = model_resolver.lookup(model)
    kwargs = {**model_defaults(cls), "embedding_dim": configuration["dim"]}
    plan = make_plan(cls, kwargs, Graph.of(data.training), training_loop_resolver.lookup(loop))  # type: ignore[arg-type]
    estimate = plan.outline.memory()
    return dict(
        **configuration,
        memory=memory,
        estimated_memory=estimate.total,
        parts=vars(estimate),
        seconds=seconds,
        estimated_seconds=plan.seconds,
        source=plan.source,
        estimation_seconds=time.perf_counter() - began,
    )


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print a table in Markdown."""
    click.echo(
        "| graph | model | d | training loop | memory: estimated | measured | ratio | epoch: estimated | measured | ratio |"
    )
    click.echo("|---|---|---|---|---|---|---|---|---|---|")
    for x in rows:
        memory = f"{x['estimated_memory'] / 1e6:,.0f} MB | {x['memory'] / 1e6:,.0f} MB"
        seconds = f"{x['estimated_seconds']:.3g} s | {x['seconds']:.3g} s | {x['estimated_seconds'] / x['seconds']:.2f}"
        click.echo(
            f"| {x['dataset']} | {x['model']} | {x['dim']} | {x['loop']} | {memory} | "
            f"{x['estimated_memory'] / x['memory']:.2f} | {seconds} |"
        )


FILE = file_option("planning.jsonl")


@click.group(name="memory")
def command() -> None:
    """Compare the estimates of plan with what is measured."""


@command.command()
@FILE
@click.option("--only", type=int, multiple=True, help="The positions of some configurations, to leave out the others.")
def run(file: Path, only: tuple[int, ...]) -> None:
    """Train all configurations, and write estimates and measurements."""
    rows = []
    for configuration in [CONFIGURATIONS[i] for i in only] or CONFIGURATIONS:
        rows.append(in_new_process(measure, configuration))
        print_table(rows[-1:])
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    click.echo()
    print_table(rows)


@command.command()
@FILE
def report(file: Path) -> None:
    """Print all results as a table in Markdown."""
    print_table(read_rows(file))
