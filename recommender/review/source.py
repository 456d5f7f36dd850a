"""A file as bytes and as text: what is read, and what a repair writes back with its line ends and its mark."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

MOST_BYTES = 4 * 2**20
MARK = "\ufeff"


class Unreadable(Exception):
    """A file that is no text of a sensible size. The message is one line: what, and how to mend it."""


@dataclass(frozen=True)
class Source:
    """A file's text. Offsets of a review count in ``text``; repairs are made in ``whole``."""

    path: str
    whole: str

    @cached_property
    def text(self) -> str:
        """The text without its byte order mark, each line ending in a single line feed."""
        return self.whole.removeprefix(MARK).replace("\r\n", "\n")

    @cached_property
    def _shortened(self) -> list[int]:
        """Offsets in ``text`` of the line ends that are two characters in the file."""
        found: list[int] = []
        at, plain = -2, self.whole.removeprefix(MARK)
        while (at := plain.find("\r\n", at + 2)) >= 0:
            found.append(at - len(found))
        return found

    @property
    def line_end(self) -> str:
        """The line end that most lines have."""
        return "\r\n" if 2 * len(self._shortened) > self.text.count("\n") else "\n"

    def at(self, offset: int) -> int:
        """Where a character of ``text`` stands in the file."""
        return offset + bisect_left(self._shortened, offset) + self.whole.startswith(MARK)

    def edited(self, edits: Iterable[tuple[int, int, str]]) -> Source:
        """The file with stretches of ``text`` replaced; they must not overlap."""
        made, end = [], len(self.whole)
        for first, last, new in sorted(edits, reverse=True):
            made += [self.whole[self.at(last) : end], new.replace("\n", self.line_end)]
            end = self.at(first)
        return Source(self.path, self.whole[:end] + "".join(reversed(made)))


def read(path: str) -> Source:
    """A file's text. Raises Unreadable for what is no UTF-8 text, OSError where it cannot be read."""
    with Path(path).open("rb") as file:
        return decoded(path, file.read(MOST_BYTES + 1))


def decoded(path: str, data: bytes) -> Source:
    """Text of bytes. Raises Unreadable."""
    if len(data) > MOST_BYTES:
        raise Unreadable(f"larger than {MOST_BYTES // 2**20} MiB; a launch script is not, so name the script itself")
    if b"\0" in data:
        raise Unreadable("no text but a binary file (or UTF-16); save it as UTF-8")
    try:
        return Source(path, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise Unreadable(f"line {line} is not UTF-8; save the file as UTF-8") from None
