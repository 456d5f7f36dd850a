"""Read variable assignments in makefiles, justfiles and the variable files beside them."""

import re
from collections.abc import Mapping

from recommender.common.pattern import pattern
from recommender.review.script import sibling_files
from recommender.review.script.model import Word
from recommender.review.script.source_map import Field, Piece, SourceText

# `NAME = value` of make, with its operators.
ASSIGNED = pattern(
    r"(?:export[ \t]+)?(?P<name>[A-Za-z_]\w*)[ \t]*(?P<more>\+?)[:?]{0,3}=[ \t]*(?P<value>.*)", re.DOTALL
)
MADE = pattern(r"\$[({](\w+)[)}]")
JUST_VALUE = pattern(
    r"(?:env(?:_var_or_default)?\([ \t]*[\"'][^\"'\n]*[\"'][ \t]*,[ \t]*)?(?P<value>\"[^\"\n]*\"|'[^'\n]*')[ \t]*\)?"
)


def beside_values(page: SourceText, name: str, start: int, end: int) -> dict[str, Word]:
    """Return what a file beside this one assigns: foreman's .env, what a Makefile includes."""
    source = sibling_files.read(page.script.path, name)
    place = page.place(start, end)
    assigned = (ASSIGNED.fullmatch(line) for line in (source.text.splitlines() if source else ()))
    pairs = ((match["name"], match["value"].strip().strip("\"'")) for match in assigned if match)
    return {name: Word(text, None if "$" in text else text, place, variable=name) for name, text in pairs}


def value_of(page: SourceText, match: re.Match[str], start: int, just: bool, variables: Mapping[str, Word]) -> Word:
    """Return the value of an assignment, with the variables that the lines before it set."""
    text, at = match["value"].strip(), start + match.start("value")
    if just:  # an expression: only a text, or the default of an environment variable, is known
        given = JUST_VALUE.fullmatch(text)
        return word_of(page, given["value"], at + given.start("value")) if given else word_of(page, "$", at)
    before = variables.get(match["name"]) if match["more"] else None
    names = MADE.findall(text)
    if before is None and not names:
        return word_of(page, text, at)
    word = page.word(Field((Piece(None),), at, at + len(text), match["name"]))
    known = [variables[name].value if name in variables else None for name in names]
    if None in known or "$" in MADE.sub("", text) or (before is not None and before.value is None):
        return word
    added = MADE.sub(lambda macro: variables[macro[1]].value or "", text)
    return word._replace(value=f"{before.value} {added}" if before is not None else added)


def word_of(page: SourceText, text: str, start: int) -> Word:
    """Return a value without its quotes; unknown if a variable is in it."""
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        text, start = text[1:-1], start + 1
    known = not any(sign in text for sign in ("$", "%(", "{{"))
    return page.word(Field((Piece(text if known else None, start, start + len(text)),), start, start + len(text)))
