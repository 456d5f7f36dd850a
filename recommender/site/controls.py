"""Controls above a table or a list: what they are called and which script reads them is in ``site/assets``.

They are hidden until a script shows them: without one everything is on the page, in its usual order.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping

from recommender.site.book import Book


def form(name: str, parts: Iterable[str], *, label: str) -> str:
    """A bar of controls, in one block of HTML."""
    inside = "\n".join(parts)
    said = html.escape(label)
    return f'\n<form id="{name}-controls" class="controls" aria-label="{said}" hidden>\n{inside}\n</form>\n'


def field(book: Book, name: str, label: str) -> str:
    """A field for text to be looked for."""
    said = html.escape(book.t(label))
    return (
        f'<div class="field"><label for="{name}-text">{said}</label>'
        f'<input id="{name}-text" type="search" autocomplete="off" spellcheck="false"></div>'
    )


def group(label: str, buttons: Iterable[str]) -> str:
    """Buttons that belong together."""
    said = html.escape(label)
    return f'<div class="group" role="group" aria-label="{said}"><span>{said}</span> {" ".join(buttons)}</div>'


def button(kind: str, value: str, label: str, *, pressed: bool | None = None) -> str:
    """A button: ``data-KIND`` is what it does. ``pressed``: it can be on or off, and how it starts. HTML as label."""
    state = "" if pressed is None else f' aria-pressed="{str(pressed).lower()}"'
    return f'<button type="button" data-{kind}="{html.escape(value)}"{state}>{label}</button>'


def choice(name: str, label: str, options: Mapping[str, str], chosen: str = "") -> str:
    """One of several values: by value what it is called."""
    items = "".join(
        f'<option value="{html.escape(value)}"{" selected" if value == chosen else ""}>{html.escape(said)}</option>'
        for value, said in options.items()
    )
    return (
        f'<div class="field"><label for="{name}">{html.escape(label)}</label>'
        f'<select id="{name}" autocomplete="off">{items}</select></div>'
    )


def count(name: str, template: str) -> str:
    """What says how much is shown, also to a screen reader; {0} and {1} are filled in by the script."""
    return f'<p id="{name}-count" class="count" role="status" data-said="{html.escape(template)}"></p>'
