"""The grammar of bash, kept from texts that would keep it busy for minutes."""

from __future__ import annotations

import re
import time
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# The parser takes bytes: with one byte a character its offsets are characters. A comma is part of a word
# and of nothing else, as any letter outside ASCII is to a shell.
OUTSIDE = re.compile(r"[^\x01-\x7f]")
# Time and memory grow with the square of these; no script has a tenth of them.
MOST_PIPES = 1000
MOST_ARRAYS = 600
MOST_BACKTICKS = 1000
PIPE = re.compile(r"(?<!\|)\|(?!\|)")
# The grammar lacks `3<>file`; a blank for the second sign makes a redirection of it that it knows.
BOTH_WAYS = re.compile(r"(?<![\\<>])<>(?![<>])")
# Processor time, so that a busy machine reads the same as an idle one.
MOST_SECONDS = 0.25
CHUNK = 4096


class Unparsed(Exception):
    """A text that is not read; the message says why."""


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def parse(code: str) -> tuple[Node, bool]:
    """The tree of a script, and whether it was read to its end. Raises Unparsed."""
    if len(PIPE.findall(code)) > MOST_PIPES or code.count("=(") > MOST_ARRAYS or code.count("`") > MOST_BACKTICKS:
        raise Unparsed("this has more pipes, arrays or backticks than any script; it is not read")
    data = BOTH_WAYS.sub("< ", OUTSIDE.sub(",", code)).encode("ascii")
    began, late = time.thread_time(), False

    def read(offset: int, _: Any) -> bytes:
        nonlocal late
        late = late or time.thread_time() - began > MOST_SECONDS
        return b"" if late else data[offset : offset + CHUNK]

    return _parser().parse(read).root_node, not late


def children(node: Node) -> list[Node]:
    """The named children, comments left out."""
    return [child for child in node.children if child.is_named and child.type != "comment"]
