"""Linters of releases: ranges, quoted versions, agreement of options and models with the wheels."""

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

from packaging.version import Version

from recommender.common.text import did_you_mean, normal
from recommender.knowledge import records
from recommender.knowledge.eras import within
from recommender.maintenance import flag_diff
from recommender.maintenance.knowledge_folder import FACTS, KnowledgeFolder, Problem, file_of, join_fields
from recommender.maintenance.wheel_facts import ReleaseFacts

Range: TypeAlias = tuple[str, str]


def _ranges(record: records.Record) -> dict[str, list[Range]]:
    """Return the half-open ranges of a record that may not overlap, by field."""
    ranges: dict[str, list[Range]] = defaultdict(list)
    if isinstance(record, records.Flag):
        for era in record.eras:
            ranges["eras"].append((era.since, era.until))
        for field in record.fields:
            ranges[f"fields ({field.config}.{field.field})"].append((field.since, field.until))
    elif isinstance(record, records.Model):
        for support in record.support:
            ranges[f"support ({support.engine})"].append((support.since, support.until))
        for need in record.needs:
            ranges[f"needs ({need.option})"].append((need.since, need.until))
    elif isinstance(record, (records.Claim, records.Thread)):
        ranges["until"].append((record.since, record.until))
    return ranges


def eras(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that ranges of releases are half-open, in order and do not overlap; eras of a flag are adjacent.

    Between two eras there may be releases without the option only where the extracted facts
    have none either. Repair: let each ``until`` be the ``since`` of what follows.
    """
    for file, record in knowledge.records():
        for where, ranges in _ranges(record).items():
            for since, until in ranges:
                if until and Version(since) >= Version(until):
                    yield Problem(file, where, f"{since} to {until} is empty", "until is the first release after it")
            for (since, until), (following, _) in pairwise(ranges):
                place = f"{where} since {following}"
                if not until or Version(until) > Version(following):
                    repair = f'write until: "{following}" there, or put them in order'
                    yield Problem(file, place, f"it overlaps the range since {since}", repair)
                elif where == "eras" and until != following and (until, following) not in _gaps(knowledge, record):
                    yield Problem(file, place, f"no era from {until} to {following}", f'write since: "{until}"')


def _gaps(knowledge: KnowledgeFolder, flag: records.Record) -> set[Range]:
    """Return the ranges between an option's first and last release that do not have it."""
    if not knowledge.facts or not isinstance(flag, records.Flag):
        return set()
    return {(before.until, after.since) for before, after in pairwise(flag_diff.spans(knowledge.facts, flag.option))}


def _versions(part: records.Record) -> Iterator[tuple[str, str]]:
    fields = type(part).model_fields
    yield from ((name, getattr(part, name)) for name in ("since", "until", "release", "lmdeploy") if name in fields)
    for name in ("when", "require"):
        for number, text in enumerate(getattr(part, name) if name in fields else ()):
            condition = re.fullmatch(r"lmdeploy\s+(?:[<>=!]=|[<>]|not in|in)\s+(.+)", text)
            versions = condition[1].strip("[]").split(",") if condition else []
            yield from ((f"{name}[{number}]", version.strip()) for version in versions)


def releases(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that every version that a record quotes is a covered release.

    Ranges, sources, measurements, conditions. Repair: name a release of knowledge/releases/, or add it first.
    """
    known = knowledge.names["releases"]
    for file, where, part in knowledge.parts:
        for name, version in _versions(part):
            if version and version not in known:
                alike = [release for release in known if release.startswith(version)] or known
                near = did_you_mean(version, sorted(alike, key=Version)).lstrip(": ")
                what = f"{version} is not a covered release"
                yield Problem(file, join_fields(where, name), what, f"name a covered one or add it; {near}")


def facts(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that flag and release records agree with what was extracted from the wheels.

    Types, defaults, choices, ranges and configuration fields of each option. Repair: correct the
    record, or read the wheel again (``recommend knowledge extract VERSION``).
    """
    file = f"knowledge/{FACTS}"
    if knowledge.facts is None:
        yield Problem(file, "(whole file)", "not a file of extracted facts", "run: recommend knowledge extract")
        return
    extracted = {release.version for release in knowledge.facts.releases}
    for version in sorted(extracted ^ knowledge.names["releases"], key=normal):
        lacks = "no record of this release" if version in extracted else "nothing was extracted from its wheel"
        repair = "add the record" if version in extracted else f"recommend knowledge extract {version}"
        yield Problem(file_of("releases", version), "id", lacks, repair)
    unread = {problem.file for problem in knowledge.unread}
    flags = {flag.id: flag for _, flag in knowledge.records_of(records.Flag)}
    for line in flag_diff.differences(knowledge.facts, flags):
        place, _, rest = line.partition(": ")
        where, _, rest = rest.partition(": ")
        what, _, repair = rest.rpartition("; ")
        if place not in unread:
            yield Problem(place, where, what, repair)


WRAPPERS = ("InternVLChatModel", "InternVLForConditionalGeneration", "InternS1ForConditionalGeneration")
"""Architectures whose language part has one of its own."""


def support(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that a model's ``support`` agrees with the engines' own tables in every release.

    TurboMind must list the architecture, that of the language part and the quantisation; the PyTorch engine
    both architectures. The PyTorch tables do not list quantisations, so a quantised model may have less there.
    Repair: correct ``since`` and ``until``, or read the wheels again (``recommend knowledge extract VERSION``).
    """
    if knowledge.facts is None:
        return
    models = list(knowledge.records_of(records.Model))
    language = {model.text.family: model.architecture for _, model in models if not model.vision}
    for file, model in models:
        inner = language.get(model.text.family, "") if model.architecture in WRAPPERS else model.architecture
        for engine, lists in (("turbomind", _turbomind_lists), ("pytorch", _pytorch_lists)):
            ranges = [(support.since, support.until) for support in model.support if support.engine == engine]
            wrong: dict[bool, list[str]] = {True: [], False: []}
            for release in knowledge.facts.releases:
                recorded = any(within(*span, Version(release.version)) for span in ranges)
                listed = lists(release, model, inner)
                if recorded != listed and (recorded or engine == "turbomind" or not model.quantization):
                    wrong[listed].append(release.version)
            for listed, names in wrong.items():
                if names:
                    what = "the engine lists it" if listed else "the engine does not list it"
                    where = "but no era holds" if listed else "but an era holds"
                    message = f"{what} in {', '.join(names)}, {where}"
                    yield Problem(file, f"support ({engine})", message, "correct since and until")


def _turbomind_lists(release: ReleaseFacts, model: records.Model, inner: str) -> bool:
    readable = inner in release.entries("inside" if model.architecture in WRAPPERS else "turbomind")
    formats = {each.method for each in model.quantization}
    return readable and model.architecture in release.entries("turbomind") and formats <= release.entries("format")


def _pytorch_lists(release: ReleaseFacts, model: records.Model, inner: str) -> bool:
    return {model.architecture, inner} <= release.entries("pytorch")
