"""Compare the flag records with the extracted facts, and draft new records from them."""

import difflib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from packaging.version import Version

from recommender.common.errors import MaintenanceError
from recommender.knowledge.eras import within
from recommender.knowledge.records import EngineField, Flag
from recommender.maintenance.wheel_facts import CONFIGS, ReleaseFacts, WheelFacts, eras, ranges

ENGINES = {
    "PyTorch engine arguments": "pytorch",
    "TurboMind engine arguments": "turbomind",
    "Vision model arguments": "server",
    "Speculative decoding arguments": "pytorch",
}
OWN_GROUP = {
    "VisionConfig": "Vision model arguments",
    "SpeculativeConfig": "Speculative decoding arguments",
    "GenerationConfig": "each request, no option",
}
EXTRACT = "knowledge/extracted/api_server.json"


@dataclass(frozen=True)
class OptionSpan:
    """A half-open range of releases with an option's type, default and choices in it."""

    since: str
    until: str
    type: str
    default: str
    choices: tuple[str, ...]

    @property
    def facts(self) -> tuple[str, str, frozenset[str]]:
        """What makes two spans equal; the order of choices does not count."""
        return self.type, self.default, frozenset(self.choices)


def _merged(spans: Iterable[OptionSpan]) -> list[OptionSpan]:
    found: list[OptionSpan] = []
    for span in spans:
        last = found[-1] if found else None
        if last is not None and last.until == span.since and last.facts == span.facts:
            found[-1] = OptionSpan(last.since, span.until, last.type, last.default, last.choices)
        else:
            found.append(span)
    return found


def spans(facts: WheelFacts, option: str) -> list[OptionSpan]:
    """Return the facts of an option in as few spans as possible; none for an unknown option."""
    raw = eras(facts, option)
    return _merged(OptionSpan(since, until, item.type, item.default, item.choices) for since, until, item in raw)


def field_ranges(facts: WheelFacts, config: str, field: str) -> list[tuple[str, str]]:
    """Return half-open ranges of releases whose configuration class has a field, whatever its type."""

    def has_field(release: ReleaseFacts) -> bool | None:
        return any((item.config, item.field) == (config, field) for item in release.fields) or None

    return [(since, until) for since, until, _ in ranges(facts, has_field)]


def _releases_within(facts: WheelFacts, spans: Iterable[tuple[str, str]]) -> set[str]:
    versions = [release.version for release in facts.releases]
    return {version for since, until in spans for version in versions if within(since, until, Version(version))}


def _file(flag: Flag) -> str:
    return f"knowledge/flags/{flag.id}.yaml"


def _quoted(values: Iterable[str]) -> str:
    return "[" + ", ".join(json.dumps(value) for value in values) + "]"


def _era_differences(flag: Flag, facts: WheelFacts) -> Iterator[str]:
    """Compare a record's eras with the facts' spans, both merged."""
    expected = spans(facts, flag.option)
    recorded = _merged(OptionSpan(era.since, era.until, era.type, era.default, era.choices) for era in flag.eras)
    where = _file(flag)
    want_ranges, have_ranges = ([(span.since, span.until) for span in eras] for eras in (expected, recorded))
    if want_ranges != have_ranges:
        repair = "set since and until so (an era may split further)"
        yield f"{where}: eras: expected {_shown(want_ranges)}, found {_shown(have_ranges)}; {repair}"
        return
    for have, want in zip(recorded, expected, strict=True):
        for field, old, new, same in (
            ("type", have.type, want.type, have.type == want.type),
            ("default", json.dumps(have.default), json.dumps(want.default), have.default == want.default),
            ("choices", _quoted(have.choices), _quoted(want.choices), set(have.choices) == set(want.choices)),
        ):
            if not same:
                yield f"{where}: eras since {have.since}: {field}: expected {new}, found {old}; write {field}: {new}"


def _field_differences(flag: Flag, facts: WheelFacts) -> Iterator[str]:
    """Compare a record's fields with the facts, only in releases that have the option."""
    alive = _releases_within(facts, [(span.since, span.until) for span in spans(facts, flag.option)])
    claimed: dict[tuple[str, str], list[EngineField]] = {}
    for item in flag.fields:
        claimed.setdefault((item.config, item.field), []).append(item)
    for (config, field), items in claimed.items():
        expected = field_ranges(facts, config, field)
        recorded = [(item.since, item.until) for item in items]
        place = f"{_file(flag)}: fields: {config}.{field}"
        if not expected:
            yield f"{place}: expected a field of a covered release, found none of this name; correct or remove it"
            continue
        want, have = _releases_within(facts, expected), _releases_within(facts, recorded)
        if have - want or (want - have) & alive:
            yield (
                f"{place}: expected {_shown(expected)}, found {_shown(recorded)}; set since and until of this field so"
            )


def _shown(ranges: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"{since}..{until or 'now'}" for since, until in ranges)


def differences(facts: WheelFacts, flags: Mapping[str, Flag], unfinished: Collection[str] = ()) -> list[str]:
    """Return where flag records and extracted facts disagree, one line each.

    A line names the file, the field, what the facts say, what the record says, and the repair.
    Options without a record and records without an option are listed too. ``unfinished``: ids of drafts and of
    records that could not be read, which are not missing.
    """
    known = {flag.option for flag in flags.values()}
    lines = [
        f"knowledge/flags/{option.lstrip('-')}.yaml: missing: expected a record of {option}, found none; add one"
        for option in facts.names()
        if option not in known and option.lstrip("-") not in unfinished
    ]
    for flag in flags.values():
        if eras(facts, flag.option):
            lines += [*_era_differences(flag, facts), *_field_differences(flag, facts)]
        else:
            lines.append(
                f"{_file(flag)}: option: expected an option of a covered release, found {flag.option}; "
                f"correct it, remove the record, or extract the release into {EXTRACT}"
            )
    return lines


def _read_by(groups: tuple[str, ...]) -> list[str]:
    """Return who probably reads an option listed under these titles: the author of the record checks it."""
    return sorted({ENGINES.get(group, "server") for group in groups}, reverse=True) or ["server"]


def scaffold_flag(facts: WheelFacts, option: str) -> str:
    """Return ``fields`` and ``eras`` of a new flag record as YAML. Raises MaintenanceError for an unknown option.

    Fields are those whose name is the option's destination. ``read_by`` is a first guess
    from the group that lists the option.
    """
    definitions = eras(facts, option)
    if not definitions:
        near = difflib.get_close_matches(option, facts.names(), n=3)
        raise MaintenanceError(f"no covered release has {option}; near: {', '.join(near) or 'none'}")
    groups = {group for _, _, item in definitions for group in item.groups}
    fields = []
    for config in CONFIGS:
        if OWN_GROUP.get(config, "") not in {"", *groups}:
            continue
        name = definitions[0][2].dest.removeprefix("vision_" if config == "VisionConfig" else "")
        for since, until in field_ranges(facts, config, name):
            end = f', until: "{until}"' if until else ""
            fields.append(f'  - {{config: {config}, field: {name}, since: "{since}"{end}}}')
    lines = [*(["fields:", *fields] if fields else ["fields: []"]), "eras:"]
    for since, until, item in definitions:
        lines.append(f'  - since: "{since}"')
        lines += [f'    until: "{until}"'] if until else []
        lines += [f"    type: {item.type}", f"    default: {json.dumps(item.default)}"]
        lines += [f"    choices: {_quoted(item.choices)}"] if item.choices else []
        lines += [f"    read_by: [{', '.join(_read_by(item.groups))}]", "    sources: {code: []}"]
    return "\n".join(lines) + "\n"


def release_differences(file_facts: ReleaseFacts, wheel_facts: ReleaseFacts) -> list[str]:
    """Return where a wheel differs from the facts kept of its release, one line each."""
    where = f"{EXTRACT}: {file_facts.version}"
    lines = []
    for kind, old, new in (
        ("option", set(file_facts.options), set(wheel_facts.options)),
        ("field", set(file_facts.fields), set(wheel_facts.fields)),
        ("model table entry", set(file_facts.listed), set(wheel_facts.listed)),
    ):
        for item in sorted(old - new, key=str):
            lines.append(f"{where}: {kind} {item} is in the file but not in the wheel; extract again")
        for item in sorted(new - old, key=str):
            lines.append(f"{where}: {kind} {item} is in the wheel but not in the file; extract again")
    for name in ("requires_python", "requires", "cuda", "flexible"):
        expected, found = getattr(wheel_facts, name), getattr(file_facts, name)
        if expected != found:
            lines.append(f"{where}: {name}: expected {expected!r}, found {found!r}; extract again")
    return lines
