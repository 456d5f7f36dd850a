"""A smoke run, its figures and its predictions as JSON, and its JSON Schema."""

from dataclasses import dataclass

from recommender.choose.recommend import Recommendation
from recommender.common.terminal import json_text, plain
from recommender.knowledge import records, run_figures
from recommender.smoke.failures import KINDS
from recommender.smoke.goals import Goal, check_goals
from recommender.smoke.report import ReportRow, memory_rows, outcome, phase_rows

FORMAT = 1


@dataclass(frozen=True)
class Row(ReportRow):
    """``error``: predicted / measured - 1; null if one is missing."""

    error: float | None = None
    """Predicted / measured - 1; null: one is missing."""


@dataclass(frozen=True)
class PhaseFigures:
    """One load's figures, and those that are predicted beside the prediction."""

    figures: run_figures.RunFigures
    """What was measured."""
    compared: tuple[Row, ...]
    """Measured beside predicted figures."""


@dataclass(frozen=True)
class SmokeJson:
    """The JSON form of a smoke run."""

    format: int
    outcome: str
    """ok, or the failure's name."""
    exit_code: int
    """Exit code of the command."""
    memory: tuple[Row, ...]
    """Measured beside predicted memory, in MiB."""
    phases: tuple[PhaseFigures, ...]
    """Each load."""
    goals: tuple[Goal, ...]
    """Goals of the request."""
    run: records.SmokeRun
    """The record that --save-evidence writes."""


def to_json(recommendation: Recommendation, run: records.SmokeRun) -> str:
    """Return the run, its figures and its predictions as JSON text in ASCII."""
    name = outcome(recommendation, run)
    phases = (
        PhaseFigures(run_figures.figures(phase), _rows(phase_rows(recommendation, run, phase))) for phase in run.phases
    )
    document = plain(
        SmokeJson(
            format=FORMAT,
            outcome=name,
            exit_code=KINDS[name].code if name != "ok" else 0,
            memory=_rows(memory_rows(recommendation, run)),
            phases=tuple(phases),
            goals=tuple(check_goals(recommendation, run)),
            run=run,
        )
    )
    return json_text(document | {"run": run.model_dump(mode="json")})


def _rows(rows: list[ReportRow]) -> tuple[Row, ...]:
    return tuple(Row(row.name, row.measured, row.predicted, row.low, row.high, row.error) for row in rows)
