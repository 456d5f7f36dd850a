"""What was read out of LMDeploy's wheels and stands in no record: how many values an option takes, a class's fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from recommender.store import data_root


@lru_cache(maxsize=1)
def _extracted() -> Any:
    path = data_root() / "knowledge" / "extracted" / "api_server.json"
    return json.loads(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=64)
def values_taken(name: str) -> Mapping[str, str]:
    """How many values each option of a release's parser takes, as argparse writes it; empty text: one."""
    raw = _extracted()
    definitions = (raw["definitions"][index] for index in raw["releases"][name]["options"])
    return {option: each["nargs"] for each in definitions for option in each["options"]}


@lru_cache(maxsize=64)
def takes_underscores(name: str) -> bool:
    """Whether a release's parser reads an underscore in an option's name as a dash."""
    return bool(_extracted()["releases"][name]["flexible"])


@lru_cache(maxsize=512)
def keywords(name: str, config: str) -> frozenset[str]:
    """The fields of a configuration class in a release."""
    raw = _extracted()
    fields = (raw["fields"][index] for index in raw["releases"][name]["fields"])
    return frozenset(each["field"] for each in fields if each["config"] == config)


@lru_cache(maxsize=64)
def releases_with(config: str, keyword: str) -> tuple[str, ...]:
    """The releases whose configuration class has a field, in order."""
    return tuple(name for name in _extracted()["releases"] if keyword in keywords(name, config))
