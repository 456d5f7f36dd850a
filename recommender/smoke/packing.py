"""A campaign's records, out of its results and into them: evidence is kept in files of its own."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import click

from recommender import files
from recommender import records as r
from recommender.render import count
from recommender.request import RequestError
from recommender.smoke import launch, sweep
from recommender.smoke.plan import Checked, Launch, name_of_phase
from recommender.store import load

SHORTEST = 0.9
"""Of the seconds that a load was to be driven; clients of one in flight end with their last answer."""


def unpack(plan: Checked, found: sweep.Results, folder: Path) -> None:
    """Writes the records that are not there yet, each whole. Where two have one id, that of the plan counts.

    Raises RequestError.
    """
    current = {(each.id, each.digest) for each in sweep.launches(plan, found)}
    texts: dict[str, tuple[bool, str]] = {}
    for line in found.every:
        if not line.evidence or line.code == sweep.LATE or sweep.stopped(line.code) or line.code in sweep.MACHINE:
            continue
        try:
            name = sweep.parsed(line.evidence).id
        except ValueError as error:
            raise RequestError(f"--unpack: the record of {line.id} is not valid ({error}); remove its line") from None
        new = ((line.id, line.digest) in current, line.evidence)
        if name in texts and texts[name][0] == new[0] and texts[name][1] != new[1]:
            raise RequestError(f"--unpack: two different records are called {name}; remove the line of one")
        texts[name] = max(texts.get(name, new), new)
    todo = {}
    for name, (_, text) in texts.items():
        path = folder / f"{name}.yaml"
        if path.exists() and path.read_text("utf-8") != text:
            raise RequestError(f"--unpack: {path} exists and says something else; evidence is never replaced")
        if not path.exists():
            todo[path] = text
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in todo.items():
            files.write(path, text)
    except OSError as error:
        raise RequestError(
            f"--unpack: {folder}: {error.strerror}; make room or name a folder that can be written to, and run it again"
        ) from None
    there = len(texts) - len(todo)
    click.echo(f"recommend campaign: {len(todo)} records written to {folder}, {there} were there already", err=True)


def pack(plan: Checked, found: sweep.Results, folder: Path) -> list[sweep.Line]:
    """A line for each start that is not done and that the folder has a record of. Raises RequestError.

    A record stands for a start if it has its id and ran well what the start would: the same launch of the same model,
    weights, release, cards and cores, with its loads for as long or longer.
    """
    named: dict[str, list[tuple[r.SmokeRun, str]]] = {}
    for run, text in _records(folder):
        if begin := re.match(rf"{re.escape(plan.plan.id)}-\d{{4}}-\d\d-\d\d-", run.id):
            named.setdefault(run.id[begin.end() :], []).append((run, text))
    made: list[sweep.Line] = []
    while fresh := list(_lines(plan, found, named)):  # a rung that is complete opens the next
        for line in fresh:
            found.add(line)
        made += fresh
    known = sweep.launches(plan, found)
    other = [each.id for each in known if each.id in named and not found.done(each)]
    told = f"; other runs than the plan's have the ids of {', '.join(other)}" if other else ""
    done = sum(bool(found.done(each)) for each in known)
    click.echo(
        f"recommend campaign: {count(len(made), 'record')} of {folder} added, {done} of {len(known)} starts are done"
        + told,
        err=True,
    )
    return made


def _records(folder: Path) -> Iterator[tuple[r.SmokeRun, str]]:
    """The records of a folder and their texts, by name."""
    try:
        paths = sorted(each for each in folder.iterdir() if each.suffix == ".yaml")
    except OSError as error:
        raise RequestError(f"--pack: {folder}: {error.strerror}; name a folder of evidence records") from None
    for path in paths:
        try:
            if not path.is_file():
                raise ValueError("no file")
            text = path.read_text("utf-8")
            yield sweep.parsed(text), text
        except OSError as error:
            raise RequestError(f"--pack: {path}: {error.strerror}; move it elsewhere") from None
        except (ValueError, TypeError, RecursionError) as error:
            raise RequestError(f"--pack: {path}: no record of a run ({error}); move it elsewhere") from None


def _lines(
    plan: Checked, found: sweep.Results, named: Mapping[str, Sequence[tuple[r.SmokeRun, str]]]
) -> Iterator[sweep.Line]:
    """Lines of starts that are known by now and not done; of several records the last one's."""
    for start in sweep.launches(plan, found):
        fit = () if found.done(start) else [each for each in named.get(start.id, ()) if _stands_for(each[0], start)]
        if fit:
            run, text = fit[-1]
            took = run.startup_s + sum(each.window_s + sweep.LOAD_S for each in run.phases)
            yield sweep.Line(id=start.id, digest=start.digest, code=0, seconds=took, said=run.said, evidence=text)


def _stands_for(run: r.SmokeRun, start: Launch) -> bool:
    """Whether a record is of what a start is to run, whatever else it drove besides."""
    if run.outcome != "ok" or (run.launch_sha256, run.copies, run.mps) != (start.what, start.copies, start.mps):
        return False
    lasted = {name_of_phase(each): each.window_s for each in run.phases}
    if not all(lasted.get(each, 0) >= SHORTEST * start.seconds for each in start.loads):
        return False
    try:
        made = launch.ran(run, load())
    except launch.UNUSABLE:
        return False
    return launch.meant(made, run.checkpoint, run.pinned) == start.meant


def write(out: IO[bytes], lines: Iterable[sweep.Line]) -> None:
    """Adds lines to an open, unbuffered file of results, for good. All of them or none: raises RequestError."""
    begun = os.fstat(out.fileno()).st_size
    left = memoryview(b"".join(each.model_dump_json().encode() + b"\n" for each in lines))
    try:
        while left:
            left = left[out.write(left) :]
        os.fsync(out.fileno())
    except OSError as error:
        out.truncate(begun)
        raise RequestError(f"{out.name}: {error.strerror}; make room, or name another file") from None
