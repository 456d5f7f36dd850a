"""Translate the help of commands; examples and options keep their text."""

from __future__ import annotations

import copy
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

import click

from recommender.commands.short_help import ShortGroup
from recommender.site.i18n.translation import single

WIDTH = 78
"""Columns of a line: click shows help in 80."""
PARTS = ("Usage", "Options", "Commands")
"""Headings that click writes in English."""
COMMAND = re.compile(r"  +(recommend|echo|claude|eval|#|--)")
"""Begins a line of an example."""
CODE = re.compile(r" +\d+ ")
"""Begins a line of an exit code."""
REMARK = re.compile(r"^( +\d+ +(?:[a-z0-9]+(?:-[a-z0-9]+)+ +|[a-z]+ {2,})?| +\S.*?\S {2,})(\S.*)$")
"""A command and what it does, or an exit code and what it means."""


class _TranslatedGroup(click.Group):
    """A group that lists its commands in the given order."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(self.commands)


def translated_command(ctx: click.Context, say: Callable[[str], str]) -> click.Command:
    """Return a command that has the help of a context's command in another language."""
    command = ctx.command
    texts: dict[str, Any] = {
        "help": _translated(command.help, say),
        "epilog": _translated(command.epilog, say),
        "params": [_parameter(parameter, say) for parameter in command.get_params(ctx)],
    }
    if not isinstance(command, ShortGroup):
        return click.Command(command.name, add_help_option=False, **texts)
    summaries = {name: say(single(command.summary(ctx, name))) for name in command.list_commands(ctx)}
    commands = {name: click.Command(name, short_help=text) for name, text in summaries.items()}
    usage = command.subcommand_metavar
    return _TranslatedGroup(command.name, commands=commands, subcommand_metavar=usage, add_help_option=False, **texts)


def translated_headings(text: str, say: Callable[[str], str]) -> str:
    """Translate the headings of a help text."""
    return re.sub(rf"^({'|'.join(PARTS)}):", lambda found: f"{say(found[1])}:", text, flags=re.MULTILINE)


def _parameter(parameter: click.Parameter, say: Callable[[str], str]) -> click.Parameter:
    own = copy.copy(parameter)
    if isinstance(own, click.Option) and own.help:
        own.help = say(single(own.help))
    return own


def _translated(text: str | None, say: Callable[[str], str]) -> str:
    """Translate paragraphs; one after ``\\b`` keeps its examples and its list of exit codes."""
    blocks = inspect.cleandoc(text or "").split("\n\n")
    return "\n\n".join(
        "\b\n" + "\n".join(_lines(block.removeprefix("\b\n").split("\n"), say))
        if block.startswith("\b")
        else say(single(block))
        for block in blocks
    )


def _lines(lines: list[str], say: Callable[[str], str]) -> Iterator[str]:
    """Translate help text: paragraphs whole, lists item by item, and the remark after a command or exit code."""
    for kind, group in groupby(_kinds(lines), key=lambda pair: pair[0]):
        known = [line for _, line in group]
        if kind == "text":
            yield from _filled(" ".join(known), "", say)
        elif kind == "item":
            for item in re.split("(?<=;) +", " ".join(map(str.strip, known))):
                yield from _filled(item, "  ", say)
        else:
            yield from (REMARK.sub(lambda found: found[1] + say(found[2]), line) for line in known)


def _kinds(lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each line after its kind: text, an item of a list, or a command or exit code."""
    goes_on = False
    for line in lines:
        command = goes_on or COMMAND.match(line)
        goes_on = bool(command) and line.endswith("\\")
        yield "command" if command or CODE.match(line) else "item" if line.startswith(" ") else "text", line


def _filled(text: str, indent: str, say: Callable[[str], str]) -> list[str]:
    return textwrap.wrap(say(single(text)), WIDTH, initial_indent=indent, subsequent_indent=indent)
