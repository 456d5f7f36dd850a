"""A click group that imports a command only when it is called."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from recommender.commands.short_help import ShortGroup


class LazyGroup(ShortGroup):
    """A group whose commands are imported on their first call, after the pattern in click's documentation.

    A command ``a-b`` is the object ``command`` of the module ``PACKAGE.a_b``. Summaries are given here, so that the
    help imports nothing.
    """

    def __init__(self, *args: Any, package: str, summaries: dict[str, str], **kwargs: Any) -> None:
        """Take the package of the modules, and each command's summary in the help's order."""
        super().__init__(*args, **kwargs)
        self.package, self.summaries = package, summaries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the help's order."""
        return list(self.summaries)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import and return the command of a name; None for an unknown one."""
        if name not in self.summaries:
            return None
        command: click.Command = import_module(f"{self.package}.{name.replace('-', '_')}").command
        return command

    def summary(self, ctx: click.Context, name: str) -> str:
        """Return what a command does without importing it."""
        return self.summaries[name]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.summaries.items()))
