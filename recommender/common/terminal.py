"""Write to stdout: text of 80 columns, coloured on a terminal, or JSON."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import IO, Any, cast

from recommender.common.plain import Plain
from recommender.common.text import WIDTH, printable

LABEL = 12
"""Columns of a line's label."""


STYLES = (
    (re.compile(r"^[A-Z][A-Z ()a-z,]*$", re.MULTILINE), "bold cyan"),
    (re.compile(r"^  (--[a-z0-9-]+|[A-Z]+_[A-Z_]+)", re.MULTILINE), "bold green"),
    (re.compile(r"^  SETTING  .*$", re.MULTILINE), "bold"),
    (re.compile(r"^ +\[[^\]\n]*\]$", re.MULTILINE), "dim"),
    (re.compile(r"^ +(refuted|no-effect|outdated|reject|error):", re.MULTILINE), "red"),
    (re.compile(r"^ +(confirmed):", re.MULTILINE), "green"),
    (re.compile(r"^ *(depends|unverified|warn|warning|claim|accuracy|note):", re.MULTILINE), "yellow"),
    (re.compile(r"^(assumed|note)(?=  )", re.MULTILINE), "yellow"),
    (re.compile(r"nothing fits"), "bold red"),
)


def show(lines: Iterable[str]) -> None:
    """Write lines to stdout; see ``write``."""
    write("\n".join(lines) + "\n", sys.stdout)


def is_rich(stream: Any) -> bool:
    """Return whether a stream is a terminal that may show colours and drawings."""
    return bool(stream.isatty()) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def columns(stream: Any) -> int:
    """Return the columns of a terminal; 80 of what is none, or does not say."""
    try:
        return (os.get_terminal_size(stream.fileno()).columns if stream.isatty() else 0) or WIDTH
    except (OSError, ValueError):
        return WIDTH


def is_drawn(stream: Any) -> bool:
    """Return whether a stream is a terminal that shows block characters and has room for them."""
    locale = next(filter(None, map(os.environ.get, ("LC_ALL", "LC_CTYPE", "LANG"))), "")
    return is_rich(stream) and locale not in ("C", "POSIX") and columns(stream) >= WIDTH


def write(text: str, stream: Any) -> None:
    """Write to a standard stream: coloured on a terminal unless NO_COLOR is set, else plain UTF-8."""
    if is_rich(stream):
        from rich.console import Console
        from rich.text import Text

        styled = Text(text.rstrip("\n"))
        for pattern, style in STYLES:
            styled.highlight_regex(pattern, style)
        Console(file=stream, highlight=False, soft_wrap=columns(stream) >= WIDTH).print(styled)
    else:
        utf8(stream).write(text)


def utf8(stream: Any) -> IO[str]:
    """Return a standard stream switched to UTF-8, whatever the locale."""
    stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return cast("IO[str]", stream)


SCALARS = frozenset({str, int, float, bool, type(None)})


def show_json(value: object) -> None:
    """Write JSON to stdout."""
    sys.stdout.write(json_text(value))


def json_text(value: object) -> str:
    """Return a value as JSON, in ASCII so that any terminal and pipe can show it."""
    return json.dumps(plain(value), indent=2) + "\n"


def plain(value: object) -> Any:
    """Return a value as JSON has it: dataclasses and records as objects, tuples as lists."""
    if type(value) in SCALARS:  # most are
        return value
    if isinstance(value, Plain):
        return {name: plain(each) for name, each in vars(value).items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def wrap(text: str, first: str = "", rest: str = "") -> list[str]:
    """Return text in lines of 80 columns; a longer word stays whole, so that it can be copied."""
    return textwrap.wrap(
        printable(text),
        width=WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def labelled(label: str, text: str, indent: str = "  ", width: int = LABEL) -> list[str]:
    """Return a label and its text in a column of its own."""
    head = f"{label:<{width}}" if len(label) < width else f"{label} "
    return wrap(text, f"{indent}{head}", f"{indent}{'':<{width}}")


def cut(text: str, width: int = WIDTH) -> str:
    """Return one line of a list, cut with dots where it is too long."""
    shown = printable(text).rstrip()
    return shown if len(shown) <= width else shown[: width - 3].rstrip() + "..."


def block(title: str, lines: Iterable[str]) -> list[str]:
    """Return a blank line, a title and lines; nothing where there are no lines."""
    content = list(lines)
    return ["", title, *content] if content else []
