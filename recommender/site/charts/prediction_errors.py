"""Chart predictions against measurements: one dot for each load of all runs."""

import math
from collections.abc import Iterator, Sequence

from recommender.site.charts import svg
from recommender.site.site_data import SiteData, rebuild_setup, report_rows
from recommender.smoke.report import memory_rows

SIDE, EDGE = 400, 52
TICKS = (1, 2, 5)
Dot = tuple[float, float]
"""A measured value and its prediction."""


def scatter_plots(data: SiteData) -> Iterator[str]:
    """Return scatter plots of requests/s under load, median latency at concurrency 1, and memory."""
    dots: dict[str, list[Dot]] = {"requests/s": [], "p50 ms": [], "MiB": []}
    for run in data.runs.values():
        setup = rebuild_setup(run, data.store)
        rows = [("MiB", row) for row in memory_rows(setup, run)]
        for phase in run.phases:
            name = "p50 ms" if phase.concurrency == 1 else "requests/s"
            rows.append((name, next(row for row in report_rows(run, phase, data.store) if row.name == name)))
        for name, row in rows:
            if row.measured and row.predicted:
                dots[name].append((row.measured, row.predicted))
    yield '\n<div class="pair">'
    yield _scatter(data, "Requests per second under load", dots["requests/s"])
    yield _scatter(data, "Median latency at concurrency 1, ms", dots["p50 ms"])
    yield _scatter(data, "Memory when ready, MiB above the idle GPU", dots["MiB"])
    yield "</div>\n"


def _scatter(data: SiteData, title: str, dots: Sequence[Dot]) -> str:
    values = [value for dot in dots for value in dot]
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
    # One path for all dots: a thousand elements of their own would be most of the page.
    places = (f"M{EDGE + scale(measured):.0f} {bottom - scale(predicted):.0f}h0" for measured, predicted in dots)
    parts.append(svg.element("path", class_="dots", d="".join(dict.fromkeys(places))))
    middle = EDGE + (last - first) / 2
    parts.append(svg.text(data.t("measured"), class_="small", x=middle, y=SIDE - 14, text_anchor="middle"))
    parts.append(svg.text(data.t("predicted"), class_="small", x=EDGE + 8, y=26))
    near = sum(0.8 <= predicted / measured <= 1.25 for measured, predicted in dots)
    description = data.t("{0} dots; for {1} the prediction is between 0.8 and 1.25 times the measurement.")
    head = svg.titled(data.t(title), description.format(len(dots), near))
    drawing = svg.element("svg", head, *parts, viewBox=f"0 0 {SIDE} {SIDE}", role="img")
    return svg.chart(data.t(title), drawing, kind="chart square")
