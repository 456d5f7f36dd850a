"""The picker: a form of four questions, and the places that its scripts fill with the answer.

All words stand here, so that they can be translated; ``site/assets/picker*.js`` have none. What an answer is made of
is in the files of ``api.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING

from recommender.site import states
from recommender.site.book import Book
from recommender.store import PART, Named

if TYPE_CHECKING:
    from recommender import records as r

START = {"model": "internvl3-8b-awq", "gpu": "h100-sxm-80g", "load": "single", "goal": "balanced"}
"""What is asked before anybody chose anything."""
GOALS = {
    "latency": "Latency: the fastest answer",
    "throughput": "Throughput: the most requests a second",
    "memory": "Memory: the least of the card",
    "balanced": "Balanced: fast, and many",
}
KV = {"auto": "chosen", "fp16": "fp16", "int8": "int8", "int4": "int4"}
FIELDS = {
    "image": ("Image, width x height", "448x448"),
    "prompt-tokens": ("Tokens of the request's text", ""),
    "output-tokens": ("Tokens of the answer", ""),
    "p99": ("99 % of the answers within, ms", ""),
    "cpus": ("CPU cores of the host", "16"),
}
"""Fields of the drawer to type into: what they ask, and an example."""
TEXTS = {
    "answered": "{model} on {gpu}: {gib} GiB of {card} GiB, {ms} ms a request, {rps} requests/s predicted.",
    "refused": "Nothing fits: the recommender refuses this, with exit code {code}.",
    "elsewhere": "This one is answered by the command.",
    "failed": "The answer could not be loaded. Try again later, or run the command.",
    "folder": "This page was opened from a folder, where a browser reads no other file. Run the command, or open the "
    "page from a server.",
    "why": "Answers are stored here for one card, a named load and everything else left at its default. Not so here:",
    "wrong": "{name} {given} in the address is not known; {used} is shown instead.",
    "ignored": "{name} {given} is not understood and is left out.",
    "copied": "Copied.",
    "uncopied": "The browser does not allow copying; select the text and copy it yourself.",
    "nearest": "Nearest that fits:",
    "nothing": "nothing",
    "range": "{low} to {high}",
    "total": "together",
    "free": "free",
    "context": "CUDA context",
    "weights": "weights",
    "loading-part": "while loading",
    "kv cache": "KV cache",
    "workspace": "workspace",
    "vision": "image encoder",
    "cache": "The KV cache holds {tokens} tokens, or {requests} full-length requests; {needed} tokens are needed.",
    "most": "At most {gib} GiB, with every part at its upper end or while loading.",
    "alone_ms": "alone, ms a request",
    "latency_ms": "under load, ms a request",
    "p99_ms": "p99, ms",
    "ttft_ms": "first token, ms",
    "token_ms": "per token, ms",
    "rps": "requests/s",
    "limit": "Limited by {limit}; {basis}.",
    "near": "Measured nearest to this:",
    "flight": "{concurrency} in flight, {rps} requests/s, median {ms} ms",
    "mend": "To mend it:",
    "advised": "Advised:",
    "page": "More about this option",
    "left": "{count} more options are left at their defaults.",
    "agrees": "{same} of {all}",
    "differs": "{value}, here {ours}",
}
"""What the scripts say, by key. {names} are filled in by them."""


def picker(book: Book, words: str) -> Iterator[str]:
    """The whole of it. ``words``: "short" where it is a part of a longer page: what is behind the script folds out."""
    kind = f"picker {words}".strip()
    yield f'<section id="picker" class="{kind}" data-language="{book.language}" data-release="{states.release()}">'
    yield from _form(book)
    yield '<p id="picker-notice" role="alert" hidden></p>'
    yield from _answer(book, short=words == "short")
    yield from _words(book)
    yield from _links(book)
    yield "</section>"


def _form(book: Book) -> Iterator[str]:
    t, store = book.t, book.store
    yield '<form id="picker-form" autocomplete="off" novalidate>'
    yield '<div class="picker-row">'
    hubs = {name: each.hub for name, each in store.models.items()}
    yield from _labelled("model", t("Model"), _chosen("model", store.models, states.MODELS, hubs, t))
    cards = {name: _card(each.name) for name, each in store.gpus.items()}
    yield from _labelled("gpu", t("GPU"), _chosen("gpu", _usual_first(store.gpus), states.GPUS, cards, t))
    count = '<input id="picker-count" name="count" type="number" min="1" max="64" value="1" inputmode="numeric">'
    yield from _labelled("count", t("How many of it"), [count])
    yield "</div>"
    loads = {name: _load(book, store.loads[name]) for name in states.loads(store)}
    yield from _radios("load", t("Load"), loads)
    yield from _radios("goal", t("Goal"), {name: t(words) for name, words in GOALS.items()})
    yield f'<details id="picker-more"><summary>{t("More questions")}</summary>'
    yield '<div class="picker-row">'
    yield from _more(book)
    yield "</div></details></form>"


def _load(book: Book, load: r.Workload) -> str:
    return f"{load.id}: {book.t('{0} in flight').format(load.concurrency)}"


def _card(name: str) -> str:
    """A card as the list has it: slices begin with what they are, so that typing a card's name finds the card."""
    whole, _, part = name.removeprefix("NVIDIA ").partition(", MIG ")
    return f"MIG {part}, {whole}" if part else whole


def _usual_first(gpus: Mapping[str, r.Gpu]) -> dict[str, r.Gpu]:
    """Whole cards, then slices of them."""
    return dict(sorted(gpus.items(), key=lambda each: PART in each[0]))


def _labelled(name: str, label: str, field: Iterable[str]) -> Iterator[str]:
    yield f'<div class="picker-field"><label for="picker-{name}">{label}</label>'
    yield from field
    yield "</div>"


def _chosen(
    name: str, known: Mapping[str, Named], here: Iterable[str], shown: Mapping[str, str], t: Callable[[str], str]
) -> Iterator[str]:
    """A list of records: those with an answer here first. ``data-names``: what else people call them."""
    yield f'<select id="picker-{name}" name="{name}">'
    rest = [each for each in known if each not in set(here)]
    for label, names in ((t("Answered here"), here), (t("Answered by the command"), rest)):
        yield f'<optgroup label="{label}">'
        for each in names:
            marks = " selected" if each == START[name] else ""
            marks += " data-here" if names is here else ""
            aliases = escape("|".join(known[each].aliases))
            yield f'<option value="{each}" data-names="{aliases}"{marks}>{escape(shown[each])}</option>'
        yield "</optgroup>"
    yield "</select>"


def _radios(name: str, legend: str, labels: Mapping[str, str]) -> Iterator[str]:
    yield f'<fieldset id="picker-{name}"><legend>{legend}</legend>'
    for value, label in labels.items():
        marks = " checked" if value == START[name] else ""
        field = f'<input type="radio" id="picker-{name}-{value}" name="{name}" value="{value}"{marks}>'
        yield f'<label for="picker-{name}-{value}">{field}<span>{label}</span></label>'
    yield "</fieldset>"


def _more(book: Book) -> Iterator[str]:
    t = book.t
    for name, (label, example) in FIELDS.items():
        kind = 'type="text"' if name == "image" else 'type="number" min="1" inputmode="numeric"'
        field = f'<input id="picker-{name}" name="{name}" {kind} placeholder="{example}">'
        yield from _labelled(name, t(label), [field])
    kv = (f'<option value="{value}">{t(words) if value == "auto" else words}</option>' for value, words in KV.items())
    yield from _labelled("kv", t("KV cache precision"), ['<select id="picker-kv" name="kv">', *kv, "</select>"])
    releases = (f'<option value="{each.id}">{each.id}</option>' for each in reversed(book.releases))
    field = '<select id="picker-lmdeploy" name="lmdeploy">'
    yield from _labelled("lmdeploy", t("LMDeploy release"), [field, *releases, "</select>"])
    box = '<input id="picker-text-only" name="text-only" type="checkbox" value="1">'
    yield f'<div class="picker-field"><label for="picker-text-only">{box} {t("Requests carry no image")}</label></div>'


def _answer(book: Book, *, short: bool) -> Iterator[str]:
    """The places that the answer is put into; what an answer has not stays hidden."""
    t = book.t
    yield '<div id="picker-answer" data-state="waiting">'
    yield '<p id="picker-status" role="status" aria-live="polite"></p>'
    script = t("Without JavaScript this page cannot answer. The command gives the same:")
    run = " ".join(f"--{name} {value}" for name, value in START.items())
    yield f"<noscript><p>{script}</p></noscript>"
    yield '<p id="picker-why" hidden></p><p id="picker-nearest" hidden></p>'
    yield '<pre id="picker-error" lang="en" hidden></pre>'
    yield f'<div class="picker-bar"><code id="picker-command">recommend {run} &gt; serve.sh</code>'
    yield _button("copy-command", t("Copy the command"))
    yield _button("copy-link", t("Copy a link to this answer"))
    yield '<span id="picker-copied" role="status"></span></div>'
    yield '<div id="picker-result" hidden>'
    yield f'<div id="picker-warned" hidden><h2>{t("To mind")}</h2><ul id="picker-warnings" lang="en"></ul></div>'
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
    """What stands behind a script: figures, reasons, and what others gave."""
    yield from _figures(t)
    yield f'<h2>{t("Why each option")}</h2><div id="picker-flags"></div>'
    yield f'<p id="picker-left"></p><h2 id="picker-agreed">{t("What the advisers gave")}</h2>'
    columns = (t("Adviser"), t("Alike"), t("Different"))
    yield from _table("advisers", "picker-agreed", columns)


def _figures(t: Callable[[str], str]) -> Iterator[str]:
    yield f'<figure id="picker-memory"><figcaption id="picker-memory-head">{t("Memory of each card, GiB")}</figcaption>'
    yield '<div id="picker-stack" aria-hidden="true"></div>'
    yield from _table("memory-table", "picker-memory-head", (t("Part"), t("Predicted"), t("Range")))
    yield f'<p id="picker-cache"></p></figure><h2 id="picker-speed-head">{t("Speed")}</h2>'
    yield from _table("speed", "picker-speed-head", (t("Figure"), t("Predicted"), t("Range")))
    yield '<p id="picker-basis"></p><div id="picker-near"></div>'


def _table(name: str, title: str, columns: Iterable[str]) -> Iterator[str]:
    head = "".join(f'<th scope="col">{each}</th>' for each in columns)
    yield f'<div class="picker-scroll"><table id="picker-{name}" class="picker-table" aria-labelledby="{title}">'
    yield f"<thead><tr>{head}</tr></thead><tbody></tbody></table></div>"


def _button(name: str, label: str) -> str:
    return f'<button type="button" id="picker-{name}" class="md-button">{label}</button>'


def _words(book: Book) -> Iterator[str]:
    yield '<div id="picker-texts" hidden>'
    for key, words in TEXTS.items():
        yield f'<span data-text="{key}">{book.t(words)}</span>'
    yield "</div>"


def _links(book: Book) -> Iterator[str]:
    """Links for the scripts to copy: only the build knows where pages lie, and in which languages."""
    decided = [each.id for each in book.store.options() if each.setting]
    yield '<div id="picker-links" hidden>'
    for option in decided:
        yield f'<a data-option="{option}" href="md:flags/{option}.md">{book.t(TEXTS["page"])}</a>'
    yield '<a data-page="claims" href="md:claims.md"></a><a data-page="evidence" href="md:evidence/index.md"></a>'
    yield "</div>"
