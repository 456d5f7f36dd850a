"""Render the configurator: the form of the question, and the data that its scripts need.

All texts are here and in ``site/overrides/configurator.html``, so that they can be translated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from recommender.estimate.coverage import list_measured_gpus
from recommender.knowledge.names import PART
from recommender.site import answer_texts, markup
from recommender.site.browser import bundle, stored_answers
from recommender.site.html_templates import fill, to_json
from recommender.site.i18n.translation import plain
from recommender.site.site_data import SiteData

if TYPE_CHECKING:
    from recommender.knowledge import records

FORMS = {
    "bash": ("bash", "serve.sh"),
    "command": ("command", "command.sh"),
    "docker": ("docker", "docker.sh"),
    "compose": ("compose", ""),
    "systemd": ("systemd", ""),
    "k8s": ("k8s", ""),
    "python": ("python", "pipeline.py"),
    "client": ("client", "client.py"),
    "env": ("env", "serve.env"),
    "report": ("report", "report.txt"),
    "json": ("json", "recommendation.json"),
}
"""Tabs by form: label, and the name of the file; forms of several files name them themselves."""
IMAGES = ("448x448", "640x480", "1280x720", "1920x1080")
TEXTS = {
    "measured": "measured",
    "modelled": "modelled",
    "extrapolated": "extrapolated",
    "range": "{low} to {high}",
    "of": "of {card} GiB",
    "parts": "weights {weights} · KV cache {cache} GiB ({tokens} tokens)",
    "rps": "requests/s",
    "median": "median {ms} ms",
    "goal": "{time} {ms}, goal {most}",
    "mean": "mean",
    "latency": "latency",
    "servers": "{servers} servers",
    "defaults-gain": "{gain}x LMDeploy's defaults",
    "defaults-same": "as fast as LMDeploy's defaults, within the error",
    "defaults-fail": "LMDeploy's defaults may run out of memory",
    "weights": "weights",
    "kv cache": "KV cache",
    "context": "CUDA context",
    "loading": "while loading",
    "workspace": "workspace",
    "vision": "image encoder",
    "assumed": "Assumed:",
    "lines": "{0} lines",
    "why": "show the reason",
    "default": "default: {default}",
    "none": "none",
    "others": "Others set:",
    "unverified": "No source was read: unverified.",
    "page": "All about this option",
    "reasons": "Why these settings",
    "columns": "Setting|Value|Default|Reason",
    "left": "{left} more options keep their defaults.",
    "basis": "What the figures rest on",
    "limit": "Limited by {limit}; {basis}.",
    "near": "{gpu}, {model}, {kind}, concurrency {concurrency}: {rps} requests/s, median {p50_ms} ms",
    "not-understood": "Not understood:",
    "nothing-fits": "Nothing fits:",
    "offers": "These have an answer:",
    "leave": "leave out {option}",
    "more-offers": "{count} more",
    "loading-engine": "Loading the recommender into this browser: {percent} %",
    "starting": "Starting the recommender…",
    "computing": "Computing…",
    "failed": "The recommender does not run in this browser ({why}). Stored answers and the command still work.",
    "no-wasm": "This browser cannot run WebAssembly, so only stored questions have an answer here.",
    "stored": "Stored answer: this browser cannot run WebAssembly. The command answers every question.",
    "not-listed": "My GPU is not listed: add it in five minutes",
    "all-models": "All models",
    "plan-of": "{rps} requests/s of {model}.",
    "plan-peak": "Peak: {peak} times that, {down}. LMDeploy {release}; {network} Gbit/s per host.",
    "hosts-down": "spare hosts down: {count}",
    "hosts-up": "all hosts up",
    "all-up": "All hosts up",
    "plan-columns": "Host|Hosts|GPUs|Servers|Requests/s each|p99, ms|Limited by|Price of 1M",
    "plan-server": "a server takes {gib} GiB of each GPU and runs {batch} requests at once. At the peak:",
    "state-columns": "A server|Busy|p50, ms|p99, ms|TTFT p99, ms|TPOT p99, ms",
    "slower": "servers {times} times as slow ({share} are faster)",
    "cannot-keep-up": "does not keep up",
    "cannot": "These hosts cannot:",
    "would-do": "Would do: {needed}",
    "fleet-files": "Write its files:",
    "fleet-guide": "how to run a fleet",
    "copied": "Copied",
    "uncopied": "Select and copy",
}
"""Texts that the scripts show; they fill in the {names}."""


def configurator(data: SiteData, _: str) -> Iterator[str]:
    """Return the configurator of the first page."""
    first = stored_answers.stored_answers()[0]
    yield fill(
        "configurator.html",
        t=lambda words: plain(data.t(words)),
        english=data.english,
        start=stored_answers.FIRST,
        title=answer_texts.at_first(data, first.answer["title"]),
        load=answer_texts.at_first(data, first.answer["load"]),
        words=first.words,
        forms={form: label for form, (label, _) in FORMS.items()},
        images=IMAGES,
        workloads=_workloads(data),
        releases=_releases(data),
        engines={"": data.t("automatic"), "turbomind": "TurboMind", "pytorch": "PyTorch"},
        advisers={"": "–", "defaults": data.t("LMDeploy's defaults")}
        | {adviser.id: data.t(adviser.name) for adviser in data.store.advisers.values()},
        runtime=to_json(bundle.describe()),
        data=to_json(_page_data(data)),
        stored_table="\n".join(stored_table(data)),
    )


def _workloads(data: SiteData) -> dict[str, str]:
    known = data.store.workloads.values()
    first = {each.id: data.own(each.summary, each.summary_vi).partition(". ")[0].rstrip(".") for each in known}
    return {"": data.t("Typical, or as given below")} | {name: f"{name}: {summary}" for name, summary in first.items()}


def _releases(data: SiteData) -> dict[str, str]:
    newest, *older = reversed(data.releases)
    return {"": data.t("{0} (newest)").format(newest.id)} | {release.id: release.id for release in older}


def _page_data(data: SiteData) -> dict[str, Any]:
    first, *_ = answers = stored_answers.stored_answers()
    return {
        "texts": {key: plain(data.t(words)) for key, words in TEXTS.items()},
        "names": {form: name for form, (_, name) in FORMS.items()},
        **choices(data),
        "pages": _pages(data),
        "stored": {each.words: each.name for each in answers},
        "first": {"name": first.name, "answer": first.answer},
        "reasons": {} if data.english else answer_texts.of_answers(data),
    }


def choices(data: SiteData) -> dict[str, list[dict[str, Any]]]:
    """Return what the boxes for a GPU and a model offer; slices of GPUs come last."""
    gpus = sorted(data.store.gpus.values(), key=lambda gpu: PART in gpu.id)
    models = data.store.models.values()
    return {"gpus": [_gpu(data, gpu) for gpu in gpus], "models": [_model(model) for model in models]}


def _gpu(data: SiteData, gpu: records.Gpu) -> dict[str, Any]:
    measured = f" · {data.t('measured')}" if gpu.id in list_measured_gpus(data.store) else ""
    return {
        "id": gpu.id,
        "name": data.gpu(gpu),
        "aliases": gpu.aliases,
        "detail": f"{gpu.memory_gb:g} GB{measured}",
        "part": PART in gpu.id,
    }


def _model(model: records.Model) -> dict[str, Any]:
    kind = model.quantization[0].method if model.quantization else model.text.dtype
    return {"id": model.id, "name": model.hub, "aliases": model.aliases, "detail": kind}


def _pages(data: SiteData) -> dict[str, Any]:
    """Return the addresses of the pages that an answer links to, from the first page."""
    up = "" if data.english else "../"
    options = {option.id: f"flags/{option.id}.html" for option in data.store.options() if option.setting}
    guides = {"fleet": "how-to/fleet.html", "adding": "how-to/adding-a-record.html", "models": "models/index.html"}
    return {"options": options, "runs": f"{up}runs.html", **guides}


def stored_table(data: SiteData) -> Iterator[str]:
    """Return the stored answers as a table, for browsers without scripts."""
    head = data.labels("Model", "GPU", "Concurrency", "GiB", "Latency, ms", "Requests/s", "Script")
    yield f"<table><thead><tr>{''.join(f'<th>{title}</th>' for title in head)}</tr></thead><tbody>"
    for stored in stored_answers.stored_answers():
        speed = stored.answer["speed"]
        cells = (
            data.store.models[stored.model].hub,
            data.store.gpus[stored.gpu].name,
            stored.load,
            f"{stored.answer['memory']['total'][0]:g}",
            f"{speed['latency_ms'][0]:,.0f}",
            markup.figure(speed["rps"][0]),
        )
        link = f'<a href="md:{stored_answers.FOLDER}/{stored.name}.sh" download="serve.sh">serve.sh</a>'
        yield f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}<td>{link}</td></tr>"
    yield "</tbody></table>"
