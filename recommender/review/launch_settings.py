"""Map a launch's options and variables to records and normalise their values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from recommender.knowledge import option_values
from recommender.review.script.model import ENGINES, GivenOption, Launch, Word

if TYPE_CHECKING:
    from recommender.knowledge.store import Store
    from recommender.request.resolved_request import ResolvedRequest

ASSIGNED = frozenset({"server_name", "port", "proxy_url", "log_level", "disable_docs", "revision", "chat_template"})
"""Settings that affect neither memory nor speed, so they may be unknown."""
PYTHON_NAMES: Mapping[str, str] = {"max_new_tokens": "max_tokens", "revision": "revision"}


class LaunchSetting(NamedTuple):
    """A known flag or variable as the launch sets it; ``id`` is its record's.

    ``text`` is the value, "true" for a bare switch, None if unknown.
    """

    id: str
    option: GivenOption
    word: Word | None
    text: str | None


@lru_cache(maxsize=4)
def _flags(store: Store) -> Mapping[str, str]:
    return {flag.option: flag.id for flag in store.flags.values()}


@lru_cache(maxsize=4)
def _variables(store: Store) -> Mapping[str, str]:
    return {variable.name: variable.id for variable in store.environment.values()}


@lru_cache(maxsize=4)
def _keywords(store: Store) -> Mapping[tuple[str, str], str]:
    """Return flag and request field ids by configuration class and keyword."""
    fields = {(field.config, field.field): flag.id for flag in store.flags.values() for field in flag.fields}
    return fields | {("GenerationConfig", field.name): field.id for field in store.client.values()}


def flag_id(resolved: ResolvedRequest, launch: Launch, name: str) -> str | None:
    """Return the record id of an option or a Python keyword; None if unknown.

    Like LMDeploy's parser, accept underscores as dashes and an unambiguous prefix.
    """
    if launch.starts == "pipeline":
        return _keyword_id(resolved.store, launch, name)
    flags = _flags(resolved.store)
    spelled = name.replace("_", "-")
    if spelled in flags:
        return flags[spelled]
    if not spelled.startswith("--") or launch.starts == "proxy":
        return None
    begun = [flag for flag in resolved.options if resolved.store.flags[flag].option.startswith(spelled)]
    return begun[0] if len(begun) == 1 and len(spelled) > len("--") else None


def _keyword_id(store: Store, launch: Launch, name: str) -> str | None:
    known = _keywords(store)
    whose, dot, keyword = name.rpartition(".")
    keyword = PYTHON_NAMES.get(keyword, keyword)
    classes = (whose,) if dot else (launch.engine, *(() if launch.engine else ENGINES), "GenerationConfig")
    direct = keyword.replace("_", "-")
    fallback = direct if direct in store.flags and whose in ("", "pipeline") else None
    return next((known[config, keyword] for config in classes if (config, keyword) in known), fallback)


def launch_settings(resolved: ResolvedRequest, launch: Launch) -> dict[str, LaunchSetting]:
    """Return the known flags and variables; the last of duplicates wins."""
    settings: dict[str, LaunchSetting] = {}
    for option in launch.options:
        name = flag_id(resolved, launch, option.name)
        if name is not None:
            word = option.values[0] if option.values else None
            settings[name] = LaunchSetting(name, option, word, _text(resolved, name, option))
    variables = _variables(resolved.store)
    for name, word in launch.environment.items():
        if name in variables:
            option = GivenOption(name, (word,), word.place, word.place)
            settings[variables[name]] = LaunchSetting(variables[name], option, word, word.value)
    return settings


def weighed_settings(resolved: ResolvedRequest, launch: Launch) -> tuple[object, ...]:
    """Return what of a launch memory and speed depend on."""
    weighed = {option.id for option in resolved.store.options() if option.setting and option.setting not in ASSIGNED}
    settings = launch_settings(resolved, launch)
    return launch.model, launch.engine, {name: settings[name].text for name in settings.keys() & weighed}


def _text(resolved: ResolvedRequest, name: str, option: GivenOption) -> str | None:
    """Return the value as text; "true" or "false" for a switch."""
    flag = resolved.store.flags.get(name)
    era = resolved.options.get(name) or (flag.eras[-1] if flag else None)
    values = [word.value for word in option.values]
    if era is not None and era.type == "bool":
        if not values:
            return "true"
        return values[0].casefold() if values[0] is not None else None
    known = [value for value in values if value is not None]
    return " ".join(known) if len(known) == len(values) else None


def accepted_value(resolved: ResolvedRequest, name: str, text: str) -> str | None:
    """Return a value that the release and TurboMind accept, as given; None for any other."""
    store = resolved.store
    flag, parameter = store.flags.get(name), store.environment.get(name) or store.client.get(name)
    option, accepted = flag or parameter, resolved.options.get(name) or parameter
    if option is None or (accepted is not None and option_values.refuse(accepted, text)):
        return None
    return text if flag is None or option_values.runs_on_turbomind(flag, text) else None
