"""Linters of measured facts: every load of a run counts, releases that were shown, random weights."""

import re
from collections.abc import Iterator
from itertools import chain

from packaging.version import Version

from recommender.knowledge import claim_measurements, records
from recommender.knowledge.conditions import ConditionError, parse
from recommender.maintenance.knowledge_folder import KnowledgeFolder, Problem, join_fields
from recommender.maintenance.linters.values import misread

SPEED = re.compile(r"\d ms\b|\d s\b|requests a second|requests/s", re.IGNORECASE)
"""A measured speed in a text."""
ROUNDED = 0.05
"""Relative difference of published figures that say the same: pages round them."""
SAVE_AGAIN = "save the run again with recommend smoke --save-evidence"
SIZE = re.compile(r"\d+x\d+")
WEIGHTS = "random weights"
LOADS = frozenset(claim_measurements.RequestLoad("", 0, 0, 0, 0, 0.0).values())
"""Names of the condition vocabulary that tell one load from another."""


def _runs(knowledge: KnowledgeFolder) -> dict[str, records.SmokeRun]:
    return {run.id: run for _, run in knowledge.records_of(records.SmokeRun)}


def comparisons(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that a claim's verdict holds at every load of the runs that it compares, adverse ones included.

    All starts of a launch count, whether the claim names them or not. A claim that states a speed compares its runs,
    and each run of its evidence that was loaded is in a comparison. Repair: let the verdict be ``depends``, narrow
    ``where`` to the loads that the verdict is about, or compare the run.
    """
    runs = _runs(knowledge)
    for file, claim in knowledge.records_of(records.Claim):
        compared: set[str] = set()
        for number, comparison in enumerate(claim.comparisons):
            problems = [*_scope(file, f"comparisons[{number}]", comparison)]
            yield from problems
            readable = all(name in runs for name in (*comparison.of, *comparison.than))
            if readable and not problems:
                measurement = claim_measurements.compare(comparison, runs)
                compared |= {*measurement.of, *measurement.than}
                yield from _loads(file, f"comparisons[{number}]", claim.verdict, measurement)
        yield from _uncompared(file, claim, runs, compared)


def _scope(file: str, where: str, comparison: records.ComparedRuns) -> Iterator[Problem]:
    """Yield what is wrong with the loads that a comparison is restricted to."""
    for number, text in enumerate(comparison.where):
        try:
            names = set(parse(text).names)
        except ConditionError as error:
            yield misread(file, f"{where}.where[{number}]", error)
            continue
        if names - LOADS:
            what = f"{', '.join(sorted(names - LOADS))} does not tell loads apart"
            yield Problem(file, f"{where}.where[{number}]", what, f"use {', '.join(sorted(LOADS))}")


def _loads(file: str, where: str, verdict: str, comparison: claim_measurements.MeasuredComparison) -> Iterator[Problem]:
    if not any(load.counts for load in comparison.loads):
        yield Problem(file, where, "no load of both sides is in its scope", "compare runs of the same loads")
    for load in claim_measurements.against(verdict, comparison):
        place = f"{load.pressure} x {load.requests}"
        what = f"{verdict}, but at {place} {comparison.figure} is {load.outcome} (x{load.ratio:.2f})"
        yield Problem(file, where, what, "let the verdict be depends, or narrow where")


def _uncompared(
    file: str, claim: records.Claim, runs: dict[str, records.SmokeRun], compared: set[str]
) -> Iterator[Problem]:
    cited = [name for name in claim.sources.evidence if name in runs]
    loaded = [name for name in cited if any(phase.window_requests for phase in runs[name].phases)]
    if claim.verdict == "unverified" or not loaded:
        return
    if not claim.comparisons:
        if SPEED.search(claim.because):
            yield Problem(file, "comparisons", "it states a speed and compares no runs", "compare its runs")
        return
    for name in loaded:
        if name not in compared:
            yield Problem(file, "sources.evidence", f"{name} is in no comparison", "compare it, or leave it out")


def spans(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that a verdict does not begin before the oldest release that its sources show.

    Code and runs show a release; a page shows what it says, so a claim with one is not checked. Repair: cite the
    code of the first release, or let ``since`` be the release that was shown.
    """
    tested = {run.id: run.lmdeploy for run in _runs(knowledge).values()}
    tested |= {run.id: run.lmdeploy for _, run in knowledge.records_of(records.Measurement)}
    for file, claim in knowledge.records_of(records.Claim):
        shown = [line.release for line in claim.sources.code]
        shown += [tested[name] for name in claim.sources.evidence if name in tested]
        if shown and not claim.sources.pages and Version(claim.since) < min(map(Version, shown)):
            oldest = min(shown, key=Version)
            what = f"{claim.since}, but the oldest release that its sources show is {oldest}"
            yield Problem(file, "since", what, f'cite the code of {claim.since}, or write since: "{oldest}"')


def weights(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that an option's text with a measured speed says that the weights were random.

    Claims need no such words: outputs add them from the cited runs. Repair: add the words "random weights".
    """
    options: Iterator[tuple[str, records.Flag | records.Parameter]]
    options = chain(knowledge.records_of(records.Flag), knowledge.records_of(records.Parameter))
    for file, option in options:
        texts = {join_fields("effect", name): value for name, value in option.effect}
        texts |= {f"reasons[{number}].text": reason.text for number, reason in enumerate(option.reasons)}
        for field, text in (texts | {"summary": option.summary, "choose": option.choose}).items():
            if SPEED.search(text) and WEIGHTS not in text:
                yield Problem(file, field, "a measured speed without its weights", f'add the words "{WEIGHTS}"')


def runs(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that a run's memory fits its card, that each phase has one load, and that no run has two records.

    Repair: save the run again with recommend smoke; do not edit its record by hand.
    """
    logs: dict[str, str] = {}
    for file, run in knowledge.records_of(records.SmokeRun):
        for field in ("idle_mib", "start_peak_mib", "ready_mib"):
            if getattr(run, field) > run.memory_mib:
                what = f"{getattr(run, field)} MiB, but the card has {run.memory_mib}"
                yield Problem(file, field, what, SAVE_AGAIN)
        first = logs.setdefault(run.log_sha256, file)
        if first != file:
            yield Problem(file, "log_sha256", f"{first} is the same run", "keep one of the two")
        for number, phase in enumerate(run.phases):
            if bool(phase.concurrency) == bool(phase.arrivals_rps):
                what = "no load, or two; a phase has either concurrency or arrivals_rps"
                yield Problem(file, f"phases[{number}].concurrency", what, SAVE_AGAIN)
            if not (SIZE.fullmatch(phase.image) if phase.images else phase.image == ""):
                what = f"{phase.image!r} is not the size of {phase.images} images"
                yield Problem(file, f"phases[{number}].image", what, SAVE_AGAIN)


def benchmarks(knowledge: KnowledgeFolder) -> Iterator[Problem]:
    """Check that each row of a published table has one load and a figure, and that its figures agree.

    Arrivals at a rate need requests/s, TTFT and TPOT, from which the number in flight follows. Repair: compare the
    row with its page; leave out a row without a figure.
    """
    for file, table in knowledge.records_of(records.Benchmark):
        for number, row in enumerate(table.rows):
            for what, repair in _unfit(row):
                yield Problem(file, f"rows[{number}]", what, repair)


def _unfit(row: records.BenchmarkRow) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a row of a published table, and the repair."""
    if bool(row.concurrency) == bool(row.rate):
        yield "it has no load, or two", "give either concurrency or rate"
    if row.rate and not (row.rps and row.ttft_ms and row.tpot_ms):
        yield "the number in flight is unknown", "give rps, ttft_ms and tpot_ms, or leave the row out"
    if not (row.rps or row.output_tps or row.tpot_ms):
        yield "it has no figure of speed", "give rps, output_tps or tpot_ms, or leave the row out"
    if bool(row.input_tokens) != bool(row.output_tokens):
        yield "only one length is given", "give both; leave out both where they vary or are not published"
    tokens = row.rps * row.output_tokens
    if tokens and row.output_tps and abs(tokens / row.output_tps - 1) > ROUNDED:
        yield "rps and output_tps contradict each other", "compare them with the page"
