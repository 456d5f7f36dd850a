"""Render the pages of known issues, constraints and review rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.knowledge.provenance import newest_about, record_caveat
from recommender.review import engine
from recommender.review.output.rule_list import FAMILIES, title
from recommender.review.rule import Rule
from recommender.site import markup
from recommender.site.site_data import SiteData, SitePage, page

if TYPE_CHECKING:
    from recommender.knowledge import records

PLACES = {
    "flags": "/flags/{}.md",
    "environment": "/flags/{}.md",
    "client": "/flags/{}.md",
    "threads": "/threads.md#{}",
    "constraints": "/constraints.md#{}",
    "claims": "/claims.md#{}",
    "models": "/models/{}.md",
    "gpus": "/gpus/{}.md",
    "releases": "/releases/{}.md",
    "evidence": "/runs.md#{}",
}
"""The page of a rule's source, by kind of record."""


def pages(data: SiteData) -> Iterator[SitePage]:
    """Return the review rules with their index, the known issues and the constraints."""
    yield page("threads.md", data.t("Known issues"), _threads(data))
    if not data.english:
        return
    yield page("rules/index.md", "Review rules", _index(data))
    for rule in engine.rules():
        yield page(
            f"rules/{rule.id.lower()}.md", f"{rule.id} {markup.text(title(rule))}", _rule(data, rule), tags=(rule.name,)
        )
    yield page("constraints.md", "Constraints", _constraints(data))


def _index(data: SiteData) -> Iterator[str]:
    yield (
        f"{len(engine.rules())} rules that `recommend review` checks a launch script with. "
        "[How to run it](/how-to/review-in-ci.md)"
    )
    for family, name in FAMILIES.items():
        yield markup.heading(2, name.capitalize(), family)
        rows = (
            (
                f"[{rule.id}](/rules/{rule.id.lower()}.md)",
                rule.severity,
                markup.text(title(rule)),
                ", ".join(rule.needs),
            )
            for rule in engine.rules()
            if rule.family == family
        )
        yield from markup.table(("Rule", "Severity", "Finding", "Needs"), rows)


def _rule(data: SiteData, rule: Rule) -> Iterator[str]:
    needs = ", ".join(f"`--{need}`" for need in rule.needs)
    yield from markup.resolved(
        (
            ("Name", markup.code(rule.name)),
            ("Severity", rule.severity),
            ("Subject", FAMILIES[rule.family].capitalize()),
            ("Needs", needs),
        )
    )
    yield '\n<a class="md-button" href="md:check.md">Check a script</a>\n'
    yield docstring(engine.page(rule).partition("\n")[2])
    if rule.sources:
        yield markup.heading(2, "Sources", "sources")
        yield from (f"- {_source(data, source)}" for source in rule.sources)
    yield markup.heading(2, "Suppress", "ignore")
    yield f"    # recommend: ignore {rule.id} because the reason"


def docstring(words: str) -> str:
    """Return a docstring as Markdown: keep code blocks and backticks, escape everything else."""
    lines = []
    for line in words.strip("\n").split("\n"):
        if line.startswith("    "):
            lines.append(line)
            continue
        parts = re.split(r"(``.+?``|`[^`]+`)", line)
        shown = (
            markup.code(part.strip("`")) if place % 2 else markup.text_piece(part) for place, part in enumerate(parts)
        )
        lines.append("".join(shown))
    return "\n".join(lines)


def _source(data: SiteData, name: str) -> str:
    if name.startswith("http"):
        return markup.address_link(name)
    kind, _, record = name.partition("/")
    if kind not in PLACES:
        return markup.code(name)
    caveat = record_caveat(data.store, getattr(data.store, kind).get(record))
    return f"[{name}]({PLACES[kind].format(record)})" + (f": {markup.text(caveat)}" if caveat else "")


def known_issues(data: SiteData, _: str) -> Iterator[str]:
    """Return the table of known issues: what is seen, the message in the log, and the options to look at."""
    rows = (
        (
            f"[{markup.text(data.t(thread.symptom))}](/threads.md#{thread.id})"
            + (f"<br>{markup.code(thread.error)}" if thread.error else ""),
            ", ".join(markup.named_option(data.store, option) for option in thread.options),
        )
        for thread in data.store.threads.values()
    )
    yield from markup.table(data.labels("What you see, and the log", "Options"), rows)


def _threads(data: SiteData) -> Iterator[str]:
    known = data.store.threads.values()
    yield data.t("{0} failures reported by users, with cause and fix.").format(len(known))
    for thread in known:
        yield markup.heading(2, data.t(thread.symptom), thread.id)
        yield from _thread(data, thread)


def _thread(data: SiteData, thread: records.Thread) -> Iterator[str]:
    t, store = data.t, data.store
    options = ", ".join(markup.named_option(store, option) for option in thread.options)
    posted = t(", posted {0}").format(thread.posted) if thread.posted else ""
    opened = t(", opened {0}").format(thread.thread.opened)
    quote = markup.prose(store, thread.thread.says)
    yield from markup.resolved(
        (
            (t("Cause"), markup.prose(store, t(thread.cause))),
            (t("Fix"), markup.prose(store, t(thread.remedy))),
            (t("Log message"), markup.code(thread.error) if thread.error else ""),
            (t("Releases"), markup.span(thread.since, thread.until, data.say)),
            (t("Options"), options),
            (t("Thread"), f"[{markup.text(thread.title)}]({thread.thread.url}){posted}{opened}"),
            (t("Quote"), quote if data.english else f'<span lang="en">{quote}</span>'),
        )
    )
    yield from (f"- {markup.line_of(store, line, data.say)}" for line in thread.code)
    if caveat := record_caveat(store, thread):
        yield f"- {markup.text(caveat)}"


def _constraints(data: SiteData) -> Iterator[str]:
    known = data.store.constraints.values()
    yield (
        f"{len(known)} limits of hardware, model or release. If all conditions hold, all requirements must hold too; "
        "otherwise the configuration is rejected or the report warns. Words in braces are filled in."
    )
    for constraint in known:
        yield markup.heading(2, constraint.id, constraint.id)
        message, remedy = (markup.prose(data.store, text) for text in (constraint.message, constraint.remedy))
        yield f"{constraint.severity}: {message} {remedy}"
        conditions = (("Where", constraint.when), ("Required", constraint.require))
        yield from markup.resolved((name, ", ".join(map(markup.code, texts))) for name, texts in conditions)
        yield from markup.sources(data.store, constraint.sources, release=newest_about(data.store, constraint))
