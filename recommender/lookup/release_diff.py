"""Compare two LMDeploy releases as a launch script sees them. Data, no layout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from recommender.knowledge.conditions import parse, version
from recommender.knowledge.eras import options_of, within
from recommender.knowledge.provenance import code_caveat
from recommender.knowledge.store import Store

if TYPE_CHECKING:
    from recommender.knowledge import records

What = Literal["type", "default", "choices", "read by", "meaning"]
FIELDS: dict[What, str] = {
    "type": "type",
    "default": "default",
    "choices": "choices",
    "read by": "read_by",
    "meaning": "note",
}
"""What may change of an option, by the field of its eras."""
NEEDS = ("python", "cuda", "torch", "transformers", "architectures")


@dataclass(frozen=True, slots=True)
class MovedOption:
    """An option that one release lacks, and the nearest release that has it."""

    option: str
    """Id of the option."""
    name: str
    """Name on the command line."""
    summary: str
    """What it does."""
    release: str
    """Nearest release that has it."""
    read_by: tuple[str, ...]
    """Who reads the value."""
    see: tuple[str, ...]
    """Ids of related options of the other release, such as its later name."""
    sources: records.Sources
    """What it rests on."""
    caveat: str
    """What limits the sources; empty: nothing."""


@dataclass(frozen=True, slots=True)
class ReleaseChange:
    """One difference of an option between two releases.

    A change of ``meaning`` quotes the records' notes.
    """

    what: What
    """What differs."""
    before: str
    """As it was."""
    after: str
    """As it is."""


@dataclass(frozen=True, slots=True)
class ChangedOption:
    """An option that both releases know, and its differences."""

    option: str
    """Id of the option."""
    name: str
    """Name on the command line."""
    changes: tuple[ReleaseChange, ...]
    """What differs."""
    sources: records.Sources
    """What it rests on."""
    caveat: str
    """What limits the sources; empty: nothing."""


@dataclass(frozen=True, slots=True)
class Need:
    """A requirement on the machine, before and after."""

    name: str
    """What is required, such as python."""
    before: str
    """As it was."""
    after: str
    """As it is."""


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """A rule, verdict or thread that holds in one of the releases only."""

    id: str
    """Id of the rule, claim or thread."""
    text: str
    """What it says."""
    more: str
    """A rule's remedy, a claim's verdict or a thread's address."""
    options: tuple[str, ...]
    """Ids of the options concerned."""


@dataclass(frozen=True, slots=True)
class Diff:
    """The whole difference."""

    old: str
    """The first release."""
    new: str
    """The second release."""
    old_published: str
    """Day it was published."""
    new_published: str
    """Day it was published."""
    back: bool
    """The second release is the older one."""
    removed: tuple[MovedOption, ...]
    """Options that only the first one has."""
    added: tuple[MovedOption, ...]
    """Options that only the second one has."""
    changed: tuple[ChangedOption, ...]
    """Options that differ."""
    needs: tuple[Need, ...]
    """Requirements on the machine that differ."""
    rules_gone: tuple[ReleaseRecord, ...]
    """Rules of the first one only."""
    rules_new: tuple[ReleaseRecord, ...]
    """Rules of the second one only."""
    claims_gone: tuple[ReleaseRecord, ...]
    """Verdicts for the first one only."""
    claims_new: tuple[ReleaseRecord, ...]
    """Verdicts for the second one only."""
    threads_gone: tuple[ReleaseRecord, ...]
    """Known issues of the first one only."""
    threads_new: tuple[ReleaseRecord, ...]
    """Known issues of the second one only."""


def diff(store: Store, old: records.Release, new: records.Release) -> Diff:
    """Return what another release means for a script that was written for the first one."""
    before, after = (options_of(store, version(release.id)) for release in (old, new))
    rules, claims, threads = (_split(dict(holding(store, old)), dict(holding(store, new))) for holding in HOLDING)
    needs = ((name, _need(old, name), _need(new, name)) for name in NEEDS)
    changes = {name: tuple(_changes(era, after[name])) for name, era in before.items() if name in after}
    return Diff(
        old=old.id,
        new=new.id,
        old_published=old.published,
        new_published=new.published,
        back=version(new.id) < version(old.id),
        removed=tuple(_moved(store, name, before[name], old, new) for name in before if name not in after),
        added=tuple(_moved(store, name, after[name], new, old) for name in after if name not in before),
        changed=tuple(
            ChangedOption(
                name,
                store.flags[name].option,
                changed,
                after[name].sources,
                code_caveat(store, after[name].sources, new.id),
            )
            for name, changed in changes.items()
            if changed
        ),
        needs=tuple(Need(name, was, now) for name, was, now in needs if was != now),
        rules_gone=rules[0],
        rules_new=rules[1],
        claims_gone=claims[0],
        claims_new=claims[1],
        threads_gone=threads[0],
        threads_new=threads[1],
    )


def _need(release: records.Release, name: str) -> str:
    value = getattr(release, name)
    return value if isinstance(value, str) else " ".join(value)


def _moved(store: Store, name: str, era: records.Era, having: records.Release, lacking: records.Release) -> MovedOption:
    """Describe an option that a release lacks, and the nearest release with it."""
    flag, own, other = store.flags[name], version(having.id), version(lacking.id)
    low, high = sorted((own, other))
    between = [release for release in sorted(map(version, store.releases)) if low <= release <= high]
    having_it = [release for release in between if name in options_of(store, release)] or [own]
    nearest = having_it[-1] if own == low else having_it[0]
    texts = " ".join((flag.summary, flag.choose, *(past.note for past in flag.eras)))
    options = [store.flags[known].option for known in options_of(store, other)]
    see = tuple(option for option in options if re.search(rf"{option}(?![\w-])", texts))
    caveat = code_caveat(store, era.sources, having.id)
    return MovedOption(flag.id, flag.option, flag.summary, str(nearest), era.read_by, see, era.sources, caveat)


def _changes(before: records.Era, after: records.Era) -> Iterator[ReleaseChange]:
    for what, field in FIELDS.items():
        was, now = getattr(before, field), getattr(after, field)
        if isinstance(was, str):
            if was != now:
                yield ReleaseChange(what, was, now)
        elif set(was) != set(now):
            yield ReleaseChange(what, " ".join(was), " ".join(now))


def _split(
    before: dict[str, ReleaseRecord], after: dict[str, ReleaseRecord]
) -> tuple[tuple[ReleaseRecord, ...], tuple[ReleaseRecord, ...]]:
    """Return what only the first has, and what only the second has."""
    return (
        tuple(before[name] for name in before if name not in after),
        tuple(after[name] for name in after if name not in before),
    )


def _rules(store: Store, release: records.Release) -> Iterator[tuple[str, ReleaseRecord]]:
    """Yield the rules whose conditions on the release hold."""
    values = {"lmdeploy": version(release.id)}
    for rule in store.constraints.values():
        conditions = [condition for condition in map(parse, rule.when) if condition.names == ("lmdeploy",)]
        if conditions and all(condition.holds(values) for condition in conditions):
            yield rule.id, ReleaseRecord(rule.id, rule.message.replace("{lmdeploy}", release.id), rule.remedy, ())


def _claims(store: Store, release: records.Release) -> Iterator[tuple[str, ReleaseRecord]]:
    """Yield the verdicts of a release. One that replaces none counts for earlier releases: nothing changed there."""
    for claim in store.claims.values():
        if within(claim.since if claim.id in _replacing(store) else "0", claim.until, version(release.id)):
            yield claim.id, ReleaseRecord(claim.id, claim.statement, claim.verdict, claim.options)


@lru_cache(maxsize=4)
def _replacing(store: Store) -> frozenset[str]:
    """Return the claims that began when another one about the same options or text ended."""
    pairs = ((new, old) for new in store.claims.values() for old in store.claims.values() if old.until == new.since)
    return frozenset(
        new.id
        for new, old in pairs
        if not set(new.options).isdisjoint(old.options) or not set(new.places).isdisjoint(old.places)
    )


def _threads(store: Store, release: records.Release) -> Iterator[tuple[str, ReleaseRecord]]:
    for thread in store.threads.values():
        if within(thread.since, thread.until, version(release.id)):
            yield thread.id, ReleaseRecord(thread.id, thread.symptom, thread.thread.url, thread.options)


HOLDING = (_rules, _claims, _threads)
