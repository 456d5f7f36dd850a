"""Predicted against measured over all runs, as a picture: a dot a load, on the line where both are the same."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recommender.site.book import Book
from recommender.smoke import launch
from recommender.smoke.report import phase_rows

SIDE, EDGE = 400, 52
TICKS = (1, 2, 5)


@dataclass(frozen=True)
class Dot:
    """One load of a run."""

    what: str
    measured: float
    predicted: float


def pictures(book: Book) -> Iterator[str]:
    """Requests a second under load, and the median of one request at a time."""
    found: dict[str, list[Dot]] = {"requests/s": [], "p50 ms": []}
    for run in book.runs.values():
        made = launch.ran(run, book.store)
        for phase in run.phases:
            name = "p50 ms" if phase.concurrency == 1 else "requests/s"
            row = next(each for each in phase_rows(made, run, phase) if each.name == name)
            if row.measured and row.predicted:
                load = f"{run.id}: {phase.concurrency} in flight, {phase.image or 'text'}"
                found[name].append(Dot(load, row.measured, row.predicted))
    yield '\n<div class="pair">'
    yield _scatter("Requests a second under load", found["requests/s"])
    yield _scatter("Median ms of one request at a time", found["p50 ms"])
    yield "</div>\n"


def _scatter(title: str, dots: Sequence[Dot]) -> str:
    ends = [each for dot in dots for each in (dot.measured, dot.predicted)]
    low, high = math.log10(min(ends)) - 0.05, math.log10(max(ends)) + 0.05

    def at(value: float) -> float:
        return (math.log10(value) - low) / (high - low) * (SIDE - EDGE - 10)

    near = sum(0.8 <= dot.predicted / dot.measured <= 1.25 for dot in dots)
    said = f"{len(dots)} loads; of {near} the prediction is between four fifths and five quarters of what was measured."
    parts = [f"<title>{html.escape(title)}</title><desc>{said}</desc>"]
    first, last = EDGE, SIDE - 10
    parts.append(f'<line x1="{first}" y1="{SIDE - EDGE}" x2="{last}" y2="10"/>')
    for tick in (each * 10**power for power in range(-1, 5) for each in TICKS):
        if low <= math.log10(tick) <= high:
            x, y = EDGE + at(tick), SIDE - EDGE - at(tick)
            parts.append(f'<text class="small" x="{x:.0f}" y="{SIDE - EDGE + 16}" text-anchor="middle">{tick:g}</text>')
            parts.append(f'<text class="small" x="{EDGE - 6}" y="{y + 4:.0f}" text-anchor="end">{tick:g}</text>')
    parts.append(f'<rect class="box" x="{first}" y="10" width="{last - first}" height="{SIDE - EDGE - 10}"/>')
    for dot in dots:
        x, y = EDGE + at(dot.measured), SIDE - EDGE - at(dot.predicted)
        tip = html.escape(f"{dot.what}: measured {dot.measured:,.1f}, predicted {dot.predicted:,.1f}")
        parts.append(f'<circle class="ours more" cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{tip}</title></circle>')
    middle = EDGE + (last - first) / 2
    parts.append(f'<text class="small" x="{middle}" y="{SIDE - 14}" text-anchor="middle">measured</text>')
    parts.append(f'<text class="small" x="{EDGE + 8}" y="26">predicted</text>')
    return (
        f'<figure class="chart square"><figcaption>{html.escape(title)}</figcaption>'
        f'<svg viewBox="0 0 {SIDE} {SIDE}" role="img">{"".join(parts)}</svg></figure>'
    )
