"""Charts on the options' pages: runs that differ in one option and in nothing else, value by value.

A series is a group of runs on the same card and host, of the same model and release, whose launches are the same but
for that option. Every run is a dot that links to its record; the same figures stand in a table below.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender import measured
from recommender.site import markup as m
from recommender.site.book import Book
from recommender.site.series import Series, Value, copies_of, series_of

if TYPE_CHECKING:
    from recommender import records as r

IMAGES = ("448x448", "1280x720", "")
"""Loads of a chart; the last is text alone. The first of them has a filled dot, the second a ring."""
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 340, 190, 44, 12, 40
LONGEST, SIGN, LINE = 22, 7, 13
"""Signs of a value below its dots; the width of one, and the height of a line of them."""
APART = 9
"""Between dots of one value, where its place is wide enough."""


@dataclass(frozen=True)
class Panel:
    """One picture of a series: what it shows, and of a run the figure at an image size; 0: not measured."""

    title: str
    digits: int
    figure: Callable[[Series, r.SmokeRun, str], float]
    by_image: bool = True


def loaded(concurrency: int, name: str) -> Callable[[Series, r.SmokeRun, str], float]:
    """A figure of the phase with so many requests in flight, if all were answered."""

    def figure(series: Series, run: r.SmokeRun, image: str) -> float:
        for phase in series.phases(run):
            got = measured.figures(phase)
            if (phase.image, phase.concurrency) == (image, concurrency) and got.requests and not got.failed:
                return float(getattr(got, name))
        return 0.0

    return figure


def _ready(_: Series, run: r.SmokeRun, image: str) -> float:
    return float(run.ready_mib - run.idle_mib) if run.ready_mib else 0.0


PANELS = (
    Panel("Requests/s, 16 in flight", 1, loaded(16, "rps")),
    Panel("Requests/s, 64 in flight", 1, loaded(64, "rps")),
    Panel("Median ms of one request alone", 0, loaded(1, "p50_ms")),
    Panel("MiB of the ready server", 0, _ready, by_image=False),
)


def for_option(book: Book, option: r.Option) -> Iterator[str]:
    """The charts of an option with a heading; nothing where the evidence has no series of it."""
    known = [each for each in series_of(book, option) if _tells(each)]
    if known:
        yield m.heading(2, book.t("Measured with one value after another"), "measured")
        yield book.t(
            "Runs that differ in this option and in nothing else. Each dot is one run and leads to its record. How far "
            "dots of the same value lie apart is chance; so is a difference between values that is no larger."
        )
        for each in known:
            yield from _series(book, each)


def copies(book: Book) -> Iterator[str]:
    """The same for how many servers share the card."""
    for each in copies_of(book):
        if _tells(each):
            yield from _series(book, each)


def _tells(series: Series) -> bool:
    """Whether one of the pictures has two values beside each other."""
    return any(_varies(series, panel, image) for panel in PANELS for image in _images(panel))


def _images(panel: Panel) -> Sequence[str]:
    return IMAGES if panel.by_image else IMAGES[:1]


def _varies(series: Series, panel: Panel, image: str) -> bool:
    return len({value for value, run in series.runs if panel.figure(series, run, image)}) > 1


def dots(series: Series, panel: Panel) -> list[tuple[Value, r.SmokeRun, str, float]]:
    """What a picture shows: of each run and image size the figure, where there are two values of that size."""
    return [
        (value, run, image, panel.figure(series, run, image))
        for image in _images(panel)
        if _varies(series, panel, image)
        for value, run in series.runs
        if panel.figure(series, run, image)
    ]


def _series(book: Book, series: Series) -> Iterator[str]:
    first = series.runs[0][1]
    shown = [(panel, found) for panel in PANELS if (found := dots(series, panel))]
    said = book.t("{card}, {model}, LMDeploy {release}: {runs} runs").format(
        card=first.gpu_name, model=first.model, release=first.lmdeploy, runs=len(series.runs)
    )
    title = f"{series.name}: {said}"
    images = sorted({image for _, found in shown for _, _, image, _ in found if image}, key=IMAGES.index)
    key = [book.t(("filled: {0}", "ring: {0}")[IMAGES.index(each)]).format(each) for each in images]
    pictures = "".join(_panel(book, series, panel, found) for panel, found in shown)
    legend = f" <small>({html.escape('; '.join(key))})</small>" if len(images) > 1 else ""
    yield (
        f'\n<figure class="chart series"><figcaption>{html.escape(title)}{legend}</figcaption>'
        f'<div class="panels">{pictures}</div></figure>\n'
    )
    if series.same:
        yield f"{book.t('All with')} {' '.join(map(m.whole, series.same))}.\n"
    yield from m.details(book.t("The same figures as a table"), _table(book, series, shown))


def _panel(book: Book, series: Series, panel: Panel, found: Sequence[tuple[Value, r.SmokeRun, str, float]]) -> str:
    values = [value for value in series.values if any(value == each[0] for each in found)]
    step = (WIDTH - LEFT) / len(values)
    most = _top(max(each[3] for each in found))
    title = book.t(panel.title)
    parts = [f"<title>{html.escape(title)}</title>", f"<desc>{html.escape(_said(book, panel, found))}</desc>"]
    labels = [_label(book, each) for each in values]
    rows = _rows(labels, step)
    parts += _axes(labels, step, most, rows)
    for value, run, image, figure in found:
        same = [each[1].id for each in found if each[0] == value and each[2] == image]
        # Runs with the same value stand side by side, so that none hides another.
        aside = (same.index(run.id) - (len(same) - 1) / 2) * min(APART, 0.9 * step / len(same))
        x = LEFT + (values.index(value) + 0.5) * step + aside
        y = HEIGHT - BOTTOM - figure / most * (HEIGHT - TOP - BOTTOM)
        tip = f"{_label(book, value)}{', ' + image if image and panel.by_image else ''}: {figure:,.{panel.digits}f}"
        kind = "ring" if image == IMAGES[1] else "dot"
        parts.append(
            f'<a href="md:evidence/{run.id}.md" tabindex="-1" aria-label="{html.escape(f"{tip} ({run.id})")}">'
            f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4.5"/></a>'
        )
    height = HEIGHT + LINE * (rows - 1)
    return (
        f'<div class="panel"><p>{html.escape(title)}</p><svg viewBox="0 0 {WIDTH} {height}" role="group" '
        f'aria-label="{html.escape(title)}">{"".join(parts)}</svg></div>'
    )


def _rows(labels: Sequence[str], step: float) -> int:
    """In how many rows the values stand by turns, so that none runs into the next."""
    return min(3, math.ceil(SIGN * max(len(each.split(" ", 1)[0][:LONGEST]) for each in labels) / step))


def _axes(labels: Sequence[str], step: float, most: float, rows: int) -> Iterator[str]:
    """Lines from zero up, and the values evenly apart, what more there is to say of one below all."""
    for share in (0.0, 0.5, 1.0):
        y = HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH}" y2="{y:.1f}"/>'
        yield f'<text class="small" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{most * share:,.5g}</text>'
    for number, label in enumerate(labels):
        x = LEFT + (number + 0.5) * step
        short = label if len(label) <= LONGEST else f"{label[: LONGEST - 1]}…"
        for line, words in enumerate(short.split(" ", 1)):
            top = HEIGHT - BOTTOM + 16 + LINE * (rows if line else number % rows)
            inside = x + SIGN * len(words) / 2 <= WIDTH
            at, anchor = (f"{x:.1f}", "middle") if inside else (str(WIDTH), "end")
            yield f'<text class="small" x="{at}" y="{top}" text-anchor="{anchor}">{html.escape(words)}</text>'


def _top(value: float) -> float:
    """The end of an axis: the next of 1, 2, 4, 5, 6, 8 times a power of ten."""
    power = 1.0
    while power * 10 <= value:
        power *= 10
    while power > value:
        power /= 10
    return next(power * each for each in (1, 2, 4, 5, 6, 8, 10) if power * each >= value)


def _label(book: Book, value: Value) -> str:
    if value.given:
        return value.text
    return f"{value.text} ({book.t('default')})" if value.text else book.t("not given")


def _said(book: Book, panel: Panel, found: Sequence[tuple[Value, r.SmokeRun, str, float]]) -> str:
    return "; ".join(
        f"{_label(book, value)}{', ' + image if image and panel.by_image else ''}: {figure:,.{panel.digits}f}"
        for value, _, image, figure in found
    )


def _table(
    book: Book, series: Series, shown: Sequence[tuple[Panel, list[tuple[Value, r.SmokeRun, str, float]]]]
) -> Iterator[str]:
    columns = [
        (panel, image, found)
        for panel, found in shown
        for image in _images(panel)
        if any(each[2] == image for each in found)
    ]
    head = [f"{book.t(panel.title)}{', ' + image if image and panel.by_image else ''}" for panel, image, _ in columns]
    rows = []
    for value, run in series.runs:
        cells = []
        for panel, image, found in columns:
            figures = [each[3] for each in found if each[1] is run and each[2] == image]
            cells.append(f"{figures[0]:,.{panel.digits}f}" if figures else "–")
        rows.append((m.text(_label(book, value)), f"[{run.id}](/evidence/{run.id}.md)", *cells))
    yield from m.table((m.code(series.name), book.t("Run"), *head), rows)
