"""Text for people: line width, unprintable characters, near matches, counts.

Which one makes text safe: ``shorten`` quotes what a user typed, in an error; ``masked`` keeps it unquoted, in an error
or a file name; ``printable`` loses nothing and is for reports and comments; ``one_line`` joins a message's lines.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

WIDTH = 80
"""Columns of everything that is written for people."""
SCRIPT_WIDTH = WIDTH - 2
"""The same of a line in a script, with room for a backslash that continues it."""
SURE = 0.75
"""Likeness from which a name counts as a misspelling, whatever it begins with."""
BEGUN = 3
"""Leading letters that a less alike name must share."""
LEAST_PART = 4
"""Shortest name for which longer names that contain it are near."""
NEGATIONS = frozenset(("no", "not", "without", "disable", "disallow"))


def normal(name: str) -> str:
    """Return a name as names are compared: without case, blanks, dashes and underscores."""
    return name.casefold().translate({ord(c): None for c in " -_"})


def did_you_mean(name: str, candidates: Iterable[str], otherwise: str = "", meaning: Callable[[str], str] = str) -> str:
    """Return ``: did you mean a, b?``; where nothing is near ``otherwise``, or the first known names.

    ``meaning`` is what a name stands for: of several names for it only the nearest is suggested.
    """
    by_normal = {normal(item): item for item in candidates}
    if near := near_names(normal(name)[:80], by_normal):
        nearest: dict[str, str] = {}
        for suggestion in (by_normal[key] for key in near):
            nearest.setdefault(meaning(suggestion), suggestion)
        return f": did you mean {', '.join([*nearest.values()][:3])}?"
    names = list(by_normal.values())
    some = f": known are {', '.join(names[:12])}{f' and {len(names) - 12} more' if len(names) > 12 else ''}"
    return f": {otherwise}" if otherwise else some


def near_names(name: str, candidates: Iterable[str]) -> list[str]:
    """Return the names that this one may mean, nearest first: misspelt, with another ending, or with more before it.

    Likeness alone is not enough: MI300X is as like 3090 as many misspellings are like their name.
    """
    holding = [each for each in candidates if len(name) >= LEAST_PART and name in each]
    close = difflib.get_close_matches(name, candidates, n=10, cutoff=0.5)
    sure = set(difflib.get_close_matches(name, close, n=10, cutoff=SURE))
    begun = [each for each in close if each in sure or each[:BEGUN].startswith(name[:BEGUN]) or name.startswith(each)]
    return list(dict.fromkeys((*begun, *sorted(holding, key=len))))


def opposite(name: str, other: str) -> bool:
    """Return whether one of two like names denies the other, as ``--no-enable-x`` denies ``--enable-x``."""
    return _denies(name) != _denies(other)


def _denies(name: str) -> bool:
    begin = takewhile(lambda word: word in NEGATIONS or word == "enable", re.split("[-_]", name.lstrip("-")))
    return sum(word in NEGATIONS for word in begin) % 2 == 1


def shorten(text: str, limit: int = 60) -> str:
    """Return a user's text in quotes, cut at a limit and without control characters."""
    return repr(clip(text, limit))


def clip(text: str, limit: int) -> str:
    """Return text cut at a limit, without control characters."""
    return masked(text[:limit]) + ("..." if len(text) > limit else "")


def masked(text: str) -> str:
    """Return text with a question mark in place of each line end and control character."""
    return "".join(c if c.isprintable() else "?" for c in text)


def printable(text: str) -> str:
    """Return text with an escape such as ``\\n`` in place of each line end and control character."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(text: object) -> str:
    """Return a message with each run of blanks and line breaks as one blank."""
    return " ".join(str(text).split())


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things, in the singular or the plural; ``plural`` where it is more than an s."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def as_typed(message: str, options: Iterable[Sequence[str]], words: Sequence[str]) -> str:
    """Return a message that names each option as the user typed it; ``options`` lists each one's names."""
    there = {word.partition("=")[0] for word in words}
    for names in options:
        typed = [name for name in names if name in there and name.startswith("--")]
        if len(names) > 1 and len(typed) == 1:
            others = "|".join(re.escape(name) for name in names if name.startswith("--") and name != typed[0])
            message = re.sub(rf"(?<![\w-])(?:{others})(?![\w-])", typed[0], message) if others else message
    return message
