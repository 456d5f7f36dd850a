"""The hook of mkdocs: adds the generated pages to a build. Nothing generated lies in ``site/``.

``mkdocs.yml`` names this file. Its navigation may name a folder (``gpus/``), which stands for the pages in it.
In a hand-written page ``<!-- generated: NAME WORDS -->`` gives way to a part of ``parts.PARTS``. HTML that is written
by hand links to a page as ``href="md:flags/session-len.md"``. Where pages in other languages go: ``languages.py``.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from recommender.site import api, catalogue, history, parts
from recommender.site.book import Book
from recommender.site.book import Page as Written
from recommender.site.reference import schema_files
from recommender.site.translation import ENGLISH, LANGUAGES, in_language, language_of
from recommender.store import load

LINK = re.compile(r'href="md:([^"#]+)(#[^"]*)?"')


@cache
def book(language: str = ENGLISH) -> Book:
    """The store and the evidence, read once for all builds of a process."""
    return Book(load(), language)


@cache
def written(language: str = ENGLISH) -> tuple[Written, ...]:
    """The generated pages in a language."""
    return tuple(catalogue.pages(book(language)))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Spells out the folders of the navigation."""
    config.nav = _spelled(config.nav or [])
    return config


def _spelled(entry: Any) -> Any:
    if isinstance(entry, list):
        return [inner for each in entry for inner in (_folder(each) if _is_folder(each) else [_spelled(each)])]
    if isinstance(entry, dict):
        return {name: _spelled(each) for name, each in entry.items()}
    return entry


def _is_folder(entry: Any) -> bool:
    return isinstance(entry, str) and entry.endswith("/")


def _folder(entry: str) -> list[str]:
    return [each.path for each in written() if each.path.startswith(entry)]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages, the schemas as they are, and the JSON interface."""
    for language in LANGUAGES:
        for each in written(language):
            files.append(File.generated(config, in_language(each.path, language), content=each.markdown))
    for path in schema_files():
        files.append(File.generated(config, f"reference/schema/{path.name}", abs_src_path=str(path)))
    for name, text in (*api.files(book()), *history.files(book())):
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Puts the generated parts into a hand-written page."""

    def part(found: re.Match[str]) -> str:
        if found["name"] not in parts.PARTS:
            raise PluginError(f"{page.file.src_uri}: no generated part is called {found['name']}")
        return "\n".join(parts.PARTS[found["name"]](book(language_of(page.file.src_uri)), found["words"]))

    return catalogue.PART.sub(part, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Resolves the links of HTML that Markdown does not read."""

    def link(found: re.Match[str]) -> str:
        file = files.get_file_from_path(found[1])
        if file is None:
            raise PluginError(f"{page.file.src_uri}: no page {found[1]} to link to")
        return f'href="{file.url_relative_to(page.file)}{found[2] or ""}"'

    return LINK.sub(link, html)
