"""Write SVG elements as text and escape their contents."""

import html


def element(tag: str, *content: str, **attributes: object) -> str:
    """Return an element around markup. ``class_`` means class, ``text_anchor`` text-anchor; "" omits it."""
    written = (
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for name, value in attributes.items()
        if value != ""
    )
    return f"<{tag}{''.join(written)}" + (f">{''.join(content)}</{tag}>" if content else "/>")


def text(words: str, **attributes: object) -> str:
    """Return a text element with plain text."""
    return element("text", html.escape(words), **attributes)


def titled(title: str, description: str) -> str:
    """Return the title and description for screen readers."""
    return element("title", html.escape(title)) + element("desc", html.escape(description))


def chart(title: str, drawing: str, *, kind: str = "chart", legend: str = "") -> str:
    """Return a figure with a caption. ``legend`` is markup."""
    caption = element("figcaption", html.escape(title) + legend)
    return element("figure", caption, drawing, class_=kind)


def bar_chart(title: str, description: str, parts: list[str], height: int) -> str:
    """Return a chart with widths in percent, so that text keeps its size on every screen."""
    drawing = element("svg", titled(title, description), *parts, style=f"height: {height}px", role="img")
    return chart(title, drawing)
