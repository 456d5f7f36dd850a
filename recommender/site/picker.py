"""Render the picker: a form of four questions, and empty elements for the scripts to fill with the answer.

All texts are here, so that they can be translated; ``site/assets/picker*.js`` have none. The scripts read answers
from the files of ``api/answers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING

from recommender.knowledge.names import PART
from recommender.knowledge.store import Named
from recommender.site.api import answers
from recommender.site.site_data import SiteData

if TYPE_CHECKING:
    from recommender.knowledge import records

START = {"model": "internvl3-8b-awq", "gpu": "h100-sxm-80g", "load": "single", "goal": "balanced"}
"""The first question shown."""
GOALS = {
    "latency": "Latency: the fastest answer",
    "throughput": "Throughput: the most requests per second",
    "memory": "Memory: the smallest footprint",
    "balanced": "Balanced: latency and throughput",
}
KV = {"auto": "chosen", "fp16": "fp16", "int8": "int8", "int4": "int4"}
FIELDS = {
    "image": ("Image, width x height", "448x448"),
    "prompt-tokens": ("Prompt tokens", ""),
    "output-tokens": ("Output tokens", ""),
    "p99": ("p99 latency limit, ms", ""),
    "cpus": ("Host CPU cores", "16"),
}
"""Text fields behind "More questions": label and example."""
TEXTS = {
    "answered": "{model} on {gpu}: {gib} of {card} GiB, {ms} ms per request, {rps} requests/s predicted.",
    "refused": "Nothing fits: the recommender rejects this request with exit code {code}.",
    "elsewhere": "Run the command for this answer.",
    "failed": "The answer could not be loaded. Try again later, or run the command.",
    "folder": "This page was opened from a folder, so the browser cannot load the answers. "
    "Run the command, or open the page from a server.",
    "why": "Stored answers cover one GPU, a named load and defaults for everything else. Different here:",
    "wrong": "{name} {given} in the address is not known; {used} is shown instead.",
    "ignored": "{name} {given} is not valid and is ignored.",
    "copied": "Copied.",
    "uncopied": "The browser does not allow copying; select the text and copy it yourself.",
    "nearest": "Nearest configuration that fits:",
    "nothing": "nothing",
    "range": "{low} to {high}",
    "total": "total",
    "free": "free",
    "context": "CUDA context",
    "weights": "weights",
    "loading-part": "while loading",
    "kv cache": "KV cache",
    "workspace": "workspace",
    "vision": "image encoder",
    "cache": "The KV cache holds {tokens} tokens, or {requests} full-length requests; {needed} tokens are needed.",
    "most": "At most {gib} GiB, with every part at its upper end or while loading.",
    "alone_ms": "one request, ms",
    "latency_ms": "under load, ms per request",
    "p99_ms": "p99, ms",
    "ttft_ms": "TTFT, ms",
    "token_ms": "TPOT, ms",
    "rps": "requests/s",
    "limit": "Limited by {limit}; {basis}.",
    "near": "Nearest measured runs:",
    "flight": "concurrency {concurrency}: {rps} requests/s, median {ms} ms, LMDeploy {release}",
    "random": "random weights",
    "real": "real weights",
    "mend": "Fix:",
    "advised": "Advised:",
    "page": "More about this option",
    "left": "{count} more options keep their defaults.",
    "agrees": "{same} of {all}",
    "differs": "{value}, here {ours}",
}
"""Texts that the scripts show, by key; they fill in the {names}."""


def picker(data: SiteData, words: str) -> Iterator[str]:
    """Return the picker. ``words``: "short" within a longer page, where details fold out."""
    kind = f"picker {words}".strip()
    yield f'<section id="picker" class="{kind}" data-language="{data.language}" data-release="{answers.release()}">'
    yield from _form(data)
    yield '<p id="picker-notice" role="alert" hidden></p>'
    yield from _answer(data, short=words == "short")
    yield from _words(data)
    yield from _links(data)
    yield "</section>"


def _form(data: SiteData) -> Iterator[str]:
    t, store = data.t, data.store
    yield '<form id="picker-form" autocomplete="off" novalidate>'
    yield '<div class="picker-row">'
    hubs = {name: model.hub for name, model in store.models.items()}
    yield from _labelled("model", t("Model"), _chosen("model", store.models, answers.MODELS, hubs, t))
    gpus = {name: _gpu_name(gpu.name) for name, gpu in store.gpus.items()}
    yield from _labelled("gpu", t("GPU"), _chosen("gpu", _usual_first(store.gpus), answers.GPUS, gpus, t))
    count = '<input id="picker-count" name="count" type="number" min="1" max="64" value="1" inputmode="numeric">'
    yield from _labelled("count", t("Count"), [count])
    yield "</div>"
    loads = {name: _load(data, store.loads[name]) for name in answers.loads(store)}
    yield from _radios("load", t("Load"), loads)
    yield from _radios("goal", t("Goal"), {name: t(words) for name, words in GOALS.items()})
    yield f'<details id="picker-more"><summary>{t("More questions")}</summary>'
    yield '<div class="picker-row">'
    yield from _more(data)
    yield "</div></details></form>"


def _load(data: SiteData, load: records.NamedLoad) -> str:
    return f"{load.id}: {data.t('concurrency {0}').format(load.concurrency)}"


def _gpu_name(name: str) -> str:
    """Return a GPU's name for the list; slices start with "MIG", so that typing a name finds the whole GPU."""
    whole, _, part = name.removeprefix("NVIDIA ").partition(", MIG ")
    return f"MIG {part}, {whole}" if part else whole


def _usual_first(gpus: Mapping[str, records.Gpu]) -> dict[str, records.Gpu]:
    return dict(sorted(gpus.items(), key=lambda item: PART in item[0]))


def _labelled(name: str, label: str, field: Iterable[str]) -> Iterator[str]:
    yield f'<div class="picker-field"><label for="picker-{name}">{label}</label>'
    yield from field
    yield "</div>"


def _chosen(
    name: str, known: Mapping[str, Named], here: Iterable[str], shown: Mapping[str, str], t: Callable[[str], str]
) -> Iterator[str]:
    """Return a select box: records with a stored answer first. ``data-names`` has their aliases."""
    yield f'<select id="picker-{name}" name="{name}">'
    rest = [record for record in known if record not in set(here)]
    for label, names in ((t("Stored answers"), here), (t("Command only"), rest)):
        yield f'<optgroup label="{label}">'
        for record in names:
            marks = " selected" if record == START[name] else ""
            marks += " data-here" if names is here else ""
            aliases = escape("|".join(known[record].aliases))
            yield f'<option value="{record}" data-names="{aliases}"{marks}>{escape(shown[record])}</option>'
        yield "</optgroup>"
    yield "</select>"


def _radios(name: str, legend: str, labels: Mapping[str, str]) -> Iterator[str]:
    yield f'<fieldset id="picker-{name}"><legend>{legend}</legend>'
    for value, label in labels.items():
        marks = " checked" if value == START[name] else ""
        field = f'<input type="radio" id="picker-{name}-{value}" name="{name}" value="{value}"{marks}>'
        yield f'<label for="picker-{name}-{value}">{field}<span>{label}</span></label>'
    yield "</fieldset>"


def _more(data: SiteData) -> Iterator[str]:
    t = data.t
    for name, (label, example) in FIELDS.items():
        kind = 'type="text"' if name == "image" else 'type="number" min="1" inputmode="numeric"'
        field = f'<input id="picker-{name}" name="{name}" {kind} placeholder="{example}">'
        yield from _labelled(name, t(label), [field])
    kv = (f'<option value="{value}">{t(words) if value == "auto" else words}</option>' for value, words in KV.items())
    yield from _labelled("kv", t("KV cache precision"), ['<select id="picker-kv" name="kv">', *kv, "</select>"])
    releases = (f'<option value="{release.id}">{release.id}</option>' for release in reversed(data.releases))
    field = '<select id="picker-lmdeploy" name="lmdeploy">'
    yield from _labelled("lmdeploy", t("LMDeploy release"), [field, *releases, "</select>"])
    box = '<input id="picker-text-only" name="text-only" type="checkbox" value="1">'
    yield f'<div class="picker-field"><label for="picker-text-only">{box} {t("Text-only requests")}</label></div>'


def _answer(data: SiteData, *, short: bool) -> Iterator[str]:
    t = data.t
    yield '<div id="picker-answer" data-state="waiting">'
    yield '<p id="picker-status" role="status" aria-live="polite"></p>'
    script = t("This page needs JavaScript. The command gives the same answer:")
    run = " ".join(f"--{name} {value}" for name, value in START.items())
    yield f"<noscript><p>{script}</p></noscript>"
    yield '<p id="picker-why" hidden></p><p id="picker-nearest" hidden></p>'
    yield '<pre id="picker-error" lang="en" hidden></pre>'
    yield f'<div class="picker-bar"><code id="picker-command">recommend {run} &gt; serve.sh</code>'
    yield _button("copy-command", t("Copy the command"))
    yield _button("copy-link", t("Copy a link to this answer"))
    yield '<span id="picker-copied" role="status"></span></div>'
    yield '<div id="picker-result" hidden>'
    yield f'<div id="picker-warned" hidden><h2>{t("Warnings")}</h2><ul id="picker-warnings" lang="en"></ul></div>'
    yield f'<h2 id="picker-script-head">{t("The script")}</h2><div class="picker-bar">{_button("copy", t("Copy"))}'
    yield f'<a id="picker-download" class="md-button" download="serve.sh">{t("Download serve.sh")}</a></div>'
    yield '<pre id="picker-script" lang="en" tabindex="0" role="region" aria-labelledby="picker-script-head">'
    # Not right below it: to such code the theme adds a button of its own.
    yield "<span><code></code></span></pre>"
    if short:
        yield f'<details id="picker-behind"><summary>{t("Memory, speed, and why each option")}</summary>'
    yield from _behind(t)
    yield "</details></div></div>" if short else "</div></div>"


def _behind(t: Callable[[str], str]) -> Iterator[str]:
    yield from _figures(t)
    yield f'<h2>{t("Reasons by option")}</h2><div id="picker-flags"></div>'
    yield f'<p id="picker-left"></p><h2 id="picker-agreed">{t("Values of the advisers")}</h2>'
    columns = (t("Adviser"), t("Same"), t("Different"))
    yield from _table("advisers", "picker-agreed", columns)


def _figures(t: Callable[[str], str]) -> Iterator[str]:
    yield f'<figure id="picker-memory"><figcaption id="picker-memory-head">{t("Memory per GPU, GiB")}</figcaption>'
    yield '<div id="picker-stack" aria-hidden="true"></div>'
    yield from _table("memory-table", "picker-memory-head", (t("Part"), t("Predicted"), t("Range")))
    yield f'<p id="picker-cache"></p></figure><h2 id="picker-speed-head">{t("Speed")}</h2>'
    yield from _table("speed", "picker-speed-head", (t("Figure"), t("Predicted"), t("Range")))
    yield '<p id="picker-basis"></p><div id="picker-near"></div>'


def _table(name: str, title: str, columns: Iterable[str]) -> Iterator[str]:
    head = "".join(f'<th scope="col">{column}</th>' for column in columns)
    yield f'<div class="picker-scroll"><table id="picker-{name}" class="picker-table" aria-labelledby="{title}">'
    yield f"<thead><tr>{head}</tr></thead><tbody></tbody></table></div>"


def _button(name: str, label: str) -> str:
    return f'<button type="button" id="picker-{name}" class="md-button">{label}</button>'


def _words(data: SiteData) -> Iterator[str]:
    yield '<div id="picker-texts" hidden>'
    for key, words in TEXTS.items():
        yield f'<span data-text="{key}">{data.t(words)}</span>'
    yield "</div>"


def _links(data: SiteData) -> Iterator[str]:
    """Return links for the scripts to copy: only the build knows the addresses of pages."""
    yield '<div id="picker-links" hidden>'
    for option in data.store.options():
        if option.setting:
            yield f'<a data-option="{option.id}" href="md:flags/{option.id}.md">{data.t(TEXTS["page"])}</a>'
    yield '<a data-page="claims" href="md:claims.md"></a><a data-page="evidence" href="md:evidence/index.md"></a>'
    yield "</div>"
