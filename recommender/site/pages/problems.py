"""Render the pages of known issues, constraints and review rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.knowledge.provenance import newest_about, record_caveat
from recommender.lookup.release_diff_text import name_holes
from recommender.review import engine
from recommender.review.output.rule_list import FAMILIES, title
from recommender.review.rule import Rule
from recommender.site import markup
from recommender.site.answer_texts import by_sentence
from recommender.site.i18n.translation import single
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
    yield page("rules/index.md", data.t("Review rules"), _index(data))
    for rule in engine.rules():
        name = markup.text(data.t(title(rule)))
        yield page(f"rules/{rule.id.lower()}.md", f"{rule.id} {name}", _rule(data, rule), tags=(rule.name,))
    yield page("constraints.md", data.t("Constraints"), _constraints(data))


def _index(data: SiteData) -> Iterator[str]:
    known = engine.rules()
    yield (
        data.t("{0} rules that `recommend review` checks a launch script with.").format(len(known))
        + f" [{data.t('How to run it')}](/how-to/review-in-ci.md)"
    )
    for family, name in FAMILIES.items():
        yield markup.heading(2, data.t(name.capitalize()), family)
        rows = (
            (
                f"[{rule.id}](/rules/{rule.id.lower()}.md)",
                markup.whole(rule.severity),
                markup.text(data.t(title(rule))),
                _needs(rule),
            )
            for rule in known
            if rule.family == family
        )
        yield from markup.table(data.labels("Rule", "Severity", "Finding", "Needs"), rows)


def _needs(rule: Rule) -> str:
    return ", ".join(markup.whole(f"--{need}") for need in rule.needs)


def _rule(data: SiteData, rule: Rule) -> Iterator[str]:
    t = data.t
    yield from markup.resolved(
        (
            (t("Name"), markup.code(rule.name)),
            (t("Severity"), markup.code(rule.severity)),
            (t("Subject"), t(FAMILIES[rule.family].capitalize())),
            (t("Needs"), _needs(rule)),
        )
    )
    yield f'\n<a class="md-button" href="md:check.md">{t("Check a script")}</a>\n'
    yield docstring(engine.page(rule).partition("\n")[2], t)
    if rule.sources:
        yield markup.heading(2, t("Sources"), "sources")
        yield from (f"- {_source(data, source)}" for source in rule.sources)
    yield markup.heading(2, t("Suppress"), "ignore")
    yield f"    # recommend: ignore {rule.id} because the reason"


def docstring(words: str, say: markup.Say = str) -> str:
    """Return a docstring as Markdown: translate headings and paragraphs, keep code, escape everything else."""
    return "\n\n".join(_block(block, say) for block in re.split(r"\n\s*\n", words.strip("\n")))


def _block(block: str, say: markup.Say) -> str:
    if block.startswith("    "):
        return block
    if block.startswith("## "):
        name, _, rest = block.removeprefix("## ").partition("\n")
        heading = markup.heading(2, say(name), name.lower().replace(" ", "-"))
        return f"{heading}\n{_block(rest, say)}" if rest else heading
    pieces = re.split(r"(``.+?``|`[^`]+`)", say(single(block)))
    return "".join(
        markup.code(piece.strip("`")) if place % 2 else markup.text_piece(piece) for place, piece in enumerate(pieces)
    )


def _source(data: SiteData, name: str) -> str:
    if name.startswith("http"):
        return markup.address_link(name)
    kind, _, record = name.partition("/")
    if kind not in PLACES:
        return markup.code(name)
    caveat = record_caveat(data.store, getattr(data.store, kind).get(record), data.say)
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
            (t("Thread"), f"[{data.verbatim(markup.text(thread.title))}]({thread.thread.url}){posted}{opened}"),
            (t("Quote"), data.verbatim(quote)),
        )
    )
    yield from (f"- {markup.line_of(store, line, data.say)}" for line in thread.code)
    if caveat := record_caveat(store, thread, data.say):
        yield f"- {markup.text(caveat)}"


def _constraints(data: SiteData) -> Iterator[str]:
    known, t = data.store.constraints.values(), data.t
    yield t(
        "{0} limits of hardware, model or release. If all conditions hold, all requirements must hold too; "
        "otherwise the configuration is rejected or the report warns. Words in angle brackets are filled in."
    ).format(len(known))
    for constraint in known:
        yield markup.heading(2, constraint.id, constraint.id)
        message, remedy = (
            markup.prose(data.store, name_holes(by_sentence(data, text)))
            for text in (constraint.message, constraint.remedy)
        )
        yield f"{markup.code(constraint.severity)}: {message} {remedy}"
        conditions = ((t("Where"), constraint.when), (t("Required"), constraint.require))
        yield from markup.resolved((name, ", ".join(map(markup.code, texts))) for name, texts in conditions)
        yield from markup.sources(
            data.store, constraint.sources, data.say, release=newest_about(data.store, constraint)
        )
