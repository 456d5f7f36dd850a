"""What changed for a launch script between two LMDeploy releases. Data, no layout."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from recommender.conditions import parse, version
from recommender.facts import options_of, within
from recommender.store import Store

if TYPE_CHECKING:
    from recommender import records as r

What = Literal["type", "default", "choices", "read by", "meaning"]
NEEDS = ("python", "cuda", "torch", "transformers", "architectures")


@dataclass(frozen=True, slots=True)
class Moved:
    """An option that one of the releases lacks, and of those between the nearest that has it.

    ``see`` are the options that its record points at and the other release has: its later name, say.
    """

    option: str
    name: str
    summary: str
    release: str
    read_by: tuple[str, ...]
    see: tuple[str, ...]
    sources: r.Sources


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that is another in the new release. ``meaning`` is what a note says."""

    what: What
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Changed:
    """An option that both releases know, and what is not the same of it."""

    option: str
    name: str
    changes: tuple[Change, ...]
    sources: r.Sources


@dataclass(frozen=True, slots=True)
class Need:
    """What a release needs of the machine, before and after."""

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class Told:
    """A record that holds in one of the releases only: a rule, a verdict, or a thread."""

    id: str
    text: str
    more: str
    options: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diff:
    """All of it. ``back``: the second release is the older one."""

    old: str
    new: str
    old_published: str
    new_published: str
    back: bool
    removed: tuple[Moved, ...]
    added: tuple[Moved, ...]
    changed: tuple[Changed, ...]
    needs: tuple[Need, ...]
    rules_gone: tuple[Told, ...]
    rules_new: tuple[Told, ...]
    claims_gone: tuple[Told, ...]
    claims_new: tuple[Told, ...]
    threads_gone: tuple[Told, ...]
    threads_new: tuple[Told, ...]


def diff(store: Store, old: r.Release, new: r.Release) -> Diff:
    """What another release means for a script that was written for the first one."""
    before, after = (options_of(store, version(each.id)) for each in (old, new))
    rules, claims, threads = (_apart(dict(found(store, old)), dict(found(store, new))) for found in HOLDING)
    return Diff(
        old=old.id,
        new=new.id,
        old_published=old.published,
        new_published=new.published,
        back=version(new.id) < version(old.id),
        removed=tuple(_gone(store, name, before[name], old, new) for name in before if name not in after),
        added=tuple(_gone(store, name, after[name], new, old) for name in after if name not in before),
        changed=tuple(
            Changed(name, store.flags[name].option, found, after[name].sources)
            for name in before
            if name in after and (found := tuple(_changes(before[name], after[name])))
        ),
        needs=tuple(Need(name, *said) for name in NEEDS if len(set(said := (_need(old, name), _need(new, name)))) == 2),
        rules_gone=rules[0],
        rules_new=rules[1],
        claims_gone=claims[0],
        claims_new=claims[1],
        threads_gone=threads[0],
        threads_new=threads[1],
    )


def _need(release: r.Release, name: str) -> str:
    value = getattr(release, name)
    return value if isinstance(value, str) else " ".join(value)


def _gone(store: Store, name: str, era: r.Era, having: r.Release, other: r.Release) -> Moved:
    """``release`` is the one nearest to the other that still, or already, has the option."""
    flag, low, high = store.flags[name], *sorted((version(having.id), version(other.id)))
    known = [each for each in sorted(map(version, store.releases)) if low <= each <= high]
    has = [each for each in known if name in options_of(store, each)]
    nearest = (has[-1] if version(having.id) == low else has[0]) if has else version(having.id)
    texts = " ".join((flag.summary, flag.choose, *(each.note for each in flag.eras)))
    others = [store.flags[each].option for each in options_of(store, version(other.id))]
    see = tuple(each for each in others if re.search(rf"{each}(?![\w-])", texts))
    return Moved(flag.id, flag.option, flag.summary, str(nearest), era.read_by, see, era.sources)


def _changes(before: r.Era, after: r.Era) -> Iterator[Change]:
    if before.type != after.type:
        yield Change("type", before.type, after.type)
    if before.default != after.default:
        yield Change("default", before.default, after.default)
    if set(before.choices) != set(after.choices):
        yield Change("choices", " ".join(before.choices), " ".join(after.choices))
    if set(before.read_by) != set(after.read_by):
        yield Change("read by", " ".join(before.read_by), " ".join(after.read_by))
    if before.note != after.note:
        yield Change("meaning", before.note, after.note)


def _apart(before: dict[str, Told], after: dict[str, Told]) -> tuple[tuple[Told, ...], tuple[Told, ...]]:
    """What only the first has, and what only the second."""
    return (
        tuple(before[name] for name in before if name not in after),
        tuple(after[name] for name in after if name not in before),
    )


def _rules(store: Store, release: r.Release) -> Iterator[tuple[str, Told]]:
    """Rules whose conditions on the release hold; the others are of the case."""
    values = {"lmdeploy": version(release.id)}
    for rule in store.constraints.values():
        asked = [each for each in map(parse, rule.when) if each.names == ("lmdeploy",)]
        if asked and all(each.holds(values) for each in asked):
            yield rule.id, Told(rule.id, rule.message.replace("{lmdeploy}", release.id), rule.remedy, ())


def _claims(store: Store, release: r.Release) -> Iterator[tuple[str, Told]]:
    for claim in store.claims.values():
        if within(claim.since, claim.until, version(release.id)):
            yield claim.id, Told(claim.id, claim.statement, claim.verdict, claim.options)


def _threads(store: Store, release: r.Release) -> Iterator[tuple[str, Told]]:
    for thread in store.threads.values():
        if within(thread.since, thread.until, version(release.id)):
            yield thread.id, Told(thread.id, thread.symptom, thread.thread.url, thread.options)


HOLDING = (_rules, _claims, _threads)
