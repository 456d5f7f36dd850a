"""Finds the code blocks of the seed texts that the golden reviews of ``tests/reviews/seeds`` are of."""

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from seeds import ROOT, Seeds, blocks

FOLDER = ROOT / "tests" / "reviews" / "seeds"
FILES = sorted(FOLDER.glob("*.yaml"))
SEEDS = ("000", "001", "002", "003", "004")

Entry = dict[str, Any]


@cache
def entry(path: Path) -> Entry:
    loaded: Entry = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def texts(seeds: Seeds, seed: str) -> list[str]:
    """The fenced blocks of one seed, in their order, with plain line ends; 001 is repaired first."""
    lines = [(number, line.rstrip("\r")) for number, line in seeds.lines(seed)]
    return [block.text for block in blocks(lines)]


def every_block(seeds: Seeds) -> Iterator[tuple[str, int, str]]:
    """Seed, ordinal and text of every block of the five texts."""
    for seed in SEEDS:
        for ordinal, text in enumerate(texts(seeds, seed), 1):
            yield seed, ordinal, text


def put_into(script: str, exports: str, options: str) -> str:
    """A script with the exports of the same names replaced, and options appended to its server's command.

    An option that the script already has is not given twice.
    """
    fresh = {found[1]: line for line in exports.split("\n") if (found := re.match(r"export (\w+)=", line))}
    lines: list[str] = []
    command = False
    for line in script.split("\n"):
        found = re.match(r"export (\w+)=", line)
        lines.append(fresh.get(found[1], line) if found else line)
        command = command or "lmdeploy serve" in line
        if command and not line.endswith("\\"):
            command = False
            added = [word for word in options.replace("\\\n", " ").split() if word not in script.split()]
            lines[-1] = " \\\n".join([line, *(f"        {word}" for word in added)])
    return "\n".join(lines)


def reviewed(seeds: Seeds, one: Entry) -> str:
    own = texts(seeds, one["seed"][:3])
    text = own[one["block"] - 1]
    into = one.get("into")
    if into:
        text = put_into(texts(seeds, into["seed"][:3])[into["block"] - 1], text, own[into["options"] - 1])
    return text


def digest(text: str) -> str:
    """SHA-256 of a block's text, in UTF-8 and without a line end after its last line."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
