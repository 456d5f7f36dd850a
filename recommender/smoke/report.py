"""Compare a run with its prediction: as rows and 80-column text."""

from __future__ import annotations

import textwrap
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from recommender.calibration.predict import is_predictable, predict_phase, with_free_memory, with_server_layout
from recommender.common.text import WIDTH, count
from recommender.common.units import MIB
from recommender.estimate.memory import estimate, likely_range
from recommender.knowledge import records, run_figures
from recommender.smoke.expected_load import describe_drawn
from recommender.smoke.failures import KINDS
from recommender.smoke.goals import QUANTILES, check_goals
from recommender.smoke.replay_prediction import predict_replay
from recommender.smoke.result import describe_arrivals, describe_trace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from recommender.choose.recommend import Recommendation, Setup
    from recommender.estimate.scheduler.simulation import Timed
    from recommender.estimate.speed import Speed
    from recommender.estimate.uncertainty import Range

LATE_MS = 20
"""Delay from which an open loop no longer follows its plan."""


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One figure, measured and predicted with its range; 0 means missing."""

    name: str
    """Name of the figure."""
    measured: float
    """Measured value; 0: missing."""
    predicted: float = 0.0
    """Predicted value; 0: missing."""
    low: float = 0.0
    """Low end of the predicted range."""
    high: float = 0.0
    """High end of the predicted range."""

    @property
    def error(self) -> float | None:
        """Return predicted / measured - 1, or None if one is missing."""
        return self.predicted / self.measured - 1 if self.measured and self.predicted else None


def memory_rows(setup: Setup, run: records.SmokeRun) -> list[ReportRow]:
    """Return memory of the fullest GPU in MiB, minus its idle use."""
    ready = run.ready_mib - run.idle_mib
    peak = max([run.start_peak_mib, *(phase.peak_mib for phase in run.phases)]) - run.idle_mib
    config, resolved = with_server_layout(run, setup.config), with_free_memory(setup.resolved, run)
    memory = estimate(resolved, config)
    low, high = likely_range(resolved, memory, config.tp)
    ends = (memory.total / MIB, low / MIB, high / MIB)
    covered = run.copies == 1 or is_predictable(run)
    rows = [ReportRow("VRAM ready MiB", ready, *(ends if covered else ())), ReportRow("VRAM peak MiB", peak)]
    return rows if run.ready_mib else []


def phase_rows(setup: Setup, run: records.SmokeRun, phase: records.Phase) -> list[ReportRow]:
    """Return a load's figures, with predictions where the estimates cover the run."""
    figures = run_figures.figures(phase)
    speed: Speed | None = None
    if figures.requests and is_predictable(run):
        predict = predict_replay if phase.drawn and phase.drawn.trace_speed else predict_phase
        speed = predict(setup, run, phase)

    def row(name: str, value: float, predicted_range: Range | None, scale: float = 1.0) -> ReportRow:
        ends = astuple(predicted_range) if predicted_range else ()
        return ReportRow(name, value, *(end * scale for end in ends))

    tokens = figures.output_tokens_s / figures.rps if figures.rps else 0.0
    rates = [
        row("requests/s", figures.rps, speed.rps if speed else None),
        row("output tokens/s", figures.output_tokens_s, speed.rps if speed else None, tokens),
    ]
    if phase.drawn or not phase.concurrency:
        return rates + list(_quantile_rows(phase, speed))
    return [
        *rates,
        row("p50 ms", figures.p50_ms, speed.latency_ms if speed else None),
        ReportRow("p95 ms", figures.p95_ms),
        row("p99 ms", figures.p99_ms, speed.p99_ms if speed else None),
        row("TTFT ms", figures.ttft_ms, speed.ttft_ms if speed else None),
        row("per token ms", figures.token_ms, speed.token_ms if speed else None),
    ]


def _quantile_rows(phase: records.Phase, speed: Speed | None) -> Iterator[ReportRow]:
    """Yield quantiles of latency, TTFT and TPOT; the ranges are those that held-out runs have of a quantile."""
    times = run_figures.steady_times(phase)
    ranges: dict[tuple[Timed, str], Range] = {}
    if speed:
        ranges = {("latency", "p50"): speed.latency_ms, ("latency", "p99"): speed.p99_ms}
        ranges |= {("ttft", "p50"): speed.ttft_ms, ("tpot", "p50"): speed.token_ms}
    measured_times: tuple[tuple[Timed, str, Sequence[float]], ...] = (
        ("latency", "", times.latency),
        ("ttft", "TTFT ", times.ttft),
        ("tpot", "TPOT ", times.tpot),
    )
    for figure, title, values in measured_times:
        for quantile, share in QUANTILES.items():
            enough = quantile != "p99" or len(values) >= run_figures.P99_SAMPLES
            measured = run_figures.quantile(values, share) if enough else 0.0
            predicted = speed.at(figure, quantile) if speed else 0.0
            known = ranges.get((figure, quantile))
            ends = (known.low, known.high) if known and known.value else ()
            scaled = (predicted * end / known.value for end in ends if known)
            yield ReportRow(f"{title}{quantile} ms", measured, predicted, *scaled)


def outcome(recommendation: Recommendation, run: records.SmokeRun) -> str:
    """Return ok or a failure's name; goals-missed if everything else is sound."""
    missed = run.outcome == "ok" and not all(goal.met for goal in check_goals(recommendation, run))
    return "goals-missed" if missed else run.outcome


def text(recommendation: Recommendation, run: records.SmokeRun) -> str:
    """Return the run as 80-column text."""
    lines = [*_head(recommendation, run), *_settings(run)]
    if run.ready_mib:
        lines += _table("MEMORY of the fullest GPU, minus its idle use", memory_rows(recommendation, run))
    for number, phase in enumerate(run.phases, 1):
        lines += _table(f"LOAD {number}: {_describe_phase(phase, run.kind)}", phase_rows(recommendation, run, phase))
        lines += _phase_notes(phase, run)
    for kill in run.killed:
        lines += _describe_kill(kill)
    checked_goals = check_goals(recommendation, run)
    if checked_goals:
        lines += ["", "GOALS"]
        for goal in checked_goals:
            verdict = "met" if goal.met else "missed"
            note = f" ({goal.note})" if goal.note else ""
            lines += wrap(f"{goal.name} {goal.wanted_text}: {verdict}, measured {goal.measured_text}{note}")
    lines += ["", "RESULT"]
    outcome_name = outcome(recommendation, run)
    lines += wrap("ok" if outcome_name == "ok" else f"{outcome_name}: {run.said or KINDS[outcome_name].description}")
    return "\n".join(lines) + "\n"


def _head(recommendation: Recommendation, run: records.SmokeRun) -> list[str]:
    copies = f", {run.copies} copies" + (" under CUDA MPS" if run.mps else "") if run.copies > 1 else ""
    what = f"{run.kind} artefact {run.artefact_sha256[:12]}" + (
        f", follows {recommendation.adviser}" if recommendation.adviser else ""
    )
    lines = ["SMOKE RUN"]
    lines += wrap(f"{what}{copies}; LMDeploy {run.lmdeploy}, {run.model}")
    lines += wrap(f"{run.gpu_count} x {run.gpu_name} ({run.memory_mib:,} MiB), driver {run.driver}, {run.cpus} cores")
    if run.pinned:
        lines += wrap(f"servers pinned to {run.cores} CPU cores: {run.pinned}")
    lines += wrap(f"weights: {run.checkpoint}")
    if run.ready_mib:
        lines += wrap(f"ready after {run.startup_s:.1f} s")
    if run.checks:
        lines += ["", "CHECKED", *(line for check in run.checks for line in wrap(check))]
    return lines


def _settings(run: records.SmokeRun) -> list[str]:
    if not run.effective:
        return []
    lines = ["", f"{'SETTINGS':<22}{'asked':<26}reported by the engine"]
    for setting in run.effective:
        engine_value = setting.found or "unknown"
        mark = "" if setting.found in ("", setting.asked) else "  DIFFERS"
        lines.append(f"  {setting.name:<20}{setting.asked:<26}{engine_value}{mark}")
    return lines


def _describe_phase(phase: records.Phase, kind: str) -> str:
    images = f"{phase.image}" + (f" x {phase.images}" if phase.images > 1 else "") if phase.images else "text"
    arrivals = describe_arrivals(phase.arrivals_rps, phase.drawn.burstiness if phase.drawn else 1.0)
    if phase.drawn and phase.drawn.trace_speed:
        arrivals = describe_trace(phase.arrivals_rps, phase.drawn.trace_speed)
    how = f"concurrency {phase.concurrency}" if phase.concurrency else arrivals
    how = how if kind != "python" else f"batch of {phase.concurrency}"
    tokens = f", {phase.input_tokens} input and {phase.output_tokens} output tokens" if phase.input_tokens else ""
    if phase.drawn and phase.drawn.image_mix:
        images = images.replace(phase.image, phase.drawn.image_mix)
    return f"{how}, {images}{tokens}" + (" (medians)" if phase.drawn and tokens else "")


def _table(title: str, rows: list[ReportRow]) -> list[str]:
    if not any(row.measured for row in rows):
        return ["", title]
    lines = ["", title, f"  {'':<18}{'measured':>11}{'predicted':>13}  {'range':<20}{'error':>9}"]
    for row in [entry for entry in rows if entry.measured or entry.predicted]:
        measured = _number(row.measured) if row.measured else "-"
        predicted_text = _number(row.predicted) if row.predicted else "-"
        ends = f"{_number(row.low)} to {_number(row.high)}" if row.high else ""
        error = f"{100 * row.error:+.1f} %" if row.error is not None else ""
        lines.append(f"  {row.name:<18}{measured:>11}{predicted_text:>13}  {ends:<20}{error:>9}".rstrip())
    return lines


def _describe_kill(kill: records.Killed) -> list[str]:
    back = f"served requests again after {kill.back_s:g} s" if kill.back_s else "served no request again"
    return [
        "",
        f"SERVER KILLED: {kill.server}, at concurrency {kill.concurrency} over all servers",
        *wrap(
            f"{kill.lost} of {count(kill.lost + kill.answered, 'request')} lost; {kill.in_flight} were running there"
        ),
        *wrap(f"{kill.lost_later} of them were sent after its port had closed, which took {kill.dying_s * 1e3:.0f} ms"),
        *wrap(f"restarted after {kill.restarted_s:g} s; {back}"),
        *wrap(
            f"requests/s before, during and after: {kill.rps_before:,.1f}, {kill.rps_down:,.1f}, {kill.rps_after:,.1f}"
        ),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.2f}"


def _phase_notes(phase: records.Phase, run: records.SmokeRun) -> list[str]:
    figures = run_figures.figures(phase)
    answered = figures.requests if run.kind != "python" else phase.window_requests
    notes = [f"{count(answered, 'request')} answered in {phase.window_s:.1f} s, {figures.failed} failed"]
    if run_figures.steady(phase):
        notes.append("rate and times exclude the first round")
    if phase.drawn:
        notes.append(f"drawn from: {describe_drawn(phase.drawn)}")
    if figures.requests and not figures.rps:
        notes.append("no rate: all answers came after the load's end; drive it longer (--seconds)")
    elif not figures.trusted:
        notes.append(
            f"too short to trust: requests/s times mean latency is {figures.balance * phase.concurrency:.1f}, with "
            f"{phase.concurrency} in flight; drive it longer (--seconds)"
        )
    if phase.late_ms >= LATE_MS:
        notes.append(f"requests were sent up to {phase.late_ms:,} ms late, so waiting is overstated")
    notes.append(f"VRAM peak {phase.peak_mib - run.idle_mib:,} MiB")
    notes.append(f"host CPU {phase.host_cpu_percent:.0f} %, servers {phase.server_cores:.1f} cores")
    if phase.running_most >= 0:
        notes.append(f"at most {phase.running_most} running, {phase.waiting_most} waiting")
    if phase.cache_use_most >= 0:
        notes.append(f"{100 * phase.cache_use_most:.1f} % of the KV cache used")
    lines = wrap("; ".join(notes))
    if figures.requests and not figures.p99_ms:
        lines += wrap(f"no p99: at least {run_figures.P99_SAMPLES} samples needed")
    for failure in phase.failures:
        lines += wrap(f"{failure.count} x {failure.cause}: {failure.said}")
    return lines


def wrap(paragraph: str) -> list[str]:
    """Return a text as indented lines of 80 columns."""
    joined = paragraph.replace(" %", "\0%")  # a sign stays with its number
    lines = textwrap.wrap(joined, WIDTH - 2, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
    return [line.replace("\0", " ") for line in lines]
