"""What ``speed``, ``ranks`` and ``cross_entropy`` have measured, as the tables of the documentation.

    python -m benchmarks tables speed
    python -m benchmarks tables ranks
    python -m benchmarks tables cross_entropy

read ``benchmark.json``, ``scaling.json`` and ``cross_entropy.json`` in docs/benchmark, which these commands have written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from .results import file_option


def format_seconds(seconds: float) -> str:
    """Write a time with about three digits."""
    digits = 3 if seconds < 1 else 2 if seconds < 10 else 1 if seconds < 100 else 0
    return f"{seconds:,.{digits}f} s"


def format_ratio(ratio: float) -> str:
    """Write a ratio with one decimal place, if it is small."""
    return f"{ratio:,.{1 if ratio < 100 else 0}f}×"


def format_close_ratio(ratio: float) -> str:
    """Write a ratio that is close to 1 with two decimal places."""
    return f"{ratio:,.2f}×"


def format_bytes(number: float) -> str:
    """Write a number of bytes."""
    return f"{number / 2**20:.0f} MiB"


#: What a row says, the name of its values, and how they are written
ROWS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "dense products, the floor": ("floor_seconds", format_seconds),
    "an epoch of `nonsampling`": ("epoch_seconds", format_seconds),
    "dense products of the local closed world": ("local_floor_seconds", format_seconds),
    "an epoch of `nonsamplinglcwa`": ("local_epoch_seconds", format_seconds),
    "plain autograd, loss and gradient only": ("autograd_seconds", format_seconds),
    "an epoch of PyKEEN's `slcwa`, 25 negatives": ("slcwa_seconds", format_seconds),
    "an epoch of PyKEEN's `lcwa`, tails only": ("lcwa_seconds", format_seconds),
    "evaluation, `factorized`": ("evaluation_seconds", format_seconds),
    "evaluation, PyKEEN's": ("pykeen_evaluation_seconds", format_seconds),
    "`nonsampling` ÷ floor": ("epoch/floor", format_ratio),
    "`nonsamplinglcwa` ÷ its own products": ("local epoch/floor", format_ratio),
    "autograd ÷ `nonsampling`": ("autograd/epoch", format_ratio),
    "`slcwa` ÷ `nonsampling`": ("slcwa/epoch", format_ratio),
    "`lcwa` ÷ `nonsamplinglcwa`": ("lcwa/local epoch", format_ratio),
    "PyKEEN's evaluation ÷ ours": ("pykeen evaluation/ours", format_ratio),
    "memory beyond parameters, gradients, optimizer": ("peak_bytes", format_bytes),
}

#: The same for ``cross_entropy``
CROSS_ENTROPY_ROWS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "three products of matrices, the floor": ("floor_seconds", format_seconds),
    "an epoch with `softmax`, one step": ("step_seconds", format_seconds),
    "an epoch with `softmax`, steps of 1,000 queries": ("batches_seconds", format_seconds),
    "autograd, steps of 1,000 triples": ("autograd_seconds", format_seconds),
    "an epoch of PyKEEN's `lcwa`, tails only": ("lcwa_seconds", format_seconds),
    "an epoch with `nonsampling`, one step": ("squared_seconds", format_seconds),
    "`softmax`, one step ÷ floor": ("step/floor", format_close_ratio),
    "`softmax`, steps of 1,000 queries ÷ floor": ("batches/floor", format_close_ratio),
    "autograd ÷ `softmax`, steps of 1,000 each": ("autograd/batches", format_ratio),
    "`lcwa`, tails only ÷ `softmax`, steps of 1,000 queries": ("lcwa/batches", format_ratio),
    "`softmax` ÷ `nonsampling`, one step each": ("step/squared", format_ratio),
}


@click.group(name="tables")
def command() -> None:
    """Print what speed, ranks and cross_entropy have measured as tables in Markdown."""


def _print_table(heads: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    """Print a table of named rows."""
    for line in (["", *heads], ["---"] * (1 + len(heads)), *([label, *cells] for label, cells in rows.items())):
        click.echo(f"| {' | '.join(line)} |")


@command.command()
@file_option("benchmark.json")
def speed(file: Path) -> None:
    """Print the times of training and evaluation."""
    results = json.loads(file.read_text(encoding="utf-8"))["results"]
    rows = {label: [write(result[name]) for result in results] for label, (name, write) in ROWS.items()}
    _print_table([result["model"] for result in results], rows)


@command.command()
@file_option("scaling.json")
def ranks(file: Path) -> None:
    """Print what several processes gain, with both ways to share the work."""
    click.echo("| model | d | processes | | epoch | speed-up | efficiency | sent per epoch | memory of each |")
    click.echo("|---|---|---|---|---|---|---|---|---|")
    for row in json.loads(file.read_text(encoding="utf-8"))["results"]:
        click.echo(
            f"| {row['model']} | {row['dim']} | {row['processes']} | {row['way']} | {row['epoch_seconds']:.2f} s | "
            f"{row['speedup']:.2f} | {row['efficiency']:.0%} | {row['sent_bytes'] / 1e6:.1f} MB | "
            f"{row['peak_bytes'] / 1e6:.0f} MB |"
        )


def print_cross_entropy(results: Sequence[Mapping[str, Any]]) -> None:
    """Print times of training with cross-entropy, in a column per model, dimension and precision."""

    def cell(result: Mapping[str, Any], name: str, write: Callable[[float], str]) -> str:
        if name not in result:
            return "–"
        part = name.removesuffix("_seconds")
        extrapolated = result.get(f"{part}_timed") != result.get(f"{part}_total")
        return f"{'≈ ' if extrapolated else ''}{write(result[name])}"

    rows = {label: [cell(result, name, write) for result in results] for label, (name, write) in CROSS_ENTROPY_ROWS.items()}
    _print_table([f"{result['model']}, d={result['dim']}, {result['precision']}" for result in results], rows)


@command.command(name="cross_entropy")
@file_option("cross_entropy.json")
def cross_entropy(file: Path) -> None:
    """Print the times of training with cross-entropy."""
    print_cross_entropy(json.loads(file.read_text(encoding="utf-8"))["results"])
