"""The report on a terminal: the same text, with headings, options and verdicts coloured."""

from __future__ import annotations

import re

from rich.console import Console
from rich.text import Text

STYLES = (
    (re.compile(r"^[A-Z][A-Z ()a-z,]*$", re.MULTILINE), "bold cyan"),
    (re.compile(r"^  (--[a-z0-9-]+|[A-Z][A-Z_]{3,})", re.MULTILINE), "bold green"),
    (re.compile(r"^ +\[[^\]]*\]$", re.MULTILINE), "dim"),
    (re.compile(r"^ +(refuted|no-effect|outdated|reject|error):", re.MULTILINE), "red"),
    (re.compile(r"^ +(confirmed):", re.MULTILINE), "green"),
    (re.compile(r"^ *(depends|unverified|warn|claim|accuracy|note):", re.MULTILINE), "yellow"),
    (re.compile(r"nothing fits"), "bold red"),
)


def show(text: str, stderr: bool = True) -> None:
    """Writes the text in colour, to stderr or stdout."""
    styled = Text(text.rstrip("\n"))
    for pattern, style in STYLES:
        styled.highlight_regex(pattern, style)
    Console(stderr=stderr, highlight=False, soft_wrap=True).print(styled)
