"""How training scales with the number of processes: time, memory, and what they send each other."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click
import pandas as pd
import torch
from pykeen.datasets import Dataset
from pykeen.models import model_resolver
from pykeen.triples import CoreTriplesFactory
from torch import distributed
from tqdm.auto import tqdm
from typing_extensions import override

from pykeen_nonsampling.cli.console import silence
from pykeen_nonsampling.cli.files import check_free, check_writable, force_option
from pykeen_nonsampling.cli.stopwatch import Stopwatch
from pykeen_nonsampling.datasets import SyntheticGraph
from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.distributed.group import Group, GroupError
from pykeen_nonsampling.distributed.shards import Sharding, ShardingError, divide
from pykeen_nonsampling.losses import NonSamplingLoss
from pykeen_nonsampling.memory.outline import format_bytes
from pykeen_nonsampling.memory.room import check_divided
from pykeen_nonsampling.memory.task import Counts
from pykeen_nonsampling.training import NonSamplingLCWATrainingLoop

from .machine import machine
from .options import check_json, find_models, graph_options, json_option, load_graph, model_options, output_option
from .peak import reset_peak, resident_bytes
from .subject import EPOCHS, OPTIMIZER

#: How long a process waits for another one
TIMEOUT = timedelta(minutes=10)

#: What takes seconds to import
PRELOADED = [__name__, "pykeen_nonsampling.sweeps.numba.sweep", "torch._dynamo"]


class _Ranks(click.ParamType):
    """Numbers of processes, separated by commas. One process is among them, to compare with."""

    name = "numbers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Sequence[int]:
        if not isinstance(value, str):
            return tuple(value)
        parts = [part.strip() for part in value.split(",")]
        if not all(part.isdecimal() and int(part) > 0 for part in parts):
            self.fail(f"{value!r} are not numbers of processes. Write numbers > 0, separated by commas: 1,2,4.", param, ctx)
        return tuple(sorted({1, *map(int, parts)}))


class Trial(NamedTuple):
    """One training: of which model, in how many processes."""

    model: str
    dim: int
    processes: int
    #: whether the entities are divided among the processes
    sharded: bool

    @property
    def way(self) -> str:
        """How the processes share the work."""
        return "sharded" if self.sharded else "data parallel" if self.processes > 1 else "alone"


class Measurement(NamedTuple):
    """What one process needs."""

    #: the median time of an epoch
    seconds: float
    #: the bytes that it sends per epoch
    sent_bytes: int
    #: the peak of its resident memory, less what it was before the training
    peak_bytes: int


def check_ranks(ranks: Sequence[int], num_entities: int) -> None:
    """Refuse numbers of processes that cannot be measured.

    :param ranks: the numbers
    :param num_entities: the number of entities to divide
    :raises UsageError: if there is no distributed training
    :raises BadParameter: if there are too few entities
    """
    if not distributed.is_available():
        raise click.UsageError("Several processes need a PyTorch with torch.distributed, which this one was built without.")
    try:
        Sharding(num_entities, Group(size=max(ranks)))
    except ShardingError as error:
        raise click.BadParameter(str(error), param_hint="RANKS") from error


@dataclass
class Scaling:
    """Measures trainings in several processes on one dataset, and reports them."""

    name: str
    dataset: Dataset
    models: Sequence[str]
    dims: Sequence[int]
    #: the numbers of processes
    ranks: Sequence[int]
    repeats: int
    #: of each process; more than one only if the user has set their number
    threads: int = field(default_factory=lambda: torch.get_num_threads() if "OMP_NUM_THREADS" in os.environ else 1)
    samples: dict[Trial, list[Measurement]] = field(default_factory=dict)
    #: why the entities of some models are not divided
    problems: list[str] = field(default_factory=list)

    def run(self) -> None:
        """Measure all trainings in turns, with a progress bar."""
        trials = [trial for model in self.models for dim in self.dims for trial in self._trials(model, dim)]
        with tqdm(total=len(trials) * self.repeats, unit="training", leave=False) as bar:
            for _ in range(self.repeats):
                for trial in trials:
                    bar.set_description(f"{trial.model}, d={trial.dim}, {trial.processes} × {trial.way}")
                    self.samples.setdefault(trial, []).append(self._measure(trial))
                    bar.update()

    def _trials(self, model: str, dim: int) -> Sequence[Trial]:
        """List the trainings of a model, the one that others are compared with first."""
        ways = [False, True]
        try:
            counts = Counts.of(self.dataset.training)
            check_divided(model_resolver.lookup(model), _model_kwargs(model, dim), counts, max(self.ranks))
        except ShardingError as error:
            ways = [False]
            self.problems.append(f"{model} with {dim} dimensions is measured data parallel only. {error}")
        trials = [Trial(model, dim, n, sharded) for n in self.ranks if n > 1 for sharded in ways]
        return [Trial(model, dim, 1, False), *trials]

    def _measure(self, trial: Trial) -> Measurement:
        """Start new processes, and train in them."""
        # the fastest way to a new process; but one that was forked can only have one thread
        is_safe = self.threads == 1 and sys.platform == "linux"
        context: Any = multiprocessing.get_context("forkserver" if is_safe else "spawn")
        if is_safe:
            context.set_forkserver_preload(PRELOADED)
        factory = self.dataset.training
        triples, sizes = factory.mapped_triples.numpy(), (factory.num_entities, factory.num_relations)
        with (
            tempfile.TemporaryDirectory() as directory,
            ProcessPoolExecutor(max_workers=trial.processes, mp_context=context) as pool,
        ):
            store = (Path(directory) / "store").as_uri()
            futures = [
                # if entities are divided, the first one tells the others of their triples
                pool.submit(_train, trial, rank, store, None if trial.sharded and rank else triples, *sizes, self.threads)
                for rank in range(trial.processes)
            ]
            wait(futures)
            errors = [error for future in futures if (error := future.exception()) is not None]
            # the one that says why, if others have only waited for it
            for error in sorted(errors, key=lambda error: isinstance(error, GroupError)):
                raise error
            # the slowest and largest one counts
            return Measurement(*map(max, zip(*(future.result() for future in futures), strict=True)))

    def results(self) -> list[dict[str, Any]]:
        """Return one row per training."""
        rows: list[dict[str, Any]] = []
        for trial, samples in self.samples.items():
            seconds, sent, peak = map(statistics.median, zip(*samples, strict=True))
            alone = statistics.median(x.seconds for x in self.samples[Trial(trial.model, trial.dim, 1, False)])
            rows.append(
                {
                    "model": trial.model,
                    "dim": trial.dim,
                    "processes": trial.processes,
                    "way": trial.way,
                    "epoch_seconds": seconds,
                    "speedup": alone / seconds,
                    "efficiency": alone / seconds / trial.processes,
                    "sent_bytes": int(sent),
                    "peak_bytes": int(peak),
                }
            )
        return rows

    def format_table(self) -> str:
        """Return the results as readable text."""
        table = [
            {
                "model": f"{row['model']}, d={row['dim']}",
                "processes": row["processes"],
                "way": row["way"],
                "epoch": f"{row['epoch_seconds']:.4g} s",
                "speed-up": f"{row['speedup']:.2f}×",
                "efficiency": f"{row['efficiency']:.0%}",
                "sent per epoch": format_bytes(row["sent_bytes"]),
                "peak memory": format_bytes(row["peak_bytes"]),
            }
            for row in self.results()
        ]
        return str(pd.DataFrame(table).to_string(index=False))

    def as_dict(self) -> dict[str, Any]:
        """Return everything: the machine, the settings, the dataset, all results and what they are medians of."""
        return {
            "machine": machine(),
            "settings": {
                "models": self.models,
                "dims": self.dims,
                "ranks": self.ranks,
                "repeats": self.repeats,
                "threads": self.threads,
                "training_loop": "nonsamplinglcwa",
                "optimizer": "Adam(fused=True)",
                "epochs_a_repeat": EPOCHS,
            },
            "dataset": {
                "name": self.name,
                "entities": self.dataset.num_entities,
                "relations": self.dataset.num_relations,
                "training": self.dataset.training.num_triples,
            },
            "results": self.results(),
            "samples": [
                {**trial._asdict(), "measured": [x._asdict() for x in samples]} for trial, samples in self.samples.items()
            ],
            "problems": self.problems,
        }

    def write(self, path: Path) -> None:
        """Write everything as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.as_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _model_kwargs(model: str, dim: int) -> dict[str, Any]:
    """Return the keyword arguments of a model: those of a pipeline, whose entities can be divided."""
    return {**model_defaults(model_resolver.lookup(model)), "embedding_dim": dim}


class _TimedTrainingLoop(NonSamplingLCWATrainingLoop):
    """Times its epochs, without a callback, which divided entities do not go together with."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.watch = Stopwatch()

    @override
    def _train_epoch(self, **kwargs: Any) -> float:  # type: ignore[override]
        loss = super()._train_epoch(**kwargs)
        self.watch.post_epoch(0, loss)
        return loss


def _train_epochs(trial: Trial, factory: CoreTriplesFactory, epochs: int) -> _TimedTrainingLoop:
    model: Any = model_resolver.make(
        trial.model,
        _model_kwargs(trial.model, trial.dim),
        triples_factory=factory,
        loss=NonSamplingLoss(),
        random_seed=0,
    )
    loop = _TimedTrainingLoop(model=model, triples_factory=factory, **OPTIMIZER)
    loop.train(factory, num_epochs=1 + epochs, use_tqdm=False)
    return loop


def _train(
    trial: Trial, rank: int, store: str, triples: Any, num_entities: int, num_relations: int, threads: int
) -> Measurement:
    """Train in one of several processes, and measure it.

    :param trial: what is trained
    :param rank: the number of this process
    :param store: where the processes find each other
    :param triples: shape: (n, 3), the triples, as an array; none, if another process has them
    :param num_entities: the number of entities
    :param num_relations: the number of relations
    :param threads: the number of threads
    :return: what this process needs
    """
    logging.disable(logging.WARNING)
    torch.set_num_threads(threads)
    if trial.processes > 1:
        # before anything that could fail: the others notice at once if this one leaves
        distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=trial.processes, timeout=TIMEOUT)
    try:
        # what exists once per process, such as libraries and threads, does not count
        _train_epochs(trial, SyntheticGraph(100, 4, 500).training, epochs=1)
        factory = None if triples is None else CoreTriplesFactory(torch.as_tensor(triples), num_entities, num_relations)
        before = reset_peak()
        if trial.sharded or factory is None:
            factory = divide(factory, Group.current())
        loop = _train_epochs(trial, factory, EPOCHS)
        return Measurement(loop.watch.epoch_seconds(), loop.num_bytes, max(0, resident_bytes("VmHWM") - before))
    finally:
        if trial.processes > 1:
            distributed.destroy_process_group()


@click.command(name="ranks")
@click.argument("ranks", type=_Ranks(), metavar="RANKS")
@graph_options
@model_options()
@json_option("scaling.json")
@output_option("all numbers")
@force_option
def command(
    ranks: Sequence[int],
    dataset: str,
    entities: int | None,
    relations: int | None,
    triples: int | None,
    models: Sequence[str],
    dims: Sequence[int],
    repeats: int,
    json_path: Path | None,
    output: Path,
    force: bool,
) -> None:
    """Measure what several processes gain.

    RANKS are numbers of processes on this machine, e.g. 1,2,4. Trains data parallel and with divided entities, and compares
    time, memory and traffic with those of one process. Each process has one thread, unless OMP_NUM_THREADS is set.
    """
    json_path = json_path or output / "scaling.json"
    check_json(json_path, output)
    silence()
    models = find_models(models)
    check_free([json_path], force)
    graph = load_graph(dataset, entities, relations, triples, models, dims)
    check_ranks(ranks, graph.dataset.num_entities)
    check_writable(json_path.parent, "--json")
    scaling, training = Scaling(graph.name, graph.dataset, models, dims, ranks, repeats), graph.dataset.training
    click.echo(
        f"{', '.join(models)} on {graph.name}, nonsamplinglcwa: {training.num_entities:,} entities, "
        f"{training.num_relations:,} relations, {training.num_triples:,} training triples; processes with "
        f"{scaling.threads} thread{'s' if scaling.threads > 1 else ''} each, on {os.cpu_count()} cores."
    )
    try:
        scaling.run()
    except BrokenProcessPool as error:
        raise click.ClickException(
            "A process has died, perhaps for want of memory. Use fewer processes or dimensions; pykeen-nonsampling plan "
            "--ranks estimates what each needs."
        ) from error
    except (GroupError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    scaling.write(json_path)
    click.echo(f"\n{scaling.format_table()}\n")
    for problem in scaling.problems:
        click.echo(problem)
    click.echo(f"All numbers: {json_path}")
