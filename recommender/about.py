"""Everything the knowledge holds of one option: its life over the releases, advice, verdicts, threads. Data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from recommender.conditions import version
from recommender.facts import within
from recommender.store import Store, UnknownName, did_you_mean, normal, shorten

if TYPE_CHECKING:
    from recommender import records as r


@dataclass(frozen=True, slots=True)
class Life:
    """Releases in which nothing about an option changed, the first and the last of them, and how it was there.

    ``now``: the release asked for is among them. ``last`` is empty where the newest release is.
    """

    first: str
    last: str
    now: bool
    type: str
    default: str
    choices: tuple[str, ...]
    read_by: tuple[str, ...]
    note: str
    sources: r.Sources


@dataclass(frozen=True, slots=True)
class Said:
    """What an adviser gave, or said in passing."""

    adviser: str
    value: str
    up_to: str
    final: bool
    reason: str
    reason_vi: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A claim about the option. ``holds``: its verdict is for the release asked for."""

    claim: str
    statement: str
    advisers: tuple[str, ...]
    verdict: str
    because: str
    since: str
    until: str
    holds: bool
    sources: r.Sources


@dataclass(frozen=True, slots=True)
class Met:
    """A failure that users met. ``possible``: in the release asked for too."""

    thread: str
    url: str
    symptom: str
    cause: str
    remedy: str
    since: str
    until: str
    possible: bool


@dataclass(frozen=True, slots=True)
class About:
    """One option as of a release. ``kind`` is flag, environment or client; these two have no ``lives``."""

    option: str
    name: str
    kind: str
    release: str
    there: bool
    topic: str
    summary: str
    summary_vi: str
    memory: str
    latency: str
    throughput: str
    accuracy: str
    choose: str
    default: str
    fields: tuple[str, ...]
    lives: tuple[Life, ...]
    said: tuple[Said, ...]
    judged: tuple[Judged, ...]
    met: tuple[Met, ...]
    sources: r.Sources


def resolve_option(store: Store, name: str) -> r.Option:
    """An option, variable or request field from how people write it. Raises UnknownName with near matches.

    Dashes, underscores and capitals do not count; nor do a dollar sign before a name and a value behind it.
    A field of the engine's Python configuration is its option.
    """
    asked = name.strip().lstrip("$").partition("=")[0]
    by_name = _by_name(store)
    if normal(asked) in by_name:
        return by_name[normal(asked)]
    known = [getattr(each, "option", getattr(each, "name", each.id)) for each in store.options()]
    raise UnknownName(f"unknown option {shorten(name)}{did_you_mean(asked, known)}")


@lru_cache(maxsize=8)
def _by_name(store: Store) -> dict[str, r.Option]:
    found: dict[str, r.Option] = {}
    for flag in store.flags.values():  # first, so that an option's own name wins
        found |= {normal(each.field): flag for each in flag.fields if normal(each.field) not in found}
    for option in store.options():
        found[normal(option.id)] = option
    for kind in (store.environment, store.client):
        found |= {normal(each.name): each for each in kind.values()}
    return found


def about(store: Store, option: r.Option, release: r.Release) -> About:
    """All of it for a release."""
    flag = store.flags.get(option.id)
    parameter = store.environment.get(option.id) or store.client.get(option.id)
    either = flag or parameter
    assert either is not None
    lives = tuple(_lives(store, flag, release)) if flag else ()
    return About(
        option=option.id,
        name=flag.option if flag else either.name,  # type: ignore[union-attr]
        kind=parameter.kind if parameter else "flag",
        release=release.id,
        there=not flag or any(each.now for each in lives),
        topic=flag.topic if flag else "",
        summary=option.summary,
        summary_vi=flag.summary_vi if flag else "",
        memory=either.effect.memory,
        latency=either.effect.latency,
        throughput=either.effect.throughput,
        accuracy=either.effect.accuracy,
        choose=either.choose,
        default=parameter.default if parameter else next((each.default for each in lives if each.now), ""),
        fields=tuple(_fields(flag, release)) if flag else (),
        lives=lives,
        said=tuple(_said(store, option)),
        judged=tuple(_judged(store, option, release)),
        met=tuple(_met(store, option, release)),
        sources=option.sources,
    )


def _lives(store: Store, flag: r.Flag, release: r.Release) -> Iterator[Life]:
    releases = sorted(store.releases, key=version)
    for era in flag.eras:
        inside = [each for each in releases if within(era.since, era.until, version(each))]
        yield Life(
            first=era.since,
            last=inside[-1] if era.until and inside else "",
            now=release.id in inside,
            type=era.type,
            default=era.default,
            choices=era.choices,
            read_by=era.read_by,
            note=era.note,
            sources=era.sources,
        )


def _fields(flag: r.Flag, release: r.Release) -> Iterator[str]:
    for each in flag.fields:
        if within(each.since, each.until, version(release.id)):
            yield f"{each.config}.{each.field}"


def _said(store: Store, option: r.Option) -> Iterator[Said]:
    for adviser in store.advisers.values():
        for each in adviser.settings:
            if each.option == option.id:
                yield Said(adviser.id, each.value, each.up_to, each.final, each.reason, each.reason_vi)


def _judged(store: Store, option: r.Option, release: r.Release) -> Iterator[Judged]:
    for each in store.claims.values():
        if option.id in each.options:
            yield Judged(
                claim=each.id,
                statement=each.statement,
                advisers=each.advisers,
                verdict=each.verdict,
                because=each.because,
                since=each.since,
                until=each.until,
                holds=within(each.since, each.until, version(release.id)),
                sources=each.sources,
            )


def _met(store: Store, option: r.Option, release: r.Release) -> Iterator[Met]:
    for each in store.threads.values():
        if option.id in each.options:
            yield Met(
                thread=each.id,
                url=each.thread.url,
                symptom=each.symptom,
                cause=each.cause,
                remedy=each.remedy,
                since=each.since,
                until=each.until,
                possible=within(each.since, each.until, version(release.id)),
            )
