"""Draw an option's eras as a bar over the releases, in SVG without a script."""

from __future__ import annotations

import html
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.knowledge.conditions import version
from recommender.site.charts import svg

if TYPE_CHECKING:
    from recommender.lookup.option import OptionEra, OptionInfo
    from recommender.site.site_data import SiteData

HIGH = 26
SIGNS, FEW = 84, 40
"""Characters that fit on a wide screen and on a phone; labels that do not fit a phone are hidden there."""
CHANGES = {"choices": "choices", "type": "type", "read_by": "readers", "note": "notes"}
"""What else can change between eras besides the default, and its label."""


def timeline(data: SiteData, option: OptionInfo) -> str:
    """Return an option's bar; the table below it has the same facts.

    Positions are percent of the width, so that text keeps its size on every screen.
    """
    names = [release.id for release in data.releases]
    label = data.t("{name} in the releases {first} to {last}: {eras} eras").format(
        name=option.name, first=names[0], last=names[-1], eras=len(option.lives)
    )
    parts = [*_bars(data, option, names), *_ticks(names)]
    drawing = svg.element("svg", *parts, style="height: 66px", role="img", aria_label=label)
    return f'\n<div class="chart">{drawing}</div>\n'


def _bars(data: SiteData, option: OptionInfo, names: list[str]) -> Iterator[str]:
    """Yield one bar per era: the colour changes with the default, the label says what changed."""
    before, shade = None, 0
    for era in option.lives:
        places = [place for place, name in enumerate(names) if _within(era, name)]
        if not places:
            continue
        shade ^= before is not None and before.default != era.default
        words, before = _changed(data, era, before), era
        default = era.default or data.t("none")
        tip = data.t("{0} to {1}: default {2}").format(names[places[0]], names[places[-1]], default)
        tip += "" if words == default else f"; {words}"
        left, width = (100 * count / len(names) for count in (places[0], len(places)))
        yield svg.element(
            "rect",
            svg.element("title", html.escape(tip)),
            class_="idle" if set(era.read_by) <= {"nobody"} else f"era{shade}",
            x=f"{left:.2f}%",
            y=4,
            width=f"{width:.2f}%",
            height=HIGH,
        )
        words = words if words == default else f"{default}; {words}"
        words = words if len(words) + 1 < SIGNS * width / 100 else default
        if len(words) + 1 < SIGNS * width / 100:
            kind = "" if len(words) + 1 < FEW * width / 100 else "wide"
            yield svg.text(words, class_=kind, x=f"{left + width / 2:.2f}%", y=21, text_anchor="middle")


def _changed(data: SiteData, era: OptionEra, before: OptionEra | None) -> str:
    """Return the new default, or the names of what else changed."""
    if before is None or before.default != era.default:
        return era.default or data.t("none")
    changed = [data.t(words) for name, words in CHANGES.items() if getattr(before, name) != getattr(era, name)]
    return data.t("changed: {0}").format(", ".join(changed)) if changed else "="


def _within(era: OptionEra, name: str) -> bool:
    return version(era.first) <= version(name) and (not era.last or version(name) <= version(era.last))


def _ticks(names: list[str]) -> Iterator[str]:
    """Yield a tick per release, all in one dashed line; every third has a label, on a narrow screen every ninth."""
    y, first = HIGH + 10, f"{50 / len(names):.2f}%"
    yield svg.element("line", class_="ticks", x1=first, y1=y, x2="100%", y2=y, pathLength=len(names) - 0.5)
    ends = {0: (0.0, "start"), len(names) - 1: (100.0, "end")}
    for place in range(0, len(names), 3):
        x, anchor = ends.get(place, (100 * (place + 0.5) / len(names), "middle"))
        kind = "small" if place % 9 == 0 else "small wide"
        yield svg.text(names[place], class_=kind, x=f"{x:.2f}%", y=HIGH + 27, text_anchor=anchor)
