"""Texts in other languages: gettext catalogues in ``site/translations``, keyed by the English text.

A text that changed in English has no translation any more: the page shows the English one, marked as such.
``python -m recommender.site.translation vi`` prints the entries that the catalogue lacks, to be filled in, and names
those that no page uses.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from recommender.store import data_root

ENGLISH = "en"
LANGUAGES = {ENGLISH: "English", "vi": "Tiếng Việt"}
"""The languages of the site by their own names."""
MARKS = ("\ue000", "\ue001")
"""Around a text without a translation, until ``marked`` makes HTML of them; private-use characters pass Markdown."""
MARK = re.compile("[{}{}]".format(*MARKS))
UNTRANSLATED = re.compile("{}(.*?){}".format(*MARKS), re.DOTALL)
FIGURE = re.compile(r"\d[\d.,]*\d|\d")
TAG = re.compile(rf"<[^<>]*{MARK.pattern}[^<>]*>")
SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
HIDDEN = re.compile(r"<(title|desc)>.*?</\1>", re.DOTALL)


def path(language: str) -> Path:
    """The catalogue of a language."""
    return data_root() / "site" / "translations" / f"{language}.po"


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """English texts with single blanks, each with its translation; those that a translator doubts are left out."""
    with path(language).open("rb") as file:
        found = read_po(file, locale=language, abort_invalid=True)
    return {str(each.id): str(each.string) for each in found if each.id and each.string and not each.fuzzy}


def in_language(page: str, language: str) -> str:
    """The source of a page's translation: ``flags/backend.vi.md`` of ``flags/backend.md``."""
    return page if language == ENGLISH else page.removesuffix(".md") + f".{language}.md"


def language_of(page: str) -> str:
    """The language of a page by its source's name."""
    name = page.removesuffix(".md").rpartition(".")[2]
    return name if page.endswith(f".{name}.md") and name in LANGUAGES else ENGLISH


def single(words: str) -> str:
    """A text as catalogues have it."""
    return " ".join(words.split())


def translated(language: str, words: str) -> str:
    """A text in that language, or itself between marks."""
    said = single(words)
    return catalogue(language).get(said) or (words if not said else f"{MARKS[0]}{words}{MARKS[1]}")


def with_figures(words: str, say: Callable[[str], str]) -> str:
    """A text translated but for its figures: the catalogue has it with ``{0}``, ``{1}`` in their places."""
    figures: list[str] = []

    def place(found: re.Match[str]) -> str:
        figures.append(found[0])
        return f"{{{len(figures) - 1}}}"

    return say(FIGURE.sub(place, words.replace("{", "{{").replace("}", "}}"))).format(*figures)


def plain(words: str) -> str:
    """A text without marks, for places that cannot hold any HTML."""
    return MARK.sub("", words)


def marked(html: str) -> str:
    """HTML in which every text without a translation says which language it is in.

    In an attribute, and in the title of a drawing, no element can say so: there the element itself is marked.
    """
    found = TAG.sub(lambda tag: re.sub(r"(/?>)$", r" data-untranslated\1", plain(tag[0])), html)
    found = SVG.sub(lambda drawing: _drawing(drawing[0]), found)
    return UNTRANSLATED.sub(r'<span lang="en" class="untranslated">\1</span>', found)


def _drawing(svg: str) -> str:
    hidden = HIDDEN.sub(lambda each: plain(each[0]), svg)
    told = hidden if hidden == svg else re.sub(r"^<svg", "<svg data-untranslated", hidden)
    return UNTRANSLATED.sub(r'<tspan lang="en" class="untranslated">\1</tspan>', told)


def lacking(language: str) -> tuple[list[str], list[str]]:
    """The texts that the pages in a language use and its catalogue lacks, and those that none uses."""
    from recommender.site.catalogue import texts

    used, known = texts(language), catalogue(language)
    return [each for each in used if each not in known], [each for each in known if each not in set(used)]


def main(language: str) -> None:
    """Prints both as parts of a catalogue."""
    lacks, unused = lacking(language)
    entries = Catalog(locale=language)
    for each in lacks:
        entries.add(each)
    write_po(sys.stdout.buffer, entries, width=100, omit_header=True)
    sys.stdout.buffer.write("".join(f"# Not used by any page: {each}\n" for each in unused).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
