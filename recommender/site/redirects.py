"""Redirect old addresses: runs had a page each, and the picker a page of its own.

mkdocs-redirects drops what follows ``?`` in an address: the question of a picker's link.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from recommender.site.site_data import SiteData

MOVED = {
    "picker.html": "index.html",
    "vi/picker.html": "vi/index.html",
    "concepts/index.html": "how-to/index.html#concepts",
    "vi/concepts/index.html": "vi/how-to/index.html#concepts",
    "evidence/index.html": "runs.html",
}
"""New addresses by the old ones, besides those of the runs."""
STUB = (
    '<!doctype html><meta charset="utf-8"><title>Moved</title><meta http-equiv="refresh" content="1; url={new}">'
    '<a href="{new}">Moved</a><script>location.replace("{page}"+location.search+"{anchor}")</script>\n'
)


def files(data: SiteData) -> Iterator[tuple[str, str]]:
    """Yield a page for each old address: its path, and HTML that leads on, with the question of a picker's link."""
    runs = {f"evidence/{name}.html": f"runs.html#{name}" for name in (*data.runs, *data.probes)}
    for old, target in (MOVED | runs).items():
        page, sign, anchor = target.partition("#")
        page = posixpath.relpath(page, posixpath.dirname(old) or ".")
        yield old, STUB.format(new=f"{page}{sign}{anchor}", page=page, anchor=f"{sign}{anchor}")
