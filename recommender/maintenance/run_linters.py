"""Run the linters over a knowledge folder and sum up the problems."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from recommender.knowledge import records
from recommender.maintenance.knowledge_folder import KnowledgeFolder, Problem, read
from recommender.maintenance.linters import LINTERS

Place: TypeAlias = tuple[str, str, str]
"""A linter, a file and a field in it."""
EXCEPTIONS: Mapping[Place, str] = {
    ("support", "knowledge/models/deepseek-v2-lite-chat.yaml", "support (turbomind)"): (
        "until 0.12.1 TurboMind cached a key and a value of 192 for each head, ten times the record's latent vector "
        "(0.10.2 lmdeploy/turbomind/deploy/source_model/deepseek2.py:98); 0.14.0 dropped the architecture"
    ),
    ("support", "knowledge/models/moonlight-16b-a3b-instruct.yaml", "support (pytorch)"): (
        "releases before 0.10.0 choose the chat template by name and have none of Moonlight"
    ),
    ("support", "knowledge/models/phi-4.yaml", "support (pytorch)"): (
        "releases before 0.10.0 choose the chat template by name and have none of Phi-4"
    ),
    ("support", "knowledge/models/phi-4-mini-instruct.yaml", "support (pytorch)"): (
        "releases before 0.8.0 have no chat template of Phi-4-mini; the documentation lists it from 0.8.0 on"
    ),
}
"""Accepted problems, each with the reason."""


@dataclass(frozen=True)
class LintResult:
    """Problems, number of records, and number of facts without a source, which is a count, not a problem."""

    problems: tuple[Problem, ...]
    records: int
    unverified: int

    def __str__(self) -> str:
        return (
            f"{self.records} records, {len(LINTERS)} linters, {len(self.problems)} problems; "
            f"{self.unverified} facts name no source and are shown as unverified"
        )


def check(folder: Path, schemas: Mapping[str, str], exceptions: Collection[Place] = EXCEPTIONS) -> LintResult:
    """Run every linter over a knowledge folder; ``schemas`` are the texts of its schema/ by file name.

    Raises MaintenanceError where there is no such folder.
    """
    knowledge = read(folder, schemas)
    problems: list[Problem] = []
    used = set()
    for name, linter in LINTERS.items():
        for problem in linter(knowledge):
            place = (name, problem.file, problem.field)
            if place in exceptions:
                used.add(place)
            else:
                problems.append(problem)
    for place in (place for place in exceptions if place not in used):
        what = f"the exception of {place[0]} for {place[1]}: {place[2]} is stale"
        problems.append(Problem("recommender/maintenance/run_linters.py", "EXCEPTIONS", what, "remove it"))
    problems.sort(key=lambda problem: (problem.file, [part.zfill(9) for part in re.findall(r"\d+|\D+", problem.field)]))
    return LintResult(tuple(problems), sum(1 for _ in knowledge.records()), _count_unverified(knowledge))


def _count_unverified(knowledge: KnowledgeFolder) -> int:
    """Count facts whose sources are all empty. Reasons are not counted: theirs are their option's."""
    parts = (part for _, _, part in knowledge.parts if not isinstance(part, records.Reason))
    sources = (getattr(part, "sources", None) for part in parts)
    return sum(isinstance(source, records.Sources) and source.empty for source in sources)
