"""Derive from plan and results what is done, what is next and what is best."""

import io
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from recommender.common.errors import RequestError
from recommender.common.parse import parse_yaml
from recommender.common.user_file import name_in_errors, read_bytes
from recommender.knowledge import records
from recommender.knowledge.run_figures import RunFigures, figures, late_rps
from recommender.smoke.campaign.plan import ParsedPlan, PlannedRun, Rung, name_of_phase
from recommender.smoke.failures import KINDS

# Exit codes of a smoke run that say nothing about the start: the machine, or an unknown cause, is at fault.
MACHINE = frozenset({1, 2, 3, 4, *(KINDS[name].code for name in ("port-taken", "other-release", "environment-proxy"))})
TIME_LIMIT = KINDS["time-limit"].code
FORMAT = 1
TRIES = 3
"""Attempts at a start that a signal or the time limit ends; after them a sweep goes on without it."""
BEGIN = b'{"id":'
"""How a result line begins; tells a line cut by a kill from foreign text."""
START_S, COPY_S, LOAD_S = 12.0, 18.0, 1.0
"""Default overhead in seconds of a run, of each of its servers and of each load."""


class ResultLine(records.Record):
    """One line of a results file: one smoke run with its last stderr line, record and, if it failed, its log's end."""

    id: records.Id
    digest: records.Text
    code: int
    seconds: float
    said: str
    evidence: str
    log: tuple[str, ...] = ()


def read_lines(path: Path) -> tuple[list[ResultLine], int]:
    """Return a results file's lines and the bytes they fill; or raise RequestError.

    An unfinished last line, left by a kill, is dropped.
    """
    with name_in_errors(path, "name a file of results", "; results may be in several files"):
        data = read_bytes(path) if path.exists() else b""
    results, filled = [], 0
    for number, raw in enumerate(io.BytesIO(data), 1):  # lines end at a newline alone
        try:
            results += [ResultLine.model_validate_json(raw)] if raw.strip() else []
        except ValidationError:
            if raw.endswith(b"\n") or not (raw.startswith(BEGIN) or BEGIN.startswith(raw)):
                raise RequestError(f"{path}: line {number} is not a campaign result; remove the line") from None
            break
        filled += len(raw)
    return results, filled


class Results:
    """The lines of one or several sessions."""

    def __init__(self, lines_read: Iterable[ResultLine]) -> None:
        self.lines: list[ResultLine] = []
        self._by: dict[tuple[str, str], list[ResultLine]] = {}
        for line in lines_read:
            self.add(line)

    def add(self, line: ResultLine) -> None:
        """Add one line."""
        self.lines.append(line)
        self._by.setdefault((line.id, line.digest), []).append(line)

    def final_line(self, launch: PlannedRun) -> ResultLine | None:
        """Return the line that settles a run, or None if it must run (again)."""
        cut = []
        for line in self._by.get((launch.id, launch.digest), ()):
            if is_cut_short(line.code):
                cut.append(line)
            elif line.code not in MACHINE:
                return line
        return cut[-1] if len(cut) >= TRIES else None


def is_stopped(code: int) -> bool:
    """Return whether a signal ended a run."""
    return code < 0 or code > 128


def is_cut_short(code: int) -> bool:
    """Return whether a signal or the time limit ended a run."""
    return code == TIME_LIMIT or is_stopped(code)


# --- what a record says of each load --------------------------------------------------------------


def parse_record(text: str) -> records.SmokeRun:
    """Return a record from its text; raise ValueError in one line."""
    try:
        return records.SmokeRun.model_validate_json(json.dumps(parse_yaml(text), default=str))
    except TypeError:
        raise ValueError("a key is no text; put it in quotes") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


@lru_cache(maxsize=4096)
def load_figures(text: str) -> Mapping[str, RunFigures]:
    """Return the figures of each load of a record's text; none if unreadable.

    If a load is not steady, its requests/s are those after its opening.
    """
    try:
        return {name_of_phase(phase): _without_opening(phase) for phase in parse_record(text).phases} if text else {}
    except ValueError:
        return {}


def _without_opening(phase: records.Phase) -> RunFigures:
    whole = figures(phase)
    return whole if whole.trusted else replace(whole, rps=late_rps(phase) or whole.rps)


def is_single(load: str) -> bool:
    """Return whether a load has concurrency 1: latency ranks it, not requests/s."""
    return load.partition("@")[0] == "1"


def score(line: ResultLine | None, load: str) -> float:
    """Return ms at concurrency 1, else requests/s; 0 if not measured, a request failed or none was answered in time.

    Short loads whose rate and times disagree are ranked too, and named: a rung asks what is worth a longer run.
    """
    run_figures = load_figures(line.evidence).get(load) if line else None
    if run_figures is None or run_figures.failed:
        return 0.0
    return run_figures.p50_ms if is_single(load) else run_figures.rps


def best_first(load: str, scores: Mapping[str, float]) -> list[str]:
    """Return names sorted by score, without those that have none; ties stay in order."""
    return sorted(
        (name for name in scores if scores[name]), key=lambda name: scores[name] * (1 if is_single(load) else -1)
    )


# --- rungs ----------------------------------------------------------------------------------------


def launches(plan: ParsedPlan, results: Results) -> list[PlannedRun]:
    """Return every known run: the starts, then each rung whose predecessor is complete."""
    planned = list(plan.launches)
    rung = [launch for launch in planned if launch.rung]
    for number, spec in enumerate(plan.rungs[1:], 2):
        if not all(results.final_line(launch) for launch in rung):
            break
        surviving = survivors(plan.rung_loads[number - 1], rung, results, spec.keep)
        by_start = {launch.start: launch for launch in plan.launches}
        rung = [
            again
            for start, loads in surviving.items()
            for again in _repeat_runs(plan, by_start[start], loads, number, spec)
        ]
        planned += rung
    return planned


def _repeat_runs(
    plan: ParsedPlan, launch: PlannedRun, loads: tuple[str, ...], number: int, spec: Rung
) -> list[PlannedRun]:
    names = [f"{launch.start}-r{number}" + (f"-{n}" if spec.times > 1 else "") for n in range(1, spec.times + 1)]
    seconds = spec.seconds or plan.plan.seconds
    return [replace(launch, id=name, rung=number, loads=loads, seconds=seconds) for name in names]


def survivors(loads: Sequence[str], rung: list[PlannedRun], results: Results, keep: int) -> dict[str, tuple[str, ...]]:
    """Return the starts that continue, each with its loads: among the best, or a pick."""
    best = {load: set(best_first(load, medians(rung, results, load))[:keep]) for load in loads}
    picks = {launch.start: launch.picks for launch in rung}
    surviving = {start: tuple(load for load in loads if start in best[load] or load in picks[start]) for start in picks}
    return {start: its for start, its in surviving.items() if its}


def scores(rung: Iterable[PlannedRun], results: Results, load: str) -> dict[str, list[float]]:
    """Return each start's scores in a rung; [0.0] if any of its runs failed in this load."""
    by_start: dict[str, list[float]] = {}
    for launch in rung:
        if load in launch.loads:
            by_start.setdefault(launch.start, []).append(score(results.final_line(launch), load))
    return {start: values if all(values) else [0.0] for start, values in by_start.items()}


def medians(rung: Iterable[PlannedRun], results: Results, load: str) -> dict[str, float]:
    """Return each start's median over its runs in a rung; 0.0 if one failed."""
    return {start: statistics.median(values) for start, values in scores(rung, results, load).items()}


# --- ranking --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RankingRow:
    """A start in a load's ranking."""

    start: str
    """Name of the start."""
    rung: int
    """Last rung that it ran in."""
    runs: int
    """Number of runs."""
    median: float
    """Median, in the load's unit."""
    spread: float
    """Largest minus smallest over the median."""
    of_best: float
    """Median over the best start's."""
    short: bool
    """One of the runs was too short for a steady load: its figure is that after the opening."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """All starts of the sweep in one load: last rung first, then failed and open ones."""

    load: str
    """Name of the load."""
    unit: str
    """Unit of the medians."""
    rows: tuple[RankingRow, ...]
    """Starts, those of the last rung first."""
    failed: tuple[str, ...]
    """Starts that failed, or answered no request while the load lasted."""
    open: tuple[str, ...]
    """Starts that have not run."""


@dataclass(frozen=True, slots=True)
class CampaignJson:
    """The JSON form of a campaign's rankings."""

    format: int
    campaign: str
    """Id of the campaign."""
    loads: tuple[Ranking, ...]
    """A ranking for each load."""


def ranking(plan: ParsedPlan, results: Results, load: str) -> Ranking:
    """Rank the starts in one load by the last rung they finished.

    Earlier rungs of the same length count too, except the first, where lengths may differ. The run that got a start
    promoted counts as well, so starts that are no pick look slightly better than they are. Starts outside the sweep
    that launch the same for as long count as further runs.
    """
    rows: dict[str, tuple[int, list[float]]] = {}
    failed: dict[str, None] = {}
    planned = [launch for launch in launches(plan, results) if launch.rung and load in launch.loads]
    for number in sorted({launch.rung for launch in planned}):
        rung = [launch for launch in planned if launch.rung == number and results.final_line(launch)]
        for start, values in scores(rung, results, load).items():
            if all(values):
                before, earlier = rows.get(start, (0, []))
                same_length = before > 1 and plan.rungs[before - 1].seconds == plan.rungs[number - 1].seconds
                rows[start] = (number, [*(earlier if same_length else ()), *values])
            else:
                failed[start] = None
    rows = {
        start: (number, [*values, *_repeat_scores(plan, results, load, start, number)])
        for start, (number, values) in rows.items()
    }
    failed |= dict.fromkeys(start for start, (_, values) in rows.items() if not all(values))
    middle = {start: statistics.median(values) for start, (_, values) in rows.items() if start not in failed}
    order = sorted(best_first(load, middle), key=lambda start: -rows[start][0])
    short = {launch.start for launch in planned if _is_short(results.final_line(launch), load)}
    best = middle[order[0]] if order else 0.0
    ranked = []
    for start in order:
        (number, values), value = rows[start], middle[start]
        share = best / value if is_single(load) else value / best
        spread = (max(values) - min(values)) / value
        ranked.append(RankingRow(start, number, len(values), value, spread, share, start in short))
    waiting = dict.fromkeys(launch.start for launch in planned if not results.final_line(launch))
    return Ranking(load, "ms" if is_single(load) else "requests/s", tuple(ranked), tuple(failed), tuple(waiting))


def _is_short(line: ResultLine | None, load: str) -> bool:
    run_figures = load_figures(line.evidence).get(load) if line else None
    return bool(run_figures and not run_figures.trusted and not is_single(load))


def _repeat_scores(plan: ParsedPlan, results: Results, load: str, start: str, number: int) -> list[float]:
    """Return scores of starts outside the sweep that launch the same for as long.

    The first rung has none: lengths may differ there.
    """
    if number == 1:
        return []
    seconds = plan.rungs[number - 1].seconds or plan.plan.seconds
    original = next(launch for launch in plan.launches if launch.id == start)
    equal = [
        launch
        for launch in plan.launches
        if (launch.rung, launch.seconds) == (0, seconds)
        and (launch.what, launch.identity, launch.copies, launch.mps)
        == (original.what, original.identity, original.copies, original.mps)
        and load in launch.loads
    ]
    return [score(line, load) for line in map(results.final_line, equal) if line]


# --- time -----------------------------------------------------------------------------------------


class Clock:
    """Estimate run times: the loads, plus start-up as measured before or typical."""

    def __init__(self, planned: Iterable[PlannedRun], results: Results) -> None:
        before: dict[str, list[float]] = {}
        for launch in planned:
            line = results.final_line(launch)
            if line and line.evidence:
                before.setdefault(launch.start, []).append(line.seconds - self._loads(launch))
        self._before = {start: max(0.0, statistics.median(values)) for start, values in before.items()}

    def expected(self, launch: PlannedRun) -> float:
        """Return the expected seconds of one run."""
        start = self._before.get(launch.start, START_S + COPY_S * launch.copies)
        return start + self._loads(launch)

    @staticmethod
    def _loads(launch: PlannedRun) -> float:
        return len(launch.loads) * (launch.seconds + LOAD_S)
