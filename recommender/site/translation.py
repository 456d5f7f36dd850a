"""Texts in other languages: gettext catalogues in ``site/translations``, keyed by the English text.

A text that changed in English has no translation any more: the page shows the English one, marked as such.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from babel.messages.pofile import read_po

from recommender.store import data_root

ENGLISH = "en"
MARKS = ("\ue000", "\ue001")
"""Around a text without a translation, until ``marked`` makes HTML of them; private-use characters pass Markdown."""
UNTRANSLATED = re.compile("(.*?)".join(MARKS), re.DOTALL)


def path(language: str) -> Path:
    """The catalogue of a language."""
    return data_root() / "site" / "translations" / f"{language}.po"


@cache
def catalogue(language: str) -> Mapping[str, str]:
    """English texts with single blanks, each with its translation; those that a translator doubts are left out."""
    with path(language).open("rb") as file:
        found = read_po(file, locale=language, abort_invalid=True)
    return {str(each.id): str(each.string) for each in found if each.id and each.string and not each.fuzzy}


def translated(language: str, words: str) -> str:
    """A text in that language, or itself between marks."""
    said = " ".join(words.split())
    return catalogue(language).get(said) or (words if not said else f"{MARKS[0]}{words}{MARKS[1]}")


def marked(html: str) -> str:
    """HTML in which every text without a translation says which language it is in."""
    return UNTRANSLATED.sub(r'<span lang="en" class="untranslated">\1</span>', html)
