"""Predicted against measured as pictures: of all runs a dot a load, of one run a line a figure with its range."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recommender.site.book import Book
from recommender.smoke import launch
from recommender.smoke.report import Row, memory_rows, phase_rows

SIDE, EDGE = 400, 52
TICKS = (1, 2, 5)


@dataclass(frozen=True)
class Dot:
    """One load of a run, or its memory."""

    run: str
    what: str
    measured: float
    predicted: float


def pictures(book: Book) -> Iterator[str]:
    """Requests a second under load, the median of one request at a time, and memory."""
    found: dict[str, list[Dot]] = {"requests/s": [], "p50 ms": [], "MiB": []}
    for run in book.runs.values():
        made = launch.ran(run, book.store)
        for row in memory_rows(made, run):
            if row.measured and row.predicted:
                found["MiB"].append(Dot(run.id, run.id, row.measured, row.predicted))
        for phase in run.phases:
            name = "p50 ms" if phase.concurrency == 1 else "requests/s"
            row = next(each for each in phase_rows(made, run, phase) if each.name == name)
            if row.measured and row.predicted:
                load = f"{run.id}: {phase.concurrency} in flight, {phase.image or 'text'}"
                found[name].append(Dot(run.id, load, row.measured, row.predicted))
    yield '\n<div class="pair">'
    yield _scatter("Requests a second under load", found["requests/s"])
    yield _scatter("Median ms of one request at a time", found["p50 ms"])
    yield _scatter("MiB of the ready server, above the idle card", found["MiB"])
    yield "</div>\n"


def _scatter(title: str, dots: Sequence[Dot]) -> str:
    ends = [each for dot in dots for each in (dot.measured, dot.predicted)]
    low, high = math.log10(min(ends)) - 0.05, math.log10(max(ends)) + 0.05

    def at(value: float) -> float:
        return (math.log10(value) - low) / (high - low) * (SIDE - EDGE - 10)

    near = sum(0.8 <= dot.predicted / dot.measured <= 1.25 for dot in dots)
    said = f"{len(dots)} dots; of {near} the prediction is between four fifths and five quarters of what was measured."
    parts = [f"<title>{html.escape(title)}</title><desc>{said}</desc>"]
    first, last = EDGE, SIDE - 10
    parts.append(f'<line x1="{first}" y1="{SIDE - EDGE}" x2="{last}" y2="10"/>')
    for tick in (each * 10**power for power in range(-1, 6) for each in TICKS):
        if low <= math.log10(tick) <= high:
            x, y = EDGE + at(tick), SIDE - EDGE - at(tick)
            parts.append(f'<text class="small" x="{x:.0f}" y="{SIDE - EDGE + 16}" text-anchor="middle">{tick:g}</text>')
            parts.append(f'<text class="small" x="{EDGE - 6}" y="{y + 4:.0f}" text-anchor="end">{tick:g}</text>')
    parts.append(f'<rect class="box" x="{first}" y="10" width="{last - first}" height="{SIDE - EDGE - 10}"/>')
    for dot in dots:
        x, y = EDGE + at(dot.measured), SIDE - EDGE - at(dot.predicted)
        tip = html.escape(f"{dot.what}: measured {dot.measured:,.1f}, predicted {dot.predicted:,.1f}")
        parts.append(
            f'<a href="md:evidence/{dot.run}.md" tabindex="-1" aria-label="{tip}">'
            f'<circle class="ours more" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{tip}</title></circle></a>'
        )
    middle = EDGE + (last - first) / 2
    parts.append(f'<text class="small" x="{middle}" y="{SIDE - 14}" text-anchor="middle">measured</text>')
    parts.append(f'<text class="small" x="{EDGE + 8}" y="26">predicted</text>')
    return (
        f'<figure class="chart square"><figcaption>{html.escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {SIDE} {SIDE}" role="group">{"".join(parts)}</svg></figure>'
    )


STEP, SCALE, END = 40, 84, 2.0
"""Height of a row, the share of the width that the scale takes, and how many times off a bar can show."""


def bars(title: str, rows: Sequence[tuple[str, Row]]) -> Iterator[str]:
    """Of one run's figures the prediction and its range over what was measured; nothing where none was predicted.

    Lengths are shares of the width: words keep their size on a screen of any width.
    """
    known = [(load, row) for load, row in rows if row.measured and row.predicted]
    if not known:
        return

    def at(value: float) -> float:
        place = math.log(min(max(value, 1 / END), END), END)
        return 2 + (place + 1) / 2 * (SCALE - 4)

    bottom = len(known) * STEP
    said = "; ".join(f"{load} {row.name}: {row.predicted / row.measured:.2f}" for load, row in known)
    parts = [f"<title>{html.escape(title)}</title><desc>{html.escape(said)}</desc>"]
    for tick in (0.5, 0.67, 0.8, 1, 1.25, 1.5, 2):
        x, kind = at(tick), "" if tick == 1 else ' class="grid"'
        parts.append(f'<line{kind} x1="{x:.1f}%" y1="0" x2="{x:.1f}%" y2="{bottom}"/>')
        parts.append(f'<text class="small" x="{x:.1f}%" y="{bottom + 16}" text-anchor="middle">{tick:g}</text>')
    for number, (load, row) in enumerate(known):
        y, (low, value, high) = number * STEP, (each / row.measured for each in (row.low, row.predicted, row.high))
        parts.append(f'<text class="small over" x="0" y="{y + 15}">{html.escape(f"{load} {row.name}")}</text>')
        wide = max(at(high) - at(low), 0.3)
        parts.append(f'<rect class="ours more" x="{at(low):.1f}%" y="{y + 22}" width="{wide:.1f}%" height="8"/>')
        parts.append(f'<circle class="ours" cx="{at(value):.1f}%" cy="{y + 26}" r="5"/>')
        parts.append(f'<text class="small" x="100%" y="{y + 30}" text-anchor="end">{row.error or 0.0:+.1%}</text>')
    yield (
        f'\n<figure class="chart"><figcaption>{html.escape(title)}</figcaption>'
        f'<svg style="height: {bottom + 24}px" role="img">{"".join(parts)}</svg></figure>\n'
    )
