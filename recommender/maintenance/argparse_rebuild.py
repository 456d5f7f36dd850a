"""Rebuild the api_server parser of a release from the extracted facts, without LMDeploy."""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from recommender.maintenance.wheel_facts import Definition, WheelFacts

CONVERTERS: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float, "json": json.loads}
NAME = re.compile(r"--[^.=]*")


class ReleaseParser(argparse.ArgumentParser):
    """An argparse parser that, if flexible, accepts the spellings of the newer releases.

    Underscores in an option's name count as dashes, and ``--name.key value`` sets one key
    of a JSON object.
    """

    def __init__(self, *args: Any, flexible: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.flexible = flexible

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as argparse does, after rewriting flexible spellings."""
        return super().parse_known_args(plain(args) if self.flexible and args is not None else args, namespace)


def plain(arguments: Sequence[str]) -> list[str]:
    """Write flexible spellings as plain ones: ``--a_b`` as ``--a-b``, ``--a.b 1`` as ``--a '{"b": 1}'``."""
    kept: list[str] = []
    objects: dict[str, dict[str, Any]] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument.startswith("--"):
            argument = NAME.sub(lambda match: match.group().replace("_", "-"), argument, count=1)
        key, equals, value = argument.partition("=")
        if not key.startswith("--") or "." not in key:
            kept.append(argument)
            continue
        name, *path, last = key.split(".")
        place = objects.setdefault(name, {})
        for part in path:
            place = place.setdefault(part, {})
        place[last] = _value(value if equals else next(rest, ""))
    for name, content in objects.items():
        kept += [name, json.dumps(content)]
    return kept


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _named_number(names: frozenset[str]) -> Callable[[str], str]:
    """Return a converter that accepts names in any case and whole numbers, and gives the text of a choice."""

    def convert(text: str) -> str:
        return text.lower() if text.lower() in names else str(int(text))

    convert.__name__ = "name or whole number"
    return convert


def _converter(item: Definition) -> tuple[Callable[[str], Any], list[Any] | None]:
    """Return the type callable of an option and its choices as values of that type."""
    names = frozenset(choice for choice in item.choices if not choice.isdigit())
    if item.type == "int" and names:
        return _named_number(names), list(item.choices)
    convert = CONVERTERS[item.type]
    return convert, [convert(choice) for choice in item.choices] or None


def default_value(item: Definition) -> Any:
    """Return an option's default as a value: None, bool, number, text, list or JSON value."""
    if item.type == "bool":
        return item.default == "true"
    if not item.default:
        return None
    convert, _ = _converter(item)
    if item.nargs in ("+", "*") or item.nargs.isdigit():
        return [convert(part) for part in item.default.split()]
    return convert(item.default)


def _add(parser: argparse.ArgumentParser, item: Definition) -> None:
    names = item.options or (item.dest,)
    settings: dict[str, Any] = {"default": default_value(item)}
    if item.options:
        settings |= {"dest": item.dest, "required": item.required}
    if item.type == "bool":
        parser.add_argument(*names, action=item.action, **settings)
        return
    settings["type"], settings["choices"] = _converter(item)
    if item.nargs:
        settings["nargs"] = int(item.nargs) if item.nargs.isdigit() else item.nargs
    parser.add_argument(*names, **settings)


def rebuild_parser(facts: WheelFacts, release: str) -> argparse.ArgumentParser:
    """Return a parser that accepts and rejects what the release's ``lmdeploy serve api_server`` does.

    It rejects as argparse does (usage on standard error, SystemExit 2).
    Raises MaintenanceError for a release that was not extracted.
    """
    wheel = facts.release(release)
    parser = ReleaseParser(prog="lmdeploy serve api_server", flexible=wheel.flexible)
    for item in wheel.options:
        _add(parser, item)
    return parser
