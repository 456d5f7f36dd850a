"""Pages of what goes wrong: threads of users, constraints, and the rules of the review."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.review import engine
from recommender.review.listing import FAMILIES, title
from recommender.review.rule import Rule
from recommender.site import markup as m
from recommender.site.book import Book, Page, page

if TYPE_CHECKING:
    from recommender import records as r

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
    "evidence": "/evidence/{}.md",
}
"""Where the record of a rule's source has its page."""


def pages(book: Book) -> Iterator[Page]:
    """The rules with their index, the threads and the constraints."""
    yield page("rules/index.md", "Rules of the review", _index(book))
    for rule in engine.rules():
        yield page(f"rules/{rule.id.lower()}.md", f"{rule.id} {m.text(title(rule))}", _rule(rule))
    yield page("threads.md", "Met by users", _threads(book))
    yield page("constraints.md", "Constraints", _constraints(book))


def _index(book: Book) -> Iterator[str]:
    yield (
        f"{len(engine.rules())} rules that `recommend review` holds a launch script against. "
        "[How to run it](/how-to/review-in-ci.md)"
    )
    for family, name in FAMILIES.items():
        yield m.heading(2, name.capitalize(), family)
        rows = (
            (f"[{each.id}](/rules/{each.id.lower()}.md)", each.severity, m.text(title(each)), ", ".join(each.needs))
            for each in engine.rules()
            if each.family == family
        )
        yield from m.table(("Rule", "Severity", "What it finds", "Has to be told"), rows)


def _rule(rule: Rule) -> Iterator[str]:
    needs = ", ".join(f"`--{each}`" for each in rule.needs)
    yield from m.facts(
        (
            ("Name", m.code(rule.name)),
            ("Severity", rule.severity),
            ("About", FAMILIES[rule.family].capitalize()),
            ("Silent unless it is told, or sees", needs),
        )
    )
    yield docstring(engine.page(rule).partition("\n")[2])
    if rule.sources:
        yield m.heading(2, "Sources", "sources")
        yield from (f"- {_source(each)}" for each in rule.sources)
    yield m.heading(2, "Keep it quiet", "ignore")
    yield f"    # recommend: ignore {rule.id} because the reason"


def docstring(words: str) -> str:
    """A docstring as Markdown: code as it stands, everything else plain but for what is between backticks."""
    made = []
    for line in words.strip("\n").split("\n"):
        if line.startswith("    "):
            made.append(line)
            continue
        parts = re.split(r"(``.+?``|`[^`]+`)", line)
        shown = (m.code(each.strip("`")) if place % 2 else m.text_piece(each) for place, each in enumerate(parts))
        made.append("".join(shown))
    return "\n".join(made)


def _source(name: str) -> str:
    if name.startswith("http"):
        return f"<{name}>"
    kind, _, record = name.partition("/")
    return f"[{name}]({PLACES[kind].format(record)})" if kind in PLACES else m.code(name)


def _threads(book: Book) -> Iterator[str]:
    known = book.store.threads.values()
    yield f"{len(known)} failures that users met, with the cause and what mends each."
    for each in known:
        yield m.heading(2, each.symptom, each.id)
        yield from _thread(book, each)


def _thread(book: Book, thread: r.Thread) -> Iterator[str]:
    options = ", ".join(m.named_option(book.store, each) for each in thread.options)
    posted = f", begun {thread.posted}" if thread.posted else ""
    yield from m.facts(
        (
            ("Cause", m.prose(book.store, thread.cause)),
            ("What mends it", m.prose(book.store, thread.remedy)),
            ("In the log", m.code(thread.error) if thread.error else ""),
            ("Releases", m.span(thread.since, thread.until)),
            ("Options", options),
            ("Thread", f"[{m.text(thread.title)}]({thread.thread.url}){posted}, opened {thread.thread.opened}"),
            ("What was said there", m.prose(book.store, thread.thread.says)),
        )
    )
    yield from (f"- {m.line_of(each)}" for each in thread.code)


def _constraints(book: Book) -> Iterator[str]:
    known = book.store.constraints.values()
    yield (
        f"{len(known)} things that hardware, model or release forbid. Where every condition holds, each requirement "
        "must; else the configuration is rejected, or the report warns. Words in braces are filled in."
    )
    for each in known:
        yield m.heading(2, each.id, each.id)
        yield f"{each.severity}: {m.prose(book.store, each.message)} {m.prose(book.store, each.remedy)}"
        conditions = (("Where", each.when), ("Required", each.require))
        yield from m.facts((name, ", ".join(map(m.code, texts))) for name, texts in conditions)
        yield from m.sources(book.store, each.sources)
