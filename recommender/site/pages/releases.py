"""Render the pages of the releases: requirements, and what changed for a launch script."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from recommender.lookup.release_diff import ChangedOption, Diff, MovedOption, ReleaseRecord, diff
from recommender.site import controls, markup
from recommender.site.site_data import SiteData, SitePage, page
from recommender.site.tools import runtime, texts

if TYPE_CHECKING:
    from recommender.knowledge import records


USUAL = ("0.9.2", "0.12.0")
"""Old releases that many scripts were written for; the first one known is preselected."""


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return the index, the comparison of two releases, and a page per release."""
    steps = {new.id: diff(data.store, old, new) for old, new in pairwise(data.releases)}
    yield page("releases/index.md", "Releases", _index(data, steps))
    scripts = ("assets/configure/releases.js",)
    yield page("releases/compare.md", "What changed between two releases", _any_two(data), scripts=scripts)
    for release in data.releases:
        name = f"LMDeploy {release.id}"
        yield page(f"releases/{release.id}.md", name, _release(data, release, steps.get(release.id)))


def _index(data: SiteData, steps: dict[str, Diff]) -> Iterator[str]:
    yield (
        "What changed for a launch script from one release to the next. You can also compare "
        "[any two releases](/releases/compare.md)."
    )
    rows = []
    for release in reversed(data.releases):
        step = steps.get(release.id)
        counts = [str(len(getattr(step, name))) if step else "" for name in ("added", "removed", "changed")]
        rows.append(
            (
                f"[{release.id}](/releases/{release.id}.md)",
                release.published,
                release.cuda,
                markup.code(release.python),
                *counts,
            )
        )
    head = ("Release", "Published", "CUDA", "Python", "Options added", "removed", "changed")
    yield from markup.table(head, rows)


def _any_two(data: SiteData) -> Iterator[str]:
    names = {release.id: f"{release.id} ({release.published})" for release in reversed(data.releases)}
    older = next(release.id for release in data.releases if release.id in USUAL)
    yield (
        "What another release changes for a launch script: removed, new and changed options, requirements, "
        "constraints, known issues and verdicts."
    )
    swap = controls.button("swap", "", "Swap")
    parts = (
        controls.choice("release-old", "Written for", names, chosen=older),
        controls.choice("release-new", "Target", names, chosen=data.newest.id),
        f'<div class="group">{swap}</div>',
    )
    yield controls.form("releases", parts, label="Two releases")
    yield (
        f'\n<p>As a command: <code id="release-command">recommend diff {older} {data.newest.id}</code></p>\n'
        '<p id="release-status" role="status"></p>\n'
        f'<pre id="release-diff" tabindex="0" data-texts="{html.escape(json.dumps(texts(data)))}"></pre>\n'
        "<noscript><p>Choosing releases here needs JavaScript; the command gives the same answer.</p></noscript>\n"
        f"{runtime()}\n"
    )
    yield (
        "\nOne step at a time: "
        + ", ".join(f"[{release.id}](/releases/{release.id}.md)" for release in reversed(data.releases))
        + ".\n"
    )


def _release(data: SiteData, release: records.Release, step: Diff | None) -> Iterator[str]:
    since = f"{len(step.added)} options came, {len(step.removed)} went, {len(step.changed)} changed." if step else ""
    yield f"LMDeploy {release.id} was published on {release.published}. {since}\n"
    yield from markup.resolved(
        (
            ("Published", release.published),
            ("Python", markup.code(release.python)),
            ("torch", markup.code(release.torch)),
            ("transformers", markup.code(release.transformers)),
            ("Wheel built for CUDA", release.cuda),
            ("GPU architectures of TurboMind", " ".join(map(markup.code, release.architectures)) or "not recorded"),
            ("Container tags end in", " ".join(map(markup.code, release.images)) or "not recorded"),
        )
    )
    if release.note:
        yield markup.prose(data.store, release.note)
    if step is None:
        yield "\nThis is the oldest covered release; earlier changes are not recorded."
    else:
        yield markup.heading(2, f"What changed since {step.old}", "changes")
        yield from _changes(data, step)
    yield markup.heading(2, "Sources", "sources")
    yield from markup.sources(data.store, release.sources)


def _changes(data: SiteData, step: Diff) -> Iterator[str]:
    parts = (
        ("Removed options", [*_moved(data, step.removed)]),
        ("New options", [*_moved(data, step.added)]),
        ("Changed options", [*_changed(data, step.changed)]),
        (
            "Requirements",
            [f"- {need.name}: {markup.code(need.before)} → {markup.code(need.after)}" for need in step.needs],
        ),
        ("New constraints", [*_notices(data, step.rules_new, "/constraints.md")]),
        ("Removed constraints", [*_notices(data, step.rules_gone, "/constraints.md")]),
        ("Claims with a new verdict", [*_notices(data, step.claims_new, "/claims.md")]),
        ("New known issues", [*_notices(data, step.threads_new, "/threads.md")]),
        ("Fixed issues", [*_notices(data, step.threads_gone, "/threads.md")]),
    )
    for title, lines in parts:
        if lines:
            yield from (markup.heading(3, title), *lines)
    if not any(lines for _, lines in parts):
        yield "Nothing that affects a launch script."


def _moved(data: SiteData, moved: Sequence[MovedOption]) -> Iterator[str]:
    for option in moved:
        see = f" See {', '.join(markup.prose(data.store, hint) for hint in option.see)}." if option.see else ""
        yield f"- {markup.option_link(option.option, option.name)}: {markup.prose(data.store, option.summary)}{see}"


def _changed(data: SiteData, changed: Sequence[ChangedOption]) -> Iterator[str]:
    for option in changed:
        yield f"- {markup.option_link(option.option, option.name)}"
        for change in option.changes:
            if change.what == "meaning":
                text = markup.prose(data.store, change.after) or "the earlier note no longer applies"
            else:
                text = f"{change.what}: {_shown(change.before)} → {_shown(change.after)}"
            yield f"    - {text}"


def _shown(value: str) -> str:
    return markup.code(value) if value else "none"


def _notices(data: SiteData, notices: Sequence[ReleaseRecord], where: str) -> Iterator[str]:
    for notice in notices:
        yield f"- {markup.prose(data.store, notice.text)} ([{notice.id}]({where}#{notice.id}))"
