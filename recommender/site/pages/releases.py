"""Render the pages of the releases: requirements, and what changed for a launch script."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from recommender.knowledge.engines import LABELS
from recommender.lookup.release_diff import ChangedOption, Diff, MovedOption, ReleaseRecord, diff
from recommender.lookup.release_diff_text import name_holes
from recommender.site import controls, markup
from recommender.site.answer_texts import SENTENCE, by_sentence
from recommender.site.html_templates import to_json
from recommender.site.i18n.translation import plain, single
from recommender.site.site_data import SiteData, SitePage, page
from recommender.site.tools import runtime, texts

if TYPE_CHECKING:
    from recommender.knowledge import records

USUAL = ("0.9.2", "0.12.0")
"""Old releases that many scripts were written for; the first one known is preselected."""
NO_SCRIPT = "Choosing releases here needs JavaScript; the command gives the same answer."
DIFFERENCE = {
    "opening": "From LMDeploy {old} ({old_published}) to {new} ({new_published}), for a script written for {old}.",
    "back": "From LMDeploy {old} ({old_published}) back to the older {new} ({new_published}), "
    "for a script written for {old}.",
    "same": "Same release: nothing changes.",
    "rejects": "{new} rejects these; a server started with one exits at once.",
    "last": "last in {release}",
    "in": "in {release}",
    "since": "since {release}",
    "only": "read by {who} only",
    "see": "see {options}",
    "was": "was",
    "now": "now",
    "over": "This no longer applies.",
    "fix": "fix",
    "none": "none",
    "type": "type",
    "default": "default",
    "choices": "choices",
    "read by": "read by",
    "removed": "Removed options",
    "changed": "Changed options",
    "added": "New options",
    "requirements": "Requirements",
    "rules-gone": "Constraints that no longer apply",
    "rules-new": "Constraints that apply now",
    "threads-gone": "Fixed issues",
    "threads-new": "New known issues",
    "claims-gone": "Verdicts that no longer apply",
    "claims-new": "Verdicts that apply now",
}
"""Texts of the difference in another language."""


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return the index, the comparison of two releases, and a page per release."""
    steps = {new.id: diff(data.store, old, new) for old, new in pairwise(data.releases)}
    yield page("releases/index.md", data.t("Releases"), _index(data, steps))
    scripts = ("assets/configure/releases.js",)
    yield page(
        "releases/compare.md",
        data.t("What changed between two releases"),
        _any_two(data, steps.values()),
        scripts=scripts,
    )
    for release in data.releases:
        name = f"LMDeploy {release.id}"
        yield page(f"releases/{release.id}.md", name, _release(data, release, steps.get(release.id)))


def _index(data: SiteData, steps: dict[str, Diff]) -> Iterator[str]:
    yield data.t(
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
    head = data.labels("Release", "Published", "CUDA", "Python", "Options added", "removed", "changed")
    yield from markup.table(head, rows)


def _any_two(data: SiteData, steps: Iterable[Diff]) -> Iterator[str]:
    names = {release.id: f"{release.id} ({release.published})" for release in reversed(data.releases)}
    older = next(release.id for release in data.releases if release.id in USUAL)
    yield data.t(
        "What another release changes for a launch script: removed, new and changed options, requirements, "
        "constraints, known issues and verdicts."
    )
    show, swap = (controls.button(kind, "", data.html(label)) for kind, label in (("show", "Show"), ("swap", "Swap")))
    parts = (
        controls.choice("release-old", plain(data.t("Written for")), names, selected=older),
        controls.choice("release-new", plain(data.t("Target")), names, selected=data.newest.id),
        f'<div class="group">{show} {swap}</div>',
    )
    command = data.html("As a command:")
    yield controls.form("releases", parts, label=plain(data.t("Two releases")))
    yield (
        f'\n<p>{command} <code id="release-command">recommend diff {older} {data.newest.id}</code></p>\n'
        '<p id="release-status" role="status"></p>\n'
        f'<pre id="release-diff" tabindex="0" data-texts="{html.escape(json.dumps(texts(data)))}"></pre>\n'
        f"<noscript><p>{data.html(NO_SCRIPT)}</p></noscript>\n"
        f"{'' if data.english else _words(data, steps)}\n"
        f"{runtime()}\n"
    )
    yield (
        f"\n{data.t('One step at a time:')} "
        + ", ".join(f"[{release.id}](/releases/{release.id}.md)" for release in reversed(data.releases))
        + ".\n"
    )


def _words(data: SiteData, steps: Iterable[Diff]) -> str:
    """Return what a script needs to say a difference in the pages' language: each change is one of some step."""
    own: dict[str, str | list[str]] = {}
    for step in steps:
        for option in (*step.removed, *step.added):
            flag = data.store.flags[option.option]
            own |= {flag.summary: data.own(flag.summary, flag.summary_vi)} | {
                who: data.t(who) for who in option.read_by if who not in LABELS
            }
        changes = [change for option in step.changed for change in option.changes if change.what == "meaning"]
        notes = (note for change in changes for note in (change.before, change.after) if note)
        notices = (*step.threads_gone, *step.threads_new, *step.claims_gone, *step.claims_new)
        verdicts = (notice.more for notice in (*step.claims_gone, *step.claims_new))
        own |= {words: data.t(words) for words in (*notes, *(notice.text for notice in notices), *verdicts)}
        for rule in (*step.rules_gone, *step.rules_new):
            known = data.store.constraints[rule.id]
            own[rule.id] = [by_sentence(data, known.message), by_sentence(data, known.remedy)]
    words = {key: data.t(text) for key, text in DIFFERENCE.items()}
    said = plain(to_json({"texts": words, "own": own}))
    return f'<script type="application/json" id="release-words">{said}</script>'


def _release(data: SiteData, release: records.Release, step: Diff | None) -> Iterator[str]:
    t = data.t
    yield t("LMDeploy {0} was published on {1}.").format(release.id, release.published)
    if step:
        counts = (len(part) for part in (step.added, step.removed, step.changed))
        yield t("Options: {0} added, {1} removed, {2} changed.").format(*counts)
    yield ""
    yield from markup.resolved(
        (
            (t("Published"), release.published),
            ("Python", markup.code(release.python)),
            ("torch", markup.code(release.torch)),
            ("transformers", markup.code(release.transformers)),
            (t("Wheel built for CUDA"), release.cuda),
            (t("GPU architectures of TurboMind"), _codes(data, release.architectures)),
            (t("Container tags end in"), _codes(data, release.images)),
        )
    )
    if release.note:
        yield markup.prose(data.store, " ".join(map(data.filled, SENTENCE.split(single(release.note)))))
    if step is None:
        yield "\n" + t("This is the oldest covered release; earlier changes are not recorded.")
    else:
        yield markup.heading(2, t("What changed since {0}").format(step.old), "changes")
        yield from _changes(data, step)
    yield markup.heading(2, t("Sources"), "sources")
    yield from markup.sources(data.store, release.sources, data.say)


def _codes(data: SiteData, names: Sequence[str]) -> str:
    return " ".join(map(markup.code, names)) or data.t("not recorded")


def _changes(data: SiteData, step: Diff) -> Iterator[str]:
    parts = (
        ("Removed options", [*_moved(data, step.removed)]),
        ("New options", [*_moved(data, step.added)]),
        ("Changed options", [*_changed(data, step.changed)]),
        (
            "Requirements",
            [f"- {need.name}: {markup.code(need.before)} → {markup.code(need.after)}" for need in step.needs],
        ),
        ("New constraints", [*_constraints(data, step.rules_new, step.new)]),
        ("Removed constraints", [*_constraints(data, step.rules_gone, step.old)]),
        ("Claims with a new verdict", [*_notices(data, step.claims_new, "/claims.md")]),
        ("New known issues", [*_notices(data, step.threads_new, "/threads.md")]),
        ("Fixed issues", [*_notices(data, step.threads_gone, "/threads.md")]),
    )
    for title, lines in parts:
        if lines:
            yield from (markup.heading(3, data.t(title)), *lines)
    if not any(lines for _, lines in parts):
        yield data.t("Nothing that affects a launch script.")


def _moved(data: SiteData, moved: Sequence[MovedOption]) -> Iterator[str]:
    for option in moved:
        hints = ", ".join(markup.prose(data.store, hint) for hint in option.see)
        see = f" {data.t('See {0}.').format(hints)}" if hints else ""
        known = data.store.flags[option.option]
        summary = markup.prose(data.store, data.own(known.summary, known.summary_vi))
        yield f"- {markup.option_link(option.option, option.name)}: {summary}{see}"


def _changed(data: SiteData, changed: Sequence[ChangedOption]) -> Iterator[str]:
    for option in changed:
        yield f"- {markup.option_link(option.option, option.name)}"
        for change in option.changes:
            if change.what == "meaning":
                text = markup.prose(data.store, data.t(change.after or "the earlier note no longer applies"))
            else:
                before, after = (_shown(data, value) for value in (change.before, change.after))
                text = f"{data.t(change.what)}: {before} → {after}"
            yield f"    - {text}"


def _shown(data: SiteData, value: str) -> str:
    return markup.code(value) if value else data.t("none")


def _constraints(data: SiteData, notices: Sequence[ReleaseRecord], release: str) -> Iterator[str]:
    for notice in notices:
        message = by_sentence(data, data.store.constraints[notice.id].message).replace("{lmdeploy}", release)
        yield _notice(data, name_holes(message), notice, "/constraints.md")


def _notices(data: SiteData, notices: Sequence[ReleaseRecord], where: str) -> Iterator[str]:
    for notice in notices:
        yield _notice(data, data.t(notice.text), notice, where)


def _notice(data: SiteData, text: str, notice: ReleaseRecord, where: str) -> str:
    return f"- {markup.prose(data.store, text)} ([{notice.id}]({where}#{notice.id}))"
