"""The command line: ``pykeen-nonsampling …``, one module per command."""

from __future__ import annotations

import click

from .group import LazyGroup, debug_option

DESCRIPTIONS = {
    "compare": "Compare training on all negatives with training on sampled ones.",
    "models": "List the models that can be trained without sampling.",
    "plan": "Estimate the memory of a run and the time of an epoch, and name the loss.",
    "train": "Train from a configuration file, in one process or in many.",
    "tune": "Find the best model for a graph, within some minutes.",
}


@click.group(name="pykeen-nonsampling", cls=LazyGroup, package=__name__, descriptions=DESCRIPTIONS)
@click.version_option(package_name="pykeen-nonsampling")
@debug_option
def main(debug: bool) -> None:
    """Train knowledge graph embedding models on every negative triple, without sampling."""
