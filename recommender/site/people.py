"""Pages of the advisers, and of the claims with their verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.site import controls
from recommender.site import markup as m
from recommender.site.book import Book, Page, page
from recommender.site.measurements import followers

if TYPE_CHECKING:
    from recommender import records as r


def pages(book: Book) -> Iterator[Page]:
    """The advisers' index, a page an adviser, and the claims."""
    yield page("advisers/index.md", "Advisers", _index(book))
    for each in book.store.advisers.values():
        yield page(f"advisers/{each.id}.md", m.text(each.name), _adviser(book, each))
    yield page("claims.md", "Claims and verdicts", _claims(book))


def adviser_link(book: Book, name: str) -> str:
    """A link to an adviser's page."""
    return f"[{m.text(book.t(book.store.advisers[name].name))}](/advisers/{name}.md)"


def _index(book: Book) -> Iterator[str]:
    yield "Who advised what for serving a vision model with LMDeploy. [Compare](/compare.md) has them side by side."
    rows = (
        (adviser_link(book, each.id), m.prose(book.store, each.approach), m.prose(book.store, each.best_for))
        for each in book.store.advisers.values()
    )
    yield from m.table(("Adviser", "Approach", "Best for"), rows)
    yield m.heading(2, "Scenarios", "scenarios")
    yield "What the comparison among them picks for which use, in its own reasons."
    for scenario in book.store.scenarios.values():
        yield m.heading(3, scenario.title, f"scenario-{scenario.id}")
        yield f"Picks: {', '.join(adviser_link(book, each) for each in scenario.picks)}\n"
        yield from (f"- {m.prose(book.store, each)}" for each in scenario.reasons)


def _adviser(book: Book, adviser: r.Adviser) -> Iterator[str]:
    store = book.store
    yield from m.facts(
        (
            ("Kind", adviser.kind),
            ("Approach", m.prose(store, adviser.approach)),
            ("Best for", m.prose(store, adviser.best_for)),
            ("Gives up", m.prose(store, adviser.trade_off)),
            ("Model", m.code(adviser.model) if adviser.model else ""),
        )
    )
    vietnamese = " ".join((adviser.approach_vi, adviser.best_for_vi, adviser.trade_off_vi)).strip()
    if vietnamese:
        yield f'\nIn Vietnamese: <em lang="vi">{m.text(vietnamese)}</em>'
    yield m.heading(2, "Its settings", "settings")
    yield from m.table(("Setting", "Value", "Its reason"), (_setting(book, each) for each in adviser.settings))
    yield "To get it as a script, with what speaks against it:\n"
    yield m.shell(f"recommend --gpu A100-80G --follow {adviser.id}")
    yield from _figures(book, adviser)
    yield from _measured(book, adviser)
    mine = [each for each in store.claims.values() if adviser.id in each.advisers]
    if mine:
        yield m.heading(2, "Its claims", "claims")
        yield from (f"- {m.verdict(each.verdict)} [{m.text(each.statement)}](/claims.md#{each.id})" for each in mine)
    yield from _disagreements(book, adviser)


def _setting(book: Book, each: r.Setting) -> tuple[str, ...]:
    value = m.code(each.value) + (f" to {m.code(each.up_to)}" if each.up_to else "")
    passing = "" if each.final else " (in passing)"
    vietnamese = f'<br><em lang="vi">{m.text(each.reason_vi)}</em>' if each.reason_vi else ""
    return m.named_option(book.store, each.option), value + passing, m.prose(book.store, each.reason) + vietnamese


def claimed(each: r.Figure) -> str:
    """A figure that an adviser claims, as it gives it."""
    if each.unit == "words":
        return m.text(each.words)
    unit = "" if each.unit == "count" else f" {each.unit}"
    low, high = f"{each.low:,.6g}", f"{each.high:,.6g}"
    return (low if low == high else f"{low} to {high}") + unit


def _figures(book: Book, adviser: r.Adviser) -> Iterator[str]:
    if adviser.figures:
        yield m.heading(2, "Figures it claims", "figures")
        rows = ((each.kind, claimed(each), m.prose(book.store, each.about)) for each in adviser.figures)
        yield from m.table(("What", "Claimed", "About"), rows)


def _measured(book: Book, adviser: r.Adviser) -> Iterator[str]:
    runs = followers(book, adviser.id)
    if runs:
        yield m.heading(2, "Measured", "measured")
        yield "Its configuration as given, but for what the record's page says was added or left out.\n"
        yield from (f"- [{each.id}](/evidence/{each.id}.md), ended: {each.outcome}" for each in runs)


def _disagreements(book: Book, adviser: r.Adviser) -> Iterator[str]:
    known = [each for each in book.store.disagreements.values() if each.adviser == adviser.id]
    if known:
        yield m.heading(2, "Where a table of the comparison says something else", "disagreements")
        rows = (
            (
                m.named_option(book.store, each.option),
                m.prose(book.store, each.table_says),
                m.prose(book.store, each.answer_says) or "nothing",
                m.prose(book.store, each.note),
            )
            for each in known
        )
        yield from m.table(("Setting", "The table", "The answer", "Note"), rows)


def _claims(book: Book) -> Iterator[str]:
    known = book.store.claims.values()
    yield f"{len(known)} statements that can be true or false, each with a verdict, its releases, and why."
    yield from m.table(
        ("Verdict", "Means", "Claims"),
        (
            (f"[{m.verdict(name)}](#{name})", meaning, str(sum(each.verdict == name for each in known)))
            for name, (_, meaning) in m.VERDICTS.items()
        ),
    )
    yield _controls(book)
    for name in m.VERDICTS:
        yield m.heading(2, name.capitalize(), name)
        yield "".join(_claim(book, each) for each in known if each.verdict == name) or "None."


def _controls(book: Book) -> str:
    known = book.store.claims.values()
    verdicts = (
        controls.button(
            "verdict", name, f"{m.verdict(name)} {sum(each.verdict == name for each in known)}", pressed=False
        )
        for name in m.VERDICTS
    )
    said = {each: book.store.advisers[each].name for each in book.store.advisers}
    parts = (
        controls.field(book, "claims", "Find in the claims"),
        controls.choice("claims-adviser", "Said by", {"": "anybody"} | said),
        controls.group("Verdict", verdicts),
        f'<div class="group">{controls.button("clear", "", "Show all")}</div>',
        controls.count("claims", "{0} of {1} claims"),
    )
    return controls.form("claims", parts, label="Which claims are shown")


def _claim(book: Book, claim: r.Claim) -> str:
    said = f'data-verdict="{claim.verdict}" data-advisers="{" ".join(claim.advisers)}"'
    lines = [f'\n<section class="claim" markdown="1" {said}>\n', m.heading(3, claim.statement, claim.id)]
    who = ", ".join(adviser_link(book, each) for each in claim.advisers) or "nobody in particular"
    about = ", ".join(m.named_option(book.store, each) for each in claim.options)
    lines.append(f"{m.verdict(claim.verdict)} for {m.span(claim.since, claim.until)}. Said by {who}.")
    lines.append(f"About {about}.\n" if about else "")
    lines.append(m.prose(book.store, claim.because))
    lines.append("\n" + "\n".join(m.sources(book.store, claim.sources)) + "\n\n</section>\n")
    return "\n".join(lines)
