"""What ``recommend knowledge check --json`` prints, and its JSON Schema."""

from dataclasses import dataclass

from recommender.common.terminal import json_text
from recommender.maintenance.knowledge_folder import Problem
from recommender.maintenance.linters import LINTERS
from recommender.maintenance.run_linters import LintResult

FORMAT = 1


@dataclass(frozen=True)
class KnowledgeCheck:
    """The JSON form of a check. ``unverified`` facts name no source."""

    format: int
    records: int
    """Number of records."""
    linters: int
    """Number of linters that ran."""
    unverified: int
    """Facts without a source."""
    problems: tuple[Problem, ...]
    """What is wrong."""


def to_json(result: LintResult) -> str:
    """Return a check as JSON text in ASCII."""
    return json_text(KnowledgeCheck(FORMAT, result.records, len(LINTERS), result.unverified, result.problems))
