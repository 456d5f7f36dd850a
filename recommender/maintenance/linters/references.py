"""Linters of names: references between records, names of one meaning, addresses of threads."""

import re
from collections.abc import Iterable, Iterator

from recommender.common.text import did_you_mean, normal, one_line
from recommender.knowledge import records
from recommender.maintenance.knowledge_folder import KnowledgeFolder, Problem

THREAD = re.compile(r"https://github\.com/[\w.-]+/[\w.-]+/((issues|pull)/\d+|blob/v(?P<release>[\w.]+)/\S+)")
ERROR_WORDS = 8


def _listed(field: str, kind: str, names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    yield from ((f"{field}[{number}]", kind, name) for number, name in enumerate(names))


def _references(record: records.Record) -> Iterator[tuple[str, str, str]]:
    """Yield field, kind and id of each record that a record names, but not of its sources."""
    match record:
        case records.Adviser():
            for number, setting in enumerate(record.settings):
                yield f"settings[{number}].option", "option", setting.option
        case records.Disagreement():
            yield "adviser", "advisers", record.adviser
            yield "option", "option", record.option
        case records.Scenario():
            yield from _listed("picks", "advisers", record.picks)
        case records.Model():
            yield from _listed("needs", "flags", (need.option for need in record.needs))
        case records.Claim():
            yield from _listed("advisers", "advisers", record.advisers)
            yield from _listed("options", "option", record.options)
            for number, comparison in enumerate(record.comparisons):
                yield from _listed(f"comparisons[{number}].of", "evidence", comparison.of)
                yield from _listed(f"comparisons[{number}].than", "evidence", comparison.than)
        case records.Thread():
            yield from _listed("options", "option", record.options)
        case records.SmokeRun() | records.Benchmark():
            yield "gpu", "gpus", record.gpu
            yield "model", "models", record.model
            yield from [("lmdeploy", "releases", record.lmdeploy)] if isinstance(record, records.SmokeRun) else ()
        case records.Measurement():
            yield "gpu", "gpus", record.gpu
            for number, start in enumerate(record.starts):
                yield f"starts[{number}].model", "models", start.model


def references(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that every id that a record names is the id of a record.

    Options (flags, environment variables and request fields share one set of ids), advisers, GPUs
    and models of measurements, evidence in sources. Repair: correct the id, or add the record.
    """
    options = knowledge.names["flags"] | knowledge.names["environment"] | knowledge.names["client"]
    known = {**knowledge.names, "option": options}
    measured = knowledge.names["evidence"] | knowledge.names["probes"]
    for file, record in knowledge.records():
        for where, kind, name in _references(record):
            if name not in known[kind]:
                yield _dangling(file, where, kind.removesuffix("s"), name, known[kind])
    for file, where, part in knowledge.parts:
        if isinstance(part, records.Sources):
            for field, kind, name in _listed(f"{where}.evidence", "evidence", part.evidence):
                if name not in measured:
                    yield _dangling(file, field, kind, name, measured)


def _dangling(file: str, where: str, kind: str, name: str, ids: Iterable[str]) -> Problem:
    near = did_you_mean(name, sorted(ids)).lstrip(": ")
    return Problem(file, where, f"there is no {kind} {name!r}", f"fix the id or add the record; {near}")


def _names(knowledge: KnowledgeFolder) -> Iterator[tuple[str, str, str, str]]:
    """Yield every name by which people call a record: what it names, file, field, name."""
    for file, gpu in knowledge.records_of(records.Gpu):
        yield "GPU", file, "id", gpu.id
        for field, names in (("aliases", gpu.aliases), ("nvml_names", gpu.nvml_names)):
            yield from (("GPU", file, where, name) for where, _, name in _listed(field, "", names))
    for file, model in knowledge.records_of(records.Model):
        yield from (("model", file, "id", model.id), ("model", file, "hub", model.hub))
        yield from (("model", file, where, name) for where, _, name in _listed("aliases", "", model.aliases))
    yield from (("option", file, "id", option.id) for file, option in knowledge.records_of(records.Option))


def names(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that a name means one record: ids, aliases, NVML and hub names, compared as users' names are.

    Case, blanks, dashes and underscores do not count. An alias that fits several products belongs
    to one record, which also lists it under ``ambiguous``. Repair: keep the name in one record.
    """
    owner: dict[tuple[str, str], str] = {}
    for kind, file, where, name in _names(knowledge):
        first = owner.setdefault((kind, normal(name)), file)
        if first != file:
            yield Problem(file, where, f"{name!r} already names {first}", "keep it in one of the two")
    for file, gpu in knowledge.records_of(records.Gpu):
        own = {normal(name) for name in (gpu.id, *gpu.aliases)}
        for number, name in enumerate(gpu.ambiguous):
            if normal(name) not in own:
                what = f"{name!r} is not among its aliases"
                yield Problem(file, f"ambiguous[{number}]", what, "add it there, or remove it here")


def threads(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check a thread's address (an issue, a pull request or a page at a release's tag), its dates and its error.

    One record an address. It was posted before it was opened, and the error is one short line, so that it
    can be searched in a log. Repair: correct the field, or join the two records.
    """
    first: dict[str, str] = {}
    for file, thread in knowledge.records_of(records.Thread):
        url = thread.thread.url
        form = THREAD.fullmatch(url)
        if not form or (form["release"] and form["release"] not in knowledge.names["releases"]):
            what = f"{url} is not an issue, pull request or page at a covered release's tag"
            yield Problem(file, "thread.url", what, "write https://github.com/OWNER/NAME/issues/NUMBER, or pull/NUMBER")
        if first.setdefault(url, file) != file:
            yield Problem(file, "thread.url", f"{first[url]} already has {url}", "join the two records")
        if thread.posted > thread.thread.opened:
            what = f"posted on {thread.posted}, after it was opened on {thread.thread.opened}"
            yield Problem(file, "posted", what, "write the day the thread began")
        if len(thread.error.split()) > ERROR_WORDS or thread.error != one_line(thread.error):
            yield Problem(file, "error", f"it is not one line of {ERROR_WORDS} words", "keep its key words")
