"""The Compare page: every setting of eight advisers and ours, with verdicts and reasons; then claims and scenarios."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from recommender.beside import Beside, Setting, Value, Verdict, beside, refused, rejected
from recommender.request import Request
from recommender.site import claimed, controls
from recommender.site import markup as m
from recommender.site.book import Book, Page, page
from recommender.site.people import adviser_link
from recommender.site.sidebyside import GPU, OURS, measured_table

BASELINE = "baseline"
STATES = {"gone": "gone: a server started with it ends", "unread": "read by nothing here", "read": ""}
SHOWN = tuple(OURS)[:2]
"""Our answers that the table has."""
TOPICS = {"environment": "environment variables", "client": "fields of a request"}
"""What takes the place of a topic for a setting that is no flag."""
SORTS = {
    "given": "as given",
    "name": "name",
    "topic": "topic",
    "differences": "differences",
    "verdicts": "verdicts",
}


def pages(book: Book) -> Iterator[Page]:
    """One page."""
    yield page("compare.md", book.t("Compare"), _compare(book), wide=True)


def answers(book: Book) -> dict[str, Beside]:
    """Ours for each request of the table, beside the advisers', who ask nothing."""
    return {name: beside(Request(**OURS[name]), book.store) for name in SHOWN}  # type: ignore[arg-type]


def _compare(book: Book) -> Iterator[str]:
    found = answers(book)
    first = found[SHOWN[0]]
    yield book.t(
        "Every setting that eight advisers gave for the same job, and ours, for {model} on one {card} with LMDeploy "
        "{release}. A value in grey was not given: it is what LMDeploy then takes. A marked cell differs from the "
        "baseline script. A sign behind a value is the verdict on what that adviser said of the setting."
    ).format(model=m.text(first.facts.model.hub), card=GPU, release=first.facts.release.id)
    marks = " · ".join(f"{m.verdict(name, book.say)}: {book.t(meaning)}" for name, (_, meaning) in m.VERDICTS.items())
    yield f"\n{marks}\n"
    yield _table(book, found)
    yield f"\n{book.t('For a card, a model and a load of your own:')} `recommend compare --gpu L4 --load 16`.\n"
    yield m.heading(2, book.t("What they claim, and what was measured"), "measured")
    yield from claimed.table(book)
    yield m.heading(3, book.t("Memory and speed of each configuration"), "configurations")
    yield from measured_table(book)
    yield m.heading(2, book.t("Who of them starts"), "starts")
    yield from _starts(book, first)
    yield m.heading(2, book.t("Scenarios"), "scenarios")
    yield from _scenarios(book)


@dataclass(frozen=True)
class Column:
    """One configuration of the table."""

    id: str
    name: str
    adviser: str


def columns(book: Book) -> list[Column]:
    """The advisers, then ours."""
    found = [Column(each.id, each.name, each.id) for each in book.store.advisers.values()]
    return found + [Column(f"ours-{number}", name, "") for number, name in enumerate(SHOWN, 1)]


def _table(book: Book, found: Mapping[str, Beside]) -> str:
    heads = "".join(
        f'<th scope="col" role="columnheader" data-column="{each.id}">{html.escape(book.t(each.name))}</th>'
        for each in columns(book)
    )
    rows = "".join(_rows(book, name, found) for name in _order(found))
    # The roles are those that elements have by themselves, until a narrow screen makes cards of the rows.
    return (
        f'{_controls(book)}\n<div class="compare" role="region" aria-label="{html.escape(book.t("All settings"))}">'
        f'<table class="settings" role="table">\n<thead role="rowgroup"><tr role="row">'
        f'<th id="compare-setting" scope="col" role="columnheader">{html.escape(book.t("Setting"))}</th>'
        f"{heads}</tr></thead>\n{rows}</table></div>\n"
    )


def _controls(book: Book) -> str:
    sorts = (
        controls.button("sort", name, html.escape(book.t(label)), pressed=name == "given")
        for name, label in SORTS.items()
    )
    only = (
        controls.button("only", "differs", html.escape(book.t("differs from the baseline")), pressed=False),
        controls.button("only", "refuted", html.escape(book.t("a claim was refuted")), pressed=False),
    )
    shown = (controls.button("toggle", each.id, html.escape(book.t(each.name)), pressed=True) for each in columns(book))
    rest = (
        controls.button("reasons", "", html.escape(book.t("Unfold all reasons")), pressed=False),
        controls.button("clear", "", html.escape(book.t("Start again"))),
    )
    parts = (
        controls.field(book, "compare", "Find in the table"),
        controls.group(book.t("Sort by"), sorts),
        controls.group(book.t("Only where"), only),
        controls.group(book.t("Columns"), shown),
        f'<div class="group">{" ".join(rest)}</div>',
        controls.count("compare", book.t("{0} of {1} settings")),
    )
    return controls.form("compare", parts, label=book.t("What the table shows"))


def _order(found: Mapping[str, Beside]) -> list[str]:
    """Every option of any of the answers, once."""
    return list(dict.fromkeys(each.option for answer in found.values() for each in answer.settings))


def _setting(answer: Beside, option: str) -> Setting | None:
    return next((each for each in answer.settings if each.option == option), None)


def topic(book: Book, option: str) -> str:
    """What a setting is about, or of which kind it is."""
    if option in book.store.flags:
        return book.store.flags[option].topic
    return TOPICS["environment" if option in book.store.environment else "client"]


def _rows(book: Book, option: str, found: Mapping[str, Beside]) -> str:
    ours = [_setting(answer, option) for answer in found.values()]
    setting = next(each for each in ours if each)
    values: list[Value | None] = [*setting.given, *(own.ours if own else None for own in ours)]
    base = next(each for each in setting.given if each.adviser == BASELINE)
    placed = list(zip(columns(book), values, strict=True))
    state = f'<small class="state">{html.escape(book.t(STATES[setting.state]))}</small>' * (setting.state != "read")
    about = f'<small class="topic">{html.escape(book.t(topic(book, option)))}</small>'
    link = f'<a href="md:flags/{option}.md"><code>{html.escape(setting.name)}</code></a>'
    cells = "".join(_cell(book, column, value, base, setting) for column, value in placed)
    why = f'{html.escape(book.t("Why"))} <span class="unseen">{html.escape(setting.name)}</span>'
    return (
        f'<tbody role="rowgroup" {_data(book, setting, placed, base)}>'
        f'<tr id="{option}" role="row" class="{setting.state}"><th scope="row" role="rowheader">{link}{about}{state}'
        f'</th>{cells}</tr>\n<tr class="why" role="row"><td role="cell" colspan="{len(placed) + 1}"><details>'
        f"<summary>{why}</summary>{_why(book, setting, placed)}</details></td></tr></tbody>\n"
    )


def _data(book: Book, setting: Setting, placed: Sequence[tuple[Column, Value | None]], base: Value) -> str:
    """What the script sorts and filters by. A column stands there once for each verdict."""
    judged = [(column.id, each.verdict) for column, _ in placed for each in _verdicts(setting, column)]
    # Claims by nobody of the table count as well; no column that is hidden takes them away.
    others = ["*" for each in setting.verdicts if not each.advisers and each.verdict == "refuted"]
    data = {
        "row": setting.option,
        "name": setting.name.lstrip("-").lower(),
        "topic": topic(book, setting.option),
        "differs": " ".join(column.id for column, value in placed if value and _differs(value, base)),
        "judged": " ".join(column for column, _ in judged),
        "refuted": " ".join([*(column for column, verdict in judged if verdict == "refuted"), *others]),
    }
    return " ".join(f'data-{name}="{html.escape(value)}"' for name, value in data.items())


def _verdicts(setting: Setting, column: Column) -> list[Verdict]:
    return [each for each in setting.verdicts if column.adviser and column.adviser in each.advisers]


def _differs(value: Value, base: Value) -> bool:
    return (value.value, value.up_to) != (base.value, base.up_to)


def shown(value: Value) -> str:
    """A value as the table writes it."""
    return f"{value.value} to {value.up_to}" if value.up_to else value.value or "none"


def _value(book: Book, value: Value) -> str:
    """The same in the page's language."""
    if value.up_to:
        return book.t("{0} to {1}").format(value.value, value.up_to)
    return value.value or book.t("none")


def _cell(book: Book, column: Column, value: Value | None, base: Value, setting: Setting) -> str:
    place = f'data-who="{html.escape(book.t(column.name))}" data-column="{column.id}" role="cell"'
    if value is None:
        return f'<td class="" {place}>–</td>'
    kinds = ["left"] * value.left + ["differs"] * _differs(value, base)
    marks = "".join(
        f'<a class="verdict {each.verdict}" href="md:claims.md#{each.claim}" '
        f'aria-label="{html.escape(book.t(each.verdict))}" '
        f'title="{html.escape(f"{book.t(each.verdict)}: {book.t(each.statement)}")}">{m.VERDICTS[each.verdict][0]}</a>'
        for each in _verdicts(setting, column)
    )
    reason = _reason(book, value, setting.option)
    title = f' title="{html.escape(reason)}"' if reason else ""
    default = f" <small>({html.escape(book.t('default'))})</small>" if value.left else ""
    spoken = f'<span class="unseen">, {html.escape(book.t("differs"))}</span>' if _differs(value, base) else ""
    # A long name of a file may go on in the next line, but not just anywhere.
    written = html.escape(_value(book, value)).replace("_", "_<wbr>")
    return f'<td class="{" ".join(kinds)}" {place}{title}><span>{written}{default}</span>{spoken}{marks}</td>'


def _reason(book: Book, value: Value, option: str) -> str:
    """Why, in the page's language: the adviser's own words are in the record where they are in that language."""
    adviser = book.store.advisers.get(value.adviser)
    said = next((each for each in adviser.settings if each.final and each.option == option), None) if adviser else None
    if said and said.reason_vi and book.language == "vi":
        return said.reason_vi
    return book.t(value.reason) if adviser else book.filled(value.reason)


def _why(book: Book, setting: Setting, placed: Sequence[tuple[Column, Value | None]]) -> str:
    said = [(column.name, _reason(book, value, setting.option)) for column, value in placed if value and value.reason]
    reasons = "".join(f"<dt>{html.escape(book.t(who))}</dt><dd>{html.escape(reason)}</dd>" for who, reason in said)
    judged = "".join(
        f'<li>{m.verdict(each.verdict, book.say)} <a href="md:claims.md#{each.claim}">'
        f"{html.escape(book.t(each.statement))}</a> {html.escape(book.t(each.because))}</li>"
        for each in setting.verdicts
    )
    parts = (f"<dl>{reasons}</dl>" if said else "") + (f"<ul>{judged}</ul>" if judged else "")
    return parts or f"<p>{html.escape(book.t('Nobody gave a reason.'))}</p>"


def _starts(book: Book, answer: Beside) -> Iterator[str]:
    yield book.t("As given, on LMDeploy {0}, and what else speaks against each for one request at a time.").format(
        answer.facts.release.id
    )
    for each in answer.advised:
        against = [book.filled(finding.message) for finding in rejected(each)]
        unknown = refused(each)
        if unknown:
            against.insert(0, book.t("The release does not know {0}.").format(", ".join(unknown)))
        outcome = book.t("does not start, or not do what is asked:" if against else "does what is asked.")
        yield f"\n**{adviser_link(book, each.adviser)}** {outcome}\n"
        yield from (f"- {m.prose(book.store, message)}" for message in against)


def _scenarios(book: Book) -> Iterator[str]:
    rows = (
        (
            f"[{m.text(_title(book, each.title, each.title_vi))}](/advisers/index.md#scenario-{each.id})",
            ", ".join(adviser_link(book, pick) for pick in each.picks),
            " ".join(m.prose(book.store, book.t(reason)) for reason in each.reasons),
        )
        for each in book.store.scenarios.values()
    )
    yield book.t("What the comparison among the advisers picks. The figures above say how that turned out on one card.")
    yield from m.table((book.t("For"), book.t("Picks"), book.t("Its reasons")), rows)


def _title(book: Book, english: str, vietnamese: str) -> str:
    return vietnamese if vietnamese and book.language == "vi" else book.t(english)
