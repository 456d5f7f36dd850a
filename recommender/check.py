"""Runs the linters over a knowledge folder and sums up what they found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from recommender import records as r
from recommender.base import Base, Problem, read
from recommender.linters import LINTERS

__all__ = ["EXCEPTIONS", "LINTERS", "Base", "Excepted", "Problem", "Result", "check", "read", "unverified"]


@dataclass(frozen=True)
class Excepted:
    """A problem that a linter finds and that is right as it stands, with the reason."""

    linter: str
    file: str
    field: str
    why: str


EXCEPTIONS: tuple[Excepted, ...] = ()


@dataclass(frozen=True)
class Result:
    """What the linters found. ``unverified``: facts that name no source; a count, not a problem."""

    problems: tuple[Problem, ...]
    records: int
    unverified: int

    def __str__(self) -> str:
        return (
            f"{self.records} records, {len(LINTERS)} linters, {len(self.problems)} problems; "
            f"{self.unverified} facts name no source and are shown as unverified"
        )


def check(knowledge: Path, exceptions: tuple[Excepted, ...] = EXCEPTIONS) -> Result:
    """Runs every linter over a knowledge folder. MaintenanceError where there is no such folder."""
    base = read(knowledge)
    problems: list[Problem] = []
    used: set[Excepted] = set()
    for name, function in LINTERS.items():
        for problem in function(base):
            key = (name, problem.file, problem.field)
            excepted = [each for each in exceptions if (each.linter, each.file, each.field) == key]
            used.update(excepted)
            problems += [] if excepted else [problem]
    for each in exceptions:
        if each not in used:
            what = f"the exception of {each.linter} for {each.file}: {each.field} is stale"
            problems.append(Problem("recommender/check.py", "EXCEPTIONS", what, "remove it"))
    problems.sort(key=lambda problem: (problem.file, [part.zfill(9) for part in re.findall(r"\d+|\D+", problem.field)]))
    return Result(tuple(problems), sum(1 for _ in base.records()), unverified(base))


def unverified(base: Base) -> int:
    """Facts whose sources are all empty. Reasons are not counted: theirs are their option's."""
    found = (getattr(part, "sources", None) for _, _, part in base.parts() if not isinstance(part, r.Reason))
    return sum(1 for sources in found if isinstance(sources, r.Sources) and sources.empty)
