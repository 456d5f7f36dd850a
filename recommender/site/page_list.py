"""List the generated pages, and the texts that translated pages use."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import yaml

from recommender.knowledge.load import data_root, load
from recommender.site import search, snippets
from recommender.site.i18n.mkdocs_hook import ON_THIS_PAGE
from recommender.site.i18n.translation import ENGLISH, single, translated
from recommender.site.pages import advisers, comparison, hardware, options, problems, reference, releases, runs
from recommender.site.site_data import SiteData, SitePage, site_data

KINDS = (comparison, options, releases, hardware, advisers, runs, problems, reference)
SNIPPET = re.compile(r"<!-- generated: (?P<name>[a-z-]+) ?(?P<words>.*?) -->")


def pages(data: SiteData) -> Iterator[SitePage]:
    """Yield every generated page in the language of the data."""
    for kind in KINDS:
        yield from kind.pages(data)


@cache
def generated_pages(language: str = ENGLISH) -> tuple[SitePage, ...]:
    """Return the generated pages in a language, made once per process."""
    return tuple(pages(site_data(language)))


@dataclass(frozen=True)
class TextCollector(SiteData):
    """Site data that record which texts are translated."""

    texts: dict[str, None] = field(default_factory=dict)

    def t(self, words: str) -> str:
        """Translate a text and record it."""
        self.texts[single(words)] = None
        return translated(self.language, words)


def texts(language: str) -> list[str]:
    """Return every text that a language's pages use, once, in page order."""
    data = TextCollector(load(), language)
    for words in (*labels(), ON_THIS_PAGE):
        data.t(words)
    for page in pages(data):
        assert page.body
    for path in sorted((data_root() / "site").rglob(f"*.{language}.md")):
        for marker in SNIPPET.finditer(path.read_text("utf-8")):
            if marker["name"] in snippets.SNIPPETS:
                list(snippets.SNIPPETS[marker["name"]](data, marker["words"]))
    return [text for text in data.texts if text]


class _Settings(yaml.SafeLoader):
    """Reads mkdocs.yml; values with a tag, such as !ENV, become None."""


_Settings.add_multi_constructor("!", lambda *_: None)


def labels() -> Iterator[str]:
    """Yield the kinds of the search, and the texts of ``mkdocs.yml``: description, licence, palettes and navigation."""
    yield from (kind.name for kind in search.KINDS.values())
    config = yaml.load((data_root() / "mkdocs.yml").read_text("utf-8"), Loader=_Settings)
    yield from (config["site_description"], config["copyright"])
    yield from (palette["toggle"]["name"] for palette in config["theme"]["palette"])
    yield from _names(config["nav"])


def _names(entry: object) -> Iterator[str]:
    if isinstance(entry, dict):
        yield from entry
    for inner in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from _names(inner)
