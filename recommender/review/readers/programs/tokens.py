"""Split programs in JavaScript, Go, Rust, Java, Groovy and the like into tokens, and read their constants.

A launch looks alike in all of them: texts in lists and calls. That does not justify installing a compiled
tree-sitter grammar for each language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from recommender.common.pattern import pattern
from recommender.review.script.source_map import Field, Mapped, Piece, split_pieces

TOKEN = pattern(
    r"""(?P<note>//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?|(?<![^\n])\#![^\n]*)
    |(?P<text>\"\"\"(?:[^\"\\]|\\.|\"(?!\"\"))*+(?:\"\"\")?|'''(?:[^'\\]|\\.|'(?!''))*+(?:''')?
        |`(?:[^`\\]|\\.)*+`?|\"(?:[^\"\\\n]|\\.)*+\"?|'(?:[^'\\\n]|\\.)*+'?)
    |(?P<name>[A-Za-z_$][\w$]*(?:(?:\??\.|::)[A-Za-z_]\w*)*)
    |(?P<number>\d[\d_]*(?:\.\d+)?)
    |(?P<sign>\.\.\.|\?\?|\|\||:=|\+=|<<|=>|==|\S)""",
    re.VERBOSE | re.DOTALL,
)
MARKS = ('"""', "'''", "`", '"', "'")
WITHIN = pattern(r"(?<!\\)\$\{(?P<braced>[^{}\n]*)\}|(?<!\\)\$(?P<bare>[A-Za-z_]\w*)")
"""An expression in a text: `${port}` of JavaScript, `$PORT` of Groovy too."""
ESCAPE = pattern(r"\\(.)", re.DOTALL)
ESCAPES = {"n": "\n", "t": "\t", "\n": ""}
MOST_TOKENS = 60_000
OPENS, CLOSES = frozenset("([{"), frozenset(")]}")
# Tokens between a name and the value that is its default: `process.env.MODEL ?? "m"`.
ELSE = frozenset({"??", "||"})
LONGEST_TYPE = 8
TYPES = frozenset("&'?[]<>")
"""Signs of a type."""


class Token(NamedTuple):
    """A token; ``kind`` is text, name, number or sign."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def inner(self) -> tuple[int, int]:
        """Return the range within a text's quotes."""
        mark = next((mark for mark in MARKS if self.text.startswith(mark)), "")
        closed = len(self.text) >= 2 * len(mark) and self.text.endswith(mark)
        return self.start + len(mark), self.end - len(mark) * closed

    @property
    def value(self) -> str:
        """Return a text without quotes, or the token."""
        first, last = self.inner
        return self.text[first - self.start : last - self.start] if self.kind == "text" else self.text


def tokens(text: str) -> tuple[list[Token], list[tuple[int, int]]]:
    """Return the tokens, and the ranges of comments."""
    found: list[Token] = []
    notes: list[tuple[int, int]] = []
    for match in islice(TOKEN.finditer(text), MOST_TOKENS):
        if match["note"]:
            notes.append(match.span())
        else:
            found.append(Token(match.lastgroup or "sign", match[0], *match.span()))
    return found, notes


def constants(token_list: Sequence[Token]) -> dict[str, Token | None]:
    """Return the names that a program sets to one text or number, defaults included; None if it sets several."""
    found: dict[str, Token | None] = {}
    for at, token in enumerate(token_list[:-1]):
        if token.text not in ("=", ":=") or token.kind != "sign":
            continue
        name, value = last_name(assigned(token_list, at)), _value(token_list, at + 1)
        if name and value is not None:
            known = found.setdefault(name, value)
            if known is not None and known.value != value.value:
                found[name] = None
    return found


def assigned(token_list: Sequence[Token], at: int) -> str:
    """Return the name before an equals sign, with or without a type; empty if there is none."""
    for back in range(at - 1, max(at - LONGEST_TYPE, 0), -1):
        if token_list[back].text == ":" and token_list[back - 1].kind == "name":
            return token_list[back - 1].text
        if token_list[back].text not in TYPES and token_list[back].kind != "name":
            break
    return token_list[at - 1].text if at and token_list[at - 1].kind == "name" else ""


def _value(token_list: Sequence[Token], at: int) -> Token | None:
    """Return the literal at a place, or the default behind a name."""
    token = token_list[at]
    if token.kind in ("text", "number"):
        behind = token_list[at + 1].text if at + 1 < len(token_list) else ""
        return None if behind in ("+", ".") else token
    if token.kind == "name" and at + 2 < len(token_list) and token_list[at + 1].text in ELSE:
        return _value(token_list, at + 2)
    return None


def last_name(name: str) -> str:
    """Return the last part of a dotted name."""
    return re.split(r"\.|::", name)[-1]


def field(token: Token, values: dict[str, Token | None]) -> Field:
    """Return a text or a number as a word, with the constants in it replaced."""
    if token.kind != "text":
        return Field((Piece(token.text, token.start, token.end),), token.start, token.end)
    first, last = token.inner
    pieces: list[Piece] = []
    if token.text[0] in ('"', "`"):
        pieces += _pieces(token, values)
    else:
        pieces.append(Piece(unescaped(token.value), first, last))
    return Field(tuple(pieces), token.start, token.end, quoted=True)


def _pieces(token: Token, values: dict[str, Token | None]) -> Iterator[Piece]:
    first, at, text = token.inner[0], 0, token.value
    for match in WITHIN.finditer(text):
        if match.start() > at:
            yield Piece(unescaped(text[at : match.start()]), first + at, first + match.start())
        value = values.get(last_name((match["braced"] or match["bare"] or "").strip()))
        yield Piece(value.value, *value.inner) if value else Piece(None, first + match.start(), first + match.end())
        at = match.end()
    if at < len(text) or not at:
        yield Piece(unescaped(text[at:]), first + at, first + len(text))


def unescaped(text: str) -> str:
    """Return a text without its backslashes."""
    return ESCAPE.sub(lambda match: ESCAPES.get(match[1], match[1]), text) if "\\" in text else text


def shell_text(token: Token) -> Mapped:
    """Return a text as a shell gets it: escapes replaced, expressions as variables."""
    first, last = token.inner
    text = Mapped(token.value, range(first, last))
    changes = [(*match.span(), ESCAPES.get(match[1], match[1])) for match in ESCAPE.finditer(text.code)]
    if token.text[0] in ('"', "`"):
        for match in WITHIN.finditer(text.code):
            name = last_name((match["braced"] or match["bare"] or "").strip())
            changes.append((*match.span(), f"${{{name}}}" if name.isidentifier() else "$?"))
    return text.replaced(sorted(changes))


def parts_of(word: Field) -> Iterator[Field]:
    """Yield the words of a text in which some are unknown."""
    for group in split_pieces([piece._replace(splits=True) for piece in word.pieces]):
        first, last = min(piece.start for piece in group), max(piece.end for piece in group)
        yield Field(tuple(group), first, last)


def blank_separated(words: Field) -> Iterator[Field]:
    """Yield the words of a text."""
    for piece in words.pieces:
        at = 0
        for part in (piece.text or "").split():
            at = (piece.text or "").index(part, at)
            here = piece.cut(at, at + len(part))
            yield Field((here,), here.start, here.end)
            at += len(part)
