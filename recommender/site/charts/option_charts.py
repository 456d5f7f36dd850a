"""Chart runs that differ in one option only, value by value.

A series is a group of runs with the same GPU, host, model and release whose launches differ only in that option. Each
run is a dot that links to its record; a table below has the same figures.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from recommender.common.units import GIB, MIB
from recommender.knowledge import run_figures
from recommender.knowledge.provenance import weights
from recommender.site import markup
from recommender.site.charts import svg
from recommender.site.charts.series import ChartValue, Series, copies_of, series_of
from recommender.site.site_data import SiteData

if TYPE_CHECKING:
    from recommender.knowledge import records

IMAGES = ("448x448", "1280x720", "")
"""Image sizes of a chart, the last for text only. The first has filled dots, the second rings."""
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 340, 190, 54, 12, 40
LONGEST, SIGN, LINE = 22, 7, 13
"""Most characters of a value's label; width of a character and height of a line in px."""
APART = 9
"""Largest distance in px between dots of one value."""


class Point(NamedTuple):
    """One dot: the option's value in a run, and the run's figure at an image size."""

    value: ChartValue
    run: records.SmokeRun
    image: str
    figure: float


@dataclass(frozen=True)
class Panel:
    """One plot of a series. ``figure`` returns a run's value at an image size, 0 if not measured."""

    title: str
    digits: int
    figure: Callable[[Series, records.SmokeRun, str], float]
    by_image: bool = True

    @property
    def images(self) -> Sequence[str]:
        """Return the image sizes that it shows."""
        return IMAGES if self.by_image else IMAGES[:1]

    def with_size(self, words: str, image: str) -> str:
        """Append the image size, if the plot has several."""
        return f"{words}, {image}" if image and self.by_image else words

    def number(self, figure: float) -> str:
        """Format a figure."""
        return f"{figure:,.{self.digits}f}"

    def caption(self, data: SiteData, point: Point) -> str:
        """Return the text of a dot."""
        return f"{self.with_size(_label(data, point.value), point.image)}: {self.number(point.figure)}"


def under_load(concurrency: int, name: str) -> Callable[[Series, records.SmokeRun, str], float]:
    """Return a function for a figure at this concurrency, 0 if a request failed."""

    def figure(series: Series, run: records.SmokeRun, image: str) -> float:
        for phase in series.phases(run):
            if (phase.image, phase.concurrency) != (image, concurrency):
                continue
            figures = run_figures.figures(phase)
            if figures.requests and not figures.failed and figures.trusted:
                return float(getattr(figures, name))
        return 0.0

    return figure


def _ready(_: Series, run: records.SmokeRun, image: str) -> float:
    return (run.ready_mib - run.idle_mib) * MIB / GIB if run.ready_mib else 0.0


PANELS = (
    Panel("Requests/s, concurrency 16", 1, under_load(16, "rps")),
    Panel("Requests/s, concurrency 64", 1, under_load(64, "rps")),
    Panel("Median latency of one request, ms", 0, under_load(1, "p50_ms")),
    Panel("Memory when ready, GiB", 1, _ready, by_image=False),
)


def charts_of_option(data: SiteData, option: records.Option) -> Iterator[str]:
    """Return an option's charts with a heading, or nothing without a series."""
    charts = [chart for series in series_of(data, option) for chart in _chart(data, series)]
    if charts:
        yield markup.heading(2, data.t("Measured values"), "measured")
        yield data.t(
            "These runs differ only in this option. Each dot is one run and links to its record. The spread "
            "among dots of one value is noise, and so is a difference between values that is no larger."
        )
        yield from charts


def charts_of_copies(data: SiteData) -> Iterator[str]:
    """Return the charts of several servers on one GPU."""
    for series in copies_of(data):
        yield from _chart(data, series)


def panels(series: Series) -> list[tuple[Panel, list[Point]]]:
    """Return the plots that show at least two values, with their dots."""
    return [(panel, points) for panel in PANELS if (points := _points(series, panel))]


def _points(series: Series, panel: Panel) -> list[Point]:
    shown: list[Point] = []
    for image in panel.images:
        points = [
            Point(value, run, image, figure)
            for value, run in series.runs
            if (figure := panel.figure(series, run, image))
        ]
        if len({point.value for point in points}) > 1:
            shown += points
    return shown


def _chart(data: SiteData, series: Series) -> Iterator[str]:
    shown = panels(series)
    if not shown:
        return
    first = series.runs[0][1]
    title = data.t("{card}, {model} ({weights}), LMDeploy {release}: {runs} runs").format(
        card=first.gpu_name,
        model=first.model,
        weights=weights(first.random_weights, data.say),
        release=first.lmdeploy,
        runs=len(series.runs),
    )
    images = sorted({point.image for _, points in shown for point in points if point.image}, key=IMAGES.index)
    key = [data.t(("filled: {0}", "ring: {0}")[IMAGES.index(image)]).format(image) for image in images]
    legend = f" <small>({html.escape('; '.join(key))})</small>" if len(images) > 1 else ""
    pictures = svg.element("div", *(_panel(data, series, panel, points) for panel, points in shown), class_="panels")
    yield f"\n{svg.chart(f'{series.name}: {title}', pictures, kind='chart series', legend=legend)}\n"
    if series.same:
        yield f"{data.t('Common options:')} {' '.join(map(markup.whole, series.same))}.\n"
    yield from markup.details(data.t("Figures as a table"), _table(data, series, shown))


def _panel(data: SiteData, series: Series, panel: Panel, points: Sequence[Point]) -> str:
    values = [value for value in series.values if any(value == point.value for point in points)]
    labels = [_label(data, value) for value in values]
    step = (WIDTH - LEFT) / len(values)
    most = _axis_end(max(point.figure for point in points))
    rows = _label_rows(labels, step)
    dots = []
    for point in points:
        same = [other.run.id for other in points if (other.value, other.image) == (point.value, point.image)]
        # Dots of one value are drawn side by side, so that none hides another.
        aside = (same.index(point.run.id) - (len(same) - 1) / 2) * min(APART, 0.9 * step / len(same))
        x = f"{LEFT + (values.index(point.value) + 0.5) * step + aside:.1f}"
        y = f"{HEIGHT - BOTTOM - point.figure / most * (HEIGHT - TOP - BOTTOM):.1f}"
        # Thousands of dots: what their style sheet or link says is not repeated.
        circle = svg.element("circle", class_="ring" if point.image == IMAGES[1] else "", cx=x, cy=y)
        label = panel.caption(data, point)
        dots.append(svg.element("a", circle, href=f"md:runs.md#{point.run.id}", tabindex=-1, aria_label=label))
    title = data.t(panel.title)
    head = svg.titled(title, "; ".join(panel.caption(data, point) for point in points))
    frame = {"viewBox": f"0 0 {WIDTH} {HEIGHT + LINE * (rows - 1)}", "role": "group", "aria_label": title}
    drawing = svg.element("svg", head, *_axes(labels, step, most, rows), *dots, **frame)
    return svg.element("div", svg.element("p", html.escape(title)), drawing, class_="panel")


def _label_rows(labels: Sequence[str], step: float) -> int:
    """Return how many rows the labels need so that none overlaps the next."""
    return min(3, math.ceil(SIGN * max(len(label.split(" ", 1)[0][:LONGEST]) for label in labels) / step))


def _axes(labels: Sequence[str], step: float, most: float, rows: int) -> Iterator[str]:
    """Yield grid lines and value labels; the rest of a long label goes below all rows."""
    for share in (0.0, 0.5, 1.0):
        y = HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
        yield svg.element("line", class_="grid", x1=LEFT, y1=f"{y:.1f}", x2=WIDTH, y2=f"{y:.1f}")
        yield svg.text(f"{most * share:,.9g}", class_="small", x=LEFT - 6, y=f"{y + 4:.1f}", text_anchor="end")
    for number, label in enumerate(labels):
        x = LEFT + (number + 0.5) * step
        short = label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"
        for line, words in enumerate(short.split(" ", 1)):
            y = HEIGHT - BOTTOM + 16 + LINE * (rows if line else number % rows)
            inside = x + SIGN * len(words) / 2 <= WIDTH
            place, anchor = (f"{x:.1f}", "middle") if inside else (str(WIDTH), "end")
            yield svg.text(words, class_="small", x=place, y=y, text_anchor=anchor)


def _axis_end(value: float) -> float:
    """Round up to 1, 2, 4, 5, 6 or 8 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(power * step for step in (1, 2, 4, 5, 6, 8, 10) if power * step >= value)


def _label(data: SiteData, value: ChartValue) -> str:
    if value.is_set:
        return value.text
    return f"{value.text} ({data.t('default')})" if value.text else data.t("not given")


def _table(data: SiteData, series: Series, shown: Sequence[tuple[Panel, list[Point]]]) -> Iterator[str]:
    columns = [
        (panel, image, {point.run.id: panel.number(point.figure) for point in points if point.image == image})
        for panel, points in shown
        for image in panel.images
        if any(point.image == image for point in points)
    ]
    head = [panel.with_size(data.t(panel.title), image) for panel, image, _ in columns]
    rows = (
        (
            markup.text(_label(data, value)),
            f"[{run.id}](/runs.md#{run.id})",
            *(figures.get(run.id, "–") for *_, figures in columns),
        )
        for value, run in series.runs
    )
    yield from markup.table((markup.code(series.name), data.t("Run"), *head), rows)
