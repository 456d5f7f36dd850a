"""A run beside its prediction: as data, as JSON and as a text of 80 columns."""

from __future__ import annotations

import json
import textwrap
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from recommender import measured as m
from recommender import records as r
from recommender.facts import MIB
from recommender.memory import estimate, likely
from recommender.smoke import record
from recommender.smoke.failures import KINDS
from recommender.smoke.forecast import arranged, foretold, met, predicted

if TYPE_CHECKING:
    from recommender.pipeline import Recommendation
    from recommender.ranges import Range
    from recommender.speed import Speed

WIDTH = 80
FORMAT = 1
LATE_MS = 20
"""So late a request of an open loop is sent no more as it was planned."""


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: measured (0: not), predicted with its range (0: not), and predicted over measured, less one."""

    name: str
    measured: float
    predicted: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @property
    def error(self) -> float | None:
        """Share by which the prediction is too high; None where one of the two is missing."""
        return self.predicted / self.measured - 1 if self.measured and self.predicted else None


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal of the request and whether the run met it; not met where it could not be measured."""

    name: str
    wanted: float
    measured: float
    met: bool
    note: str = ""


def memory_rows(found: Recommendation, run: r.SmokeRun) -> list[Row]:
    """Memory of the fullest card in MiB, above the idle card."""
    ready = run.ready_mib - run.idle_mib
    peak = max([run.start_peak_mib, *(each.peak_mib for each in run.phases)]) - run.idle_mib
    config, facts = arranged(run, found.config), met(found.facts, run)
    memory = estimate(facts, config)
    low, high = likely(facts, memory, config.tp)
    ends = (memory.total / MIB, low / MIB, high / MIB)
    covered = run.copies == 1 or foretold(run)
    rows = [Row("VRAM ready MiB", ready, *(ends if covered else ())), Row("VRAM peak MiB", peak)]
    return rows if run.ready_mib else []


def phase_rows(found: Recommendation, run: r.SmokeRun, phase: r.Phase) -> list[Row]:
    """The figures of one phase, predicted too under a closed loop where the estimates cover the run."""
    got = m.figures(phase)
    speed: Speed | None = None
    if phase.concurrency and got.requests and foretold(run):
        speed = predicted(found, run, phase)

    def row(name: str, value: float, of: Range | None, scale: float = 1.0) -> Row:
        return Row(name, value, of.value * scale, of.low * scale, of.high * scale) if of else Row(name, value)

    tokens = float(phase.output_tokens)
    return [
        row("requests/s", got.rps, speed.rps if speed else None),
        row("output tokens/s", got.output_tokens_s, speed.rps if speed else None, tokens),
        row("p50 ms", got.p50_ms, speed.latency_ms if speed else None),
        Row("p95 ms", got.p95_ms),
        row("p99 ms", got.p99_ms, speed.p99_ms if speed else None),
        row("TTFT ms", got.ttft_ms, speed.ttft_ms if speed else None),
        row("per token ms", got.token_ms, speed.token_ms if speed else None),
    ]


def goals(found: Recommendation, run: r.SmokeRun) -> list[Goal]:
    """The request's goals held against the phase of its own load: the last one."""
    if not run.phases:
        return []
    request, got = found.request, m.figures(run.phases[-1])
    made = []
    if request.p99_ms:
        enough = bool(got.p99_ms)
        tail = got.p99_ms or got.p95_ms
        note = "" if enough else f"by the p95: a p99 needs {m.P99_SAMPLES} samples, {got.samples} were taken"
        made.append(Goal("p99 ms", request.p99_ms, tail, 0 < tail <= request.p99_ms, note))
    if request.ttft_ms:
        made.append(Goal("TTFT ms", request.ttft_ms, got.ttft_ms, 0 < got.ttft_ms <= request.ttft_ms))
    if request.rps:
        made.append(Goal("requests/s", request.rps, got.rps, got.rps >= 0.95 * request.rps))
    return made


def outcome(found: Recommendation, run: r.SmokeRun) -> str:
    """How the run ended: ok, or a failure's name; a missed goal is one where all else is sound."""
    missed = run.outcome == "ok" and not all(each.met for each in goals(found, run))
    return "goals-missed" if missed else run.outcome


def to_json(found: Recommendation, run: r.SmokeRun) -> str:
    """The run, its figures and the predictions as JSON text."""
    phases = [
        {"figures": asdict(m.figures(each)), "compared": [_row(row) for row in phase_rows(found, run, each)]}
        for each in run.phases
    ]
    ended = outcome(found, run)
    made: dict[str, Any] = {
        "format": FORMAT,
        "outcome": ended,
        "exit_code": KINDS[ended].code if ended != "ok" else 0,
        "memory": [_row(row) for row in memory_rows(found, run)],
        "phases": phases,
        "goals": [asdict(each) for each in goals(found, run)],
        "run": record.plain(run),
    }
    return json.dumps(made, indent=2, ensure_ascii=True) + "\n"


def _row(row: Row) -> dict[str, Any]:
    return asdict(row) | {"error": row.error}


def text(found: Recommendation, run: r.SmokeRun) -> str:
    """The run as people read it."""
    lines = [
        *_head(found, run),
        *_settings(run),
        *(_table("MEMORY of the fullest card, idle card taken off", memory_rows(found, run)) if run.ready_mib else ()),
    ]
    for number, phase in enumerate(run.phases, 1):
        lines += _table(f"LOAD {number}: {_load(phase, run.kind)}", phase_rows(found, run, phase))
        lines += _beside(phase, run)
    for each in run.killed:
        lines += _killed(each)
    made = goals(found, run)
    if made:
        lines += ["", "GOALS"]
        for goal in made:
            verdict = "met" if goal.met else "missed"
            lines += wrapped(
                f"{goal.name} {goal.wanted:,.0f}: {verdict}, measured {goal.measured:,.1f}"
                + (f" ({goal.note})" if goal.note else "")
            )
    lines += ["", "RESULT"]
    ended = outcome(found, run)
    lines += wrapped("ok" if ended == "ok" else f"{ended}: {run.said or KINDS[ended].what}")
    return "\n".join(lines) + "\n"


def _head(found: Recommendation, run: r.SmokeRun) -> list[str]:
    copies = f", {run.copies} copies" + (" under CUDA MPS" if run.mps else "") if run.copies > 1 else ""
    what = f"{run.kind} artefact {run.artefact_sha256[:12]}" + (f", follows {found.adviser}" if found.adviser else "")
    lines = ["SMOKE RUN"]
    lines += wrapped(f"{what}{copies}; LMDeploy {run.lmdeploy}, {run.model}")
    lines += wrapped(
        f"{run.gpu_count} x {run.gpu_name} ({run.memory_mib:,} MiB), driver {run.driver}, {run.cpus} cores"
    )
    if run.pinned:
        lines += wrapped(f"servers on the {run.cores} CPU cores {run.pinned} alone")
    lines += wrapped(f"weights: {run.checkpoint}")
    if run.ready_mib:
        lines += wrapped(f"ready after {run.startup_s:.1f} s")
    if run.checks:
        lines += ["", "PROVED", *(line for each in run.checks for line in wrapped(each))]
    return lines


def _settings(run: r.SmokeRun) -> list[str]:
    if not run.effective:
        return []
    lines = ["", f"{'SETTINGS':<22}{'asked':<26}the engine says"]
    for each in run.effective:
        found = each.found or "nothing"
        mark = "" if each.found in ("", each.asked) else "  DIFFERS"
        lines.append(f"  {each.name:<20}{each.asked:<26}{found}{mark}")
    return lines


def _load(phase: r.Phase, kind: str) -> str:
    images = f"{phase.image}" + (f" x {phase.images}" if phase.images > 1 else "") if phase.images else "text"
    how = f"{phase.concurrency} in flight" if phase.concurrency else f"{phase.arrivals_rps:g}/s Poisson"
    how = how if kind != "python" else f"a batch of {phase.concurrency}"
    tokens = f", {phase.input_tokens} tokens in, {phase.output_tokens} out" if phase.input_tokens else ""
    return f"{how}, {images}{tokens}"


def _table(title: str, rows: list[Row]) -> list[str]:
    if not any(each.measured for each in rows):
        return ["", title]
    lines = ["", title, f"  {'':<18}{'measured':>11}{'predicted':>13}  {'range':<20}{'error':>9}"]
    for row in [each for each in rows if each.measured or each.predicted]:
        measured = _number(row.measured) if row.measured else "-"
        told = _number(row.predicted) if row.predicted else "-"
        ends = f"{_number(row.low)} to {_number(row.high)}" if row.predicted else ""
        error = f"{100 * row.error:+.1f} %" if row.error is not None else ""
        lines.append(f"  {row.name:<18}{measured:>11}{told:>13}  {ends:<20}{error:>9}".rstrip())
    return lines


def _killed(found: r.Killed) -> list[str]:
    back = f"got requests again after {found.back_s:g} s" if found.back_s else "got no request again"
    return [
        "",
        f"A SERVER DIES: {found.server}, with {found.concurrency} requests in flight on all",
        *wrapped(
            f"{found.lost} of {found.lost + found.answered} requests lost, {found.in_flight} were in flight there"
        ),
        *wrapped(
            f"{found.lost_later} of those lost were sent after it was gone, which took {found.dying_s * 1e3:.0f} ms"
        ),
        *wrapped(f"started again after {found.restarted_s:g} s; {back}"),
        *wrapped(
            f"{found.rps_before:,.1f} requests/s before, {found.rps_down:,.1f} without it, {found.rps_after:,.1f} after"
        ),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.2f}"


def _beside(phase: r.Phase, run: r.SmokeRun) -> list[str]:
    got = m.figures(phase)
    answered = got.requests if run.kind != "python" else phase.window_requests
    said = [f"{answered} requests answered in {phase.window_s:.1f} s, {got.failed} failed"]
    if m.steady(phase):
        said.append("rate and times without the first round")
    if phase.late_ms >= LATE_MS:
        said.append(f"requests were sent up to {phase.late_ms:,} ms late: waiting is overstated")
    said.append(f"VRAM peak {phase.peak_mib - run.idle_mib:,} MiB")
    said.append(f"host CPU {phase.host_cpu_percent:.0f} %, servers {phase.server_cores:.1f} cores")
    if phase.running_most >= 0:
        said.append(f"at most {phase.running_most} running, {phase.waiting_most} waiting")
    if phase.cache_use_most >= 0:
        said.append(f"{100 * phase.cache_use_most:.1f} % of the KV cache used")
    lines = wrapped("; ".join(said))
    if got.requests and not got.p99_ms:
        lines += wrapped(f"no p99: it needs {m.P99_SAMPLES} samples")
    for each in phase.failures:
        lines += wrapped(f"{each.count} x {each.cause}: {each.said}")
    return lines


def wrapped(said: str) -> list[str]:
    """A text as indented lines of 80 columns."""
    kept = said.replace(" %", "\0%")  # a sign stays with its number
    lines = textwrap.wrap(kept, WIDTH - 2, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]
