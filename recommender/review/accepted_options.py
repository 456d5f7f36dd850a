"""Read what LMDeploy's parsers accept: argument counts, dashes, class fields."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from recommender.knowledge.load import data_root


@lru_cache(maxsize=1)
def _extracted() -> Any:
    path = data_root() / "knowledge" / "extracted" / "api_server.json"
    return json.loads(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=64)
def values_taken(name: str) -> Mapping[str, str]:
    """Return each option's argparse ``nargs`` in a release; "" means one value."""
    raw = _extracted()
    definitions = (raw["definitions"][index] for index in raw["releases"][name]["options"])
    return {option: definition["nargs"] for definition in definitions for option in definition["options"]}


@lru_cache(maxsize=64)
def takes_underscores(name: str) -> bool:
    """Return whether a release's parser reads underscores in options as dashes."""
    return bool(_extracted()["releases"][name]["flexible"])


@lru_cache(maxsize=512)
def keywords(name: str, config: str) -> frozenset[str]:
    """Return the fields of a configuration class in a release."""
    raw = _extracted()
    fields = (raw["fields"][index] for index in raw["releases"][name]["fields"])
    return frozenset(field["field"] for field in fields if field["config"] == config)


@lru_cache(maxsize=64)
def releases_with(config: str, keyword: str) -> tuple[str, ...]:
    """Return the releases whose configuration class has a field, in order."""
    return tuple(name for name in _extracted()["releases"] if keyword in keywords(name, config))
