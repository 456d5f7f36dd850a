"""Tell in which conda or virtual environment a command of a script runs, and which of two are the same."""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern

if TYPE_CHECKING:
    from recommender.review.script.model import Script

_CONDA = r"(?:conda|mamba|micromamba)"
ACTIVATED = pattern(
    r"(?m)(?:^|[;&|({]|\b(?:then|do|else|RUN)\b|-\w*c[\"']?,?[ \t]*[\"'])[ \t]*(?:"
    r"(?:source|\.)[ \t]+[\"']?(?P<path>[^\s;&|\"']+)/bin/activate\b[\"']?(?:[ \t]+[\"']?(?P<argument>[\w./-]+))?"
    rf"|(?:{_CONDA}|source)[ \t]+activate[ \t]+[\"']?(?P<name>[^\s;&|\"'#]+)"
    rf"|(?:{_CONDA}[ \t]+)?deactivate\b)"
)
"""A command that changes the environment of those behind it."""
NAMED = pattern(
    rf"\b{_CONDA}\s+(?:run|install|create|update|upgrade)\b.*?\s(?:-n|--name|-p|--prefix)[\s=]+[\"']?([^\s\"']+)"
)
PROGRAM = pattern(r"([^\s\"'=]+)/bin/(?:python|pip|lmdeploy)[\d.]*(?=[\"'\s]|\Z)")
ENDS = pattern(r"[;&|(`]")
FIRST_WORD = pattern(r"[\"']?[^\s\"';&|]{0,400}")
LONGEST_COMMAND = 400
"""Most characters of a command up to what it installs or starts."""
BASE = "base"
SYSTEM = frozenset({"usr", "local", ".local", "opt", "conda", "miniconda3", "anaconda3", "miniforge3"})
"""Folders of programs outside every environment."""


def environment(script: Script, line: str, at: int) -> str:
    """Return the name or folder of the environment of a command; empty if unknown.

    ``line`` is the text of the command's line before ``at``.
    """
    word = FIRST_WORD.match(script.text, at)
    command = ENDS.split(line[-LONGEST_COMMAND:])[-1] + (word[0] if word else "")
    own = NAMED.search(command) or PROGRAM.search(command)
    if own is not None:
        return _name(own[1])
    places, names = _activations(script)
    before = bisect_left(places, at)
    return names[before - 1] if before else ""


def is_same(one: str, other: str) -> bool:
    """Return whether two names or folders may be of the same environment."""
    first, second = _parts(one), _parts(other)
    shared = min(len(first), len(second))
    return first[len(first) - shared :] == second[len(second) - shared :]


@lru_cache(maxsize=8)
def _activations(script: Script) -> tuple[list[int], list[str]]:
    """Return where the environment changes, and to which."""
    found = [(match.start(), match) for match in ACTIVATED.finditer(script.text)]
    names = [match["argument"] or match["path"] or match["name"] for _, match in found]
    return [at for at, _ in found], [_name(name) if name else BASE for name in names]


def _name(text: str) -> str:
    return BASE if text.rpartition("/")[2] in SYSTEM else text


def _parts(name: str) -> list[str]:
    """Return the folders of a path that every spelling of it has."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return parts[1:] if parts and parts[0].startswith(("$", "~")) else parts
