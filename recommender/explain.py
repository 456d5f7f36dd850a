"""Why each option has its value, what each adviser said and which verdicts bear on it. Data, no layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from recommender.choose import Candidate
from recommender.conditions import Value, fill, parse
from recommender.facts import Facts, within
from recommender.store import Store

if TYPE_CHECKING:
    from recommender import records as r

Kind = Literal["flag", "environment", "client"]
READERS = frozenset({"turbomind", "server"})


@dataclass(frozen=True, slots=True)
class Advice:
    """What one adviser said of an option."""

    adviser: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True)
class Bearing:
    """A claim about an option with its verdict."""

    claim: str
    statement: str
    verdict: str
    because: str
    sources: r.Sources


@dataclass(frozen=True, slots=True)
class Explanation:
    """One option of the release: its value, whether it is emitted, and why."""

    option: str
    kind: Kind
    name: str
    value: str
    default: str
    switch: bool
    emitted: bool
    reason: str
    sources: r.Sources
    advice: tuple[Advice, ...]
    verdicts: tuple[Bearing, ...]


def explain(facts: Facts, candidate: Candidate) -> tuple[Explanation, ...]:
    """Every option that the release has, in the order of their ids: flags, environment, client."""
    flags = (
        _explain(facts, candidate, facts.store.flags[name], "flag", facts.store.flags[name].option, era.default, era)
        for name, era in facts.options.items()
    )
    parameters = (
        _explain(facts, candidate, each, each.kind, each.name, each.default, None)
        for each in (*facts.store.environment.values(), *facts.store.client.values())
    )
    return (*flags, *parameters)


def _explain(
    facts: Facts,
    candidate: Candidate,
    option: r.Option,
    kind: Kind,
    name: str,
    default: str,
    era: r.Era | None,
) -> Explanation:
    value = written(option, candidate, default)
    reason, sources = _reason(option, candidate.values)
    advice, claims = _about(facts.store, option.id)
    return Explanation(
        option=option.id,
        kind=kind,
        name=name,
        value=value,
        default=default,
        switch=era is not None and era.type == "bool",
        emitted=emitted(option, value, default, era),
        reason=reason,
        sources=sources,
        advice=advice,
        verdicts=tuple(
            Bearing(each.id, each.statement, each.verdict, each.because, each.sources)
            for each in claims
            if within(each.since, each.until, facts.version)
        ),
    )


def written(option: r.Option, candidate: Candidate, default: str) -> str:
    """The decided value as the option's text; its default where nothing is decided."""
    if not option.setting:
        return default
    value = getattr(candidate.config, option.setting)
    if isinstance(value, bool):
        text = "true" if value else "false"
    else:
        text = f"{value:g}" if isinstance(value, float) else str(value)
    return next((each.text for each in option.encodings if each.value == text), text)


def emitted(option: r.Option, value: str, default: str, era: r.Era | None) -> bool:
    """Whether the option is written out: decided, read by the engine or the server, and not at its default."""
    if not option.setting or option.emit == "never":
        return False
    if era is not None:
        if not READERS & set(era.read_by):
            return False
        if era.type == "bool":
            return value == "true"
    return bool(value) and (option.emit == "always" or value != default)


def opened(sources: r.Sources) -> bool:
    """Whether anybody opened anything for a fact; else it is unverified."""
    return bool(sources.code or sources.pages or sources.evidence)


def _reason(option: r.Option, values: Mapping[str, Value]) -> tuple[str, r.Sources]:
    for reason in option.reasons:
        if all(parse(text).holds(values) for text in reason.when):
            sources = reason.sources if opened(reason.sources) else option.sources
            return fill(reason.text, values), sources
    return option.summary, option.sources


@lru_cache(maxsize=4096)
def _about(store: Store, option: str) -> tuple[tuple[Advice, ...], tuple[r.Claim, ...]]:
    advice = tuple(
        Advice(adviser.id, setting.value + (f" to {setting.up_to}" if setting.up_to else ""), setting.reason)
        for adviser in store.advisers.values()
        for setting in adviser.settings
        if setting.option == option and setting.final
    )
    return advice, tuple(claim for claim in store.claims.values() if option in claim.options)
