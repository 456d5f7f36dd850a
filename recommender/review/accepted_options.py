"""Read what LMDeploy's parsers accept: commands, options, argument counts, dashes, class fields."""

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from recommender.knowledge.load import data_root

SERVER = "serve api_server"


class AcceptedOption(NamedTuple):
    """An option of a parser. ``nargs`` is argparse's; "" is one value, or none for a switch (type ``bool``)."""

    type: str
    nargs: str
    choices: tuple[str, ...]


@cache
def _extracted(name: str) -> Any:
    return json.loads((data_root() / "knowledge" / "extracted" / name).read_text(encoding="utf-8"))


def _parsers(release: str) -> Mapping[str, list[int]]:
    """Return the other commands of a release, with the places of their options."""
    raw = _extracted("subcommands.json")
    found: Mapping[str, list[int]] = raw["parsers"][raw["releases"][release]]
    return found


@lru_cache(maxsize=64)
def commands(release: str) -> frozenset[str]:
    """Return the commands of a release, such as ``serve proxy`` and ``lite auto_awq``."""
    return frozenset({SERVER, *_parsers(release)})


@lru_cache(maxsize=64)
def removed_in(command: str, release: str) -> str:
    """Return the first release without a command that an older one has; empty if the given release is older."""
    had = [at for at, name in enumerate(releases()) if command in commands(name)]
    gone = releases()[had[-1] + 1 :] if had else ()
    return gone[0] if release in gone else ""


@lru_cache(maxsize=256)
def parser(release: str, command: str = SERVER) -> Mapping[str, AcceptedOption]:
    """Return a command's options in a release by spelling; a positional has the empty one. Empty: no such command."""
    if command == SERVER:
        raw = _extracted("api_server.json")
        places = raw["releases"][release]["options"]
    else:
        raw, places = _extracted("subcommands.json"), _parsers(release).get(command, [])
    items = [raw["definitions"][place] for place in places]
    return {
        spelling: AcceptedOption(item["type"], item["nargs"], tuple(item["choices"]))
        for item in items
        for spelling in item["options"] or [""]
    }


@lru_cache(maxsize=256)
def positionals(release: str, command: str) -> int:
    """Return how many positional words a command other than the server takes."""
    definitions = _extracted("subcommands.json")["definitions"]
    return sum(not definitions[place]["options"] for place in _parsers(release).get(command, ()))


@cache
def counts(command: str) -> Mapping[str, str]:
    """Return how many values each option takes, over all releases: argparse's ``nargs``, "0" for a switch."""
    options = (item for release in releases() for item in parser(release, command).items())
    return {name: "0" if option.type == "bool" else option.nargs for name, option in options if name}


@cache
def releases() -> tuple[str, ...]:
    """Return the releases that were read, in order."""
    return tuple(_extracted("api_server.json")["releases"])


@lru_cache(maxsize=64)
def values_taken(name: str) -> Mapping[str, str]:
    """Return each option's argparse ``nargs`` in a release; "" means one value."""
    return {option: accepted.nargs for option, accepted in parser(name).items() if option}


def accepts(release: str, text: str, command: str = SERVER) -> bool:
    """Return whether a release's parser accepts an option, shortened or not."""
    if takes_underscores(release):
        text = text.replace("_", "-").partition(".")[0]
    known = [option for option in parser(release, command) if option]
    if text in known or text in ("-h", "--help"):
        return True
    return text.startswith("--") and len(text) > len("--") and sum(option.startswith(text) for option in known) == 1


@lru_cache(maxsize=64)
def takes_underscores(name: str) -> bool:
    """Return whether a release's parser reads underscores in options as dashes."""
    return bool(_extracted("api_server.json")["releases"][name]["flexible"])


@lru_cache(maxsize=512)
def keywords(name: str, config: str) -> frozenset[str]:
    """Return the fields of a configuration class in a release."""
    raw = _extracted("api_server.json")
    fields = (raw["fields"][index] for index in raw["releases"][name]["fields"])
    return frozenset(field["field"] for field in fields if field["config"] == config)


@lru_cache(maxsize=64)
def releases_with(config: str, keyword: str) -> tuple[str, ...]:
    """Return the releases whose configuration class has a field, in order."""
    return tuple(name for name in releases() if keyword in keywords(name, config))
