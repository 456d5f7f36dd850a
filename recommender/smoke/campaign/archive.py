"""Move a campaign's evidence records between results and record files."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import click

from recommender.common import atomic_write
from recommender.common.errors import RequestError
from recommender.common.text import count
from recommender.common.user_file import Unreadable, read_text
from recommender.knowledge import records
from recommender.knowledge.load import load
from recommender.render import artefact
from recommender.smoke.campaign import sweep
from recommender.smoke.campaign.plan import ParsedPlan, PlannedRun, name_of_phase

SHORTEST = 0.9
"""Minimum share of a load's planned seconds; clients end with their last answer, a little early."""


def unpack(plan: ParsedPlan, results: sweep.Results, folder: Path) -> None:
    """Write the missing records as files; the current plan's wins if two share an id.

    Raise RequestError for conflicting records.
    """
    current = {(launch.id, launch.digest) for launch in sweep.launches(plan, results)}
    texts: dict[str, tuple[bool, str]] = {}
    for line in results.lines:
        if not line.evidence or sweep.is_cut_short(line.code) or line.code in sweep.MACHINE:
            continue
        try:
            name = sweep.parse_record(line.evidence).id
        except ValueError as error:
            raise RequestError(f"--unpack: the record of {line.id} is invalid ({error}); remove its line") from None
        new = ((line.id, line.digest) in current, line.evidence)
        if name in texts and texts[name][0] == new[0] and texts[name][1] != new[1]:
            raise RequestError(f"--unpack: two different records are named {name}; remove the line of one")
        texts[name] = max(texts.get(name, new), new)
    todo = {}
    for name, (_, text) in texts.items():
        path = folder / f"{name}.yaml"
        if path.exists() and not _holds(path, text):
            raise RequestError(f"--unpack: {path} exists with other contents and is never replaced")
        if not path.exists():
            todo[path] = text
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in todo.items():
            atomic_write.write(path, text)
    except OSError as error:
        raise RequestError(
            f"--unpack: {folder}: {error.strerror}; free some space or name a writable folder, and run it again"
        ) from None
    existing = len(texts) - len(todo)
    click.echo(f"recommend campaign: {count(len(todo), 'record')} written to {folder}, {existing} existed", err=True)


def _holds(path: Path, text: str) -> bool:
    try:
        return read_text(path) == text
    except (OSError, Unreadable):
        return False


def pack(plan: ParsedPlan, results: sweep.Results, folder: Path) -> list[sweep.ResultLine]:
    """Return a line for each open start that the folder has a record of.

    A record matches a start if both have the same id, launch, model, weights, release, GPUs and cores, the run
    succeeded, and it drove the start's loads at least as long. Raise RequestError for unreadable records.
    """
    runs_by_start: dict[str, list[tuple[records.SmokeRun, str]]] = {}
    for run, text in _read_records(folder):
        if begin := re.match(rf"{re.escape(plan.plan.id)}-\d{{4}}-\d\d-\d\d-", run.id):
            runs_by_start.setdefault(run.id[begin.end() :], []).append((run, text))
    lines: list[sweep.ResultLine] = []
    while fresh := list(_new_lines(plan, results, runs_by_start)):  # a rung that is complete opens the next
        for line in fresh:
            results.add(line)
        lines += fresh
    launches = sweep.launches(plan, results)
    mismatched = [launch.id for launch in launches if launch.id in runs_by_start and not results.final_line(launch)]
    note = f"; ids used by runs that differ from the plan's: {', '.join(mismatched)}" if mismatched else ""
    done = sum(bool(results.final_line(launch)) for launch in launches)
    click.echo(
        f"recommend campaign: {count(len(lines), 'record')} of {folder} added; "
        f"{done} of {len(launches)} starts are done{note}",
        err=True,
    )
    return lines


def _read_records(folder: Path) -> Iterator[tuple[records.SmokeRun, str]]:
    """Yield a folder's records and their texts by name."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".yaml")
    except OSError as error:
        raise RequestError(f"--pack: {folder}: {error.strerror}; name a folder of evidence records") from None
    for path in paths:
        try:
            text = read_text(path)
            yield sweep.parse_record(text), text
        except OSError as error:
            raise RequestError(f"--pack: {path}: {error.strerror}; move it elsewhere") from None
        except ValueError as error:
            raise RequestError(f"--pack: {path}: not a run record ({error}); move it elsewhere") from None


def _new_lines(
    plan: ParsedPlan, results: sweep.Results, runs_by_start: Mapping[str, Sequence[tuple[records.SmokeRun, str]]]
) -> Iterator[sweep.ResultLine]:
    """Yield a line for each open start with a matching record, the last if several."""
    for start in sweep.launches(plan, results):
        if results.final_line(start):
            continue
        if fit := [record for record in runs_by_start.get(start.id, ()) if _matches(record[0], start)]:
            run, text = fit[-1]
            took = run.startup_s + sum(phase.window_s + sweep.LOAD_S for phase in run.phases)
            yield sweep.ResultLine(id=start.id, digest=start.digest, code=0, seconds=took, said=run.said, evidence=text)


def _matches(run: records.SmokeRun, start: PlannedRun) -> bool:
    if run.outcome != "ok" or (run.launch_sha256, run.copies, run.mps) != (start.what, start.copies, start.mps):
        return False
    lasted = {name_of_phase(phase): phase.window_s for phase in run.phases}
    if not all(lasted.get(load_name, 0) >= SHORTEST * start.seconds for load_name in start.loads):
        return False
    try:
        setup = artefact.rebuild_setup(run, load())
    except artefact.UNUSABLE:
        return False
    return artefact.identify_setup(setup, run.checkpoint, run.pinned) == start.identity


def append_lines(out: IO[bytes], lines: Iterable[sweep.ResultLine]) -> None:
    """Append lines to an unbuffered results file; all or none. Raise RequestError."""
    start = os.fstat(out.fileno()).st_size
    remaining = memoryview(b"".join(line.model_dump_json().encode() + b"\n" for line in lines))
    try:
        while remaining:
            remaining = remaining[out.write(remaining) :]
        os.fsync(out.fileno())
    except OSError as error:
        out.truncate(start)
        raise RequestError(f"{out.name}: {error.strerror}; free some space, or name another file") from None
