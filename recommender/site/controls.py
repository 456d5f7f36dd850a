"""Render the controls above a table or list; the scripts in ``site/assets`` read them.

They are hidden until a script shows them: without JavaScript the page shows everything.
"""

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from recommender.site.site_data import SiteData

FIGURE = re.compile(r"([\d,]+(\.\d+)?(/s)?)?|–")
"""A cell of a column of figures."""


def form(name: str, parts: Iterable[str], *, label: str) -> str:
    """Return a form of controls as one block of HTML."""
    inside = "\n".join(parts)
    label = html.escape(label)
    return f'\n<form id="{name}-controls" class="controls" aria-label="{label}" hidden>\n{inside}\n</form>\n'


def field(data: SiteData, name: str, label: str) -> str:
    """Return a search field."""
    return (
        f'<div class="field"><label for="{name}-text">{data.html(label)}</label>'
        f'<input id="{name}-text" type="search" autocomplete="off" spellcheck="false"></div>'
    )


def group(label: str, buttons: Iterable[str]) -> str:
    """Return a labelled group of buttons."""
    label = html.escape(label)
    return f'<div class="group" role="group" aria-label="{label}"><span>{label}</span> {" ".join(buttons)}</div>'


def button(kind: str, value: str, label: str, *, pressed: bool | None = None) -> str:
    """Return a button with ``data-KIND``. ``pressed``: initial state of a toggle. ``label`` is HTML."""
    state = "" if pressed is None else f' aria-pressed="{str(pressed).lower()}"'
    return f'<button type="button" data-{kind}="{html.escape(value)}"{state}>{label}</button>'


def choice(name: str, label: str, options: Mapping[str, str], *, selected: str = "", field: str = "") -> str:
    """Return a select box. ``options``: label by value. ``field``: the items' data that it filters by."""
    items = "".join(
        f'<option value="{html.escape(value)}"{" selected" if value == selected else ""}>{html.escape(title)}</option>'
        for value, title in options.items()
    )
    data = f' data-field="{field}"' if field else ""
    return (
        f'<div class="field"><label for="{name}">{html.escape(label)}</label>'
        f'<select id="{name}"{data} autocomplete="off">{items}</select></div>'
    )


def filter_by(label: str, column: int, values: Iterable[str], every: str) -> str:
    """Return a select box that shows the rows with one value of a column; ``every`` is the label for all."""
    items = "".join(f"<option>{html.escape(value)}</option>" for value in values)
    name = f"by-{column}"
    return (
        f'<div class="field"><label for="{name}">{html.escape(label)}</label>'
        f'<select id="{name}" data-column="{column}" autocomplete="off"><option value="">{html.escape(every)}</option>'
        f"{items}</select></div>"
    )


def count(name: str, template: str) -> str:
    """Return the status text for "{0} of {1}", which the script fills in."""
    return f'<p id="{name}-count" class="count" role="status" data-said="{html.escape(template)}"></p>'


def data_table(
    data: SiteData,
    name: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    filters: Sequence[str],
    counted: str,
    *,
    ids: Sequence[str] = (),
    kind: str = "",
    more: Iterable[str] = (),
    attributes: Sequence[str] = (),
) -> Iterator[str]:
    """Return a table that sorts and filters, with its controls. Cells are HTML. ``ids``, ``attributes``: of the rows.

    ``more``: further controls, which read the attributes.
    """
    lines = [tuple(row) for row in rows]
    choices = ((label, sorted({row[head.index(label)] for row in lines})) for label in filters)
    parts = (
        field(data, name, "Find"),
        *(filter_by(label, head.index(label), values, data.t("all")) for label, values in choices),
        *more,
        count(name, data.t(counted)),
    )
    yield form(name, parts, label=data.t("What the table shows"))
    figures = [all(FIGURE.fullmatch(cell) for cell in column) for column in zip(*lines, strict=True)]
    classes = [' class="n"' if is_figure else "" for is_figure in figures]
    heads = "".join(f'<th scope="col"{own}>{label}</th>' for label, own in zip(head, classes, strict=True))
    yield f'<div class="data-scroll"><table class="data {kind}" id="{name}-table">'
    yield f"<thead><tr>{heads}</tr></thead><tbody>"
    for place, (first, *rest) in enumerate(lines):
        own = (f' id="{ids[place]}"' if ids else "") + (f" {attributes[place]}" if attributes else "")
        cells = "".join(f"<td{of}>{cell}</td>" for cell, of in zip(rest, classes[1:], strict=True))
        yield f'<tr{own}><th scope="row">{first}</th>{cells}</tr>'
    yield "</tbody></table></div>"
