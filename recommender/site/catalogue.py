"""All generated pages, and the texts that those in another language are made of."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from recommender.site import caution, comparison, hardware, history, measurements, options, parts, people, reference
from recommender.site.book import Book, Page
from recommender.site.translation import single, translated
from recommender.store import data_root, load

KINDS = (comparison, options, history, hardware, people, measurements, caution, reference)
TRANSLATED = (comparison, options)
"""Kinds that have pages in other languages too."""
PART = re.compile(r"<!-- generated: (?P<name>[a-z-]+) ?(?P<words>.*?) -->")


def pages(book: Book) -> Iterator[Page]:
    """Every generated page in the book's language."""
    for kind in KINDS if book.english else TRANSLATED:
        yield from kind.pages(book)


@dataclass(frozen=True)
class Listening(Book):
    """A book that notes which texts were asked for."""

    asked: dict[str, None] = field(default_factory=dict)

    def t(self, words: str) -> str:
        """As ever, and noted."""
        self.asked[single(words)] = None
        return translated(self.language, words)


def texts(language: str) -> list[str]:
    """Every text that the pages in a language ask for, once, in their order."""
    book = Listening(load(), language)
    for words in labels():
        book.t(words)
    for page in pages(book):
        assert page.body
    for path in sorted((data_root() / "site").rglob(f"*.{language}.md")):
        for found in PART.finditer(path.read_text("utf-8")):
            if found["name"] in parts.PARTS:
                list(parts.PARTS[found["name"]](book, found["words"]))
    return [each for each in book.asked if each]


class _Settings(yaml.SafeLoader):
    """Reads the settings of mkdocs, in which a value may come from the environment: of those, nothing."""


_Settings.add_multi_constructor("!", lambda *_: None)


def labels() -> Iterator[str]:
    """What ``mkdocs.yml`` says on every page: the names in the navigation, and of the palettes."""
    config = yaml.load((data_root() / "mkdocs.yml").read_text("utf-8"), Loader=_Settings)
    yield config["site_description"]
    yield from (each["toggle"]["name"] for each in config["theme"]["palette"])
    yield from _names(config["nav"])


def _names(entry: object) -> Iterator[str]:
    if isinstance(entry, dict):
        yield from entry
    for each in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from _names(each)
