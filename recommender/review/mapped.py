"""Texts that stand somewhere in a file: a script, a string within it, a block of YAML.

A reader parses the text and says where in the file each character of it stands. Offsets count characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from recommender.review.script import Place, Script, Word

BLANKS = " \t\n"
# What a double-quoted string takes a backslash away from.
ESCAPED = re.compile(r"\\([$`\"\\\n])")


@dataclass(frozen=True)
class Mapped:
    """A text, and the offset in the file of each of its characters."""

    code: str
    at: Sequence[int]

    @classmethod
    def whole(cls, text: str) -> Mapped:
        """A file as it is. Carriage returns before line feeds count as blanks, as their author meant them."""
        if "\r" in text:
            text = text.replace("\\\r\n", " \\\n").replace("\r", " ")
        return cls(text, range(len(text)))

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Where a stretch of the text stands in the file."""
        if start < end:
            first, last = self.at[start], self.at[end - 1] + 1
            return first, max(first, last)
        if start < len(self.at):
            return self.at[start], self.at[start]
        after = self.at[-1] + 1 if len(self.at) else 0
        return after, after

    def part(self, start: int, end: int, unescape: bool = False) -> Mapped:
        """A stretch as a text of its own; ``unescape``: it stands in double quotes."""
        code = self.code[start:end]
        if not unescape or "\\" not in code:
            return Mapped(code, self.at[start:end])
        # A line's end goes with the backslash before it: the inner shell sees one line.
        gone = {at for found in ESCAPED.finditer(code) for at in range(found.start(), found.end() - (found[1] != "\n"))}
        # A dollar that was escaped belongs to the inner shell: it stays, and is expanded there.
        kept = [index for index in range(len(code)) if index not in gone]
        return Mapped("".join(code[index] for index in kept), [self.at[start + index] for index in kept])


@dataclass(frozen=True)
class Piece:
    """A part of a word: text and the stretch of the file that gives it, or None where only a run would tell.

    ``splits``: an unquoted expansion, whose blanks end words.
    """

    text: str | None
    start: int = -1
    end: int = -1
    splits: bool = False

    def cut(self, first: int, last: int) -> Piece:
        """A stretch of a known piece."""
        text = (self.text or "")[first:last]
        if self.end - self.start != len(self.text or ""):
            return Piece(text)
        return Piece(text, self.start + first, self.start + last)


@dataclass(frozen=True)
class Field:
    """A word of a command after its expansions; ``start`` and ``end`` say where it is used.

    ``many``: it may be any number of words. ``loose``: unknown and unquoted, most likely one word.
    ``inner``: what stands between its quotes, for words that hold a script.
    """

    pieces: tuple[Piece, ...]
    start: int
    end: int
    variable: str = ""
    quoted: bool = False
    many: bool = False
    loose: bool = False
    inner: tuple[Mapped, int, int, bool] | None = None

    @cached_property
    def value(self) -> str | None:
        """The word's text, None where it cannot be known."""
        return None if self.many else joined(self.pieces)

    @property
    def known(self) -> str:
        """The text before the first thing that cannot be known."""
        text = ""
        for piece in self.pieces:
            if piece.text is None:
                break
            text += piece.text
        return text

    def after(self, count: int, text: str) -> Field:
        """The field without its first characters, such as ``--tp=`` of ``--tp=2``; ``text`` is the file's."""
        left, rest = count, list(self.pieces)
        while rest and rest[0].text is not None and left >= len(rest[0].text):
            left -= len(rest.pop(0).text or "")
        if rest and left:
            rest[0] = rest[0].cut(left, len(rest[0].text or ""))
        start, end = self.start, self.end
        quote = text[start : start + 1]
        if quote in ("'", '"') and end - start > 1 and text[end - 1] == quote:
            start, end = start + 1, end - 1
        if text[start : start + count] == self.known[:count]:
            start += count
        quoted = self.quoted or text[start : start + 1] in ("'", '"')
        return Field(tuple(rest), start, max(start, end), self.variable, quoted, loose=self.loose)


def joined(pieces: Iterable[Piece]) -> str | None:
    """The text of pieces, None where one of them is unknown."""
    texts = [piece.text for piece in pieces]
    return None if any(text is None for text in texts) else "".join(text for text in texts if text is not None)


class Page:
    """A file being read: makes words and places of it."""

    def __init__(self, script: Script) -> None:
        """Takes a script with nothing in it yet."""
        self.script = script
        self.text = script.text

    def place(self, start: int, end: int) -> Place:
        """A place that lies within the file, whatever the offsets are."""
        start = min(max(start, 0), len(self.text))
        return self.script.place(start, min(max(end, start), len(self.text)))

    def written(self, pieces: Sequence[Piece], value: str | None) -> Place | None:
        """The one literal that gives a value: pieces that stand side by side are one."""
        if value is None:
            return None
        real = pieces if len(pieces) == 1 else [piece for piece in pieces if piece.text] or pieces[:1]
        if not real or real[0].start < 0 or self.text[real[0].start : real[-1].end] != value:
            return None
        return self.place(real[0].start, real[-1].end)

    def word(self, field: Field) -> Word:
        """A field as rules see it."""
        place = self.place(field.start, field.end)
        raw, value = self.text[place.start : place.end], field.value
        if raw == value and len(field.pieces) == 1 and field.pieces[0].start == place.start:
            return Word(raw, value, place, place, field.variable, field.quoted)  # by far the most words
        return Word(raw, value, place, self.written(field.pieces, value), field.variable, field.quoted)

    def literal(self, mapped: Mapped, start: int, end: int) -> Piece:
        """A stretch of a text as a piece."""
        return Piece(mapped.code[start:end], *mapped.span(start, end))


def line_starts(text: str) -> tuple[int, ...]:
    """Offset of each line's first character."""
    return (0, *(match.end() for match in re.finditer("\n", text)))
