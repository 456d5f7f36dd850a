"""Write the options of LMDeploy's other commands: ``knowledge/extracted/subcommands.json``.

A release refers to one of the sets of ``parsers``, a parser's option to one of the ``definitions``: everything equal
is stored once. The review reads the file (``review/accepted_options.py``).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version

from recommender.maintenance.wheel_facts import Definition

FILE = "extracted/subcommands.json"
Commands = Mapping[str, tuple[Definition, ...]]


def dump(releases: Mapping[str, Commands], path: Path) -> str:
    """Return the file's text with these releases added or replaced."""
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"releases": {}}
    plain = {name: old["parsers"][index] for name, index in old["releases"].items()}
    known: list[Any] = list(old.get("definitions", ()))
    for name, commands in releases.items():
        plain[name] = {command: [_index(known, item) for item in items] for command, items in commands.items()}
    ordered = dict(sorted(plain.items(), key=lambda item: Version(item[0])))
    parsers: list[Any] = []
    indices = {name: _position(parsers, commands) for name, commands in ordered.items()}
    lines = (",\n".join(json.dumps(item, separators=(",", ":")) for item in items) for items in (known, parsers))
    definitions, sets = lines
    return (
        f'{{"definitions":[\n{definitions}\n],\n"parsers":[\n{sets}\n],\n'
        f'"releases":{json.dumps(indices, separators=(",", ":"))}}}\n'
    )


def _index(items: list[Any], item: Definition) -> int:
    """Return the place of what the review needs of an option."""
    needed = {"options": list(item.options), "type": item.type, "nargs": item.nargs, "choices": list(item.choices)}
    return _position(items, needed)


def _position(items: list[Any], item: Any) -> int:
    if item not in items:
        items.append(item)
    return items.index(item)
