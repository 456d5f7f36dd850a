"""Map texts within a file to their offsets: a script, a string, a YAML block.

A reader parses the text and knows the file offset of each character. Offsets count characters.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from recommender.common.pattern import pattern
from recommender.review.script.model import Script, Span, Word

LONGEST_WORD = 100_000
"""Characters of a word with its variables replaced; the system takes no longer one."""
MOST_PIECES = 2000
BELOW = pattern(r"(?:/[\w.-]+)+")
FOLDER = pattern(r"(?:dir|root|path|home|base|folder|cache|workspace)s?\b", re.IGNORECASE)
"""Words in the name of a variable that holds a folder, not an organisation."""
BLANK_RUN = pattern(r"[ \t\n]+")
# Characters that a backslash escapes in double quotes.
ESCAPED = pattern(r"\\([$`\"\\\n])")
QUOTED = pattern(r"\\.|\"(?:\\.|[^\"\\])*\"|(?<!\S)#[^\n]*|'(?P<single>[^']*)'", re.DOTALL)
EXPANDED = pattern(r"\$[\w{(@*#?!-]")
"""What double quotes expand."""
SPECIAL = frozenset('"\\`')


class Mapped(NamedTuple):
    """A text, and the file offset of each of its characters."""

    code: str
    at: Sequence[int]

    @classmethod
    def whole(cls, text: str) -> Mapped:
        """Map a whole file. Carriage returns before line feeds count as blanks."""
        if "\r" in text:
            text = text.replace("\\\r\n", " \\\n").replace("\r", " ")
        return cls(text, range(len(text)))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the file offsets of a range of the text."""
        if start < end:
            first, last = self.at[start], self.at[end - 1] + 1
            return first, max(first, last)
        if start < len(self.at):
            return self.at[start], self.at[start]
        after = self.at[-1] + 1 if len(self.at) else 0
        return after, after

    def part(self, start: int, end: int, unescape: bool = False) -> Mapped:
        """Return a range as a text of its own; ``unescape``: it is in double quotes."""
        part = Mapped(self.code[start:end], self.at[start:end])
        if not unescape:
            return part
        # An escaped line end disappears: the inner shell sees one line. An escaped dollar stays for it to expand.
        escapes = [(escape.start(), escape.end() - (escape[1] != "\n")) for escape in ESCAPED.finditer(part.code)]
        kept = part.without({at for first, last in escapes for at in range(first, last)}) if escapes else part
        return kept._opened({part.at[first + 1] for first, _ in escapes})

    def _opened(self, escaped: Container[int]) -> Mapped:
        """Return a text from double quotes without the single quotes that stop no expansion there.

        ``bash -c "serve '$MODEL'"`` expands it. ``escaped``: where characters are that a backslash keeps from that.
        """
        changes: list[tuple[int, int, str]] = []
        for quoted in QUOTED.finditer(self.code) if "'" in self.code else ():
            first, last = quoted.span("single")
            text = self.code[max(first, 0) : max(last, 0)]
            dollars = [first + dollar.start() for dollar in EXPANDED.finditer(text)]
            if dollars and SPECIAL.isdisjoint(text) and not any(self.at[at] in escaped for at in dollars):
                changes += [(first - 1, first, '"'), (last, last + 1, '"')]
        return self.replaced(changes)

    def replaced(self, changes: Iterable[tuple[int, int, str]]) -> Mapped:
        """Return the text with ranges replaced, in their order; a new text has the place of the old one."""
        parts: list[str] = []
        places: list[int] = []
        done = 0
        for start, end, new in changes:
            parts += [self.code[done:start], new]
            places += self.at[done:start]
            at = self.at[min(start, len(self.at) - 1)]  # what is put behind the end has the last place
            places += [*[at] * (len(new) - 1), self.at[end - 1]] if new else []
            done = end
        return Mapped("".join((*parts, self.code[done:])), [*places, *self.at[done:]]) if done else self

    def without(self, gone: set[int]) -> Mapped:
        """Return the text without the characters at these indices."""
        kept = [index for index in range(len(self.code)) if index not in gone]
        return Mapped("".join(self.code[index] for index in kept), [self.at[index] for index in kept])


class Piece(NamedTuple):
    """A part of a word: its text and place; the text is None if it depends on a run.

    ``splits``: an unquoted expansion, whose blanks end words. ``optional``: what a branch appended ends here.
    ``opens``, ``closes``: all that a branch may append is between these two.
    """

    text: str | None
    start: int = -1
    end: int = -1
    splits: bool = False
    optional: bool = False
    opens: bool = False
    closes: bool = False

    def cut(self, first: int, last: int) -> Piece:
        """Return a range of a known piece."""
        text = (self.text or "")[first:last]
        if self.end - self.start != len(self.text or ""):
            return Piece(text)
        return Piece(text, self.start + first, self.start + last)


@dataclass(frozen=True)
class Field:
    """A word of a command after expansion; ``start`` and ``end`` are where it is used.

    ``many``: it may be any number of words; ``optional``: the words of a branch before it may be absent.
    ``loose``: unknown and unquoted, probably one word.
    ``others``: all that other branches add instead of the ``own`` words before it.
    ``inner``: the text within its quotes, for words that contain a script.
    """

    pieces: tuple[Piece, ...]
    start: int
    end: int
    variable: str = ""
    quoted: bool = False
    many: bool = False
    loose: bool = False
    optional: bool = False
    inner: tuple[Mapped, int, int, bool] | None = None
    others: tuple[tuple[Field, ...], ...] = ()
    own: int = 0

    @cached_property
    def value(self) -> str | None:
        """Return the word's text; None if unknown."""
        return None if self.many else join_pieces(self.pieces)

    @property
    def known_prefix(self) -> str:
        """Return the text before the first unknown piece."""
        text = ""
        for piece in self.pieces:
            if piece.text is None:
                break
            text += piece.text
        return text

    def after(self, count: int, text: str) -> Field:
        """Return the field without its first characters, such as ``--tp=``."""
        left, rest = count, list(self.pieces)
        while rest and rest[0].text is not None and left >= len(rest[0].text):
            left -= len(rest.pop(0).text or "")
        if rest and left:
            rest[0] = rest[0].cut(left, len(rest[0].text or ""))
        start, end = self.start, self.end
        quote = text[start : start + 1]
        if quote in ("'", '"') and end - start > 1 and text[end - 1] == quote:
            start, end = start + 1, end - 1
        if text[start : start + count] == self.known_prefix[:count]:
            start += count
        quoted = self.quoted or text[start : start + 1] in ("'", '"')
        return Field(tuple(rest), start, max(start, end), self.variable, quoted, loose=self.loose)


def limited(pieces: Iterable[Piece]) -> list[Piece] | None:
    """Return the pieces of a word; None if expansions make it longer than any word of a command can be."""
    taken: list[Piece] = []
    length = 0
    for piece in pieces:
        taken.append(piece)
        length += len(piece.text or "")
        if len(taken) > MOST_PIECES or (length > LONGEST_WORD and len(taken) > 1):
            return None
    return taken


def join_pieces(pieces: Iterable[Piece]) -> str | None:
    """Return the text of pieces; None if one is unknown."""
    texts = [piece.text for piece in pieces]
    return None if any(text is None for text in texts) else "".join(text for text in texts if text is not None)


class SourceText:
    """A file being read: creates its words and places."""

    def __init__(self, script: Script) -> None:
        """Take a script whose content is not read yet."""
        self.script = script
        self.text = script.text

    def place(self, start: int, end: int) -> Span:
        """Return a place, clamped to the file."""
        start = min(max(start, 0), len(self.text))
        return self.script.place(start, min(max(end, start), len(self.text)))

    def literal_of(self, pieces: Sequence[Piece], value: str | None) -> Span | None:
        """Return the one literal that defines a value; adjacent pieces are one."""
        if value is None:
            return None
        real = pieces if len(pieces) == 1 else [piece for piece in pieces if piece.text] or pieces[:1]
        if not real or real[0].start < 0 or self.text[real[0].start : real[-1].end] != value:
            return None
        return self.place(real[0].start, real[-1].end)

    def word(self, field: Field) -> Word:
        """Return a field as rules see it."""
        place = self.place(field.start, field.end)
        raw, value = self.text[place.start : min(place.end, place.start + LONGEST_WORD)], field.value
        if raw == value and len(field.pieces) == 1 and field.pieces[0].start == place.start:
            return Word(raw, value, place, place, field.variable, field.quoted)  # the common case, kept fast
        return Word(raw, value, place, self.literal_of(field.pieces, value), field.variable, field.quoted)

    def model(self, field: Field) -> Word:
        """Return a model as rules see it; below a folder that only a run knows, its name counts."""
        word = self.word(field)
        if word.value is not None or field.many:
            return word
        unknown = max(at for at, piece in enumerate(field.pieces) if piece.text is None)
        below = (join_pieces(field.pieces[unknown + 1 :]) or "").replace("\\", "/")
        named = field.pieces[unknown]
        raw = word.raw if named.start < 0 else self.text[named.start : named.end]
        folder = below.count("/") > 1 or FOLDER.search(raw)
        return word._replace(value=f".{below}") if folder and BELOW.fullmatch(below) else word

    def literal(self, mapped: Mapped, start: int, end: int) -> Piece:
        """Return a range of a text as a piece."""
        return Piece(mapped.code[start:end], *mapped.span(start, end))


def line_starts(text: str) -> tuple[int, ...]:
    """Return the offset of each line's first character."""
    return (0, *(match.end() for match in re.finditer("\n", text)))


def fields_of(groups: Iterable[list[Piece]], span: tuple[int, int], variable: str) -> Iterator[Field]:
    """Yield the words of an expansion, each where it is written, else where it is used."""
    for group in groups:
        here = [piece for piece in group if piece.start >= 0]
        ordered = bool(here) and len(here) == len(group) and here[-1].end >= here[0].start
        place = (here[0].start, here[-1].end) if ordered else span
        yield Field(tuple(group), *place, variable=variable)


def split_pieces(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """Yield each word's pieces: unquoted expansions split at blanks."""
    word: list[Piece] = []
    for piece in pieces:
        if not piece.splits or piece.text is None or piece.opens:
            word.append(piece)
            continue
        at = 0
        for blank in BLANK_RUN.finditer(piece.text):
            if blank.start() > at:
                word.append(piece.cut(at, blank.start()))
            if word:
                yield word
            word, at = [], blank.end()
        if at < len(piece.text):
            word.append(piece.cut(at, len(piece.text)) if at else piece)
    if word:
        yield word


def with_branches(fields: list[Field]) -> list[Field]:
    """Return the words with what opens a branch's words counted into the mark behind them."""
    found: list[Field] = []
    opened: list[int] = []
    for field in fields:
        if any(piece.opens for piece in field.pieces):
            opened.append(len(found))
            rest = tuple(piece for piece in field.pieces if not piece.opens)
            found += [replace(field, pieces=rest)] if rest else []
        elif opened and any(piece.closes for piece in field.pieces):
            found.append(replace(field, others=((),), own=len(found) - opened.pop()))
        else:
            found.append(field)
    return found


def distinct(lists: Iterable[tuple[Field, ...]]) -> list[tuple[Field, ...]]:
    """Return lists of words, each once."""
    found: list[tuple[Field, ...]] = []
    for words in lists:
        found += [] if words in found else [words]
    return found
