"""Chart predictions against measurements: one dot per load of all runs, or one bar per figure of a run."""

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from recommender.site.charts import svg
from recommender.site.site_data import SiteData, rebuild_run
from recommender.smoke.report import ReportRow, memory_rows, phase_rows

SIDE, EDGE = 400, 52
TICKS = (1, 2, 5)


@dataclass(frozen=True)
class Dot:
    """A prediction and a measurement of one load of a run, or of its memory."""

    run: str
    label: str
    measured: float
    predicted: float


def pictures(data: SiteData) -> Iterator[str]:
    """Return scatter plots of requests/s under load, median latency at concurrency 1, and memory."""
    dots: dict[str, list[Dot]] = {"requests/s": [], "p50 ms": [], "MiB": []}
    for run in data.runs.values():
        recommendation = rebuild_run(run, data.store)
        rows = [("MiB", run.id, row) for row in memory_rows(recommendation, run)]
        for phase in run.phases:
            name = "p50 ms" if phase.concurrency == 1 else "requests/s"
            row = next(row for row in phase_rows(recommendation, run, phase) if row.name == name)
            rows.append((name, f"{run.id}: concurrency {phase.concurrency}, {phase.image or 'text'}", row))
        for name, label, row in rows:
            if row.measured and row.predicted:
                dots[name].append(Dot(run.id, label, row.measured, row.predicted))
    yield '\n<div class="pair">'
    yield _scatter("Requests per second under load", dots["requests/s"])
    yield _scatter("Median latency at concurrency 1, ms", dots["p50 ms"])
    yield _scatter("Memory when ready, MiB above the idle GPU", dots["MiB"])
    yield "</div>\n"


def _scatter(title: str, dots: Sequence[Dot]) -> str:
    values = [value for dot in dots for value in (dot.measured, dot.predicted)]
    low, high = math.log10(min(values)) - 0.05, math.log10(max(values)) + 0.05
    first, last, bottom = EDGE, SIDE - 10, SIDE - EDGE

    def scale(value: float) -> float:
        return (math.log10(value) - low) / (high - low) * (bottom - 10)

    parts = [svg.element("line", x1=first, y1=bottom, x2=last, y2=10)]
    for tick in (step * 10**power for power in range(-1, 6) for step in TICKS):
        if low <= math.log10(tick) <= high:
            x, y = f"{EDGE + scale(tick):.0f}", f"{bottom - scale(tick) + 4:.0f}"
            parts.append(svg.text(f"{tick:g}", class_="small", x=x, y=bottom + 16, text_anchor="middle"))
            parts.append(svg.text(f"{tick:g}", class_="small", x=EDGE - 6, y=y, text_anchor="end"))
    parts.append(svg.element("rect", class_="box", x=first, y=10, width=last - first, height=bottom - 10))
    for dot in dots:
        x, y = f"{EDGE + scale(dot.measured):.1f}", f"{bottom - scale(dot.predicted):.1f}"
        tip = f"{dot.label}: measured {dot.measured:,.1f}, predicted {dot.predicted:,.1f}"
        hidden = svg.element("title", html.escape(tip))
        circle = svg.element("circle", hidden, class_="ours more", cx=x, cy=y, r=4)
        parts.append(svg.element("a", circle, href=f"md:evidence/{dot.run}.md", tabindex=-1, aria_label=tip))
    middle = EDGE + (last - first) / 2
    parts.append(svg.text("measured", class_="small", x=middle, y=SIDE - 14, text_anchor="middle"))
    parts.append(svg.text("predicted", class_="small", x=EDGE + 8, y=26))
    near = sum(0.8 <= dot.predicted / dot.measured <= 1.25 for dot in dots)
    description = f"{len(dots)} dots; for {near} the prediction is between 0.8 and 1.25 times the measurement."
    drawing = svg.element("svg", svg.titled(title, description), *parts, viewBox=f"0 0 {SIDE} {SIDE}", role="group")
    return svg.chart(title, drawing, kind="chart square")


STEP, SCALE, END = 40, 84, 2.0
"""Row height in px, width of the scale in percent, and the largest factor that it shows."""


def bars(title: str, rows: Sequence[tuple[str, ReportRow]]) -> Iterator[str]:
    """Return predicted / measured with its range for one run; nothing without predictions."""
    known = [(f"{load} {row.name}", row) for load, row in rows if row.measured and row.predicted]
    if not known:
        return

    def scale(value: float) -> float:
        place = math.log(min(max(value, 1 / END), END), END)
        return 2 + (place + 1) / 2 * (SCALE - 4)

    bottom = len(known) * STEP
    parts = []
    for tick in (0.5, 0.67, 0.8, 1, 1.25, 1.5, 2):
        x = f"{scale(tick):.1f}%"
        parts.append(svg.element("line", class_="" if tick == 1 else "grid", x1=x, y1=0, x2=x, y2=bottom))
        parts.append(svg.text(f"{tick:g}", class_="small", x=x, y=bottom + 16, text_anchor="middle"))
    for top, (name, row) in zip(range(0, bottom, STEP), known, strict=True):
        low, value, high = (scale(figure / row.measured) for figure in (row.low, row.predicted, row.high))
        width = f"{max(high - low, 0.3):.1f}%"
        parts.append(svg.text(name, class_="small over", x=0, y=top + 15))
        parts.append(svg.element("rect", class_="ours more", x=f"{low:.1f}%", y=top + 22, width=width, height=8))
        parts.append(svg.element("circle", class_="ours", cx=f"{value:.1f}%", cy=top + 26, r=5))
        parts.append(svg.text(f"{row.error or 0.0:+.1%}", class_="small", x="100%", y=top + 30, text_anchor="end"))
    description = "; ".join(f"{name}: {row.predicted / row.measured:.2f}" for name, row in known)
    yield f"\n{svg.bar_chart(title, description, parts, bottom + 24)}\n"
