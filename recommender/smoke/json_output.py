"""A smoke run, its figures and its predictions as JSON, and its JSON Schema."""

import json
from dataclasses import dataclass

from recommender.choose.recommend import Recommendation
from recommender.common.terminal import plain
from recommender.knowledge import records, run_figures
from recommender.smoke.failures import KINDS
from recommender.smoke.report import Goal, ReportRow, check_goals, memory_rows, outcome, phase_rows

FORMAT = 1


@dataclass(frozen=True)
class Row(ReportRow):
    """``error``: predicted / measured - 1; null if one is missing."""

    error: float | None = None


@dataclass(frozen=True)
class Phase:
    """One load's figures, and those that are predicted beside the prediction."""

    figures: run_figures.RunFigures
    compared: tuple[Row, ...]


@dataclass(frozen=True)
class Published:
    """The JSON form of a smoke run. ``format`` rises when a field changes its meaning.

    ``memory`` is in MiB; ``run`` is the record that --save-evidence writes.
    """

    format: int
    outcome: str
    exit_code: int
    memory: tuple[Row, ...]
    phases: tuple[Phase, ...]
    goals: tuple[Goal, ...]
    run: records.SmokeRun


def to_json(recommendation: Recommendation, run: records.SmokeRun) -> str:
    """Return the run, its figures and its predictions as JSON text in ASCII."""
    name = outcome(recommendation, run)
    phases = (Phase(run_figures.figures(phase), _rows(phase_rows(recommendation, run, phase))) for phase in run.phases)
    document = plain(
        Published(
            format=FORMAT,
            outcome=name,
            exit_code=KINDS[name].code if name != "ok" else 0,
            memory=_rows(memory_rows(recommendation, run)),
            phases=tuple(phases),
            goals=tuple(check_goals(recommendation, run)),
            run=run,
        )
    )
    return json.dumps(document | {"run": run.model_dump(mode="json")}, indent=2, ensure_ascii=True) + "\n"


def _rows(rows: list[ReportRow]) -> tuple[Row, ...]:
    return tuple(Row(row.name, row.measured, row.predicted, row.low, row.high, row.error) for row in rows)
