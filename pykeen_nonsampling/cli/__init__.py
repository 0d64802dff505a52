"""The command line: ``pykeen-nonsampling …``, one module per command."""

from __future__ import annotations

import click

from . import benchmark, compare, models, plan, tune

__all__ = [
    "main",
]


@click.group()
@click.version_option(package_name="pykeen-nonsampling")
def main() -> None:
    """Train knowledge graph embedding models on every negative triple, without sampling."""


for module in (benchmark, compare, models, plan, tune):
    main.add_command(module.command)
