"""A campaign's results: what is done, what comes next, and who is best. All of it follows from plan and results."""

from __future__ import annotations

import io
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from pydantic import ValidationError

from recommender import records as r
from recommender.measured import Figures, figures
from recommender.request import RequestError
from recommender.smoke.failures import KINDS
from recommender.smoke.plan import Checked, Launch, Rung, name_of_phase

# Exit codes of a smoke run that say nothing of what was tried: the machine is at fault, or nobody knows what.
MACHINE = frozenset({1, 2, 3, 4, *(KINDS[name].code for name in ("port-taken", "other-release", "environment-proxy"))})
LATE = KINDS["time-limit"].code
TRIES = 3
"""So often a start is tried that is stopped from outside or takes too long; a sweep waits no longer for it."""
BEGIN = b'{"id":'
"""Of a line, by which what a kill left of one is told from what is no result."""
START_S, COPY_S, LOAD_S = 12.0, 18.0, 1.0
"""What a run, each of its servers and each load take besides the loads' own seconds, until one of its kind is done."""


class Line(r.Record):
    """One line of a results file: one smoke run. ``said``: its last line on stderr; ``evidence``: its record's text."""

    id: r.Id
    digest: r.Text
    code: int
    seconds: float
    said: str
    evidence: str


def lines(path: Path) -> tuple[list[Line], int]:
    """The lines of a results file, and the bytes that they fill. Raises RequestError.

    A last line without its end is what a kill left: if it cannot be read it is dropped.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror}; name a file of results") from None
    made, filled = [], 0
    for number, raw in enumerate(io.BytesIO(data), 1):  # lines end at a newline alone
        try:
            made += [Line.model_validate_json(raw)] if raw.strip() else []
        except ValidationError:
            if raw.endswith(b"\n") or not (raw.startswith(BEGIN) or BEGIN.startswith(raw)):
                raise RequestError(f"{path}: line {number} is no result of a campaign; remove the line") from None
            break
        filled += len(raw)
    return made, filled


class Results:
    """The lines of one or several sessions."""

    def __init__(self, found: Iterable[Line]) -> None:
        self.every: list[Line] = []
        self._by: dict[tuple[str, str], list[Line]] = {}
        for each in found:
            self.add(each)

    def add(self, line: Line) -> None:
        """Takes in one more line."""
        self.every.append(line)
        self._by.setdefault((line.id, line.digest), []).append(line)

    def done(self, launch: Launch) -> Line | None:
        """The line that settles a launch; None where it is to be run, or run again."""
        cut = []
        for line in self._by.get((launch.id, launch.digest), ()):
            if line.code != LATE and not stopped(line.code):
                if line.code not in MACHINE:
                    return line
            else:
                cut.append(line)
        return cut[-1] if len(cut) >= TRIES else None


def stopped(code: int) -> bool:
    """Whether a signal ended a run."""
    return code < 0 or code > 128


# --- what a record says of each load --------------------------------------------------------------


def parsed(text: str) -> r.SmokeRun:
    """A record from its text. Raises ValueError in one line."""
    import yaml

    try:
        raw = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return r.SmokeRun.model_validate_json(json.dumps(raw, default=str))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


@lru_cache(maxsize=4096)
def measured(text: str) -> Mapping[str, Figures]:
    """The figures of each load of a record's text; of none where it cannot be read."""
    try:
        return {name_of_phase(each): figures(each) for each in parsed(text).phases} if text else {}
    except ValueError:
        return {}


def alone(load: str) -> bool:
    """Whether a load is one request at a time: latency ranks it, requests a second every other."""
    return load.partition("@")[0] == "1"


def score(line: Line | None, load: str) -> float:
    """ms for one in flight, else requests a second; 0 where it was not measured or a request failed."""
    got = measured(line.evidence).get(load) if line else None
    if got is None or got.failed:
        return 0.0
    return got.p50_ms if alone(load) else got.rps


def best_first(load: str, scores: Mapping[str, float]) -> list[str]:
    """Names by score; those without one are left out, equal ones stay in order."""
    return sorted((each for each in scores if scores[each]), key=lambda each: scores[each] * (1 if alone(load) else -1))


# --- rungs ----------------------------------------------------------------------------------------


def launches(plan: Checked, results: Results) -> list[Launch]:
    """Every launch that is known by now: the starts, then each rung whose forerunner is complete."""
    made = list(plan.launches)
    rung = [each for each in made if each.rung]
    for number, spec in enumerate(plan.rungs[1:], 2):
        if not all(results.done(each) for each in rung):
            break
        kept = survivors(plan.rung_loads[number - 1], rung, results, spec.keep)
        own = {each.start: each for each in plan.launches}
        rung = [again for start, loads in kept.items() for again in _again(plan, own[start], loads, number, spec)]
        made += rung
    return made


def _again(plan: Checked, launch: Launch, loads: tuple[str, ...], number: int, spec: Rung) -> list[Launch]:
    """A start's launches in a later rung."""
    names = [f"{launch.start}-r{number}" + (f"-{n}" if spec.times > 1 else "") for n in range(1, spec.times + 1)]
    seconds = spec.seconds or plan.plan.seconds
    return [replace(launch, id=name, rung=number, loads=loads, seconds=seconds) for name in names]


def survivors(loads: Sequence[str], rung: list[Launch], results: Results, keep: int) -> dict[str, tuple[str, ...]]:
    """Starts that go on, in their order, each with the loads that it is a pick for or among the best of its rung in."""
    best = {load: set(best_first(load, medians(rung, results, load))[:keep]) for load in loads}
    picks = {each.start: each.picks for each in rung}
    kept = {start: tuple(each for each in loads if start in best[each] or each in picks[start]) for start in picks}
    return {start: its for start, its in kept.items() if its}


def scores(rung: Iterable[Launch], results: Results, load: str) -> dict[str, list[float]]:
    """Each start's scores in a rung; [0.0] for one of which any run failed in this load."""
    found: dict[str, list[float]] = {}
    for each in rung:
        if load in each.loads:
            found.setdefault(each.start, []).append(score(results.done(each), load))
    return {start: values if all(values) else [0.0] for start, values in found.items()}


def medians(rung: Iterable[Launch], results: Results, load: str) -> dict[str, float]:
    """Each start's median over its runs in a rung; 0.0 where one failed."""
    return {start: statistics.median(values) for start, values in scores(rung, results, load).items()}


# --- ranking --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """A start in the ranking of a load. ``spread``: largest less smallest, ``of_best``: 1 is the best; both shares."""

    start: str
    rung: int
    runs: int
    median: float
    spread: float
    of_best: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """All starts of the sweep in one load: those of the last rung first; who failed in it; who has yet to run."""

    load: str
    unit: str
    rows: tuple[Row, ...]
    failed: tuple[str, ...]
    open: tuple[str, ...]


def ranking(plan: Checked, results: Results, load: str) -> Ranking:
    """The order in one load: each start by its runs in the last rung that it ended, and in those as long before it.

    Not in the first, where starts may have their own lengths. A run counts there though it is why its start came
    further, so in three of which it is one, a start that no pick is looks a little better than it is. Starts outside
    the sweep that run the same as long count as further runs.
    """
    rows: dict[str, tuple[int, list[float]]] = {}
    failed: dict[str, None] = {}
    known = [each for each in launches(plan, results) if each.rung and load in each.loads]
    for number in sorted({each.rung for each in known}):
        rung = [each for each in known if each.rung == number and results.done(each)]
        for start, values in scores(rung, results, load).items():
            if all(values):
                before, earlier = rows.get(start, (0, []))
                alike = before > 1 and plan.rungs[before - 1].seconds == plan.rungs[number - 1].seconds
                rows[start] = (number, [*(earlier if alike else ()), *values])
            else:
                failed[start] = None
    rows = {
        start: (number, [*values, *_repeats(plan, results, load, start, number)])
        for start, (number, values) in rows.items()
    }
    failed |= dict.fromkeys(start for start, (_, values) in rows.items() if not all(values))
    middle = {start: statistics.median(values) for start, (_, values) in rows.items() if start not in failed}
    order = sorted(best_first(load, middle), key=lambda start: -rows[start][0])
    best = middle[order[0]] if order else 0.0
    made = []
    for start in order:
        (number, values), value = rows[start], middle[start]
        share = best / value if alone(load) else value / best
        made.append(Row(start, number, len(values), value, (max(values) - min(values)) / value, share))
    waiting = dict.fromkeys(each.start for each in known if not results.done(each))
    return Ranking(load, "ms" if alone(load) else "requests/s", tuple(made), tuple(failed), tuple(waiting))


def _repeats(plan: Checked, results: Results, load: str, start: str, number: int) -> list[float]:
    """Scores of starts outside the sweep that launch what a start of it launches, each load as long as in a rung.

    None of the first rung, where starts may have their own lengths.
    """
    if number == 1:
        return []
    seconds = plan.rungs[number - 1].seconds or plan.plan.seconds
    own = next(each for each in plan.launches if each.id == start)
    alike = [
        each
        for each in plan.launches
        if (each.rung, each.seconds) == (0, seconds)
        and (each.what, each.meant, each.copies, each.mps) == (own.what, own.meant, own.copies, own.mps)
        and load in each.loads
    ]
    return [score(done, load) for done in map(results.done, alike) if done]


# --- time -----------------------------------------------------------------------------------------


class Clock:
    """How long launches will take: their loads, and what their start took before or else takes as a rule."""

    def __init__(self, known: Iterable[Launch], results: Results) -> None:
        before: dict[str, list[float]] = {}
        for each in known:
            line = results.done(each)
            if line and line.evidence:
                before.setdefault(each.start, []).append(line.seconds - self._loads(each))
        self._before = {start: max(0.0, statistics.median(values)) for start, values in before.items()}

    def expected(self, launch: Launch) -> float:
        """Seconds of one launch."""
        start = self._before.get(launch.start, START_S + COPY_S * launch.copies)
        return start + self._loads(launch)

    @staticmethod
    def _loads(launch: Launch) -> float:
        return len(launch.loads) * (launch.seconds + LOAD_S)
