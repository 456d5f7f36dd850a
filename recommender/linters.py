"""The linters of the knowledge base: one function each, known by its name, its docstring its page.

Each takes a :class:`Base` and yields problems that say how to repair them. None reads the network.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

from packaging.version import Version

from recommender import drift
from recommender import records as r
from recommender.base import FACTS, TEMPLATES, Base, Problem, file_of, one_line, schemas, stale_schemas, under
from recommender.compiling import doubled
from recommender.conditions import ConditionError, holes, parse
from recommender.configuration import Configuration
from recommender.store import FOLDERS, did_you_mean, normal

Linter: TypeAlias = Callable[[Base], Iterable[Problem]]
LINTERS: dict[str, Linter] = {}


def linter(function: Linter) -> Linter:
    """Registers a linter under its name."""
    LINTERS[function.__name__] = function
    return function


@linter
def types(base: Base) -> Iterator[Problem]:
    """Every YAML file holds one record of its folder's type, named after its id.

    All broken files are told, each with all its fields. Repair: what the message says of the field;
    the types, with what each field means, are in recommender/records.py and knowledge/schema/.
    """
    yield from base.unread


@linter
def files(base: Base) -> Iterator[Problem]:
    """Nothing lies in knowledge/ but what is read from there, and no folder is absent.

    A record in a wrong folder or with the ending .yml would never be read.
    Repair: rename or move the file, or remove it; make the folder.
    """
    folders = set(FOLDERS.values())
    for folder in sorted(folders):
        if not (base.folder / folder).is_dir():
            yield Problem(f"knowledge/{folder}", "(folder)", "it is absent", "make it, or mend its name")
    schema_files = {f"schema/{name}" for name in schemas()}
    for path in sorted(each for each in base.folder.rglob("*") if not each.is_dir()):
        name = path.relative_to(base.folder).as_posix()
        folder = path.parent.relative_to(base.folder).as_posix()
        if name in {"GUIDELINES.md", FACTS, *schema_files}:
            continue
        if path.suffix == ".yaml" and folder in {*folders, TEMPLATES, "campaigns"}:
            continue
        if path.suffix in (".yml", ".YAML", ".YML") and folder in folders:
            repair = f"name it {path.stem}.yaml"
        else:
            repair = "move it into the folder of its kind, or remove it"
        yield Problem(f"knowledge/{name}", "(whole file)", "nothing reads it here", repair)


@linter
def keys(base: Base) -> Iterator[Problem]:
    """No key stands twice in one mapping: YAML keeps the last and drops the first without a word.

    Repair: remove one, or join the two.
    """
    import yaml

    for file, text in base.texts.items():
        try:
            twice = list(doubled(text))
        except yaml.YAMLError:
            continue  # told by the linter of types
        for line, key in twice:
            yield Problem(file, f"line {line}", f"the key {key!r} stands twice", "remove one, or join them")


@linter
def unfinished(base: Base) -> Iterator[Problem]:
    """No record still holds a TODO of the template it was made from.

    Repair: write the fact there, or remove the line where it is optional.
    """
    for file, text in base.texts.items():
        for number, line in enumerate(text.split("\n"), 1):
            if re.search(r"\bTODO\b", line):
                yield Problem(file, f"line {number}", "a TODO is left", "write the fact, or remove the optional line")


def _references(record: r.Record) -> Iterator[tuple[str, str, str]]:
    """The ids a record names: field, kind of what is named, id. Sources are looked at elsewhere."""
    match record:
        case r.Adviser():
            yield from ((f"settings[{n}].option", "option", each.option) for n, each in enumerate(record.settings))
        case r.Disagreement():
            yield "adviser", "advisers", record.adviser
            yield "option", "option", record.option
        case r.Scenario():
            yield from ((f"picks[{n}]", "advisers", each) for n, each in enumerate(record.picks))
        case r.Claim():
            yield from ((f"advisers[{n}]", "advisers", each) for n, each in enumerate(record.advisers))
            yield from ((f"options[{n}]", "option", each) for n, each in enumerate(record.options))
        case r.Thread():
            yield from ((f"options[{n}]", "option", each) for n, each in enumerate(record.options))
        case r.SmokeRun():
            yield "gpu", "gpus", record.gpu
            yield "model", "models", record.model
            yield "lmdeploy", "releases", record.lmdeploy
        case r.Measurement():
            yield "gpu", "gpus", record.gpu
            yield from ((f"starts[{n}].model", "models", each.model) for n, each in enumerate(record.starts))


@linter
def references(base: Base) -> Iterator[Problem]:
    """Every id that a record names is the id of a record.

    Options (flags, environment variables and request fields share one set of ids), advisers, GPUs
    and models of measurements, evidence in sources. Repair: mend the id, or add the record.
    """
    options = base.names["flags"] | base.names["environment"] | base.names["client"]
    known = {**base.names, "option": options}
    measured = base.names["evidence"] | base.names["probes"]
    for file, record in base.records():
        for where, kind, name in _references(record):
            if name not in known[kind]:
                yield _dangling(file, where, kind.removesuffix("s"), name, known[kind])
    for file, where, part in base.parts():
        if isinstance(part, r.Sources):
            for number, name in enumerate(part.evidence):
                if name not in measured:
                    yield _dangling(file, f"{where}.evidence[{number}]", "evidence", name, measured)


def _dangling(file: str, where: str, kind: str, name: str, known: Iterable[str]) -> Problem:
    near = did_you_mean(name, sorted(known)).lstrip(": ")
    return Problem(file, where, f"there is no {kind} {name!r}", f"mend the id or add the record; {near}")


@linter
def conditions(base: Base) -> Iterator[Problem]:
    """Every condition can be read, and every {name} of a message is one of the vocabulary.

    A constraint is evaluated before anything is estimated unless its conditions compare an
    estimate; only then may its message name one. Repair: the table of names is in GUIDELINES.md.
    """
    for file, where, part in base.parts():
        if not isinstance(part, (r.Reason, r.Constraint)):
            continue
        parsed: list[str] = []
        for name in ("when", "require") if isinstance(part, r.Constraint) else ("when",):
            for number, text in enumerate(getattr(part, name)):
                try:
                    parsed += parse(text).names
                except ConditionError as error:
                    yield _misread(file, f"{under(where, name)}[{number}]", error)
        estimated = isinstance(part, r.Reason) or any(name.startswith("estimate.") for name in parsed)
        for name in ("message", "remedy") if isinstance(part, r.Constraint) else ("text",):
            try:
                asked = holes(getattr(part, name))
            except ConditionError as error:
                yield _misread(file, under(where, name), error)
                continue
            for hole in asked:
                if hole.startswith("estimate.") and not estimated:
                    what = f"{{{hole}}} is not known yet when this constraint is evaluated"
                    yield Problem(file, name, what, "compare an estimate in when or require, or leave the name out")


def _misread(file: str, where: str, error: ConditionError) -> Problem:
    what, _, repair = one_line(error).rpartition("; ")
    return Problem(file, where, what or one_line(error), repair if what else "write NAME OPERATOR OPERAND")


@linter
def reasons(base: Base) -> Iterator[Problem]:
    """The last reason of an option, and only the last, holds without a condition.

    Else some case has no reason, or the reasons below an unconditional one are never shown.
    Repair: end the list with a reason whose ``when`` is empty.
    """
    for file, option in base.every(r.Option):
        for number, reason in enumerate(option.reasons, 1):
            last = number == len(option.reasons)
            where = f"reasons[{number - 1}].when"
            if last and reason.when:
                yield Problem(file, where, "some cases have no reason", "add a last reason without when")
            if not last and not reason.when:
                yield Problem(file, where, "the reasons below it are never shown", "give it a when, or move it last")


@linter
def settings(base: Base) -> Iterator[Problem]:
    """The setting that an option carries is one that the recommender decides.

    Repair: use a field of recommender/configuration.py, or leave it empty.
    """
    known = [each.name for each in dataclasses.fields(Configuration)]
    for file, option in base.every(r.Option):
        if option.setting and option.setting not in known:
            near = did_you_mean(option.setting, known).lstrip(": ")
            yield Problem(file, "setting", f"nothing decides {option.setting!r}", f"mend it or leave it empty; {near}")


Range: TypeAlias = tuple[str, str]


def _ranges(record: r.Record) -> dict[str, list[Range]]:
    """The half-open ranges of a record that may not overlap, by field."""
    found: dict[str, list[Range]] = defaultdict(list)
    if isinstance(record, r.Flag):
        for era in record.eras:
            found["eras"].append((era.since, era.until))
        for each in record.fields:
            found[f"fields ({each.config}.{each.field})"].append((each.since, each.until))
    elif isinstance(record, r.Model):
        for support in record.support:
            found[f"support ({support.engine})"].append((support.since, support.until))
    elif isinstance(record, (r.Claim, r.Thread)):
        found["until"].append((record.since, record.until))
    return found


@linter
def eras(base: Base) -> Iterator[Problem]:
    """Ranges of releases are half-open, in order and do not overlap; eras of a flag are adjacent.

    Between two eras there may be releases without the option only where the extracted facts
    have none either. Repair: let each ``until`` be the ``since`` of what follows.
    """
    for file, record in base.records():
        for where, ranges in _ranges(record).items():
            for since, until in ranges:
                if until and Version(since) >= Version(until):
                    yield Problem(file, where, f"{since} to {until} is empty", "until is the first release after it")
            for (since, until), (following, _) in pairwise(ranges):
                place = f"{where} since {following}"
                if not until or Version(until) > Version(following):
                    repair = f'write until: "{following}" there, or put them in order'
                    yield Problem(file, place, f"it overlaps the range since {since}", repair)
                elif where == "eras" and until != following and (until, following) not in _gaps(base, record):
                    yield Problem(file, place, f"no era from {until} to {following}", f'write since: "{until}"')


def _gaps(base: Base, flag: r.Record) -> set[Range]:
    """The ranges between the first and the last release of an option in which it was away."""
    spans = drift.spans(base.facts, flag.option) if base.facts and isinstance(flag, r.Flag) else []
    return {(before.until, after.since) for before, after in pairwise(spans)}


@linter
def releases(base: Base) -> Iterator[Problem]:
    """Every version that a record quotes is a covered release: ranges, sources, measurements, conditions.

    Repair: name a release of knowledge/releases/, or add that release first.
    """
    known = base.names["releases"]
    for file, where, part in base.parts():
        quoted = [(name, getattr(part, name, "")) for name in ("since", "until", "release", "lmdeploy")]
        for name in ("when", "require"):
            for number, text in enumerate(getattr(part, name, ())):
                said = re.fullmatch(r"lmdeploy\s+(?:[<>=!]=|[<>]|not in|in)\s+(.+)", text)
                told = said[1].strip("[]").split(",") if said else []
                quoted += [(f"{name}[{number}]", each.strip()) for each in told]
        for name, version in quoted:
            if version and version not in known:
                alike = [each for each in known if each.startswith(version)] or known
                near = did_you_mean(version, sorted(alike, key=Version)).lstrip(": ")
                what = f"{version} is not a covered release"
                yield Problem(file, under(where, name), what, f"name a covered one or add it; {near}")


@linter
def facts(base: Base) -> Iterator[Problem]:
    """Flag and release records agree with what was extracted from the wheels.

    Types, defaults, choices, ranges and configuration fields of each option. Repair: correct the
    record, or read the wheel again (``recommend knowledge extract VERSION``).
    """
    file = f"knowledge/{FACTS}"
    if base.facts is None:
        yield Problem(file, "(whole file)", "not a file of extracted facts", "recommend knowledge extract VERSION...")
        return
    extracted = {each.version for each in base.facts.releases}
    for version in sorted(extracted ^ base.names["releases"], key=normal):
        lacks = "no record of this release" if version in extracted else "nothing was extracted from its wheel"
        mend = "add the record" if version in extracted else f"recommend knowledge extract {version}"
        yield Problem(file_of("releases", version), "id", lacks, mend)
    unread = {problem.file for problem in base.unread}
    for line in drift.differences(base.facts, {flag.id: flag for _, flag in base.every(r.Flag)}):
        place, _, rest = line.partition(": ")
        where, _, rest = rest.partition(": ")
        what, _, repair = rest.rpartition("; ")
        if place not in unread:
            yield Problem(place, where, what, repair)


def _called(base: Base) -> Iterator[tuple[str, str, str, str]]:
    """Every name by which people call a record: what it names, file, field, name."""
    for file, gpu in base.every(r.Gpu):
        yield "GPU", file, "id", gpu.id
        yield from (("GPU", file, f"aliases[{number}]", name) for number, name in enumerate(gpu.aliases))
        yield from (("GPU", file, f"nvml_names[{number}]", name) for number, name in enumerate(gpu.nvml_names))
    for file, model in base.every(r.Model):
        yield from (("model", file, "id", model.id), ("model", file, "hub", model.hub))
        yield from (("model", file, f"aliases[{number}]", name) for number, name in enumerate(model.aliases))
    yield from (("option", file, "id", option.id) for file, option in base.every(r.Option))


@linter
def names(base: Base) -> Iterator[Problem]:
    """A name means one record: ids, aliases, NVML and hub names, compared as users' names are.

    Case, blanks, dashes and underscores do not count. An alias that fits several products belongs
    to one of them and stands in its ``ambiguous`` too. Repair: keep the name in one record.
    """
    owner: dict[tuple[str, str], str] = {}
    for kind, file, where, name in _called(base):
        first = owner.setdefault((kind, normal(name)), file)
        if first != file:
            yield Problem(file, where, f"{name!r} already names {first}", "keep it in one of the two")
    for file, gpu in base.every(r.Gpu):
        called = {normal(each) for each in (gpu.id, *gpu.aliases)}
        for number, name in enumerate(gpu.ambiguous):
            if normal(name) not in called:
                what = f"{name!r} is not among its aliases"
                yield Problem(file, f"ambiguous[{number}]", what, "add it there, or remove it here")


@linter
def numbers(base: Base) -> Iterator[Problem]:
    """Numbers are possible: ends of a range in order, no size of a model's shape 0.

    low <= value <= high for coefficients, low <= high for figures. Repair: correct the value.
    """
    for file, where, part in base.parts():
        if isinstance(part, r.Coefficient):
            ordered = part.low <= part.value <= part.high and all(map(math.isfinite, (part.low, part.high)))
            if not ordered:
                what = f"low {part.low:g}, value {part.value:g}, high {part.high:g} are not in order"
                yield Problem(file, "value", what, "let low <= value <= high")
        elif isinstance(part, r.Figure) and part.low > part.high:
            what = f"low {part.low:g} is above high {part.high:g}"
            yield Problem(file, under(where, "low"), what, "swap them")
        elif isinstance(part, (r.TextShape, r.VisionShape)):
            for name in type(part).model_fields:
                value = getattr(part, name)
                if type(value) is int and value <= 0 and name != "wrapper_tokens":
                    yield Problem(file, under(where, name), f"{value} is no size", "write that of the config.json")


THREAD = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/((issues|pull)/\d+|blob/v(?P<release>[\w.]+)/\S+)")
ERROR_WORDS = 8


@linter
def threads(base: Base) -> Iterator[Problem]:
    """A thread's address is one of an issue, a pull request or a page at a release's tag; its dates and error fit.

    One record an address. It was posted before it was opened, and the error is one short line, so that it
    can be searched in a log. Repair: correct the field, or join the two records.
    """
    first: dict[str, str] = {}
    for file, thread in base.every(r.Thread):
        url = thread.thread.url
        form = THREAD.fullmatch(url)
        if not form or (form["release"] and form["release"] not in base.names["releases"]):
            what = f"{url} is no issue, pull request or page at a covered release's tag"
            yield Problem(file, "thread.url", what, "write https://github.com/OWNER/NAME/issues/NUMBER, or pull/NUMBER")
        if first.setdefault(url, file) != file:
            yield Problem(file, "thread.url", f"{url} is that of {first[url]} already", "join the two records")
        if thread.posted > thread.thread.opened:
            what = f"posted on {thread.posted}, after it was opened on {thread.thread.opened}"
            yield Problem(file, "posted", what, "write the day on which the thread began")
        if len(thread.error.split()) > ERROR_WORDS or thread.error != one_line(thread.error):
            yield Problem(file, "error", f"it is not one line of {ERROR_WORDS} words", "keep the words that tell it")


@linter
def verdicts(base: Base) -> Iterator[Problem]:
    """A verdict other than unverified, or one that depends, rests on code, a page or a run.

    Repair: cite what you opened, or let the claim be unverified.
    """
    for file, claim in base.every(r.Claim):
        if claim.verdict not in ("unverified", "depends") and claim.sources.empty:
            what = f"{claim.verdict} rests on nothing that was opened"
            yield Problem(file, "verdict", what, "add a source, or write unverified")


@linter
def schema(base: Base) -> Iterator[Problem]:
    """The JSON Schemas in knowledge/schema/ are those of the types as they are now.

    Repair: run ``recommend knowledge schema`` and commit what it writes.
    """
    folder = base.folder / "schema"
    for name in stale_schemas(folder):
        what = "it differs from the type" if (folder / name).is_file() else "it is absent"
        yield Problem(f"knowledge/schema/{name}", "(whole file)", what, "run: recommend knowledge schema")
