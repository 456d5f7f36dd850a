"""Pages of the releases: what each needs, what changed for a launch script since the one before, or any other."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from recommender.changes import Changed, Diff, Moved, Told, diff
from recommender.diff import published
from recommender.records import Sources
from recommender.site import controls
from recommender.site import markup as m
from recommender.site.book import Book, Page, page

if TYPE_CHECKING:
    from recommender import records as r


FORMAT = 1
"""Of the files; it rises when a field of theirs changes its meaning."""
FILES = "api/v1/diff"
USUAL = ("0.9.2", "0.12.0")
"""The release that is compared first: an old one that many scripts were written for."""
NONE = Sources()


def pages(book: Book) -> Iterator[Page]:
    """The index, any two of them beside each other, and a page a release."""
    steps = {new.id: diff(book.store, old, new) for old, new in pairwise(book.releases)}
    yield page("releases/index.md", "Releases", _index(book, steps))
    yield page("releases/compare.md", "What changed between two releases", _any_two(book))
    for release in book.releases:
        name = f"LMDeploy {release.id}"
        yield page(f"releases/{release.id}.md", name, _release(book, release, steps.get(release.id)))


def _index(book: Book, steps: dict[str, Diff]) -> Iterator[str]:
    yield (
        "What changed for a launch script from one release to the next. [Any two releases](/releases/compare.md) can "
        "be held against each other as well."
    )
    rows = []
    for each in reversed(book.releases):
        step = steps.get(each.id)
        counts = [str(len(getattr(step, name))) if step else "" for name in ("added", "removed", "changed")]
        rows.append((f"[{each.id}](/releases/{each.id}.md)", each.published, each.cuda, m.code(each.python), *counts))
    head = ("Release", "Published", "CUDA", "Python", "Options added", "removed", "changed")
    yield from m.table(head, rows)


def _any_two(book: Book) -> Iterator[str]:
    names = {each.id: f"{each.id} ({each.published})" for each in reversed(book.releases)}
    older = next(each.id for each in book.releases if each.id in USUAL)
    yield (
        "What another release means for a launch script: options that are gone, new or changed, what the machine has "
        "to have, and which rules, failures and verdicts then hold."
    )
    swap = controls.button("swap", "", "Swap")
    parts = (
        controls.choice("release-old", "Written for", names, older),
        controls.choice("release-new", "Shall run on", names, book.newest.id),
        f'<div class="group">{swap}</div>',
    )
    yield controls.form("releases", parts, label="Two releases")
    yield (
        f'\n<p>As a command: <code id="release-command">recommend diff {older} {book.newest.id}</code></p>\n'
        '<p id="release-status" role="status"></p>\n'
        f'<div id="release-diff" data-files="../{FILES}/">'
        "<p>To choose two releases here needs JavaScript; the command says the same.</p></div>\n"
    )
    yield (
        "\nOne step at a time: "
        + ", ".join(f"[{each.id}](/releases/{each.id}.md)" for each in reversed(book.releases))
        + ".\n"
    )


def files(book: Book) -> Iterator[tuple[str, str]]:
    """The path and the text of a file a release: what ``recommend diff`` says from it to each other one."""
    for old in book.releases:
        others = {new.id: said(book, old, new) for new in book.releases if new is not old}
        made = {"format": FORMAT, "old": old.id, "new": others}
        yield f"{FILES}/{old.id}.json", json.dumps(made, ensure_ascii=False, separators=(",", ":"))


def said(book: Book, old: r.Release, new: r.Release) -> dict[str, object]:
    """What ``recommend diff --json`` says, without the sources, which the options' pages have."""
    found = diff(book.store, old, new)
    bare = replace(
        found,
        removed=tuple(replace(each, sources=NONE) for each in found.removed),
        added=tuple(replace(each, sources=NONE) for each in found.added),
        changed=tuple(replace(each, sources=NONE) for each in found.changed),
    )
    made = published(bare)
    for name in ("removed", "added", "changed"):
        for each in made[name]:  # type: ignore[attr-defined]
            del each["sources"]
    return made


def _release(book: Book, release: r.Release, step: Diff | None) -> Iterator[str]:
    yield from m.facts(
        (
            ("Published", release.published),
            ("Python", m.code(release.python)),
            ("torch", m.code(release.torch)),
            ("transformers", m.code(release.transformers)),
            ("CUDA of its wheel", release.cuda),
            ("GPU architectures of TurboMind", " ".join(map(m.code, release.architectures)) or "nobody read them"),
            ("Container tags end in", " ".join(map(m.code, release.images)) or "nobody read them"),
        )
    )
    if release.note:
        yield m.prose(book.store, release.note)
    if step is None:
        yield "\nThis is the oldest covered release: nothing here tells what changed before it."
    else:
        yield m.heading(2, f"What changed since {step.old}", "changes")
        yield from _changes(book, step)
    yield m.heading(2, "Sources", "sources")
    yield from m.sources(book.store, release.sources)


def _changes(book: Book, step: Diff) -> Iterator[str]:
    parts = (
        ("Options that are gone", [*_moved(book, step.removed)]),
        ("New options", [*_moved(book, step.added)]),
        ("Options that changed", [*_changed(book, step.changed)]),
        ("What it needs", [f"- {each.name}: {m.code(each.before)} → {m.code(each.after)}" for each in step.needs]),
        ("Constraints that came", [*_told(book, step.rules_new, "/constraints.md")]),
        ("Constraints that went", [*_told(book, step.rules_gone, "/constraints.md")]),
        ("Claims judged otherwise from here on", [*_told(book, step.claims_new, "/claims.md")]),
        ("Failures that can be met from here on", [*_told(book, step.threads_new, "/threads.md")]),
        ("Failures that are over", [*_told(book, step.threads_gone, "/threads.md")]),
    )
    for title, lines in parts:
        if lines:
            yield from (m.heading(3, title), *lines)
    if not any(lines for _, lines in parts):
        yield "Nothing that a launch script would notice."


def _moved(book: Book, moved: Sequence[Moved]) -> Iterator[str]:
    for each in moved:
        see = f" See {', '.join(m.prose(book.store, other) for other in each.see)}." if each.see else ""
        yield f"- {m.option_link(each.option, each.name)}: {m.prose(book.store, each.summary)}{see}"


def _changed(book: Book, changed: Sequence[Changed]) -> Iterator[str]:
    for each in changed:
        yield f"- {m.option_link(each.option, each.name)}"
        for change in each.changes:
            if change.what == "meaning":
                said = m.prose(book.store, change.after) or "the note before it holds no more"
            else:
                said = f"{change.what}: {_shown(change.before)} → {_shown(change.after)}"
            yield f"    - {said}"


def _shown(value: str) -> str:
    return m.code(value) if value else "none"


def _told(book: Book, told: Sequence[Told], where: str) -> Iterator[str]:
    for each in told:
        yield f"- {m.prose(book.store, each.text)} ([{each.id}]({where}#{each.id}))"
