"""Offer rules common checks: launch kind, violated constraints, option spelling.

A constraint is evaluated only if all the values it compares are known (``case.known``). A rule therefore names
constraints and need not check what is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from recommender.choose import constraints
from recommender.choose.needs import is_file
from recommender.common.pattern import pattern
from recommender.knowledge.conditions import Condition, Value, fill
from recommender.knowledge.eras import options_of
from recommender.knowledge.store import Store
from recommender.review import accepted_options
from recommender.review.engine_support import (
    PYTORCH,
    TURBOMIND,
    architecture,
    engine,
    falls_back,
    is_served,
    runs_for_certain,
    serves,
    wanted_engine,
)
from recommender.review.known_values import has_replicas
from recommender.review.launch_settings import LaunchSetting, flag_id
from recommender.review.rule import Case

if TYPE_CHECKING:
    from recommender.knowledge import records
    from recommender.review.script.model import GivenOption, Launch, Span

__all__ = [
    "PYTORCH",
    "TURBOMIND",
    "architecture",
    "engine",
    "falls_back",
    "is_file",
    "is_served",
    "runs_for_certain",
    "serves",
    "wanted_engine",
]

HOLDS_INPUT = ("session-holds-input", "session-holds-input-before-0-16")
"""The constraints of a session that holds a request's prompt."""
LOADED = frozenset(
    f"estimate.{name}" for name in ("kv_requests", "kv_needed_tokens", "latency_ms", "p99_ms", "ttft_ms", "rps")
)
"""Estimates that depend on the load."""
NOTHING: Mapping[str, Value] = MappingProxyType({})
WORD = pattern(r"[\w-]+")


class Broken(NamedTuple):
    """Hold a violated constraint, its message and the settings that it compares."""

    record: records.Constraint
    message: str
    settings: tuple[LaunchSetting, ...]


# --- the launch


def server(case: Case) -> bool:
    """Return whether the launch is, or tries to be, an api_server command."""
    instead = case.launch.instead
    return case.launch.starts == "api_server" and (instead is None or "/" in (instead.value or "/"))


def python(case: Case) -> bool:
    """Return whether the launch is a pipeline in a Python file."""
    return case.launch.starts == "pipeline"


def release(case: Case) -> str:
    """Return the release in words, marked if it is assumed."""
    name = f"LMDeploy {case.resolved.release.id}"
    return name if case.release_known else f"{name} (assumed)"


def spelled(case: Case, name: str) -> str:
    """Return a flag's name as this launch spells it."""
    setting = case.settings.get(name)
    if setting is not None:
        return setting.option.name
    flag = case.resolved.store.flags.get(name)
    if flag is None:
        return name
    return flag.id.replace("-", "_") if python(case) else flag.option


def at(setting: LaunchSetting) -> Span:
    """Return a setting's place: its value, else its name."""
    if setting.word is None:
        return setting.option.place
    return setting.word.literal or setting.word.place


def place(case: Case, option: str) -> Span:
    """Return an option's place; the launch's if it does not set the option."""
    setting = case.settings.get(option)
    return at(setting) if setting else case.launch.place


def model_place(case: Case) -> Span:
    """Return the model's place: the literal that names it, else its use; the launch's if it names none."""
    model = case.launch.model
    return (model.literal or model.place) if model else case.launch.place


# --- constraints


def broken(case: Case, *ids: str, lean: bool = False, extra: Mapping[str, Value] = NOTHING) -> Iterator[Broken]:
    """Yield those of these constraints that are violated and can be evaluated.

    ``lean`` drops conditions on estimates, for rules with a message of their own. ``extra`` adds values that the
    rule knows.
    """
    asked, known = (ids, lean, tuple(extra.items())), case.violated
    if asked not in known:
        known[asked] = tuple(_violated(case, ids, lean, extra))
    for constraint, message in known[asked]:
        yield Broken(constraint.record, message, _settings(case, constraint))


def _violated(
    case: Case, ids: tuple[str, ...], lean: bool, extra: Mapping[str, Value]
) -> Iterator[tuple[constraints.ParsedConstraint, str]]:
    """Yield each violated constraint and its message."""
    values = {**case.known, **extra}
    numbered = _numbered(case.resolved.store)
    for _, constraint in sorted((numbered[name] for name in ids if name in numbered), key=lambda pair: pair[0]):
        if lean:
            when = tuple(condition for condition in constraint.when if not _estimated(condition))
            constraint = replace(constraint, when=when, estimated=False)
        names = {name for condition in (*constraint.when, *constraint.require) for name in condition.names}
        judged = _with_estimates(case, values) if constraint.estimated else values
        if names <= judged.keys() and constraint.is_violated(judged):
            shown = dict(constraints.fact_values(case.resolved)) | dict(judged)
            yield constraint, "" if lean else fill(constraint.record.message, shown)


@lru_cache(maxsize=4)
def _numbered(store: Store) -> Mapping[str, tuple[int, constraints.ParsedConstraint]]:
    """Return the constraints with their order, by id."""
    return {rule.record.id: (number, rule) for number, rule in enumerate(constraints.parse_all(store))}


def _estimated(condition: Condition) -> bool:
    return any(name.startswith("estimate.") for name in condition.names)


def _with_estimates(case: Case, values: Mapping[str, Value]) -> Mapping[str, Value]:
    """Add the estimates; those that depend on the load only if it is known."""
    estimated = case.candidate.values if case.candidate else {}
    return {**values} | {
        name: value
        for name, value in estimated.items()
        if name.startswith("estimate.") and ((case.load_known and not has_replicas(case)) or name not in LOADED)
    }


def _settings(case: Case, rule: constraints.ParsedConstraint) -> tuple[LaunchSetting, ...]:
    """Return the settings that a constraint compares, its requirement's first."""
    by_name = {option.setting: option.id for option in case.resolved.store.options() if option.setting}
    settings: list[LaunchSetting] = []
    for condition in (*rule.require, *rule.when):
        for name in condition.names:
            option = by_name.get(name.removeprefix("config."))
            setting = case.settings.get(option) if name.startswith("config.") and option else None
            if setting is not None and setting not in settings:
                settings.append(setting)
    return tuple(settings)


# --- options


def is_asked_for(case: Case, option: GivenOption) -> bool:
    """Return whether the script gives an option only if LMDeploy's help lists it."""
    name, text, at = option.name.strip("-").replace("_", "-"), case.script.text, option.place.start
    before = (text[start:at] for start, end in case.script.by_help if start <= at < end)
    return any(name in {word.strip("-").replace("_", "-") for word in WORD.findall(part)} for part in before)


def flag_of(store: Store, text: str) -> records.Flag | None:
    """Return the flag record with this full spelling; underscores count as dashes."""
    spelling = text.replace("_", "-")
    return next((flag for flag in store.flags.values() if flag.option == spelling), None)


def accepts(case: Case, text: str) -> bool:
    """Return whether the release's parser accepts an option, shortened or not."""
    return accepted_options.accepts(case.resolved.release.id, text)


def options(case: Case) -> Iterator[tuple[GivenOption, records.Flag]]:
    """Yield the launch's options that are known flags, with their records."""
    for option in case.launch.options:
        name = flag_id(case.resolved, case.launch, option.name)
        flag = case.resolved.store.flags.get(name) if name else None
        if flag is not None:
            yield option, flag


def era(case: Case, flag: records.Flag) -> records.Era | None:
    """Return the flag's era in the release; None if the release lacks the flag."""
    return options_of(case.resolved.store, case.resolved.version).get(flag.id)


def literal(launch: Launch) -> str:
    """Return the model as the launch names it; empty if unknown."""
    return (launch.model.value if launch.model else None) or ""


def local(case: Case) -> bool:
    """Return whether the model is a local folder, whose weights may differ."""
    text = literal(case.launch)
    return text.startswith(("/", ".", "~")) or text.count("/") != 1


def alone(case: Case) -> bool:
    """Return whether this server takes the whole load: one launch, no proxy."""
    if len(case.script.launches) != 1 or "proxy-url" in case.settings or case.launch.starts == "proxy":
        return False
    return getattr(case.launch.container, "replicas", 1) == 1


def number(case: Case, name: str) -> int | None:
    """Return a flag's value as a whole number; None if it is not one."""
    value = case.number(name)
    return int(value) if value is not None and value == int(value) else None


def at_default(case: Case, name: str) -> bool:
    """Return whether a flag is set to its default."""
    setting, now = case.settings.get(name), case.resolved.options.get(name)
    return setting is not None and now is not None and setting.text == now.default


def expects_images(case: Case) -> bool:
    """Return whether something says that requests contain images."""
    return bool({"image", "load", "rps"} & case.answered) and "text_only" not in case.answered


def stretched_by_name(launch: Launch) -> bool:
    """Return whether the model's name marks a long-context variant."""
    return any(mark in literal(launch).casefold() for mark in ("1m", "yarn", "128k", "long", "262k", "256k"))
