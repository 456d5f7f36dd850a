"""What a row of the runs table unfolds to, as blocks of titles, texts, commands and tables in a file for each run.

Titles and heads that many blocks share are names of ``runs.TITLES`` and ``runs.HEADS``, which the page has.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from recommender.knowledge import run_figures
from recommender.site import markup
from recommender.site.pages.runs import command
from recommender.site.site_data import SiteData, rebuild_setup, report_rows
from recommender.smoke.report import ReportRow, memory_rows

if TYPE_CHECKING:
    from recommender.knowledge import records

FOLDER = "api/v1/runs"
Block = dict[str, Any]


def files(data: SiteData) -> Iterator[tuple[str, list[Block]]]:
    """Yield the blocks of each run by the path of its file."""
    for run in data.runs.values():
        yield f"{FOLDER}/{run.id}.json", [*_run(data, run)]
    for probe in data.probes.values():
        yield f"{FOLDER}/{probe.id}.json", [*_probe(probe)]


def _table(head: str, rows: Iterable[Iterable[str]]) -> Block:
    return ({"head": head} if head else {}) | {"rows": [[*row] for row in rows]}


def _run(data: SiteData, run: records.SmokeRun) -> Iterator[Block]:
    if run.outcome != "ok":
        yield {"warning": f"Ended: {run.outcome}. {run.said}"}
    cards = f"{run.gpu_count} x " if run.gpu_count > 1 else ""
    facts = (
        ("Run", f"{run.id}, {run.taken}"),
        ("GPU", f"{cards}{run.gpu_name}, driver {run.driver}; {run.cpus} CPU cores, {run.cpu_name}"),
        ("Weights", run.checkpoint),
        *([("Servers", _servers(run))] if run.servers > 1 or run.copies > 1 else []),
        ("Startup", f"{run.startup_s:,.1f} s"),
    )
    yield _table("", facts)
    yield from ({"text": note} for note in run.notes)
    yield {"title": "reproduce", "code": command(run)}
    launch = " ".join((*run.environment, "lmdeploy serve api_server MODEL", shlex.join(run.command)))
    yield {"title": "launch", "code": launch}  # what smoke sets besides is in the record
    yield from _figures(data, run)
    yield from (block for killed in run.killed for block in _killed(killed))
    settings = ((setting.name, setting.asked, setting.found or "not logged") for setting in run.effective)
    yield {"title": "settings"} | _table("settings", settings)
    yield from ({"text": check} for check in run.checks)
    yield {"title": "record", "file": f"../evidence/{run.id}.json"}


def _servers(run: records.SmokeRun) -> str:
    if run.copies > 1:
        return f"{run.copies} copies on the GPU{', under CUDA MPS' if run.mps else ''}"
    return f"{run.servers}, {run.share} per GPU"


def _figures(data: SiteData, run: records.SmokeRun) -> Iterator[Block]:
    setup = rebuild_setup(run, data.store)
    yield {"title": "memory"} | _table("figures", map(_row, memory_rows(setup, run)))
    for phase in run.phases:
        figures = run_figures.figures(phase)
        rows = [_row(row) for row in report_rows(run, phase, data.store) if row.measured]
        yield {"title": describe_load(phase)} | _table("figures", rows)
        failed = f", {figures.failed:,} failed" if figures.failed else ""
        yield {
            "text": f"{figures.requests:,} answered{failed}; {phase.input_tokens:,} input tokens, "
            f"{phase.output_tokens:,} output tokens; host CPU {phase.host_cpu_percent:g} % busy."
        }
        if not figures.trusted:
            balance = f"requests/s times mean latency is {figures.balance * phase.concurrency:.1f}"
            why = balance if figures.rps else "no answer came while it lasted"
            yield {"text": f"Too short to trust: {why}. No fit, verdict or table counts this load."}
        yield from ({"text": f"failed: {each.count:,} by {each.cause}: {each.said}"} for each in phase.failures)


def describe_load(phase: records.Phase) -> str:
    """Return a load's concurrency or rate, and its images."""
    how = f"concurrency {phase.concurrency}" if phase.concurrency else f"{phase.arrivals_rps:g} requests/s (Poisson)"
    return f"{how}, {phase.image or 'text only'}"


def _row(row: ReportRow) -> tuple[str, ...]:
    """Return a figure's cells; the page shows a dash for those that lack at the end."""
    digits = 0 if row.measured >= 1000 or "MiB" in row.name else 1
    measured = markup.figure(row.measured, digits)
    if row.error is None:
        return row.name, measured
    ends = f"{row.low:,.{digits}f} to {row.high:,.{digits}f}" if row.high else "–"
    return row.name, measured, markup.figure(row.predicted, digits), ends, f"{row.error:+.1%}"


def _killed(killed: records.Killed) -> Iterator[Block]:
    """Yield what happened when one server was killed under load."""
    back = f"; it got requests again after {killed.back_s:g} s" if killed.back_s else "; it got no further requests"
    rates = (killed.rps_before, killed.rps_down, killed.rps_after)
    rows = (
        ("Server", f"{killed.server}, killed by SIGKILL at a total concurrency of {killed.concurrency}"),
        ("Concurrent on that server", str(killed.in_flight)),
        ("Lost", f"{killed.lost} of {killed.lost + killed.answered}"),
        ("Lost later", f"{killed.lost_later} sent after its port closed, {killed.dying_s:.2f} s after the kill"),
        ("Restarted", f"after {killed.restarted_s:g} s{back}"),
        ("Requests/s", "{:,.1f} before, {:,.1f} without it, {:,.1f} after".format(*rates)),
    )
    yield {"title": "failure"} | _table("", rows)


def _probe(probe: records.Measurement) -> Iterator[Block]:
    yield {"text": "Runs made before `recommend smoke` existed; the first coefficients were fitted to them."}
    facts = (
        ("Run", f"{probe.id}, {probe.taken}"),
        ("GPU", f"{probe.gpu_name}, driver {probe.driver}; {probe.cpus} CPU cores"),
        ("Weights", probe.checkpoints),
    )
    yield _table("", facts)
    for number, start in enumerate(probe.starts, 1):
        launch = f"OMP_NUM_THREADS={start.omp_threads} lmdeploy serve api_server MODEL {shlex.join(start.flags)}"
        yield {"title": f"Start {number}: {start.model}", "code": launch}
        ready = start.ready_mib - probe.idle_mib
        yield {"text": f"{ready:,} MiB when ready, above the idle GPU; KV cache {start.cache_mib:,.0f} MiB."}
        rows = (
            (
                load.image or load.kind,
                str(load.concurrency),
                str(load.requests),
                markup.figure(load.rps),
                markup.figure(run_figures.quantile(load.latencies_ms, 0.5), 0),
                markup.figure(run_figures.quantile(load.latencies_ms, 0.95), 0),
                markup.figure(load.ttft_ms, 0),
            )
            for load in start.loads
        )
        yield _table("starts", rows)
