"""All generated pages."""

from __future__ import annotations

from collections.abc import Iterator

from recommender.site import caution, comparison, hardware, history, measurements, options, people, reference
from recommender.site.book import Book, Page

KINDS = (comparison, options, history, hardware, people, measurements, caution, reference)


def pages(book: Book) -> Iterator[Page]:
    """Every generated page."""
    for kind in KINDS:
        yield from kind.pages(book)
