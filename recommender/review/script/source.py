"""Hold a file as bytes and text; repairs keep its line ends and byte order mark."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from recommender.common import user_file

MARK = "\ufeff"
STDIN = "-"


@dataclass(frozen=True)
class Source:
    """A file's text. Reviews use offsets in ``text``; repairs change ``whole``."""

    path: str
    whole: str

    @cached_property
    def text(self) -> str:
        """Return the text without byte order mark, with plain line feeds."""
        return self.whole.removeprefix(MARK).replace("\r\n", "\n")

    @cached_property
    def _shortened(self) -> list[int]:
        """Return the offsets in ``text`` of line ends that are two characters (CR LF) in the file."""
        offsets: list[int] = []
        at, plain = -2, self.whole.removeprefix(MARK)
        while (at := plain.find("\r\n", at + 2)) >= 0:
            offsets.append(at - len(offsets))
        return offsets

    @cached_property
    def line_end(self) -> str:
        """Return the line end of most lines."""
        return "\r\n" if 2 * len(self._shortened) > self.text.count("\n") else "\n"

    def at(self, offset: int) -> int:
        """Return the offset in the file of a character of ``text``."""
        return offset + bisect_left(self._shortened, offset) + self.whole.startswith(MARK)

    def edited(self, edits: Iterable[tuple[int, int, str]]) -> Source:
        """Return the file with ranges of ``text`` replaced; they must not overlap."""
        parts, end = [], len(self.whole)
        for first, last, new in sorted(edits, reverse=True):
            parts += [self.whole[self.at(last) : end], new.replace("\n", self.line_end)]
            end = self.at(first)
        return Source(self.path, self.whole[:end] + "".join(reversed(parts)))


def read_argument(path: str) -> Source:
    """Return the text of a file named on the command line; ``-`` is stdin. Raise Unreadable or OSError."""
    if path == STDIN:
        return Source(path, user_file.decode(sys.stdin.buffer.read(user_file.MOST_BYTES + 1)))
    return read(path)


def read(path: str) -> Source:
    """Return a regular file's text. Raise Unreadable or OSError."""
    return Source(path, user_file.decode(user_file.read_bytes(path)))
