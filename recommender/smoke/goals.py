"""Compare a run with the goals of its request."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.estimate.scheduler.simulation import KEEPS_UP, keeps_up
from recommender.knowledge import records, run_figures

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.request.request import Quantile, TimeGoal

QUANTILES: Mapping[Quantile, float] = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of the request, the measured value and whether it is met."""

    name: str
    """Name of the goal."""
    wanted: float
    """Limit that was asked for."""
    measured: float
    """Measured value."""
    met: bool
    """The goal is met."""
    note: str = ""
    """What limits the measurement; empty: nothing."""

    @property
    def wanted_text(self) -> str:
        """Return the limit as it was asked for."""
        return f"{self.wanted:,.10g}"

    @property
    def measured_text(self) -> str:
        """Return the measured value with four digits or more: 0.247 is not 0.2."""
        return f"{self.measured:,.{max(1, 3 - math.floor(math.log10(self.measured))) if self.measured else 1}f}"


def check_goals(recommendation: Recommendation, run: records.SmokeRun) -> list[Goal]:
    """Compare the request's goals with its own load, the last one."""
    if not run.phases:
        return []
    last, request = run.phases[-1], recommendation.request
    goals = [_check_time(goal, last) for goal in request.time_goals]
    if request.rps and not (last.drawn and last.drawn.trace_speed):  # a trace's rate is its own, not a goal
        goals.append(_check_rate(request.rps, last))
    return goals


def _check_time(goal: TimeGoal, phase: records.Phase) -> Goal:
    times: Sequence[float] = getattr(run_figures.steady_times(phase), goal.figure)
    name, note = f"{goal.words.removeprefix('the ')} ms", ""
    if goal.at == "mean":
        measured = statistics.fmean(times) if times else 0.0
    elif goal.at == "p99" and len(times) < run_figures.P99_SAMPLES:
        measured = run_figures.quantile(times, 0.95)
        note = f"p95 used: a p99 needs {run_figures.P99_SAMPLES} samples, this load has {len(times)}"
    else:
        measured = run_figures.quantile(times, QUANTILES[goal.at])
    return Goal(name, goal.most_ms, measured, 0 < measured <= goal.most_ms, note)


def _check_rate(wanted: float, phase: records.Phase) -> Goal:
    """Return the goal for the rate.

    A server that keeps up with arrivals answers the last ones after the load has ended, so the answers inside are too
    few where answers take long beside the load.
    """
    measured = run_figures.figures(phase).rps
    if measured >= KEEPS_UP * wanted:
        return Goal("requests/s", wanted, measured, True)
    sent, waits = run_figures.list_waits(phase)
    if phase.concurrency or phase.arrivals_rps < wanted or phase.failures or not sent:
        return Goal("requests/s", wanted, measured, False)
    if not keeps_up(sent, waits):
        return Goal("requests/s", wanted, measured, False, "requests waited longer and longer")
    return Goal("requests/s", wanted, measured, True, "no queue grew: the last answers came after the load's end")
