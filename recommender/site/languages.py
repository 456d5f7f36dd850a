"""The second hook of mkdocs: pages in other languages, in folders of their own (``vi/flags/backend.html``).

``flags/backend.vi.md`` is the translation of ``flags/backend.md``, written by hand or by the first hook. A page in
another language has that language's words around it, its navigation and its search. Links lead to pages in the same
language; where there is none, to the English page, and say so. Every page has a switch to the same page in the other
languages, or to their first page, and says that it does.
"""

from __future__ import annotations

import copy
import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure import StructureItem
from mkdocs.structure.files import Files, InclusionLevel
from mkdocs.structure.nav import Link, Navigation, Section
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink
from mkdocs.utils import get_relative_url

from recommender.site.translation import ENGLISH, LANGUAGES, in_language, language_of, marked, plain, translated

OTHERS = [each for each in LANGUAGES if each != ENGLISH]
ANCHOR = re.compile(r'(<a\b[^>]*?\bhref=")([^"#:]+)((?:#[^"]*)?")')
SETTINGS = re.compile(r'(<script id="__config"[^>]*>)(.*?)(</script>)', re.DOTALL)
LABEL = " (EN)"
"""Behind the name of a page that is in English only."""

MISSING = {"vi": "trang này chưa được dịch, về trang đầu"}
"""What the switch says where it leads to the first page for want of a translation, in that language."""
WORDS = {"lang": [ENGLISH], "pipeline": [], "separator": r"""[\s\-,:;!?()\[\]"']+|\.(?!\d)"""}
"""How the search finds words in other languages. What it does to English ones cuts off letters with accents, and its
own code for Vietnamese does too: so words are taken as they stand."""

_navigations: dict[str, Navigation] = {}
_words: dict[str, dict[str, Any]] = {}
_pages: set[str] = set()


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Prepares what differs on pages in each language."""
    palette, description = config.theme["palette"], config.site_description or ""
    for language in LANGUAGES:
        own = copy.deepcopy(palette)
        for each in own:
            each["toggle"]["name"] = _said(language, each["toggle"]["name"])
        _words[language] = {"palette": own, "description": _said(language, description)}
    # Makes the theme show the switch, and keeps it from naming other languages in the head: see overrides/main.html.
    config.extra["alternate"] = True
    return config


def _said(language: str, words: str) -> str:
    return words if language == ENGLISH else plain(translated(language, words))


@event_priority(-50)
def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Puts translations into their languages' folders. Their sources keep their names, so relative links hold."""
    for file in files.documentation_pages():
        language = language_of(file.src_uri)
        if language != ENGLISH:
            file.name = file.name.removesuffix(f".{language}")
            file.dest_uri = f"{language}/{posixpath.dirname(file.src_uri)}/{file.name}.html".replace("//", "/")
            file.inclusion = InclusionLevel.NOT_IN_NAV
    _pages.clear()
    _pages.update(each.dest_uri for each in files.documentation_pages())
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leads links to pages in the same language, and marks what is not translated."""
    language = language_of(page.file.src_uri)
    if language == ENGLISH:
        return html

    def link(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.dest_uri), found[2]))
        if f"{language}/{target}" in _pages:
            return f"{found[1]}{get_relative_url(f'{language}/{target}', page.file.url)}{found[3]}"
        english = target in _pages and not target.startswith(f"{language}/")
        return found[0] + (f' hreflang="{ENGLISH}"' if english else "")

    page.title = plain(str(page.title))
    _unmarked(page.toc)
    return marked(ANCHOR.sub(link, html))


def _unmarked(entries: Any) -> None:
    each: AnchorLink
    for each in entries:
        each.title = plain(each.title)
        _unmarked(each.children)


def on_env(env: Any, config: MkDocsConfig, files: Files) -> None:
    """Makes the navigation of each language: by now the pages know their titles."""
    for language in OTHERS:
        items = [made for each in config.nav or [] for made in _items(each, "", language, files)]
        _navigations[language] = _navigation(items)


def _items(entry: Any, title: str, language: str, files: Files) -> Iterator[StructureItem]:
    """What an entry of the navigation becomes: a section without a translated page is a link to its first page."""
    if isinstance(entry, dict):
        for name, inner in entry.items():
            yield from _items(inner, _said(language, name), language, files)
    elif isinstance(entry, list):
        children = [made for each in entry for made in _items(each, "", language, files)]
        if all(each.is_link for each in children):
            first = children[0]
            assert isinstance(first, Link)
            yield Link(title + LABEL, first.url)
        else:
            yield Section(title, children)
    else:
        own, english = files.get_file_from_path(in_language(entry, language)), files.get_file_from_path(entry)
        if own and own.page:
            own.page.title = title or own.page.title
            yield own.page
        elif english and english.page:
            yield Link((title or str(english.page.title)) + LABEL, english.url)


def _navigation(items: list[StructureItem]) -> Navigation:
    """As mkdocs makes its own: sections are the parents of what is in them, and pages know their neighbours."""
    pages: list[Page] = []

    def walk(inside: list[StructureItem], parent: Section | None) -> None:
        for each in inside:
            each.parent = parent
            if isinstance(each, Page):
                pages.append(each)
            elif isinstance(each, Section):
                walk(each.children, each)

    walk(items, None)
    for before, here, after in zip([None, *pages], pages, [*pages[1:], None], strict=False):
        here.previous_page, here.next_page = before, after
    made = Navigation(items, pages)
    made.homepage = pages[0]
    return made


def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Navigation) -> dict[str, Any]:
    """Gives a page its language's words and navigation, and the switch."""
    language = language_of(page.file.src_uri)
    config.theme["language"] = language
    config.theme["palette"] = _words[language]["palette"]
    config.site_description = _words[language]["description"]
    context["nav"] = _navigations.get(language, nav)
    path = page.file.dest_uri.removeprefix("" if language == ENGLISH else f"{language}/")
    there = {each: path if each == ENGLISH else f"{each}/{path}" for each in LANGUAGES}
    context["switch"] = [
        {
            "name": name,
            "lang": each,
            "here": each == language,
            "missing": "" if there[each] in _pages else MISSING[each],
            "link": there[each] if there[each] in _pages else f"{each}/index.html",
        }
        for each, name in LANGUAGES.items()
    ]
    return context


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Makes the search of a page that of its language: the theme looks for the index below this base.

    It would look for the list of versions from there as well, and not find it: these pages have no choice of versions.
    """
    language = language_of(page.file.src_uri)
    if language == ENGLISH:
        return output

    def settings(found: re.Match[str]) -> str:
        own = {"base": get_relative_url(f"{language}/", page.file.url), "version": None}
        return found[1] + json.dumps(json.loads(found[2]) | own).replace("<", r"\u003c") + found[3]

    return SETTINGS.sub(settings, output, count=1)


# Between the search plugin, which writes the index, and "offline", which makes a script of it.
@event_priority(-50)
def on_post_build(config: MkDocsConfig) -> None:
    """Gives each language an index of its own: its pages, and those that are in English only."""
    path = Path(config.site_dir) / "search" / "search_index.json"
    whole = json.loads(path.read_text("utf-8"))
    own: dict[str, list[dict[str, str]]] = {each: [] for each in LANGUAGES}
    for each in whole["docs"]:
        own[next((name for name in OTHERS if each["location"].startswith(f"{name}/")), ENGLISH)].append(each)
    for language, entries in own.items():
        docs = entries if language == ENGLISH else [*_below(entries, language), *_beside(own[ENGLISH], language)]
        asked = {} if language == ENGLISH else WORDS
        text = json.dumps(whole | {"config": whole["config"] | asked, "docs": docs}, separators=(",", ":"))
        folder = path.parent if language == ENGLISH else Path(config.site_dir) / language / "search"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / path.name).write_text(text, "utf-8")
        if language != ENGLISH:
            (folder / "search_index.js").write_text(f"var __index = {text}", "utf-8")


def _below(entries: list[dict[str, str]], language: str) -> Iterator[dict[str, str]]:
    for each in entries:
        yield each | {"location": each["location"].removeprefix(f"{language}/"), "title": plain(each["title"])}


def _beside(entries: list[dict[str, str]], language: str) -> Iterator[dict[str, str]]:
    for each in entries:
        if f"{language}/{each['location'].partition('#')[0]}" not in _pages:
            yield each | {"location": f"../{each['location']}", "title": each["title"] + LABEL}
