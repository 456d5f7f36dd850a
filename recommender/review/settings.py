"""Read project settings from ``[tool.recommend]`` or .recommend.toml."""

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from recommender.common.errors import RequestError, SettingsError, UnknownName, UnknownRule
from recommender.common.parse import parse_toml
from recommender.common.text import did_you_mean, shorten
from recommender.common.user_file import Unreadable, read_text
from recommender.review.context import ANSWERS, verify

OWN, SHARED = ".recommend.toml", "pyproject.toml"
FAIL_ON = ("error", "warning", "info", "never")
KEYS = (*(name.replace("_", "-") for name in ANSWERS), "ignore", "fail-on")


class Settings(NamedTuple):
    """A project's answers to request options, ignored rules, and ``fail-on``."""

    path: str = ""
    options: Mapping[str, Any] = MappingProxyType({})
    ignore: frozenset[str] = frozenset()
    fail_on: str = ""


def of(path: Path) -> Settings:
    """Return the settings for a file or folder. Raise SettingsError."""
    try:
        place = path.absolute()
        found = _upward(place if place.is_dir() else place.parent)
    except OSError as error:
        raise SettingsError(f"{path}: cannot look for settings: {error.strerror or error}") from None
    if isinstance(found, SettingsError):
        raise found
    return found


@lru_cache(maxsize=4096)
def _upward(folder: Path) -> Settings | SettingsError:
    """Return the nearest settings, or what is wrong with them; stop at the folder that holds the repository."""
    for name in (OWN, SHARED):
        try:
            settings = _read(folder / name) if os.path.lexists(folder / name) else None
        except SettingsError as error:
            return error
        if settings is not None:
            return settings
    if (folder / ".git").exists() or folder.parent == folder:
        return Settings()
    return _upward(folder.parent)


def _read(path: Path) -> Settings | None:
    """Return a file's settings; None for a pyproject.toml without any."""
    try:
        text = read_text(path)
        if path.name == SHARED and "recommend" not in text:
            return None
        table: Any = parse_toml(text)
    except (OSError, Unreadable) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise SettingsError(f"{path}: cannot be read: {reason}") from None
    if path.name == SHARED:
        tool = table.get("tool")
        table = tool.get("recommend") if isinstance(tool, dict) else None
        if table is None:
            return None
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: tool.recommend is not a table; write [tool.recommend] and keys below it")
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
    """Return a value as the command line would pass it."""
    if key == "text-only":
        if not isinstance(value, bool):
            raise SettingsError(f"{path}: text-only: write true or false")
        return value
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:.15g}" if isinstance(value, float) else str(value)
    raise SettingsError(f'{path}: {key}: write a string or a number, such as {key} = "..."')


def _ignored(path: Path, value: object) -> frozenset[str]:
    from recommender.review.engine import rule

    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise SettingsError(f'{path}: ignore: write a list of rules, such as ["LMD101"]')
    try:
        return frozenset(rule(name).id for name in value)
    except UnknownRule as error:
        raise SettingsError(f"{path}: ignore: {error}") from None
