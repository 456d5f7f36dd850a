"""The Compare page: every setting of eight advisers and ours, with verdicts and reasons; then claims and scenarios."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from recommender.beside import Beside, Setting, Value, beside, refused, rejected
from recommender.request import Request
from recommender.site import markup as m
from recommender.site.book import Book, Page, page
from recommender.site.people import adviser_link, claimed
from recommender.site.sidebyside import GPU, OURS, measured_table

if TYPE_CHECKING:
    from recommender import records as r

BASELINE = "baseline"
STATES = {"gone": "gone: a server started with it ends", "unread": "read by nothing here", "read": ""}
SHOWN = tuple(OURS)[:2]
"""Our answers that the table has."""


def pages(book: Book) -> Iterator[Page]:
    """One page."""
    yield page("compare.md", "Compare", _compare(book), wide=True)


def answers(book: Book) -> dict[str, Beside]:
    """Ours for each request of the table, beside the advisers', who ask nothing."""
    return {name: beside(Request(**OURS[name]), book.store) for name in SHOWN}  # type: ignore[arg-type]


def _compare(book: Book) -> Iterator[str]:
    found = answers(book)
    first = found[SHOWN[0]]
    yield (
        f"Every setting that eight advisers gave for the same job, and ours, for {m.text(first.facts.model.hub)} on "
        f"one {GPU} with LMDeploy {first.facts.release.id}. A value in grey was not given: it is what LMDeploy then "
        "takes. A marked cell differs from the baseline script. A sign behind a value is the verdict on what that "
        "adviser said of the setting."
    )
    marks = " · ".join(f"{m.verdict(name)} {meaning}" for name, (_, meaning) in m.VERDICTS.items())
    yield f"\n{marks}\n"
    yield _table(book, found)
    yield "\nFor a card, a model and a load of your own: `recommend compare --gpu L4 --load 16`.\n"
    yield m.heading(2, "Who of them starts", "starts")
    yield from _starts(book, first)
    yield m.heading(2, "What they claim, and what was measured", "measured")
    yield from _claims(book)
    yield from measured_table(book)
    yield m.heading(2, "Scenarios", "scenarios")
    yield from _scenarios(book)


def _table(book: Book, found: dict[str, Beside]) -> str:
    names = [each.name for each in book.store.advisers.values()]
    heads = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in (*names, *found))
    rows = "".join(_rows(book, name, found) for name in _order(found))
    return (
        '\n<div class="compare"><table class="settings">\n<thead><tr><th scope="col">Setting</th>'
        f"{heads}</tr></thead>\n<tbody>{rows}</tbody>\n</table></div>\n"
    )


def _order(found: dict[str, Beside]) -> list[str]:
    """Every option of any of the answers, once."""
    return list(dict.fromkeys(each.option for answer in found.values() for each in answer.settings))


def _setting(answer: Beside, option: str) -> Setting | None:
    return next((each for each in answer.settings if each.option == option), None)


def _rows(book: Book, option: str, found: dict[str, Beside]) -> str:
    ours = {name: _setting(answer, option) for name, answer in found.items()}
    setting = next(each for each in ours.values() if each)
    base = next(each for each in setting.given if each.adviser == BASELINE)
    cells = [_cell(book, each.adviser, each, base, setting) for each in setting.given]
    for name, own in ours.items():
        cells.append(_cell(book, name, own.ours, base, setting) if own else _empty(name))
    state = f'<small class="state">{STATES[setting.state]}</small>' if setting.state != "read" else ""
    name = f'<a href="md:flags/{option}.md"><code>{html.escape(setting.name)}</code></a>'
    wide = len(cells) + 1
    return (
        f'<tr id="{option}" class="{setting.state}"><th scope="row">{name}{state}</th>{"".join(cells)}</tr>\n'
        f'<tr class="why"><td colspan="{wide}"><details><summary>Why, {html.escape(setting.name)}</summary>'
        f"{_why(book, setting, ours)}</details></td></tr>\n"
    )


def shown(value: Value) -> str:
    """A value as the table writes it."""
    return f"{value.value} to {value.up_to}" if value.up_to else value.value or "none"


def _cell(book: Book, who: str, value: Value, base: Value, setting: Setting) -> str:
    adviser = book.store.advisers.get(who)
    kinds = ["left"] if value.left else []
    if (value.value, value.up_to) != (base.value, base.up_to):
        kinds.append("differs")
    marks = "".join(
        f'<a class="verdict {each.verdict}" href="md:claims.md#{each.claim}" '
        f'aria-label="{each.verdict}" title="{html.escape(f"{each.verdict}: {each.statement}")}">'
        f"{m.VERDICTS[each.verdict][0]}</a>"
        for each in setting.verdicts
        if who in each.advisers
    )
    title = f' title="{html.escape(value.reason)}"' if value.reason else ""
    label = html.escape(adviser.name if adviser else who)
    return (
        f'<td class="{" ".join(kinds)}" data-who="{label}"{title}>'
        f"<span>{html.escape(shown(value))}{' <small>(default)</small>' if value.left else ''}</span>{marks}</td>"
    )


def _empty(who: str) -> str:
    return f'<td data-who="{html.escape(who)}">–</td>'


def _why(book: Book, setting: Setting, ours: dict[str, Setting | None]) -> str:
    said = [(book.store.advisers[each.adviser].name, each.reason) for each in setting.given if each.reason]
    said += [(name, own.ours.reason) for name, own in ours.items() if own and own.ours.reason]
    reasons = "".join(f"<dt>{html.escape(who)}</dt><dd>{html.escape(reason)}</dd>" for who, reason in said)
    judged = "".join(
        f'<li><span class="verdict {each.verdict}">{m.VERDICTS[each.verdict][0]} {each.verdict}</span> '
        f'<a href="md:claims.md#{each.claim}">{html.escape(each.statement)}</a> {html.escape(each.because)}</li>'
        for each in setting.verdicts
    )
    return f"<dl>{reasons}</dl><ul>{judged}</ul>" if said or judged else "<p>Nobody gave a reason.</p>"


def _starts(book: Book, answer: Beside) -> Iterator[str]:
    release = answer.facts.release.id
    yield f"As given, on LMDeploy {release}, and what else speaks against each for one request at a time."
    for each in answer.advised:
        against = [finding.message for finding in rejected(each)]
        unknown = refused(each)
        if unknown:
            against.insert(0, f"The release does not know {', '.join(unknown)}.")
        outcome = "does not start, or not do what is asked:" if against else "does what is asked."
        yield f"\n**{adviser_link(book, each.adviser)}** {outcome}\n"
        yield from (f"- {m.prose(book.store, message)}" for message in against)


def _claims(book: Book) -> Iterator[str]:
    kinds: Sequence[r.Figure] = [each for adviser in book.store.advisers.values() for each in adviser.figures]
    names = list(dict.fromkeys(each.kind for each in kinds))
    rows = []
    for adviser in book.store.advisers.values():
        cells = [
            "; ".join(dict.fromkeys(claimed(each) for each in adviser.figures if each.kind == name)) for name in names
        ]
        if any(cells):
            rows.append((adviser_link(book, adviser.id), *cells))
    yield from m.table(("Claimed", *names), rows)


def _scenarios(book: Book) -> Iterator[str]:
    rows = (
        (
            f"[{m.text(each.title)}](/advisers/index.md#scenario-{each.id})",
            ", ".join(adviser_link(book, pick) for pick in each.picks),
            " ".join(m.prose(book.store, reason) for reason in each.reasons),
        )
        for each in book.store.scenarios.values()
    )
    yield "What the comparison among the advisers picks. The figures above say how that turned out on one card."
    yield from m.table(("For", "Picks", "Its reasons"), rows)
