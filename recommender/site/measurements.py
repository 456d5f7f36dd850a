"""Pages of the evidence: how to take each record again, what was asked and found, and what was measured."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING

from recommender import measured
from recommender.site import charts
from recommender.site import markup as m
from recommender.site.book import Book, Page, page
from recommender.site.errors import bars, pictures
from recommender.smoke import launch
from recommender.smoke.folder import READ
from recommender.smoke.report import Row, memory_rows, phase_rows

if TYPE_CHECKING:
    from recommender import records as r

OPTIONS = {"concurrency": "load", "rps": "rps", "p99_ms": "p99", "ttft_ms": "ttft", "vram_gib": "vram"}
"""Fields of a request whose option has another name."""
NAMES = {"awq": "AWQ", "kv": "KV", "mps": "MPS", "omp": "OMP", "qwen": "Qwen", "rec": "recommended", "tp": "TP"}
"""Words of an id as people write them."""
TOKENS = "output tokens/s"
"""A figure that follows from requests a second."""


def pages(book: Book) -> Iterator[Page]:
    """The index, a page a run, and one a record from before there was a smoke run."""
    yield page("evidence/index.md", "Evidence", _index(book), wide=True)
    for run in book.runs.values():
        yield page(f"evidence/{run.id}.md", title(book, run), _run(book, run))
    for probe in book.probes.values():
        yield page(f"evidence/{probe.id}.md", title(book, probe), _probe(book, probe))


def title(book: Book, record: r.SmokeRun | r.Measurement) -> str:
    """A record's name for people: what it is a run of, on which card, and when."""
    return f"{m.text(what(book, record))} on {m.text(card(book, record))}, {day(record.taken)}"


def what(book: Book, record: r.SmokeRun | r.Measurement) -> str:
    """What tells a record from the others of its card and day: the end of its id, or the adviser that it names."""
    rest = record.id.partition(record.taken)[2].strip("-") or "first scripts"
    adviser = book.store.advisers.get(rest)
    words = (NAMES.get(each, each.upper() if re.fullmatch(r"\d+b", each) else each) for each in rest.split("-"))
    name = adviser.name if adviser else " ".join(words)
    return name[0].upper() + name[1:]


def card(book: Book, record: r.SmokeRun | r.Measurement) -> str:
    """The card as people say it, and how many of it."""
    count = getattr(record, "gpu_count", 1)
    return f"{count} x " * (count > 1) + book.store.gpus[record.gpu].name.removeprefix("NVIDIA ")


def day(taken: str) -> str:
    """A date as people write it."""
    found = date.fromisoformat(taken)
    return f"{found.day} {found:%b %Y}"


def followers(book: Book, adviser: str) -> list[r.SmokeRun]:
    """The runs of an adviser's configuration."""
    return [each for each in book.runs.values() if json.loads(each.request).get("follow") == adviser]


def command(run: r.SmokeRun) -> str:
    """The command lines that ask for a run's artefact and run it, from the request in its head."""
    asked = dict(json.loads(run.request))
    fleet = run.kind in READ
    words = ["recommend"] if fleet else ["recommend", "smoke"]
    if fleet:
        asked.pop("tp", 0)  # the main job finds it by itself
    width, height = asked.pop("image_width", 0), asked.pop("image_height", 0)
    images = asked.pop("images", -1)
    count = asked.pop("gpu_count", 1)
    gpu = asked.pop("gpu")
    words += ["--gpu", f"{gpu}:{count}" if count > 1 else gpu]
    if images == 0:
        words.append("--text-only")
    elif width:
        words += ["--image", f"{width}x{height}" + (f"x{images}" if images > 1 else "")]
    added, left = asked.pop("with", {}), asked.pop("without", [])
    for name, value in asked.items():
        option = str(OPTIONS.get(name, name)).replace("_", "-")
        words += [f"--{option}", f"{value:g}" if isinstance(value, float) else str(value)]
    words += [word for name, value in added.items() for word in ("--with", f"{name}={value}")]
    words += [word for name in left for word in ("--without", name)]
    if not fleet:
        return shlex.join([*words, *_how(run)])
    smoke = ["recommend", "smoke", "fleet", *_how(run), *(["--kill"] if run.killed else [])]
    return "\n".join(shlex.join(each) for each in ([*words, "--format", run.kind, "-o", "fleet"], smoke))


def _how(run: r.SmokeRun) -> Iterator[str]:
    """How the artefact was run: phases, copies and weights."""
    for phase in run.phases:
        what = "text" if not phase.images else phase.image + (f"x{phase.images}" if phase.images > 1 else "")
        load = str(phase.concurrency) if phase.concurrency else f"{phase.arrivals_rps:g}rps"
        yield from ("--phase", f"{load}@{what}")
    if run.copies > 1:
        yield from ("--copies", str(run.copies))
    if run.mps:
        yield "--mps"
    if run.checkpoint.startswith("random"):
        yield from ("--weights", "random")


def _index(book: Book) -> Iterator[str]:
    yield (
        f"{len(book.runs)} runs of `recommend smoke` and {len(book.probes)} records from before there was one. "
        "Each is one run: take a single figure as one sample. Memory is that of the fullest card above the idle card. "
        "Below the table: [predicted against measured](#errors), [several servers on one card](#copies), "
        "[earlier records](#earlier), [how far predictions were off](#residuals)."
    )
    rows = []
    for run in book.runs.values():
        most = max((measured.figures(each).rps for each in run.phases), default=0.0)
        rows.append(
            (
                f"[{_unbroken(what(book, run))}](/evidence/{run.id}.md)",
                f"[{_unbroken(card(book, run))}](/gpus/{run.gpu}.md)",
                f"[{_unbroken(run.model)}](/models/{run.model}.md)",
                _unbroken(day(run.taken)),
                run.lmdeploy,
                run.outcome,
                m.figure(run.ready_mib - run.idle_mib if run.ready_mib else 0, 0),
                m.figure(most),
            )
        )
    yield from m.table(("Run", "GPU", "Model", "Taken", "LMDeploy", "Ended", "MiB ready", "Most requests/s"), rows)
    yield m.heading(2, "Predicted against measured", "errors")
    yield "A dot is one load of one run; the estimates were fitted to most of them, so this shows how well they can do."
    yield from pictures(book)
    yield from _copies(book)
    yield m.heading(2, "Before the smoke run", "earlier")
    yield from (f"- [{title(book, each)}](/evidence/{each.id}.md)" for each in book.probes.values())
    yield from _residuals(book)


def _unbroken(words: str) -> str:
    return f'<span class="name">{m.text(words)}</span>'


def _copies(book: Book) -> Iterator[str]:
    found = [*charts.copies(book)]
    if found:
        yield m.heading(2, "Several servers on one card", "copies")
        yield "The same configuration, started so many times on one card; the load is shared among the copies."
        yield from found


def _residuals(book: Book) -> Iterator[str]:
    yield m.heading(2, "How far predictions were off", "residuals")
    yield "Of runs that the fit had not seen: a model, or a fifth of the configurations, left out at a time."
    errors = (
        (
            each.id,
            f"{each.by_model:.1%}",
            f"{each.by_configuration:.1%}",
            f"{each.worst:.0%}",
            f"{each.covered:.0%}",
            f"{each.predictions:,}",
        )
        for each in book.store.residuals.values()
    )
    head = ("Figure", "Median, models left out", "configurations left out", "Worst", "Inside the range", "Predictions")
    yield from m.table(head, errors)


def _run(book: Book, run: r.SmokeRun) -> Iterator[str]:
    if run.outcome != "ok":
        yield f"\n!!! warning\n\n    Ended: {m.code(run.outcome)}. {m.text(run.said)}\n"
    cards = f"{run.gpu_count} x " if run.gpu_count > 1 else ""
    yield from m.facts(
        (
            ("Record", m.code(run.id)),
            ("Taken", f"{run.taken}, by {m.text(run.made_by)}"),
            ("LMDeploy", f"[{run.lmdeploy}](/releases/{run.lmdeploy}.md)"),
            ("GPU", f"{cards}[{m.text(run.gpu_name)}](/gpus/{run.gpu}.md), driver {run.driver}"),
            ("Host", f"{run.cpus} CPU cores, {m.text(run.cpu_name)}"),
            ("Model", f"[{run.model}](/models/{run.model}.md), weights: {m.text(run.checkpoint)}"),
            ("Servers", _servers(run)),
            ("Started within", f"{run.startup_s:,.1f} s"),
        )
    )
    yield from (f"- {m.prose(book.store, each)}" for each in run.notes)
    yield m.heading(2, "Take it again", "again")
    yield m.shell(command(run))
    yield "What ran, whatever a later release of this program would choose for the request:\n"
    variables = " ".join((*run.environment, *run.set_by_smoke))
    yield m.shell(f"{variables} lmdeploy serve api_server MODEL {shlex.join(run.command)}")
    yield m.heading(2, "Asked and found", "settings")
    rows = ((each.name, m.text(each.asked), m.text(each.found) or "not told") for each in run.effective)
    yield from m.table(("Setting", "Asked for", "In the engine's log"), rows)
    yield from (f"- {m.text(each)}" for each in run.checks)
    yield from _figures(book, run)
    for each in run.killed:
        yield m.heading(2, "A server dies", "killed")
        yield from m.facts(_killed(each))
    yield m.heading(2, "Digests", "digests")
    yield from m.facts(
        (
            ("Artefact", m.code(run.artefact_sha256)),
            ("Launch", m.code(run.launch_sha256)),
            ("Log", m.code(run.log_sha256)),
        )
    )


def _killed(found: r.Killed) -> Iterator[tuple[str, str]]:
    """One server's death under load, as names and what they are."""
    yield "Server", f"{m.code(found.server)}, ended by SIGKILL with {found.concurrency} requests in flight on all"
    yield "In flight there", str(found.in_flight)
    yield "Lost", f"{found.lost} of {found.lost + found.answered}"
    yield (
        "Lost, of those sent later",
        f"{found.lost_later} once its port was closed, {found.dying_s:.2f} s after the kill",
    )
    back = f"; it got requests again after {found.back_s:g} s" if found.back_s else "; it got no request again"
    yield "Started again", f"after {found.restarted_s:g} s{back}"
    rates = (found.rps_before, found.rps_down, found.rps_after)
    yield "Requests a second", "{:,.1f} before, {:,.1f} without it, {:,.1f} after".format(*rates)


def _servers(run: r.SmokeRun) -> str:
    if run.copies > 1:
        return f"{run.copies} copies on the card{', under CUDA MPS' if run.mps else ''}"
    return f"{run.servers}, {run.share} to a card" if run.servers > 1 else "one"


def _figures(book: Book, run: r.SmokeRun) -> Iterator[str]:
    found = launch.ran(run, book.store)
    head = ("Figure", "Measured", "Predicted", "Range", "Error")
    memory = memory_rows(found, run)
    loads = [(phase, [each for each in phase_rows(found, run, phase) if each.measured]) for phase in run.phases]
    every = [("", each) for each in memory] + [
        (_load(phase), each) for phase, rows in loads for each in rows if each.name != TOKENS
    ]
    if any(each.predicted for _, each in every):
        yield m.heading(2, "Predicted against measured", "errors")
        yield (
            "The prediction and its range over what was measured: at 1 both are the same, right of it the prediction "
            "is higher. What is off by more than a factor of 2 ends at the edge."
        )
        yield from bars("Predicted over measured", every)
    yield m.heading(2, "Memory of the fullest card", "memory")
    yield from m.table(head, map(_row, memory))
    for number, (phase, rows) in enumerate(loads, 1):
        yield m.heading(2, _load(phase), f"load-{number}")
        got = measured.figures(phase)
        yield f"{got.requests:,} answered, {got.failed:,} failed; {phase.input_tokens:,} tokens in, "
        yield f"{phase.output_tokens:,} out; the host's CPU {phase.host_cpu_percent:g} % busy."
        yield from m.table(head, map(_row, rows))
        yield from (f"- failed: {each.count:,} by {each.cause}: {m.text(each.said)}" for each in phase.failures)


def _load(phase: r.Phase) -> str:
    how = f"{phase.concurrency} in flight" if phase.concurrency else f"{phase.arrivals_rps:g} a second (Poisson)"
    return f"{how}, {phase.image or 'text only'}"


def _row(row: Row) -> tuple[str, ...]:
    digits = 0 if row.measured >= 1000 or "MiB" in row.name else 1
    error = f"{row.error:+.1%}" if row.error is not None else "–"
    ends = f"{row.low:,.{digits}f} to {row.high:,.{digits}f}" if row.predicted else "–"
    return row.name, m.figure(row.measured, digits), m.figure(row.predicted, digits), ends, error


def _probe(book: Book, probe: r.Measurement) -> Iterator[str]:
    yield "Runs from before there was `recommend smoke`; the first coefficients were fitted to them."
    yield from m.facts(
        (
            ("Record", m.code(probe.id)),
            ("Taken", probe.taken),
            ("LMDeploy", f"[{probe.lmdeploy}](/releases/{probe.lmdeploy}.md)"),
            ("GPU", f"[{m.text(probe.gpu_name)}](/gpus/{probe.gpu}.md), driver {probe.driver}"),
            ("Host", f"{probe.cpus} CPU cores"),
            ("Weights", m.text(probe.checkpoints)),
        )
    )
    for number, start in enumerate(probe.starts):
        yield m.heading(2, f"Start {number + 1}: {start.model}", f"start-{number + 1}")
        yield m.shell(f"OMP_NUM_THREADS={start.omp_threads} lmdeploy serve api_server MODEL {shlex.join(start.flags)}")
        ready = start.ready_mib - probe.idle_mib
        yield f"{ready:,} MiB when ready, above the idle card; KV region {start.cache_mib:,.0f} MiB."
        rows = (
            (
                each.image or each.kind,
                str(each.concurrency),
                str(each.requests),
                m.figure(each.rps),
                m.figure(measured.share(each.latencies_ms, 0.5), 0),
                m.figure(measured.share(each.latencies_ms, 0.95), 0),
                m.figure(each.ttft_ms, 0),
            )
            for each in start.loads
        )
        yield from m.table(("Load", "In flight", "Requests", "requests/s", "p50 ms", "p95 ms", "TTFT ms"), rows)
