"""Parse bash, rejecting texts that would take the parser minutes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from recommender.common.pattern import pattern

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# The parser counts bytes: one byte per character makes offsets character offsets. A comma stands for
# non-ASCII characters because, like them, it is only ever part of a word.
OUTSIDE = pattern(r"[^\x01-\x7f]")
# Parse time and memory grow with their square; real scripts have less than a tenth.
MOST_PIPES = 1000
MOST_ARRAYS = 600
MOST_BACKTICKS = 1000
PIPE = pattern(r"(?<!\|)\|(?!\|)")
# The grammar lacks `3<>file`; with a blank for `>` it reads a plain redirection.
BOTH_WAYS = pattern(r"(?<![\\<>])<>(?![<>])")
# A comment in backticks runs nothing; the grammar takes it for an unclosed quote.
NOTHING = pattern(r"`#[^`\n]*`")
# CPU time, so that the result does not depend on the machine's load.
MOST_SECONDS = 0.25
CHUNK = 4096


class Unparsed(Exception):
    """The text is not parsed; the message says why."""


@cache
def parser_of(grammar: str, text_kind: str) -> Parser:
    """Return the parser of a grammar's package. Raise Unparsed, with what is not read, where it is not installed."""
    try:
        from tree_sitter import Language, Parser

        language = import_module(grammar).language()
    except ImportError:
        raise Unparsed(f"{text_kind} not read without {grammar.replace('_', '-')}") from None
    return Parser(Language(language))


def parse(code: str) -> tuple[Node, bool]:
    """Return a script's tree, and whether it is complete. Raise Unparsed."""
    if len(PIPE.findall(code)) > MOST_PIPES or code.count("=(") > MOST_ARRAYS or code.count("`") > MOST_BACKTICKS:
        raise Unparsed("too many pipes, arrays or backticks; the text was not read")
    code = NOTHING.sub(lambda match: " " * len(match[0]), code)
    parser = parser_of("tree_sitter_bash", "shell commands are")
    return parse_with(parser, BOTH_WAYS.sub("< ", OUTSIDE.sub(",", code)).encode("ascii"))


def parse_with(parser: Parser, data: bytes) -> tuple[Node, bool]:
    """Return a text's tree by some grammar, and whether it is complete."""
    began, late = time.thread_time(), False

    def read(offset: int, _: Any) -> bytes:
        nonlocal late
        late = late or time.thread_time() - began > MOST_SECONDS
        return b"" if late else data[offset : offset + CHUNK]

    return parser.parse(read).root_node, not late


def children(node: Node) -> list[Node]:
    """Return the named children, without comments."""
    return [child for child in node.children if child.is_named and child.type != "comment"]


def flat_list(node: Node) -> list[tuple[str, Node]]:
    """Return the commands of ``a && b || c``, each with the operator before it; a long list nests as deep."""
    parts: list[tuple[str, Node]] = []
    while node.type == "list":
        sign = next((child.type for child in node.children[1:-1] if child.type in ("&&", "||")), "")
        parts.append((sign, node.children[-1]))
        node = node.children[0]
    return [("", node), *reversed(parts)]


def inside(node: Node) -> Iterator[Node]:
    """Yield a string's children; some grammar releases nest them one level deeper."""
    for child in node.children:
        if child.type == "string_content" and child.named_child_count:
            yield from child.children
        else:
            yield child
