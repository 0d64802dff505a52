"""How much memory each of several processes needs if entities are divided among them, and how long an epoch takes.

    torchrun --standalone --nproc-per-node 4 -m benchmarks shards run --entities 1000000 --triples 5000000

trains on a random graph, which the first process draws and divides, and appends a line to a file: for each process, the peak
of its resident memory during training, less what it had before it got its triples, beside the estimate of
``pykeen-nonsampling plan``.

    python -m benchmarks shards report

prints all lines as a table, and

    python -m benchmarks shards project

a table of what large graphs would take, computed from counts of bytes and operations.
"""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import click
import torch
from pykeen.models import model_resolver
from pykeen.training import training_loop_resolver
from pykeen.triples import CoreTriplesFactory

from pykeen_nonsampling.defaults import model_defaults
from pykeen_nonsampling.distributed.group import Group, join
from pykeen_nonsampling.distributed.shards import divide
from pykeen_nonsampling.memory.dry_run import outline as outline_model
from pykeen_nonsampling.memory.task import Counts
from pykeen_nonsampling.memory.traffic import estimate_traffic

from .peak import reset_peak, resident_bytes
from .results import add_row, file_option, read_rows


def draw(entities: int, relations: int, triples: int) -> CoreTriplesFactory:
    """Draw a graph whose entities occur with very different frequencies."""
    generator = torch.Generator().manual_seed(0)
    # a random order, so that the frequent ones are anywhere
    order = torch.randperm(entities, generator=generator)
    columns = []
    for high in (entities, relations, entities):
        ids = (high * torch.rand(triples, generator=generator).square_()).long().clamp_(max=high - 1)
        columns.append(ids if high == relations else order[ids])
    return CoreTriplesFactory(torch.stack(columns, dim=-1), entities, relations)


def measure(group: Group, model: str, loop: str, dim: int, epochs: int, sizes: tuple[int, int, int]) -> dict[str, Any]:
    """Train for some epochs, and return what it took in this process."""
    before = resident_bytes("VmRSS")
    began = time.perf_counter()
    shard = divide(draw(*sizes) if group.is_first else None, group)
    divided = time.perf_counter() - began
    reading = resident_bytes("VmHWM") - before
    reset_peak()
    cls: Any = model_resolver.lookup(model)
    loop_cls: Any = training_loop_resolver.lookup(loop)
    kwargs = {**model_defaults(cls), "embedding_dim": dim}
    made = cls(triples_factory=shard, random_seed=0, **kwargs)
    trained = loop_cls(model=made, triples_factory=shard, optimizer="Adam")
    began = time.perf_counter()
    trained.train(shard, num_epochs=1, use_tqdm=False)
    first = time.perf_counter() - began
    began = time.perf_counter()
    trained.train(shard, num_epochs=1 + epochs, use_tqdm=False, continue_training=True)
    rest = time.perf_counter() - began
    memory = resident_bytes("VmHWM") - before
    outline = outline_model(cls, kwargs, shard, partial(loop_cls.plan_task, None))
    triples = shard.mapped_triples.numel() * 8 + shard.by_tail.numel() * 8
    return dict(
        memory=memory,
        estimated_memory=outline.memory().training + triples,
        reading=reading,
        bytes=trained.num_bytes,
        divided=divided,
        first=first,
        seconds=rest / epochs,
    )


def print_table(rows: list[dict[str, Any]]) -> None:
    """Print a table in Markdown."""
    click.echo(
        "| entities | triples | model | training loop | processes | memory of each | estimate | sent per epoch | epoch |"
    )
    click.echo("|---|---|---|---|---|---|---|---|---|")
    for row in rows:
        each = row["each"]
        memory, estimate, sent, seconds = (
            max(x[name] for x in each) for name in ("memory", "estimated_memory", "bytes", "seconds")
        )
        click.echo(
            f"| {row['entities']:,} | {row['triples']:,} | {row['model']}, d={row['dim']} | `{row['loop']}` | {len(each)} | "
            f"{memory / 1e6:,.0f} MB | {estimate / 1e6:,.0f} MB | {sent / 1e6:,.0f} MB | {seconds:.3g} s |"
        )


#: Graphs that are too large to be tried here: their entities, relations and training triples
LARGE = {"Wikidata5M": (4_594_485, 822, 20_614_279), "Freebase-86M": (86_054_151, 14_824, 304_727_650)}

#: The numbers of processes for each, and whether their entities are divided
WAYS = {"Wikidata5M": ((1, False), (4, False), (4, True)), "Freebase-86M": ((8, True), (16, True), (32, True))}

#: What a process is assumed to have: cores, operations and visits to triples per core and second, bytes per second
CORES, OPERATIONS, VISITS, BANDWIDTH = 16, 100e9, 1e6, 1e9

#: The projected model, whose entities have as many features as dimensions
DIM = 128


FILE = file_option("sharding.jsonl")


@click.group(name="shards")
def command() -> None:
    """Measure training with divided entities."""


@command.command()
@click.option("--entities", type=int, default=1_000_000, show_default=True)
@click.option("--relations", type=int, default=100, show_default=True)
@click.option("--triples", type=int, default=5_000_000, show_default=True)
@click.option("--model", default="DistMult", show_default=True)
@click.option("--loop", default="nonsampling", show_default=True)
@click.option("--dim", type=int, default=32, show_default=True)
@click.option("--epochs", type=int, default=2, show_default=True)
@FILE
def run(entities: int, relations: int, triples: int, model: str, loop: str, dim: int, epochs: int, file: Path) -> None:
    """Train in the processes that torchrun has started, and add the result."""
    logging.disable(logging.WARNING)
    with join(timeout=timedelta(minutes=30)) as group:
        # what exists once per process, such as libraries and compiled loops, does not count
        measure(group, model, loop, 4, 1, (1000, 3, 5000))
        reset_peak()
        each = group.all_of(measure(group, model, loop, dim, epochs, (entities, relations, triples)))
        if group.is_first:
            row = dict(entities=entities, relations=relations, triples=triples, model=model, loop=loop, dim=dim, each=each)
            add_row(file, row)
            print_table([row])


@command.command()
@FILE
def report(file: Path) -> None:
    """Print all results as a table in Markdown."""
    print_table(read_rows(file))


@command.command()
def project() -> None:
    """Print what large graphs would take in the closed world, as a table in Markdown."""
    # each thread has buffers of its own
    torch.set_num_threads(CORES)
    click.echo("| graph | processes | | memory of each | computing | sent per epoch | sending | epoch |")
    click.echo("|---|---|---|---|---|---|---|---|")
    for graph, (entities, relations, triples) in LARGE.items():
        for size, sharded in WAYS[graph]:
            # as many queries as triples, at most
            whole = Counts(entities, relations, triples, (triples, triples))
            counts = whole.shard(size) if sharded else whole.parallel(size)
            cls: Any = model_resolver.lookup("DistMult")
            loop: Any = training_loop_resolver.lookup("nonsampling")
            kwargs = {**model_defaults(cls), "embedding_dim": DIM}
            outline = outline_model(cls, kwargs, counts.factory(), partial(loop.plan_task, None), counts)
            memory = outline.memory().training + 24 * counts.num_triples * (1 + sharded)
            sent = estimate_traffic(outline, size).total
            # the Gram matrix of all entities, and twice as much for its gradient
            seconds = (6 * entities * DIM**2 / OPERATIONS + triples / VISITS) / (CORES * size)
            click.echo(
                f"| {graph} | {size} | {'sharded' if sharded else 'data parallel' if size > 1 else ''} | "
                f"{memory / 1e9:,.0f} GB | {seconds:.1f} s | {sent / 1e9:.1f} GB | {sent / BANDWIDTH:.1f} s | "
                f"{seconds + sent / BANDWIDTH:.1f} s |"
            )
