"""An option's eras as a bar over the releases: SVG with its words in it, no script."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.conditions import version

if TYPE_CHECKING:
    from recommender.about import About, Life
    from recommender.site.book import Book

WIDTH, LEFT, HIGH = 840, 8, 26


def timeline(book: Book, found: About) -> str:
    """The bar of an option. It tells nothing that the table below it does not."""
    names = [each.id for each in book.releases]
    step = (WIDTH - 2 * LEFT) / len(names)
    parts = [*_bars(book, found, names, step), *_ticks(names, step)]
    said = book.t("{name} in the releases {first} to {last}: {eras} eras").format(
        name=found.name, first=names[0], last=names[-1], eras=len(found.lives)
    )
    return (
        f'\n<div class="chart"><svg viewBox="0 0 {WIDTH} 66" role="img" aria-label="{html.escape(said)}">'
        f"{''.join(parts)}</svg></div>\n"
    )


def _bars(book: Book, found: About, names: list[str], step: float) -> Iterator[str]:
    for number, life in enumerate(found.lives):
        inside = [place for place, name in enumerate(names) if _within(life, name)]
        if not inside:
            continue
        left, wide = LEFT + inside[0] * step, len(inside) * step - 1
        kind = "idle" if set(life.read_by) <= {"nobody"} else f"era{number % 2}"
        words = life.default or book.t("none")
        told = book.t("{0} to {1}: default {2}").format(names[inside[0]], names[inside[-1]], words)
        said = html.escape(told)
        place = f'x="{left:.1f}" y="4" width="{wide:.1f}" height="{HIGH}"'
        yield f'<rect class="{kind}" {place}><title>{said}</title></rect>'
        if wide > 8 * len(words) + 8:
            yield f'<text x="{left + wide / 2:.1f}" y="21" text-anchor="middle">{html.escape(words)}</text>'


def _within(life: Life, name: str) -> bool:
    first, last = version(life.first), version(life.last) if life.last else None
    return first <= version(name) and (last is None or version(name) <= last)


def _ticks(names: list[str], step: float) -> Iterator[str]:
    """Names of the releases of which one in three is written, so that they can be read."""
    for place, name in enumerate(names):
        middle = LEFT + (place + 0.5) * step
        yield f'<line x1="{middle:.1f}" y1="{HIGH + 6}" x2="{middle:.1f}" y2="{HIGH + 11}"/>'
        if place % 3 == 0:
            yield f'<text class="small" x="{middle:.1f}" y="{HIGH + 24}" text-anchor="middle">{name}</text>'
