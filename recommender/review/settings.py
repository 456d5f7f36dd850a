"""A project's own settings: ``[tool.recommend]`` of pyproject.toml, or .recommend.toml, found upward from a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from recommender.request import RequestError
from recommender.review.context import ANSWERS, verify
from recommender.store import UnknownName, did_you_mean, shorten

OWN, SHARED = ".recommend.toml", "pyproject.toml"
FAIL_ON = ("error", "warning", "info", "never")
KEYS = (*(name.replace("_", "-") for name in ANSWERS), "ignore", "fail-on")
MOST_BYTES = 2**20


class SettingsError(Exception):
    """Settings that cannot be used. The message is one line: file, key and how to mend it."""


@dataclass(frozen=True)
class Settings:
    """What a project says: answers to the question's options, rules that it does without, what fails."""

    path: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    ignore: frozenset[str] = frozenset()
    fail_on: str = ""


def of(path: Path) -> Settings:
    """The settings that hold for a file (or a folder). Raises SettingsError."""
    try:
        place = path.absolute()
        return _upward(place if place.is_dir() else place.parent)
    except OSError as error:
        raise SettingsError(f"{path}: cannot look for settings: {error.strerror or error}") from None


@lru_cache(maxsize=4096)
def _upward(folder: Path) -> Settings:
    """The nearest settings; the search ends at the folder that holds the repository."""
    for name in (OWN, SHARED):
        found = _read(folder / name) if (folder / name).is_file() else None
        if found is not None:
            return found
    if (folder / ".git").exists() or folder.parent == folder:
        return Settings()
    return _upward(folder.parent)


def _read(path: Path) -> Settings | None:
    """The settings of a file; None of a pyproject.toml without any."""
    import tomllib

    try:
        text = path.read_bytes()[:MOST_BYTES].decode("utf-8")
        if path.name == SHARED and "recommend" not in text:
            return None
        table: Any = tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        said = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise SettingsError(f"{path}: cannot be read: {said}") from None
    if path.name == SHARED:
        tool = table.get("tool")
        table = tool.get("recommend") if isinstance(tool, dict) else None
        if table is None:
            return None
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: tool.recommend is no table; write [tool.recommend] and keys below it")
    return _checked(path, table)


def _checked(path: Path, table: dict[str, Any]) -> Settings:
    for key in table:
        if key not in KEYS:
            raise SettingsError(f"{path}: unknown key {shorten(key)}{did_you_mean(key, KEYS)}")
    fail_on = table.get("fail-on", "")
    if fail_on and fail_on not in FAIL_ON:
        raise SettingsError(f"{path}: fail-on {shorten(str(fail_on))}: use one of {', '.join(FAIL_ON)}")
    options = {name: _value(path, key, table[key]) for name in ANSWERS if (key := name.replace("_", "-")) in table}
    try:
        verify(options)
    except (RequestError, UnknownName) as error:
        raise SettingsError(f"{path}: {error}") from None
    return Settings(str(path), options, _ignored(path, table.get("ignore", [])), str(fail_on))


def _value(path: Path, key: str, value: object) -> Any:
    """A value as the command line would give it."""
    if key == "text-only":
        if not isinstance(value, bool):
            raise SettingsError(f"{path}: text-only: write true or false")
        return value
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.15g}" if isinstance(value, float) else str(value)
    raise SettingsError(f'{path}: {key}: write a text or a number, such as {key} = "..."')


def _ignored(path: Path, value: object) -> frozenset[str]:
    from recommender.review.engine import UnknownRule, rule

    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise SettingsError(f'{path}: ignore: write a list of rules, such as ["LMD101"]')
    try:
        return frozenset(rule(each).id for each in value)
    except UnknownRule as error:
        raise SettingsError(f"{path}: ignore: {error}") from None
