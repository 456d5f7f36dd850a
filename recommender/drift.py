"""Holds the flag records against the extracted facts, and starts new ones from them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.version import Version

from recommender.extracted import CONFIGS, Facts, MaintenanceError, ReleaseFacts, eras
from recommender.records import EngineField, Flag

ENGINES = {
    "PyTorch engine arguments": "pytorch",
    "TurboMind engine arguments": "turbomind",
    "Vision model arguments": "server",
    "Speculative decoding arguments": "pytorch",
}
OWN_GROUP = {"VisionConfig": "Vision model arguments", "SpeculativeConfig": "Speculative decoding arguments"}
EXTRACT = "knowledge/extracted/api_server.json"


@dataclass(frozen=True)
class Span:
    """A half-open range of releases and what a machine can check of an option in it."""

    since: str
    until: str
    type: str
    default: str
    choices: tuple[str, ...]

    @property
    def facts(self) -> tuple[str, str, frozenset[str]]:
        """What makes two spans the same: the order of choices does not count."""
        return self.type, self.default, frozenset(self.choices)


def _merged(spans: Iterable[Span]) -> list[Span]:
    """Join adjacent spans of equal facts."""
    found: list[Span] = []
    for span in spans:
        last = found[-1] if found else None
        if last is not None and last.until == span.since and last.facts == span.facts:
            found[-1] = Span(last.since, span.until, last.type, last.default, last.choices)
        else:
            found.append(span)
    return found


def spans(facts: Facts, option: str) -> list[Span]:
    """What the facts say of an option, as few spans as possible; an unknown option gives none."""
    raw = eras(facts, option)
    return _merged(Span(since, until, item.type, item.default, item.choices) for since, until, item in raw)


def field_ranges(facts: Facts, config: str, field: str) -> list[tuple[str, str]]:
    """Half-open ranges of releases whose configuration class has a field, whatever its type."""
    found: list[tuple[str, str]] = []
    running = False
    for release in facts.releases:
        here = any((item.config, item.field) == (config, field) for item in release.fields)
        if here and not running:
            found.append((release.version, ""))
        elif running and not here:
            found[-1] = (found[-1][0], release.version)
        running = here
    return found


def _within(facts: Facts, ranges: Iterable[tuple[str, str]]) -> set[str]:
    """The covered releases that lie in any of some half-open ranges."""
    kept = list(ranges)
    return {
        release.version
        for release in facts.releases
        for since, until in kept
        if Version(since) <= Version(release.version) and (not until or Version(release.version) < Version(until))
    }


def _file(flag: Flag) -> str:
    return f"knowledge/flags/{flag.id}.yaml"


def _quoted(values: Iterable[str]) -> str:
    return "[" + ", ".join(json.dumps(value) for value in values) + "]"


def _era_differences(flag: Flag, facts: Facts) -> Iterator[str]:
    """Compare a record's eras with the facts' spans, both merged."""
    expected = spans(facts, flag.option)
    found = _merged(Span(era.since, era.until, era.type, era.default, era.choices) for era in flag.eras)
    where = _file(flag)
    if [(span.since, span.until) for span in found] != [(span.since, span.until) for span in expected]:
        want = ", ".join(f"{span.since}..{span.until or 'now'}" for span in expected)
        have = ", ".join(f"{span.since}..{span.until or 'now'}" for span in found)
        yield f"{where}: eras: expected {want}, found {have}; set since and until so (an era may split further)"
        return
    for have_span, want_span in zip(found, expected, strict=True):
        place = f"{where}: eras since {have_span.since}"
        if have_span.type != want_span.type:
            yield f"{place}: type: expected {want_span.type}, found {have_span.type}; write type: {want_span.type}"
        if have_span.default != want_span.default:
            want = json.dumps(want_span.default)
            yield f"{place}: default: expected {want}, found {json.dumps(have_span.default)}; write default: {want}"
        if set(have_span.choices) != set(want_span.choices):
            want = _quoted(want_span.choices)
            yield f"{place}: choices: expected {want}, found {_quoted(have_span.choices)}; write choices: {want}"


def _field_differences(flag: Flag, facts: Facts) -> Iterator[str]:
    """Compare a record's fields with the facts, only in releases that have the option."""
    lived = _within(facts, [(span.since, span.until) for span in spans(facts, flag.option)])
    claimed: dict[tuple[str, str], list[EngineField]] = {}
    for item in flag.fields:
        claimed.setdefault((item.config, item.field), []).append(item)
    for (config, field), items in claimed.items():
        ranges = field_ranges(facts, config, field)
        place = f"{_file(flag)}: fields: {config}.{field}"
        if not ranges:
            yield f"{place}: expected a field of a covered release, found none of this name; correct or remove it"
            continue
        want = _within(facts, ranges)
        have = _within(facts, [(item.since, item.until) for item in items])
        if have - want or (want - have) & lived:
            told = ", ".join(f"{since}..{until or 'now'}" for since, until in ranges)
            said = ", ".join(f"{item.since}..{item.until or 'now'}" for item in items)
            yield f"{place}: expected {told}, found {said}; set since and until of this field so"


def differences(facts: Facts, flags: Mapping[str, Flag]) -> list[str]:
    """Where flag records and extracted facts disagree, one line each; empty when they agree.

    A line names the file, the field, what the facts say, what the record says, and the repair.
    Options without a record and records without an option are told too.
    """
    found: list[str] = []
    known = {flag.option for flag in flags.values()}
    for option in facts.names():
        if option not in known:
            name = option.lstrip("-")
            found.append(f"knowledge/flags/{name}.yaml: missing: expected a record of {option}, found none; add one")
    for flag in flags.values():
        if not eras(facts, flag.option):
            found.append(
                f"{_file(flag)}: option: expected an option of a covered release, found {flag.option}; "
                f"correct it, remove the record, or extract the release into {EXTRACT}"
            )
            continue
        found += _era_differences(flag, facts)
        found += _field_differences(flag, facts)
    return found


def _read_by(groups: tuple[str, ...]) -> list[str]:
    """Who probably reads an option listed under these titles: to be checked by whoever writes the record."""
    return sorted({ENGINES.get(group, "server") for group in groups}, reverse=True) or ["server"]


def scaffold(facts: Facts, option: str) -> str:
    """The ``fields`` and ``eras`` of a new flag record as YAML; MaintenanceError for an unknown option.

    Fields are those whose name is the option's destination. ``read_by`` is a first guess
    from the group that lists the option.
    """
    ranges = eras(facts, option)
    if not ranges:
        near = difflib.get_close_matches(option, facts.names(), n=3)
        raise MaintenanceError(f"no covered release has {option}; near: {', '.join(near) or 'none'}")
    groups = {group for _, _, item in ranges for group in item.groups}
    fields = []
    for config in CONFIGS:
        if OWN_GROUP.get(config, "") not in {"", *groups}:
            continue
        name = ranges[0][2].dest.removeprefix("vision_" if config == "VisionConfig" else "")
        for since, until in field_ranges(facts, config, name):
            end = f', until: "{until}"' if until else ""
            fields.append(f'  - {{config: {config}, field: {name}, since: "{since}"{end}}}')
    lines = [*(["fields:", *fields] if fields else ["fields: []"]), "eras:"]
    for since, until, item in ranges:
        lines.append(f'  - since: "{since}"')
        lines += [f'    until: "{until}"'] if until else []
        lines += [f"    type: {item.type}", f"    default: {json.dumps(item.default)}"]
        lines += [f"    choices: {_quoted(item.choices)}"] if item.choices else []
        lines += [f"    read_by: [{', '.join(_read_by(item.groups))}]", "    sources: {code: []}"]
    return "\n".join(lines) + "\n"


def release_differences(kept: ReleaseFacts, read: ReleaseFacts) -> list[str]:
    """Where a wheel that was read again differs from the kept facts of its release, one line each."""
    found = []
    for kind, old, new in (
        ("option", set(kept.options), set(read.options)),
        ("field", set(kept.fields), set(read.fields)),
    ):
        for item in sorted(old - new, key=str):
            found.append(f"{EXTRACT}: {kept.version}: {kind} {item} is kept, the wheel does not have it; extract again")
        for item in sorted(new - old, key=str):
            found.append(f"{EXTRACT}: {kept.version}: {kind} {item} is in the wheel, it is not kept; extract again")
    for name in ("requires_python", "requires", "cuda", "flexible"):
        old_value, new_value = getattr(kept, name), getattr(read, name)
        if old_value != new_value:
            found.append(
                f"{EXTRACT}: {kept.version}: {name}: expected {new_value!r}, found {old_value!r}; extract again"
            )
    return found
