"""YAML as nodes that know their places, from a text that may have been written to do harm.

Events are taken one at a time, so nothing is built deeper or larger than it may be, and an alias stays one node
however often it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from recommender.review.mapped import Field, Mapped, Piece

MOST_EVENTS = 60_000
MOST_SLOW_EVENTS = 6_000
DEEPEST = 60
MOST_MERGES = 20
PROPERTIES = re.compile(r"(?:[&!][^\s,\[\]{}]*\s+)+")


class Unread(Exception):
    """A text that is no YAML, or none of a sensible size; ``at`` is where."""

    def __init__(self, message: str, at: int) -> None:
        """``at`` counts characters."""
        super().__init__(message)
        self.at = at


@dataclass(eq=False)
class Node:
    """A scalar (``value``), a list (``items``) or a map (``pairs``)."""

    start: int
    end: int
    value: str | None = None
    style: str = ""
    items: list[Node] = field(default_factory=list)
    pairs: list[tuple[Node, Node]] = field(default_factory=list)
    kind: str = "scalar"

    def get(self, *path: str) -> Node | None:
        """What stands under some keys, those taken over by ``<<`` included."""
        node: Node | None = self
        for name in path:
            node = node._one(name, MOST_MERGES) if node is not None else None
        return node

    def _one(self, name: str, left: int) -> Node | None:
        merged: list[Node] = []
        for key, value in reversed(self.pairs):
            if key.value == name:
                return value
            if key.value == "<<":
                merged += value.items or [value]
        for each in merged[:left]:
            found = each._one(name, left - 1) if left > 0 else None
            if found is not None:
                return found
        return None

    @property
    def text(self) -> str:
        """A scalar's text, empty for anything else."""
        return self.value or ""


def documents(text: str) -> list[Node]:
    """The documents of a text. Raises Unread with what was wrong first."""
    import yaml

    fast = getattr(yaml, "CSafeLoader", None)
    stack: list[Node] = []
    anchors: dict[str, Node] = {}
    found: list[Node] = []
    left = MOST_EVENTS if fast else MOST_SLOW_EVENTS
    start = 0
    try:
        for event in yaml.parse(text, Loader=fast or yaml.SafeLoader):
            left -= 1
            start = event.start_mark.index if event.start_mark else start
            if left < 0 or len(stack) > DEEPEST:
                raise Unread("this YAML is larger or deeper than any manifest; it is not read", start)
            _take(event, stack, anchors, found, text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Unread(
            f"this is no YAML: {(error.problem or 'it ends early')[:200]}", mark.index if mark else start
        ) from None
    except (yaml.YAMLError, ValueError, UnicodeError) as error:
        raise Unread(f"this is no YAML: {str(error).splitlines()[0][:200]}", start) from None
    return found


def _take(event: Any, stack: list[Node], anchors: dict[str, Node], found: list[Node], text: str) -> None:
    """Adds what an event stands for."""
    name = type(event).__name__
    if name in ("SequenceEndEvent", "MappingEndEvent"):
        stack.pop().end = event.end_mark.index
        return
    if name == "AliasEvent":
        node = anchors.get(event.anchor) or Node(event.start_mark.index, event.end_mark.index, "")
    elif name == "ScalarEvent":
        node = Node(event.start_mark.index, event.end_mark.index, event.value, event.style or "")
    elif name in ("SequenceStartEvent", "MappingStartEvent"):
        node = Node(event.start_mark.index, event.end_mark.index, kind="list" if name[0] == "S" else "map")
    else:
        return
    if name != "AliasEvent":
        properties = PROPERTIES.match(text, node.start) if event.anchor or event.tag else None
        node.start = properties.end() if properties else node.start
        if event.anchor:
            anchors[event.anchor] = node
    _hang(node, stack, found)
    if name in ("SequenceStartEvent", "MappingStartEvent"):
        stack.append(node)


def _hang(node: Node, stack: list[Node], found: list[Node]) -> None:
    """Hangs a node under what is open; a map waits for its key's value."""
    if not stack:
        found.append(node)
        return
    above = stack[-1]
    if above.kind == "list":
        above.items.append(node)
    elif above.pairs and above.pairs[-1][1] is above:
        above.pairs[-1] = (above.pairs[-1][0], node)
    else:
        above.pairs.append((node, above))


# --- the text of a scalar, with the place of each character


def mapped(text: str, node: Node) -> Mapped:
    """The value of a scalar; every character knows where the file has it."""
    value = node.text
    start, end = node.start, node.end
    if node.style in ("'", '"'):
        start, end = start + 1, end - 1
    elif node.style in ("|", ">"):
        start = text.find("\n", start, end) + 1 or end
    if text[start:end].startswith(value):
        return Mapped(value, range(start, start + len(value)))
    return Mapped(value, _aligned(text, value, start, end, node.style))


def _aligned(text: str, value: str, at: int, end: int, style: str) -> Sequence[int]:
    """Walks text and value side by side; what stands only in the text is indentation, folding or an escape."""
    found: list[int] = []
    for char in value:
        if style == '"':
            at = _joined_lines(text, at, end)
        while at < end and not _same(text, at, char, style):
            at += 1
        found.append(min(at, end - 1) if end else 0)
        at += _width(text, at, style) if at < end else 0
    return found


def _joined_lines(text: str, at: int, end: int) -> int:
    """Behind a backslash at a line's end, and the blanks of the next line."""
    while at + 1 < end and text[at] == "\\" and text[at + 1] == "\n":
        at += 2
        while at < end and text[at] in " \t":
            at += 1
    return at


def _same(text: str, at: int, char: str, style: str) -> bool:
    here = text[at]
    if style == '"' and here == "\\":
        return True
    return here == char or (char == " " and here == "\n")


def _width(text: str, at: int, style: str) -> int:
    """How many characters of the text stand for one of the value."""
    if style == '"' and text[at] == "\\":
        return {"x": 4, "u": 6, "U": 10}.get(text[at + 1 : at + 2], 2)
    return 2 if style == "'" and text[at : at + 2] == "''" else 1


def word(text: str, node: Node) -> Field:
    """A scalar as one word."""
    whole = mapped(text, node)
    return Field(tuple(_runs(whole)), node.start, node.end, quoted=node.style in ("'", '"'))


def _runs(whole: Mapped) -> Iterator[Piece]:
    """The value in pieces that the file has as they are."""
    code, at = whole.code, whole.at
    first = 0
    for index in range(1, len(code) + 1):
        if index == len(code) or at[index] != at[index - 1] + 1:
            yield Piece(code[first:index], at[first], at[index - 1] + 1)
            first = index
    if not code:
        yield Piece("", -1, -1)


def comments(text: str, roots: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """Comments: from a mark behind a blank, outside every scalar."""
    scalars = sorted(_scalars(roots))
    at = 0
    for match in re.finditer(r"(?m)(?:^|(?<=[ \t]))#[^\n]*", text):
        start = match.start()
        while at < len(scalars) and scalars[at][1] <= start:
            at += 1
        if at >= len(scalars) or not scalars[at][0] <= start < scalars[at][1]:
            yield start, match.end()


def _scalars(roots: Sequence[Node]) -> Iterator[tuple[int, int]]:
    stack, seen = list(roots), set()
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if node.kind == "scalar" and node.end > node.start:
            yield node.start, node.end
        stack += node.items
        stack += [each for pair in node.pairs for each in pair]
