"""The one door to everything that measures: ``python -m benchmarks …``, run from a checkout; one module per command."""

from __future__ import annotations

import click

from pykeen_nonsampling.cli.group import LazyGroup, debug_option

DESCRIPTIONS = {
    "accuracy": "Search for, and test, hyper-parameters.",
    "cross_entropy": "Measure how fast training with cross-entropy is, beside autograd and PyKEEN.",
    "defaults": "Measure how far default settings carry over.",
    "faults": "Try what survives kills and changed bits.",
    "memory": "Compare the estimates of plan with what is measured.",
    "quality": "Measure how long each training loop takes to become how good.",
    "ranks": "Measure what several processes gain.",
    "reproduce": "Run the experiments of Li et al. (2021) on PyKEEN, and write a report.",
    "shards": "Measure training with divided entities.",
    "speed": "Measure how fast training and evaluation are, beside PyKEEN's.",
    "tables": "Print what speed, ranks and cross_entropy have measured as tables in Markdown.",
    "tuning": "Measure what a search gains.",
    "versions": "Compare the speed of this version with that of another one.",
}


@click.group(name="python -m benchmarks", cls=LazyGroup, package="benchmarks", descriptions=DESCRIPTIONS)
@debug_option
def main(debug: bool) -> None:
    """Measure what pykeen-nonsampling promises."""


if __name__ == "__main__":
    main()
