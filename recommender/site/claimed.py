"""What advisers claim of memory and speed, beside what their own configurations measured on one card."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.site import markup as m
from recommender.site.book import Book
from recommender.site.sidebyside import Line, lines

if TYPE_CHECKING:
    from recommender import records as r

MIB, GB = 2**20, 1e9
IMAGE = "448x448"
KINDS = {
    "vram": "memory",
    "throughput": "throughput",
    "concurrency": "requests at once",
    "latency": "latency alone",
    "kv-cache": "KV cache",
    "weights": "weights",
    "instances": "servers on a card",
}
"""What figures are about; the first two are shown of every adviser."""
ALWAYS = tuple(KINDS)[:2]
JUDGED = (
    "comparison-vram-4-to-6-gb",
    "comparison-throughput-ranks",
    "server-takes-5-3-gb",
    "five-percent-is-200-mb",
    "weights-are-4-9-gb",
    "sixteen-instances-fit-80-gb",
    "p99-is-210-ms",
    "chatgpt-takes-least-memory",
    "kimi-chatgpt-best-single-latency",
)
"""The claims that these figures make."""


@dataclass(frozen=True)
class Row:
    """A figure of an adviser, and what was measured of that kind; either may be lacking.

    ``low`` and ``high``: over the runs, in the unit of the claim; 0: not measured. ``refused``: nothing answered.
    """

    adviser: str
    kind: str
    figure: r.Figure | None
    low: float
    high: float
    refused: bool
    runs: tuple[r.SmokeRun, ...]

    @property
    def times(self) -> tuple[float, float] | None:
        """How many times the claim was measured, at least and at most; None where the two have no unit in common."""
        if not self.figure or self.figure.unit not in ("GB", "MB") or not self.low:
            return None
        return self.low / self.figure.high, self.high / self.figure.low


def rows(book: Book) -> Iterator[Row]:
    """Every figure, and memory and throughput of advisers that claim nothing of it, adviser by adviser."""
    known = {line.name: line for line in lines(book)}
    for adviser in book.store.advisers.values():
        line = known.get(adviser.id)
        for kind in KINDS:
            found = [_row(adviser.id, kind, each, line) for each in adviser.figures if each.kind == kind]
            if kind in ALWAYS and not any(row.runs for row in found):
                found.append(_row(adviser.id, kind, None, line))
            yield from found


def _row(adviser: str, kind: str, figure: r.Figure | None, line: Line | None) -> Row:
    # A share, such as half of what it would be otherwise, cannot be held against one configuration.
    comparable = line and not (figure and figure.unit == "words" and kind in ("vram", "kv-cache"))
    found = _measured(kind, line) if line and comparable else []
    low, high = (min(found), max(found)) if found else (0.0, 0.0)
    refused = bool(line and kind == "throughput" and line.refused(IMAGE, 16))
    return Row(adviser, kind, figure, low, high, refused, line.runs if line and (found or refused) else ())


def _measured(kind: str, line: Line) -> list[float]:
    """Of each run: GB of memory, requests a second, the engine's batch, the median in ms, or MB of the KV cache."""
    if kind == "vram":
        return [each * MIB / GB for each in line.memory()]
    if kind == "throughput":
        return line.figures(IMAGE, 16)
    if kind == "latency":
        return line.figures(IMAGE, 1)
    if kind == "concurrency":
        return [float(each) for each in _found(line, "max-batch-size")]
    if kind == "kv-cache":
        return [float(each) * MIB / 1e6 for each in _found(line, "cache-budget")]
    return []


def _found(line: Line, name: str) -> Iterator[str]:
    """The number with which a setting stands in the engine's log."""
    for run in line.runs:
        for each in run.effective:
            number = re.match(r"\d+", each.found)
            if each.name == name and number:
                yield number[0]


UNITS = {
    "vram": "{0} GB when ready",
    "throughput": "{0} requests/s with 16 in flight",
    "latency": "{0} ms, the median",
    "concurrency": "{0} in the engine's batch",
    "kv-cache": "{0} MB given to it",
}
DIGITS = {"latency": 0, "concurrency": 0, "kv-cache": 0}


def table(book: Book) -> Iterator[str]:
    """The table, what it rests on, and the verdicts on these claims."""
    first = lines(book)[0].runs[0]
    yield book.t(
        "Each adviser's own configuration, run as given on one {card} with LMDeploy {release}; images of {image}. "
        "The claims name other cards or none, so mind the size of the difference, not its digits."
    ).format(card=m.text(first.gpu_name), release=first.lmdeploy, image=IMAGE)
    head = [book.t(each) for each in ("Adviser", "What", "Claimed", "Measured", "Measured over claimed", "Runs")]
    cells = "".join(f'<th scope="col" role="columnheader">{html.escape(each)}</th>' for each in head)
    body = "".join(_shown(book, each, head) for each in rows(book))
    label = html.escape(book.t("Claimed and measured"))
    yield (
        f'\n<div class="compare" role="region" aria-label="{label}"><table class="claimed" role="table">\n'
        f'<thead role="rowgroup"><tr role="row">{cells}</tr></thead>\n<tbody role="rowgroup">{body}</tbody>\n'
        "</table></div>\n"
    )
    yield f"\n{book.t('The verdicts on these claims:')}\n"
    for each in (book.store.claims[name] for name in JUDGED):
        verdict, statement = m.verdict(each.verdict, book.say), m.text(book.t(each.statement))
        yield f"- {verdict} [{statement}](/claims.md#{each.id})"


def _shown(book: Book, row: Row, head: Sequence[str]) -> str:
    adviser = book.store.advisers[row.adviser]
    link = f'<a href="md:advisers/{adviser.id}.md">{html.escape(book.t(adviser.name))}</a>'
    about = f"<small>{html.escape(book.t(row.figure.about))}</small>" if row.figure else ""
    runs = " ".join(
        f'<a href="md:evidence/{run.id}.md" aria-label="{html.escape(run.id)}">{number}</a>'
        for number, run in enumerate(row.runs, 1)
    )
    values = (
        html.escape(book.t(KINDS[row.kind])),
        f"<span>{html.escape(_claim(book, row))} {about}</span>",
        f"<span>{html.escape(_result(book, row))}</span>",
        _times(row),
        runs or "–",
    )
    named = zip(head[1:], values, strict=True)
    cells = "".join(f'<td role="cell" data-who="{html.escape(name)}">{value}</td>' for name, value in named)
    return (
        f'<tr role="row" data-adviser="{row.adviser}" data-kind="{row.kind}">'
        f'<th scope="row" role="rowheader">{link}</th>{cells}</tr>\n'
    )


def _claim(book: Book, row: Row) -> str:
    if row.figure is None:
        return book.t("nothing")
    if row.figure.unit == "words":
        return book.t(row.figure.words)
    unit = "" if row.figure.unit == "count" else f" {row.figure.unit}"
    return between(book, row.figure.low, row.figure.high, "g") + unit


def _result(book: Book, row: Row) -> str:
    if row.refused:
        return book.t("every request refused")
    if not row.low:
        return book.t("not measured")
    return book.t(UNITS[row.kind]).format(between(book, row.low, row.high, f".{DIGITS.get(row.kind, 1)}f"))


def _times(row: Row) -> str:
    ends = [f"{each:.1f}" for each in row.times or ()]
    return "–" if not ends else f"{ends[0]}×" if ends[0] == ends[1] else f"{ends[0]}× – {ends[1]}×"


def between(book: Book, low: float, high: float, form: str) -> str:
    """Two ends as text, or one where they are written the same."""
    ends = [f"{each:,{form}}" for each in (low, high)]
    return ends[0] if ends[0] == ends[1] else book.t("{0} to {1}").format(*ends)
