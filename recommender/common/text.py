"""Text for people: line width, unprintable characters, near matches, counts.

Which one makes text safe: ``shorten`` quotes what a user typed, in an error; ``masked`` keeps it unquoted, in an error
or a file name; ``printable`` loses nothing and is for reports and comments; ``one_line`` joins a message's lines.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

WIDTH = 80
"""Columns of everything that is written for people."""


def normal(name: str) -> str:
    """Return a name as names are compared: without case, blanks, dashes and underscores."""
    return name.casefold().translate({ord(c): None for c in " -_"})


def did_you_mean(name: str, known: Iterable[str], usual: Iterable[str] = ()) -> str:
    """Return ``: did you mean a, b?``; where nothing is near, the first known names, or the usual ones."""
    by_normal = {normal(item): item for item in known}
    near = [by_normal[key] for key in difflib.get_close_matches(normal(name)[:80], by_normal, n=3, cutoff=0.5)]
    if near:
        return f": did you mean {', '.join(near)}?"
    names = list(usual) or list(by_normal.values())
    return f": known are {', '.join(names[:12])}{f' and {len(names) - 12} more' if len(names) > 12 else ''}"


def shorten(text: str, limit: int = 60) -> str:
    """Return a user's text in quotes, cut at a limit and without control characters."""
    shown = masked(text[: limit + 1])
    return repr(shown if len(shown) <= limit else shown[:limit] + "...")


def masked(text: str) -> str:
    """Return text with a question mark in place of each line end and control character."""
    return "".join(c if c.isprintable() else "?" for c in text)


def printable(text: str) -> str:
    """Return text with an escape such as ``\\n`` in place of each line end and control character."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(text: object) -> str:
    """Return a message with each run of blanks and line breaks as one blank."""
    return " ".join(str(text).split())


def count(number: int, thing: str) -> str:
    """Return a number of things, in the singular or the plural."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
