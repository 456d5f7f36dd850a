"""What commands write to stdout: text of 80 columns, coloured on a terminal that wants it, or JSON."""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from recommender.render import WIDTH, printable
from recommender.store import Plain

LABEL = 12
"""Columns of a line's first word, where lines of a block begin with one."""


def show(lines: Iterable[str]) -> None:
    """Writes lines to stdout, in UTF-8 whatever the locale says; colour only where it is wanted."""
    text = "\n".join(lines) + "\n"
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb":
        from recommender import colour

        colour.show(text, stderr=False)
        return
    sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    sys.stdout.write(text)


def show_json(value: object) -> None:
    """Writes JSON to stdout; only ASCII, so that any terminal and pipe carries it."""
    sys.stdout.write(json.dumps(plain(value), indent=2, ensure_ascii=True) + "\n")


def plain(value: object) -> Any:
    """Dataclasses and records as objects, tuples as lists; what JSON can hold."""
    if isinstance(value, Plain):
        return {name: plain(each) for name, each in vars(value).items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, (list, tuple)) else value


def wrap(text: str, first: str = "", rest: str = "") -> list[str]:
    """Text in lines of 80 columns; a word that is longer stands whole, so that it can be copied."""
    return textwrap.wrap(
        printable(text),
        width=WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )


def labelled(label: str, text: str, indent: str = "  ", width: int = LABEL) -> list[str]:
    """A word, and text beside it in a column of its own."""
    beside = f"{label:<{width}}" if len(label) < width else f"{label} "
    return wrap(text, f"{indent}{beside}", f"{indent}{'':<{width}}")


def cut(text: str, width: int = WIDTH) -> str:
    """One line of a list: what does not fit ends in dots."""
    shown = printable(text).rstrip()
    return shown if len(shown) <= width else shown[: width - 3].rstrip() + "..."
