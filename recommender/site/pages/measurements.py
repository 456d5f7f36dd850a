"""Render the evidence: how to reproduce each run, its settings, and what it measured."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING

from recommender.knowledge import run_figures
from recommender.knowledge.provenance import weights
from recommender.site import markup
from recommender.site.charts import option_charts
from recommender.site.charts.prediction_errors import bars, pictures
from recommender.site.pages.error_table import error_table
from recommender.site.pages.published_table import published_table
from recommender.site.site_data import SiteData, SitePage, page, rebuild_run
from recommender.smoke.campaign.plan import name_of_phase
from recommender.smoke.fleet_folder import READ
from recommender.smoke.report import ReportRow, memory_rows, phase_rows

if TYPE_CHECKING:
    from recommender.knowledge import records

OPTIONS = {"concurrency": "load", "rps": "rps", "p99_ms": "p99", "ttft_ms": "ttft", "vram_gib": "vram"}
"""Request fields whose option has another name."""
NAMES = {"awq": "AWQ", "kv": "KV", "mps": "MPS", "omp": "OMP", "qwen": "Qwen", "rec": "recommended", "tp": "TP"}
"""Spelling of the words in an id."""
TOKENS = "output tokens/s"
"""A figure derived from requests/s, left out of charts."""


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return the index, a page per run, and a page per record older than `recommend smoke`."""
    yield page("evidence/index.md", "Evidence", _index(data), wide=True)
    for run in data.runs.values():
        yield page(f"evidence/{run.id}.md", title(data, run), _run(data, run))
    for probe in data.probes.values():
        yield page(f"evidence/{probe.id}.md", title(data, probe), _probe(data, probe))


def title(data: SiteData, record: records.SmokeRun | records.Measurement) -> str:
    """Return a record's title: configuration, GPU and date."""
    return f"{markup.text(what(data, record))} on {markup.text(card(data, record))}, {day(record.taken)}"


def what(data: SiteData, record: records.SmokeRun | records.Measurement) -> str:
    """Return the configuration of a record: the end of its id, or the adviser's name."""
    rest = record.id.partition(record.taken)[2].strip("-") or "first scripts"
    adviser = data.store.advisers.get(rest)
    words = (NAMES.get(word, word.upper() if re.fullmatch(r"\d+b", word) else word) for word in rest.split("-"))
    name = adviser.name if adviser else " ".join(words)
    return name[0].upper() + name[1:]


def card(data: SiteData, record: records.SmokeRun | records.Measurement) -> str:
    """Return the GPU's name and count."""
    count = getattr(record, "gpu_count", 1)
    return f"{count} x " * (count > 1) + data.store.gpus[record.gpu].name.removeprefix("NVIDIA ")


def day(taken: str) -> str:
    """Return an ISO date as "21 Nov 2026"."""
    taken_on = date.fromisoformat(taken)
    return f"{taken_on.day} {taken_on:%b %Y}"


def followers(data: SiteData, adviser: str) -> list[records.SmokeRun]:
    """Return the runs of an adviser's configuration."""
    return [run for run in data.runs.values() if json.loads(run.request).get("follow") == adviser]


def command(run: records.SmokeRun) -> str:
    """Return the commands that reproduce a run, from the request recorded in it."""
    asked = dict(json.loads(run.request))
    fleet = run.kind in READ
    words = ["recommend"] if fleet else ["recommend", "smoke"]
    if fleet:
        asked.pop("tp", 0)  # the recommender chooses it
    width, height = asked.pop("image_width", 0), asked.pop("image_height", 0)
    images = asked.pop("images", -1)
    count = asked.pop("gpu_count", 1)
    gpu = asked.pop("gpu")
    words += ["--gpu", f"{gpu}:{count}" if count > 1 else gpu]
    if images == 0:
        words.append("--text-only")
    elif width:
        words += ["--image", asked.pop("image_mix", "") or f"{width}x{height}" + (f"x{images}" if images > 1 else "")]
    for tokens, tail in (("prompt_tokens", "prompt_p99"), ("output_tokens", "output_p99")):
        if tail in asked:
            asked[tokens] = f"{asked[tokens]}:{asked.pop(tail)}"
    added, left = asked.pop("with", {}), asked.pop("without", [])
    for name, value in asked.items():
        option = str(OPTIONS.get(name, name)).replace("_", "-")
        words += [f"--{option}", f"{value:g}" if isinstance(value, float) else str(value)]
    words += [word for name, value in added.items() for word in ("--with", f"{name}={value}")]
    words += [word for name in left for word in ("--without", name)]
    if not fleet:
        return shlex.join([*words, *_how(run)])
    smoke = ["recommend", "smoke", "fleet", *_how(run), *(["--kill"] if run.killed else [])]
    return "\n".join(shlex.join(line) for line in ([*words, "--format", run.kind, "-o", "fleet"], smoke))


def _how(run: records.SmokeRun) -> Iterator[str]:
    """Yield the smoke options of a run: phases, copies and weights."""
    for phase in run.phases:
        yield from ("--phase", name_of_phase(phase))
    if run.copies > 1:
        yield from ("--copies", str(run.copies))
    if run.mps:
        yield "--mps"
    if run.random_weights:
        yield from ("--weights", "random")


def _index(data: SiteData) -> Iterator[str]:
    yield (
        f"{len(data.runs)} runs of `recommend smoke` and {len(data.probes)} earlier records. "
        "Each is one run, so each figure is one sample. Memory: the fullest GPU, above its idle use. "
        "Below the table: [predicted against measured](#errors), [several servers on one GPU](#copies), "
        "[earlier records](#earlier), [prediction errors](#residuals), [published by others](#published)."
    )
    rows = []
    for run in data.runs.values():
        figures = map(run_figures.figures, run.phases)
        most = max((figure.rps for figure in figures if figure.trusted), default=0.0)
        rows.append(
            (
                f"[{_unbroken(what(data, run))}](/evidence/{run.id}.md)",
                f"[{_unbroken(card(data, run))}](/gpus/{run.gpu}.md)",
                f"[{_unbroken(run.model)}](/models/{run.model}.md)",
                _unbroken(day(run.taken)),
                run.lmdeploy,
                _unbroken(weights(run.random_weights)),
                run.outcome,
                markup.figure(run.ready_mib - run.idle_mib if run.ready_mib else 0, 0),
                markup.figure(most),
            )
        )
    yield from markup.table(
        ("Run", "GPU", "Model", "Date", "LMDeploy", "Weights", "Outcome", "MiB ready", "Peak requests/s"), rows
    )
    yield markup.heading(2, "Predicted against measured", "errors")
    made = " and ".join(sorted({weights(run.random_weights) for run in data.runs.values()}))
    yield (
        f"Each dot is one load of one run with {made}. Most of these runs were used in the fit, so these errors are a "
        "lower bound."
    )
    yield from pictures(data)
    yield from _copies(data)
    yield markup.heading(2, "Earlier records", "earlier")
    yield from (f"- [{title(data, probe)}](/evidence/{probe.id}.md)" for probe in data.probes.values())
    yield from _residuals(data)
    yield from published_table(data)


def _unbroken(words: str) -> str:
    return f'<span class="name">{markup.text(words)}</span>'


def _copies(data: SiteData) -> Iterator[str]:
    charts = [*option_charts.charts_of_copies(data)]
    if charts:
        yield markup.heading(2, "Several servers on one GPU", "copies")
        yield "The same configuration, started several times on one GPU; the copies share the load."
        yield from charts


def _residuals(data: SiteData) -> Iterator[str]:
    yield markup.heading(2, "Prediction errors on held-out runs", "residuals")
    yield "Errors on runs left out of the fit: one model, or a fifth of the configurations, at a time."
    yield from error_table(data, {name: name for name in data.store.residuals})


def _run(data: SiteData, run: records.SmokeRun) -> Iterator[str]:
    if run.outcome != "ok":
        yield f"\n!!! warning\n\n    Ended: {markup.code(run.outcome)}. {markup.text(run.said)}\n"
    cards = f"{run.gpu_count} x " if run.gpu_count > 1 else ""
    yield from markup.resolved(
        (
            ("Record", markup.code(run.id)),
            ("Date", f"{run.taken}, by {markup.text(run.made_by)}"),
            ("LMDeploy", f"[{run.lmdeploy}](/releases/{run.lmdeploy}.md)"),
            ("GPU", f"{cards}[{markup.text(run.gpu_name)}](/gpus/{run.gpu}.md), driver {run.driver}"),
            ("Host", f"{run.cpus} CPU cores, {markup.text(run.cpu_name)}"),
            ("Model", f"[{run.model}](/models/{run.model}.md), weights: {markup.text(run.checkpoint)}"),
            ("Servers", _servers(run)),
            ("Startup time", f"{run.startup_s:,.1f} s"),
        )
    )
    yield from (f"- {markup.prose(data.store, note)}" for note in run.notes)
    yield markup.heading(2, "Reproduce", "again")
    yield markup.shell(command(run))
    yield "The exact launch of this run, which a later release of this program may not recommend any more:\n"
    variables = " ".join((*run.environment, *run.set_by_smoke))
    yield markup.shell(f"{variables} lmdeploy serve api_server MODEL {shlex.join(run.command)}")
    yield markup.heading(2, "Settings", "settings")
    rows = (
        (setting.name, markup.text(setting.asked), markup.text(setting.found) or "not logged")
        for setting in run.effective
    )
    yield from markup.table(("Setting", "Requested", "In the engine's log"), rows)
    yield from (f"- {markup.text(check)}" for check in run.checks)
    yield from _figures(data, run)
    for killed in run.killed:
        yield markup.heading(2, "Server failure", "killed")
        yield from markup.resolved(_killed(killed))
    yield markup.heading(2, "Digests", "digests")
    digests = (("Artefact", run.artefact_sha256), ("Launch", run.launch_sha256), ("Log", run.log_sha256))
    yield from markup.resolved((name, markup.code(digest)) for name, digest in digests)


def _killed(killed: records.Killed) -> Iterator[tuple[str, str]]:
    """Return what happened when one server was killed under load, as name-value pairs."""
    yield (
        "Server",
        f"{markup.code(killed.server)}, killed by SIGKILL at a total concurrency of {killed.concurrency}",
    )
    yield "Concurrent on that server", str(killed.in_flight)
    yield "Lost", f"{killed.lost} of {killed.lost + killed.answered}"
    yield (
        "Lost later",
        f"{killed.lost_later} sent after its port closed, {killed.dying_s:.2f} s after the kill",
    )
    back = f"; it got requests again after {killed.back_s:g} s" if killed.back_s else "; it got no further requests"
    yield "Restarted", f"after {killed.restarted_s:g} s{back}"
    rates = (killed.rps_before, killed.rps_down, killed.rps_after)
    yield "Requests/s", "{:,.1f} before, {:,.1f} without it, {:,.1f} after".format(*rates)


def _servers(run: records.SmokeRun) -> str:
    if run.copies > 1:
        return f"{run.copies} copies on the GPU{', under CUDA MPS' if run.mps else ''}"
    return f"{run.servers}, {run.share} per GPU" if run.servers > 1 else "one"


def _figures(data: SiteData, run: records.SmokeRun) -> Iterator[str]:
    recommendation = rebuild_run(run, data.store)
    head = ("Figure", "Measured", "Predicted", "Range", "Error")
    memory = memory_rows(recommendation, run)
    loads = [(phase, [row for row in phase_rows(recommendation, run, phase) if row.measured]) for phase in run.phases]
    every = [("", row) for row in memory] + [
        (_load(phase), row) for phase, rows in loads for row in rows if row.name != TOKENS
    ]
    if any(row.predicted for _, row in every):
        yield markup.heading(2, "Predicted against measured", "errors")
        yield (
            "Predicted / measured, with the predicted range: 1 is exact, above 1 the prediction is too high. "
            "Values beyond a factor of 2 are drawn at the edge."
        )
        yield from bars("Predicted / measured", every)
    yield markup.heading(2, "Memory of the fullest GPU", "memory")
    yield from markup.table(head, map(_row, memory))
    for number, (phase, rows) in enumerate(loads, 1):
        yield markup.heading(2, _load(phase), f"load-{number}")
        figures = run_figures.figures(phase)
        yield f"{figures.requests:,} answered, {figures.failed:,} failed; {phase.input_tokens:,} input tokens, "
        yield f"{phase.output_tokens:,} output tokens; host CPU {phase.host_cpu_percent:g} % busy."
        if not figures.trusted:
            yield f"Too short to trust: requests/s times mean latency is {figures.balance * phase.concurrency:.1f}. "
            yield "No fit, verdict or table counts this load."
        yield from markup.table(head, map(_row, rows))
        yield from (
            f"- failed: {failure.count:,} by {failure.cause}: {markup.text(failure.said)}" for failure in phase.failures
        )


def _load(phase: records.Phase) -> str:
    how = f"concurrency {phase.concurrency}" if phase.concurrency else f"{phase.arrivals_rps:g} requests/s (Poisson)"
    return f"{how}, {phase.image or 'text only'}"


def _row(row: ReportRow) -> tuple[str, ...]:
    digits = 0 if row.measured >= 1000 or "MiB" in row.name else 1
    error = f"{row.error:+.1%}" if row.error is not None else "–"
    ends = f"{row.low:,.{digits}f} to {row.high:,.{digits}f}" if row.predicted else "–"
    return row.name, markup.figure(row.measured, digits), markup.figure(row.predicted, digits), ends, error


def _probe(data: SiteData, probe: records.Measurement) -> Iterator[str]:
    yield "Runs made before `recommend smoke` existed; the first coefficients were fitted to them."
    yield from markup.resolved(
        (
            ("Record", markup.code(probe.id)),
            ("Date", probe.taken),
            ("LMDeploy", f"[{probe.lmdeploy}](/releases/{probe.lmdeploy}.md)"),
            ("GPU", f"[{markup.text(probe.gpu_name)}](/gpus/{probe.gpu}.md), driver {probe.driver}"),
            ("Host", f"{probe.cpus} CPU cores"),
            ("Weights", markup.text(probe.checkpoints)),
        )
    )
    for number, start in enumerate(probe.starts):
        yield markup.heading(2, f"Start {number + 1}: {start.model}", f"start-{number + 1}")
        yield markup.shell(
            f"OMP_NUM_THREADS={start.omp_threads} lmdeploy serve api_server MODEL {shlex.join(start.flags)}"
        )
        ready = start.ready_mib - probe.idle_mib
        yield f"{ready:,} MiB when ready, above the idle GPU; KV cache {start.cache_mib:,.0f} MiB."
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
        yield from markup.table(("Load", "Concurrency", "Requests", "requests/s", "p50 ms", "p95 ms", "TTFT ms"), rows)
