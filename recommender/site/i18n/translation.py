"""Translate texts with the gettext catalogues in ``site/translations``, keyed by the English text.

A text that changes in English loses its translation; the page then shows the English text with a mark.
``python -m recommender.site.missing_translations vi`` lists missing and unused entries.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import count
from pathlib import Path

from babel.messages.pofile import read_po

from recommender.knowledge.load import data_root

ENGLISH = "en"
LANGUAGES = {ENGLISH: "English", "vi": "Tiếng Việt"}
"""Languages of the site with their own names."""
MARKS = ("\ue000", "\ue001")
"""Marks around an untranslated text until ``marked`` turns them into HTML; Markdown keeps private-use characters."""
MARK = re.compile("[{}{}]".format(*MARKS))
UNTRANSLATED = re.compile("{}(.*?){}".format(*MARKS), re.DOTALL)
PLACE = re.compile(r"\{[^}]+\}")
FIGURE = re.compile(r"\d[\d.,]*\d|\d")
TAG = re.compile(rf"<[^<>]*{MARK.pattern}[^<>]*>")
SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
HIDDEN = re.compile(r"<(title|desc)>.*?</\1>", re.DOTALL)


def path(language: str) -> Path:
    """Return the path of a language's catalogue."""
    return data_root() / "site" / "translations" / f"{language}.po"


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """Return translations by English text with single spaces; fuzzy ones are left out."""
    with path(language).open("rb") as file:
        messages = read_po(file, locale=language, abort_invalid=True)
    return {
        str(message.id): str(message.string)
        for message in messages
        if message.id and message.string and not message.fuzzy
    }


def in_language(page: str, language: str) -> str:
    """Return the source path of a translation: ``flags/backend.vi.md``."""
    return page if language == ENGLISH else page.removesuffix(".md") + f".{language}.md"


def language_of(page: str) -> str:
    """Return a page's language from its source path."""
    name = page.removesuffix(".md").rpartition(".")[2]
    return name if page.endswith(f".{name}.md") and name in LANGUAGES else ENGLISH


def single(words: str) -> str:
    """Return a text with single spaces, as in the catalogues."""
    return " ".join(words.split())


def translated(language: str, words: str) -> str:
    """Translate a text, or return it between marks."""
    english = single(words)
    return catalogue(language).get(english) or (f"{MARKS[0]}{words}{MARKS[1]}" if english else words)


def with_figures(words: str, translate: Callable[[str], str]) -> str:
    """Translate a text with its figures replaced by ``{0}``, ``{1}``, and put them back."""
    places = count()
    template = FIGURE.sub(lambda _: f"{{{next(places)}}}", words.replace("{", "{{").replace("}", "}}"))
    return translate(template).format(*FIGURE.findall(words))


def by_template(words: str, templates: Iterable[str], translate: Callable[[str], str]) -> str:
    """Translate a text whose ``{names}`` are filled in already, by the one of its templates that it fits."""
    for template in templates:
        parts, names = PLACE.split(template), PLACE.findall(template)
        if found := re.fullmatch("(.+?)".join(map(re.escape, parts)), words):
            own = translate(template)
            for name, value in zip(names, found.groups(), strict=True):
                own = own.replace(name, value)
            return own
    return translate(words)


def plain(words: str) -> str:
    """Remove the marks, for places without HTML."""
    return MARK.sub("", words)


def marked(html: str) -> str:
    """Turn the marks into HTML that names the language of each untranslated text.

    Attributes and titles of drawings cannot hold an element, so their own element is marked.
    """
    html = TAG.sub(lambda tag: re.sub(r"(/?>)$", r" data-untranslated\1", plain(tag[0])), html)
    html = SVG.sub(lambda drawing: _drawing(drawing[0]), html)
    return UNTRANSLATED.sub(r'<span lang="en" class="untranslated">\1</span>', html)


def _drawing(svg: str) -> str:
    hidden = HIDDEN.sub(lambda title: plain(title[0]), svg)
    if hidden != svg:
        hidden = hidden.replace("<svg", "<svg data-untranslated", 1)
    return UNTRANSLATED.sub(r'<tspan lang="en" class="untranslated">\1</tspan>', hidden)
