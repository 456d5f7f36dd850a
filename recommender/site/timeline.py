"""An option's eras as a bar over the releases: SVG with its words in it, no script."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.conditions import version

if TYPE_CHECKING:
    from recommender.about import About, Life
    from recommender.site.book import Book

HIGH = 26
SIGNS, FEW = 84, 40
"""Signs that fit side by side where the screen is wide, and on a phone, which is not shown the others."""
CHANGES = {"choices": "choices", "type": "type", "read_by": "readers", "note": "notes"}
"""What else than its default can change of an option from one era to the next, and how the bar calls it."""


def timeline(book: Book, found: About) -> str:
    """The bar of an option. It tells nothing that the table below it does not.

    Its places are shares of the width: words keep their size on a screen of any width.
    """
    names = [each.id for each in book.releases]
    parts = [*_bars(book, found, names), *_ticks(names)]
    said = book.t("{name} in the releases {first} to {last}: {eras} eras").format(
        name=found.name, first=names[0], last=names[-1], eras=len(found.lives)
    )
    return (
        f'\n<div class="chart"><svg style="height: 66px" role="img" aria-label="{html.escape(said)}">'
        f"{''.join(parts)}</svg></div>\n"
    )


def _bars(book: Book, found: About, names: list[str]) -> Iterator[str]:
    """An era a bar: of another colour where the default is another, with the words for what changed."""
    before, shade = None, 0
    for life in found.lives:
        inside = [place for place, name in enumerate(names) if _within(life, name)]
        if not inside:
            continue
        shade ^= before is not None and before.default != life.default
        words, before = _changed(book, life, before), life
        default = life.default or book.t("none")
        told = book.t("{0} to {1}: default {2}").format(names[inside[0]], names[inside[-1]], default)
        said = html.escape(told + ("" if words == default else f"; {words}"))
        left, wide = (100 * each / len(names) for each in (inside[0], len(inside)))
        kind = "idle" if set(life.read_by) <= {"nobody"} else f"era{shade}"
        place = f'x="{left:.2f}%" y="4" width="{wide:.2f}%" height="{HIGH}"'
        yield f'<rect class="{kind}" {place}><title>{said}</title></rect>'
        if len(words) + 1 < SIGNS * wide / 100:
            room = "" if len(words) + 1 < FEW * wide / 100 else ' class="wide"'
            middle = f'x="{left + wide / 2:.2f}%" y="21" text-anchor="middle"'
            yield f"<text{room} {middle}>{html.escape(words)}</text>"


def _changed(book: Book, life: Life, before: Life | None) -> str:
    """The default where it is another, else the names of what is."""
    if before is None or before.default != life.default:
        return life.default or book.t("none")
    changed = [book.t(words) for name, words in CHANGES.items() if getattr(before, name) != getattr(life, name)]
    return f"≠ {', '.join(changed)}" if changed else "="


def _within(life: Life, name: str) -> bool:
    first, last = version(life.first), version(life.last) if life.last else None
    return first <= version(name) and (last is None or version(name) <= last)


def _ticks(names: list[str]) -> Iterator[str]:
    """A line for each release; one in three has its name, on a narrow screen one in nine."""
    for place, name in enumerate(names):
        middle = 100 * (place + 0.5) / len(names)
        yield f'<line x1="{middle:.2f}%" y1="{HIGH + 8}" x2="{middle:.2f}%" y2="{HIGH + 13}"/>'
        if place % 3 == 0:
            anchor = "start" if place == 0 else "end" if place == len(names) - 1 else "middle"
            x = 0.0 if place == 0 else 100.0 if place == len(names) - 1 else middle
            kind = "small" if place % 9 == 0 else "small wide"
            yield f'<text class="{kind}" x="{x:.2f}%" y="{HIGH + 27}" text-anchor="{anchor}">{name}</text>'
