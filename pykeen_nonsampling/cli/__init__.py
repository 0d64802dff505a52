"""The command line: ``pykeen-nonsampling …``, one module per command."""

from __future__ import annotations

from typing import Any

import click

from . import benchmark, compare, models, plan, train, tune


class Commands(click.Group):
    """Commands whose errors are messages, also those that nobody has thought of."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params["debug"]:
                raise
            raise click.ClickException(
                f"{type(error).__name__}: {error}\nThis error was not foreseen. For the traceback, run pykeen-nonsampling "
                f"--debug {ctx.invoked_subcommand} …, and please report it, together with the whole command."
            ) from error


@click.group(cls=Commands)
@click.version_option(package_name="pykeen-nonsampling")
@click.option("--debug", is_flag=True, help="Show the traceback of an error that was not foreseen.")
def main(debug: bool) -> None:
    """Train knowledge graph embedding models on every negative triple, without sampling."""


for module in (benchmark, compare, models, plan, train, tune):
    main.add_command(module.command)
