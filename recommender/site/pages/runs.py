"""Render the table of all runs. What a row unfolds to is a file of ``api/run_details.py``."""

from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Iterator
from datetime import date
from typing import TYPE_CHECKING

from recommender.common.units import GIB, MIB
from recommender.knowledge import run_figures
from recommender.site import controls, markup
from recommender.site.charts import option_charts
from recommender.site.html_templates import to_json
from recommender.site.i18n.translation import plain
from recommender.site.site_data import SiteData, SitePage, page
from recommender.smoke.campaign.plan import name_of_phase
from recommender.smoke.fleet_folder import READ

if TYPE_CHECKING:
    from recommender.knowledge import records

OPTIONS = {"concurrency": "load", "rps": "rps", "p99_ms": "p99", "ttft_ms": "ttft", "vram_gib": "vram"}
"""Request fields whose option has another name."""
NAMES = {
    "awq": "AWQ", "deepseek": "DeepSeek", "fp8": "FP8", "glm": "GLM", "internvl": "InternVL", "kv": "KV", "mps": "MPS",
    "omp": "OMP", "qwen": "Qwen", "rec": "recommended", "s1": "S1", "tp": "TP", "vl": "VL",
}  # fmt: skip
"""Spelling of the words in an id."""
COLUMNS = (
    *("Configuration", "Model", "GPU", "Load", "LMDeploy", "Weights", "Date"),
    *("One request, ms", "Peak requests/s", "At concurrency", "GiB ready", "Outcome"),
)

OURS, DEFAULTS = "ours", "defaults"
NEEDED = {"trust-remote-code", "chat-template", "server-port"}
"""Options that make no other configuration: what a start needs, and where it listens."""
TITLES = {
    "reproduce": "Reproduce",
    "launch": "Exact launch of this run; a later release may not recommend it any more",
    "memory": "Memory of the fullest GPU",
    "failure": "Server failure",
    "settings": "Settings",
    "record": "Record",
}
"""Titles in what a row unfolds to, by their names in its file."""
HEADS = {
    "figures": ("Figure", "Measured", "Predicted", "Range", "Error"),
    "settings": ("Setting", "Requested", "In the engine's log"),
    "starts": ("Load", "Concurrency", "Requests", "requests/s", "p50 ms", "p95 ms", "TTFT ms"),
}
"""Heads of the tables there, by their names."""


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return the page of all runs."""
    yield page("runs.md", data.t("Measured runs"), _runs(data), wide=True)


def title(data: SiteData, record: records.SmokeRun | records.Measurement) -> str:
    """Return a record's title: configuration, GPU and date."""
    taken = day(record.taken) if data.english else record.taken
    return data.t("{0} on {1}, {2}").format(markup.text(what(data, record)), markup.text(card(data, record)), taken)


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


def day(iso_date: str) -> str:
    """Return an ISO date as "21 Nov 2026"."""
    taken_on = date.fromisoformat(iso_date)
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


def _runs(data: SiteData) -> Iterator[str]:
    yield data.t(
        "{runs} runs of `recommend smoke` and {probes} earlier ones, one server start each. "
        "Open a row for its command, settings, and predicted against measured figures. "
        "The errors of all predictions: [How predictions are made](/concepts/predictions.md#errors)."
    ).format(runs=len(data.runs), probes=len(data.probes))
    if not data.english:
        yield "\n" + data.t("The names and notes that a row opens are in English.")
    rows = {run.id: [*_run_cells(data, run)] for run in data.runs.values()}
    rows |= {probe.id: [*_probe_cells(data, probe)] for probe in data.probes.values()}
    english = "" if data.english else ' lang="en"'
    links = (f'<a{english} href="md:api/v1/runs/{name}.json">{html.escape(row[0])}</a>' for name, row in rows.items())
    shown = ([link, *map(html.escape, row[1:])] for link, row in zip(links, rows.values(), strict=True))
    filters = data.labels("Model", "GPU", "Load")
    head, counted = data.labels(*COLUMNS), "{0} of {1} runs"
    options_by_run = {name: [*configuration(data.runs[name])] if name in data.runs else [] for name in rows}
    attributes = [f'data-made="{" ".join(options)}"' for options in options_by_run.values()]
    more = [_configurations(data, {word for options in options_by_run.values() for word in options})]
    yield from controls.data_table(
        data, "runs", head, shown, filters, counted, ids=[*rows], kind="runs", more=more, attributes=attributes
    )
    texts = {
        "titles": {name: plain(data.t(title)) for name, title in TITLES.items()},
        "heads": {name: [*map(plain, data.labels(*head))] for name, head in HEADS.items()},
    }
    yield f'<script type="application/json" id="runs-texts">{to_json(texts)}</script>'
    charts = [*option_charts.charts_of_copies(data)]
    if charts:
        yield markup.heading(2, data.t("Several servers on one GPU"), "copies")
        yield data.t("The same configuration, started several times on one GPU; the copies share the load.")
        yield from charts


def configuration(run: records.SmokeRun) -> Iterator[str]:
    """Yield whose configuration a run had, if nothing was changed, or the options that were."""
    asked = json.loads(run.request)
    changed = {*asked.get("with", ()), *asked.get("without", ())} - NEEDED
    yield from sorted(changed) or [asked.get("follow", OURS)]


def _configurations(data: SiteData, words: set[str]) -> str:
    """Return the control that shows the runs of a configuration, or with an option changed."""
    whose = {OURS: data.t("as recommended"), DEFAULTS: data.t("LMDeploy's defaults")}
    whose |= {adviser.id: data.t(adviser.name) for adviser in data.store.advisers.values()}
    names = {word: markup.name_of(data.store, word) for word in sorted(words - whose.keys())}
    changed = {word: data.t("{0} changed").format(name) for word, name in names.items()}
    options = {"": data.t("all")} | {word: name for word, name in (whose | changed).items() if word in words}
    return controls.choice("configuration", data.t("Configuration"), options, field="made")


def _run_cells(data: SiteData, run: records.SmokeRun) -> Iterator[str]:
    """Yield the texts of a run's row, in the order of COLUMNS."""
    trusted = [(phase, figures) for phase in run.phases if (figures := run_figures.figures(phase)).trusted]
    alone = [figures.p50_ms for phase, figures in trusted if phase.concurrency == 1]
    loads = {"images" if phase.image else "text" for phase in run.phases}
    yield from (what(data, run), run.model, card(data, run), data.t(" and ".join(sorted(loads))))
    yield from (run.lmdeploy, data.t(_weights(run)), run.taken)
    yield f"{alone[0]:,.0f}" if alone else ""
    if trusted:
        phase, figures = max(trusted, key=lambda pair: pair[1].rps)
        yield from (markup.figure(figures.rps), str(phase.concurrency or f"{phase.arrivals_rps:g}/s"))
    else:
        yield from ("", "")
    yield f"{(run.ready_mib - run.idle_mib) * MIB / GIB:.1f}" if run.ready_mib else ""
    yield run.outcome


def _probe_cells(data: SiteData, probe: records.Measurement) -> Iterator[str]:
    """Yield the texts of an earlier record's row: its starts are in its details."""
    models = sorted({start.model for start in probe.starts})
    yield from (what(data, probe), ", ".join(models), card(data, probe), data.t("images and text"))
    yield from (probe.lmdeploy, data.t(_weights(probe)), probe.taken, "", "", "", "", "ok")


def _weights(record: records.SmokeRun | records.Measurement) -> str:
    return "random" if record.random_weights else "real"
