"""Help that fits one screen; ``--help-all`` has the rest. click's own help lists every option."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click

from recommender.common.terminal import cut, labelled
from recommender.common.text import did_you_mean, shorten
from recommender.options import GROUPS, QUESTION

SHOWN = ("gpu", "model", "workload", "load", "form", "output")
"""Options of the main job that its help explains; it names the others."""
EXAMPLES = 3
LINES = 40
WIDEST = 22
EXAMPLE = re.compile(r"^  recommend(?:.*\\\n)*.*", re.MULTILINE)


class ShortCommand(click.Command):
    """A command whose ``--help`` has a line for each option of its own, and names the request's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Add ``--help-all``, the help with every option and exit code."""
        super().__init__(*args, **kwargs)
        every = click.Option(
            ["--help-all"], is_flag=True, expose_value=False, is_eager=True, help="Every option.", callback=_show_all
        )
        self.params.append(every)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option that is given twice: click would take the last value silently."""
        given = [each for each in self.make_parser(ctx).parse_args(list(args))[2] if isinstance(each, click.Option)]
        for option in given:
            if given.count(option) > 1 and not (option.multiple or option.is_flag or option.count):
                names = " or ".join(name for name in option.opts if name.startswith("--")) or option.opts[0]
                raise click.UsageError(f"{names} is given {given.count(option)} times; keep one", ctx)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write usage, the first paragraph, options by group, and examples."""
        self.format_usage(ctx, formatter)
        first = (self.help or "").split("\n\n")[0]
        formatter.write("\n" + "\n".join(labelled("", " ".join(first.split()), "", 2)) + "\n")
        used = formatter.getvalue().count("\n") + len([*self.short_lines(ctx, 0)])
        for line in self.short_lines(ctx, LINES - used):
            formatter.write(f"{line}\n")

    def short_lines(self, ctx: click.Context, room: int) -> Iterator[str]:
        """Yield what follows the description; ``room``: the lines that long texts may take more than one each."""
        own = [each for each in self.params if each.name not in (*QUESTION, "added", "left_out", "follow", "help_all")]
        yield from _rows("Options", own, ctx, room)
        yield from _named("The request", [each for each in self.params if each not in own])
        yield from _ending(self, ctx)


class ShortGroup(ShortCommand, click.Group):
    """A group of commands that also runs without a subcommand."""

    command_class = ShortCommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of the first argument; for an unknown one the error names what is near."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = did_you_mean(args[0], names)
            if get_close_matches(args[0], [*names, ctx.command_path], 1) == [ctx.command_path]:
                near = f": leave the word out, as in {ctx.command_path} --gpu A100-80G"
            if option := _takes(args[0], self):
                near = f": did you mean {option} {args[0]}?"
            raise click.UsageError(f"no such command {shorten(args[0])}{near}", ctx)
        return super().resolve_command(ctx, args)

    def short_lines(self, ctx: click.Context, room: int) -> Iterator[str]:
        """Yield the options of the main job, the others by name, the commands and examples."""
        shown = [each for each in self.params if each.name in SHOWN]
        if shown:
            yield from _rows("Options", shown, ctx, room)
            yield from _named("Also", [each for each in self.params if each not in shown])
        yield from ("", "Commands:")
        for name in self.list_commands(ctx):
            yield from labelled(name, self.summary(ctx, name), "  ", 13)
        yield from _ending(self, ctx, 2)

    def summary(self, ctx: click.Context, name: str) -> str:
        """Return what a command does, in one line."""
        command = self.get_command(ctx, name)
        return command.get_short_help_str(200) if command else ""


def _takes(word: str, command: click.Command) -> str:
    """Return --gpu or --model if a word is the name of a GPU or of a model; empty if not."""
    from recommender.common.text import normal
    from recommender.knowledge.load import load

    names = {parameter.name for parameter in command.params}
    for option, kind in (("gpu", "gpus"), ("model", "models")):
        for name, record in getattr(load(), kind).items() if option in names else ():
            if normal(word.partition(":")[0]) in map(normal, (name, *record.aliases, getattr(record, "hub", name))):
                return f"--{option}"
    return ""


def exclude(ctx: click.Context, *names: str) -> None:
    """Raise UsageError if more than one of these options was given; each is named as it is typed."""
    given = (each for each in ctx.command.params if ctx.params.get(str(each.name)))
    both = [name for each in given for name in each.opts if name in names]
    if len(both) > 1:
        raise click.UsageError(f"{both[0]} and {both[1]} exclude each other; remove one", ctx)


def full_help(ctx: click.Context) -> str:
    """Return the help with every option."""
    formatter = ctx.make_formatter()
    kind = click.Group if isinstance(ctx.command, click.Group) else click.Command
    kind.format_help(ctx.command, ctx, formatter)
    return formatter.getvalue().rstrip("\n")


def _show_all(ctx: click.Context, _option: click.Parameter, value: bool) -> None:
    if value:
        click.echo(full_help(ctx))
        ctx.exit()


def _rows(title: str, options: list[click.Parameter], ctx: click.Context, room: int) -> Iterator[str]:
    """Yield options with their texts: whole while there is room, else the first sentence of a long one."""
    rows = [(_name(option, ctx), option.help or "") for option in options if isinstance(option, click.Option)]
    if not rows:
        return
    width = min(max(len(name) for name, _ in rows), WIDEST)
    yield from ("", f"{title}:")
    for name, text in rows:
        whole = labelled(f"{name:<{width}}", text, "  ", width + 2)
        if len(whole) - 1 <= room:
            room -= len(whole) - 1
            yield from whole
        else:
            first, *_ = text.split(". ", 1)
            yield cut(f"  {name:<{width}}  {first.rstrip('.')}.")


def _name(option: click.Option, ctx: click.Context) -> str:
    """Return the option's first name and what it takes."""
    takes = "" if option.is_flag or option.count else f" {option.make_metavar(ctx)}"
    return f"{option.opts[0]}{takes}"


def _named(title: str, options: list[click.Parameter]) -> Iterator[str]:
    """Name options by group; they are explained in the main job's ``--help-all``."""
    groups: dict[str, list[str]] = {}
    for option in options:
        group = next((group for group, names in GROUPS.items() if option.name in names.split()), "Output")
        if option.name not in ("help_all", "version"):
            groups.setdefault(group, []).append(option.opts[0])
    if groups:
        yield from ("", f"{title}:")
    for group, names in groups.items():
        yield from labelled(group, " ".join(names), "  ", 9)


def _ending(command: click.Command, ctx: click.Context, most: int = EXAMPLES) -> Iterator[str]:
    examples = EXAMPLE.findall((command.epilog or "").replace("\b\n", ""))
    more = f"{ctx.command_path} --help-all has every option and exit code"
    yield from ("", f"Examples ({more}):" if examples else f"{more}.")
    for example in examples[:most]:
        yield from example.splitlines()
