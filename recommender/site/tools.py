"""Render the check of a script, which runs the recommender in a browser, and the finder of known issues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from recommender.review import engine
from recommender.review.output.rule_list import title
from recommender.site import answer_texts
from recommender.site.browser import bundle, stored_answers
from recommender.site.configurator import IMAGES, choices
from recommender.site.html_templates import fill, to_json
from recommender.site.i18n.translation import plain
from recommender.site.site_data import SiteData

TEXTS = {
    "loading": "Loading the recommender into this browser: {percent} %",
    "starting": "Starting the recommender…",
    "failed": "The recommender does not run in this browser: {why}. The command gives the same answer.",
}
CHECKER = {
    "working": "Checking…",
    "clean": "Nothing found.",
    "no-launch": "No call of LMDeploy was found in this text, so no rule about it was applied.",
    "nothing": "Paste a script, or a launch line.",
    "line": "line {line}",
    "fix": "Fix: {what}",
    "no-fix": "No automatic repair. Some need the LMDeploy release.",
    "same": "This is what we would choose.",
    "configure": "Open in the configurator",
    "offers": "These have an answer:",
    "copied": "Copied",
    "uncopied": "Select and copy",
    "error": "errors: {count}",
    "warning": "warnings: {count}",
    "info": "notes: {count}",
    "silent": "not checked without {needs}: {count} rules",
    "unestimated": "not checked, as no estimate knows how this spreads the model over GPUs: {count} rules",
}
EXAMPLE = (
    "lmdeploy serve api_server OpenGVLab/InternVL3-8B-AWQ --cache-max-entry-count 0.95 --session-len 256"
    " --max-batch-size 1"
)


def texts(data: SiteData, more: dict[str, str] | None = None) -> dict[str, str]:
    """Return the texts that a tool's script shows, in the pages' language."""
    return {key: plain(data.t(words)) for key, words in (TEXTS | (more or {})).items()}


def runtime() -> str:
    """Return the description of what the worker loads, for a page's scripts."""
    return f'<script type="application/json" id="runtime">{to_json(bundle.describe())}</script>'


def checker(data: SiteData, _: str) -> Iterator[str]:
    """Return the check of a pasted script."""
    yield fill(
        "checker.html",
        t=lambda words: plain(data.t(words)),
        example=EXAMPLE,
        newest=data.newest.id,
        images=IMAGES,
        runtime=runtime(),
        data=to_json(
            {
                **choices(data),
                "usual": stored_answers.FIRST["gpu"],
                "lmdeploys": [
                    {"id": release.id, "name": release.id, "detail": release.published}
                    for release in reversed(data.releases)
                ],
                "texts": texts(data, CHECKER),
                "findings": {} if data.english else answer_texts.of_reviews(data),
                "reasons": [] if data.english else answer_texts.reason_pairs(data),
                "said": [] if data.english else answer_texts.of_questions(data),
            }
        ),
    )


LOGGED = (
    (
        "address already in use",
        "Another process listens on the port.", "Stop it, or set --server-port.", "flags/server-port.html",
    ),
    (
        "No enough gpu memory for",
        "The KV cache has too few blocks to start.", "Raise --cache-max-entry-count, or free GPU memory.",
        "constraints.html#kv-least-blocks-pytorch",
    ),
    (
        "Failed to find C compiler",
        "Triton compiles kernels at the first start and finds no C compiler.", "Install gcc, or set CC.",
        "how-to/first-deployment.html",
    ),
    (
        "unrecognized arguments",
        "This release has no such option.", "Check the script against the release.", "check.html",
    ),
    (
        "exit code 137",
        "The kernel ended the process with SIGKILL, mostly because the host's memory ran out.",
        "Raise the memory limit of the container or the service.", "how-to/short-of-memory.html",
    ),
    (
        "Request preprocessing failed",
        "An image could not be prepared.", "Send an image that opens elsewhere. LLaVA 1.5 needs Transformers below 5.",
        "constraints.html#llava-transformers-5",
    ),
    (
        "img_processor.vision_model.embeddings.class_embedding",
        "Phi-3.5-vision does not load with Transformers 5.", "Install an older one: pip install 'transformers<5'.",
        "constraints.html#phi-3-vision-transformers-5",
    ),
)  # fmt: skip
"""Log lines that no thread of users tells: the line, what it means, what helps, the page."""


def finder(data: SiteData, _: str) -> Iterator[str]:
    """Return the box for a log line, and what it searches: known issues, other log lines and rules."""
    issues = [_issue(data, thread) for thread in data.store.threads.values()]
    issues += [
        {
            "title": plain(data.t(means)),
            "text": plain(data.t(helps)),
            "href": page,
            "error": line,
            "words": "",
        }
        for line, means, helps, page in LOGGED
    ]
    rules = [
        {
            "title": f"{rule.id}: {plain(data.t(title(rule)))}",
            "href": f"rules/{rule.id.lower()}.html",
            "error": "",
            "words": rule.name if data.english else f"{rule.name} {title(rule)}",
        }
        for rule in engine.rules()
    ]
    yield fill(
        "finder.html",
        t=lambda words: plain(data.t(words)),
        data=to_json({"entries": [*issues, *rules], "none": plain(data.t("Nothing known resembles this line."))}),
    )


def _issue(data: SiteData, thread: Any) -> dict[str, str]:
    answer_texts = " ".join((thread.title, thread.symptom, thread.cause, thread.remedy, *thread.options))
    return {
        "title": plain(data.t(thread.symptom)),
        "text": plain(data.t(thread.remedy)),
        "href": f"threads.html#{thread.id}",
        "error": thread.error,
        "words": answer_texts,
    }
