"""Commands that are imported when they are called."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from typing_extensions import override


class LazyGroup(click.Group):
    """Imports a command when it is called, and prints unexpected errors as messages instead of tracebacks."""

    def __init__(self, *args: Any, package: str, descriptions: Mapping[str, str], **kwargs: Any):
        """Initialize the group.

        :param package: the package with a module for each command, of the same name, that calls it ``command``
        :param descriptions: the first sentence of each command's help, by its name
        """
        super().__init__(*args, **kwargs)
        self.package = package
        self.descriptions = descriptions

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.descriptions)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.descriptions:
            return None
        command: click.Command = import_module(f"{self.package}.{cmd_name}").command
        return command

    @override
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.descriptions.items()))

    @override
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit, BrokenPipeError):
            raise
        except Exception as error:
            if ctx.params["debug"]:
                raise
            raise click.ClickException(
                f"{type(error).__name__}: {error}\nThis error was not foreseen. For the traceback, run {ctx.command_path} "
                f"--debug {ctx.invoked_subcommand or 'COMMAND'} …, and please report it, together with the whole command."
            ) from error


debug_option = click.option("--debug", is_flag=True, help="Show the traceback of an error that was not foreseen.")
