"""Look up one option: its eras over the releases, advice, verdicts and known issues. Data, no layout."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recommender.common.errors import UnknownName
from recommender.common.text import did_you_mean, normal, shorten
from recommender.knowledge.conditions import version
from recommender.knowledge.eras import within
from recommender.knowledge.other_servers import closest_option
from recommender.knowledge.provenance import code_caveat, measured_lines, newest_about
from recommender.knowledge.store import Store

if TYPE_CHECKING:
    from recommender.knowledge import records


@dataclass(frozen=True, slots=True)
class OptionEra:
    """The releases between two changes of an option, and its form in them."""

    first: str
    """First release."""
    last: str
    """Last release; empty: the newest."""
    now: bool
    """The requested release is among them."""
    type: str
    """What the value is parsed as."""
    default: str
    """LMDeploy's default; empty: none."""
    choices: tuple[str, ...]
    """Accepted values; empty: any."""
    read_by: tuple[str, ...]
    """Who reads the value."""
    note: str
    """What differs from the eras around it."""
    sources: records.Sources
    """What it rests on."""
    caveat: str
    """What limits the sources; empty: nothing."""


@dataclass(frozen=True, slots=True)
class OptionAdvice:
    """A value that an adviser gave, ``final`` or in passing."""

    adviser: str
    """Id of the adviser."""
    value: str
    """The advised value."""
    up_to: str
    """Upper end where a range was advised."""
    final: bool
    """Part of the adviser's configuration; otherwise said in passing."""
    reason: str
    """The adviser's reason, in English."""
    reason_vi: str
    """The same in Vietnamese."""


@dataclass(frozen=True, slots=True)
class OptionVerdict:
    """A claim about the option."""

    claim: str
    """Id of the claim."""
    statement: str
    """What is claimed."""
    advisers: tuple[str, ...]
    """Ids of the advisers who say it."""
    verdict: str
    """What the sources show."""
    because: str
    """Why."""
    since: str
    """First release that the verdict is for."""
    until: str
    """First release that it is no longer for; empty: open."""
    holds: bool
    """It is for the requested release."""
    measured: tuple[str, ...]
    """What was measured, every compared load included."""
    sources: records.Sources
    """What the verdict rests on."""
    caveat: str
    """What limits the sources; empty: nothing."""


@dataclass(frozen=True, slots=True)
class KnownIssue:
    """A failure that users reported."""

    thread: str
    """Id of the record."""
    url: str
    """Address of the thread."""
    symptom: str
    """What the user sees."""
    cause: str
    """Why it happens."""
    remedy: str
    """What to do."""
    since: str
    """First release in which it happens."""
    until: str
    """First release without it; empty: open."""
    possible: bool
    """It happens in the requested release."""


@dataclass(frozen=True, slots=True)
class OptionInfo:
    """One option as of a release."""

    option: str
    """Id of the option."""
    name: str
    """Name on the command line, of the variable or of the field."""
    kind: str
    """flag, environment or client."""
    release: str
    """The requested LMDeploy release."""
    there: bool
    """The release has the option."""
    topic: str
    """Section of the reference; only of flags."""
    summary: str
    """What it does."""
    summary_vi: str
    """The same in Vietnamese."""
    memory: str
    """Effect on GPU memory."""
    latency: str
    """Effect on the latency."""
    throughput: str
    """Effect on requests/s."""
    accuracy: str
    """Effect on the answers."""
    choose: str
    """How to choose the value."""
    default: str
    """LMDeploy's default; empty: none."""
    fields: tuple[str, ...]
    """Fields of the Python configuration."""
    lives: tuple[OptionEra, ...]
    """Its form by release; only of flags."""
    said: tuple[OptionAdvice, ...]
    """What advisers say."""
    judged: tuple[OptionVerdict, ...]
    """Claims about it."""
    met: tuple[KnownIssue, ...]
    """Failures that users reported."""
    sources: records.Sources
    """What it rests on."""
    caveat: str
    """What limits the sources; empty: nothing."""


def resolve_option(store: Store, name: str) -> records.Option:
    """Return an option, variable or request field by name. Raises UnknownName with near matches.

    Dashes, underscores and capitals do not count, nor do a dollar sign before the name and a value after it.
    A field of the engine's Python configuration is its option.
    """
    asked = name.strip().lstrip("$").partition("=")[0]
    by_name = _by_name(store)
    if normal(asked) in by_name:
        return by_name[normal(asked)]
    if other := closest_option(asked):
        raise UnknownName(f"unknown option {shorten(name)}: another server has it; in LMDeploy use {other}")
    known = [getattr(option, "option", getattr(option, "name", option.id)) for option in store.options()]
    raise UnknownName(f"unknown option {shorten(name)}{did_you_mean(asked, known, 'see recommend list flags')}")


@lru_cache(maxsize=8)
def _by_name(store: Store) -> dict[str, records.Option]:
    by_name: dict[str, records.Option] = {}
    for flag in store.flags.values():  # first, so that an option's own name wins
        for field in flag.fields:
            by_name.setdefault(normal(field.field), flag)
    by_name |= {normal(option.id): option for option in store.options()}
    return by_name | {
        normal(parameter.name): parameter for parameter in (*store.environment.values(), *store.client.values())
    }


def option_info(store: Store, option: records.Option, release: records.Release) -> OptionInfo:
    """Return all that is known of an option as of a release."""
    flag = store.flags.get(option.id)
    parameter = store.environment.get(option.id) or store.client.get(option.id)
    either = flag or parameter
    assert either is not None
    lives = tuple(_eras(store, flag, release)) if flag else ()
    return OptionInfo(
        option=option.id,
        name=flag.option if flag else either.name,  # type: ignore[union-attr]
        kind=parameter.kind if parameter else "flag",
        release=release.id,
        there=not flag or any(era.now for era in lives),
        topic=flag.topic if flag else "",
        summary=option.summary,
        summary_vi=flag.summary_vi if flag else "",
        memory=either.effect.memory,
        latency=either.effect.latency,
        throughput=either.effect.throughput,
        accuracy=either.effect.accuracy,
        choose=either.choose,
        default=parameter.default if parameter else next((era.default for era in lives if era.now), ""),
        fields=tuple(
            f"{field.config}.{field.field}" for field in (flag.fields if flag else ()) if _holds(field, release)
        ),
        lives=lives,
        said=tuple(
            OptionAdvice(adviser.id, advice.value, advice.up_to, advice.final, advice.reason, advice.reason_vi)
            for adviser in store.advisers.values()
            for advice in adviser.settings
            if advice.option == option.id
        ),
        judged=tuple(_verdicts(store, option, release)),
        met=tuple(_issues(store, option, release)),
        sources=option.sources,
        caveat=code_caveat(store, option.sources, release.id),
    )


def _holds(record: Any, release: records.Release) -> bool:
    return within(record.since, record.until, version(release.id))


def _eras(store: Store, flag: records.Flag, release: records.Release) -> Iterator[OptionEra]:
    releases = sorted(store.releases, key=version)
    for era in flag.eras:
        inside = [known for known in releases if within(era.since, era.until, version(known))]
        yield OptionEra(
            first=era.since,
            last=inside[-1] if era.until and inside else "",
            now=release.id in inside,
            type=era.type,
            default=era.default,
            choices=era.choices,
            read_by=era.read_by,
            note=era.note,
            sources=era.sources,
            caveat=code_caveat(store, era.sources, release.id if release.id in inside else newest_about(store, era)),
        )


def _verdicts(store: Store, option: records.Option, release: records.Release) -> Iterator[OptionVerdict]:
    for claim in sorted(store.claims.values(), key=lambda claim: (bool(claim.when), len(claim.options))):
        if option.id in claim.options:
            holds = _holds(claim, release)
            yield OptionVerdict(
                claim=claim.id,
                statement=claim.statement,
                advisers=claim.advisers,
                verdict=claim.verdict,
                because=claim.because,
                since=claim.since,
                until=claim.until,
                holds=holds,
                measured=tuple(measured_lines(store, claim.id)),
                sources=claim.sources,
                caveat=code_caveat(store, claim.sources, release.id if holds else newest_about(store, claim)),
            )


def _issues(store: Store, option: records.Option, release: records.Release) -> Iterator[KnownIssue]:
    for thread in store.threads.values():
        if option.id in thread.options:
            yield KnownIssue(
                thread=thread.id,
                url=thread.thread.url,
                symptom=thread.symptom,
                cause=thread.cause,
                remedy=thread.remedy,
                since=thread.since,
                until=thread.until,
                possible=_holds(thread, release),
            )
