"""Parse YAML into nodes with places, safely for hostile texts.

Events are read one at a time, so nothing grows beyond its limits; an alias stays one node however often it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from recommender.common.pattern import pattern
from recommender.review.script.model import Comment, ReadProblem, Script
from recommender.review.script.source_map import Field, Mapped, Piece, SourceText

if TYPE_CHECKING:
    import yaml

MOST_EVENTS = 60_000
MOST_SLOW_EVENTS = 6_000
MOST_TO_PARSE_AGAIN = 50_000
"""Most characters of a text that is parsed again to word its error."""
DEEPEST = 60
MOST_MERGES = 200
"""Most merged maps that are searched for one key."""
PROPERTIES = pattern(r"(?:[&!][^\s,\[\]{}]*\s+)+")


class UnreadableYaml(Exception):
    """The text is not YAML, or is too large; ``at`` is the offset."""

    def __init__(self, message: str, at: int) -> None:
        """``at`` counts characters."""
        super().__init__(message)
        self.at = at

    def unread(self, page: SourceText) -> Script:
        """Return the script with this as its problem."""
        at = min(self.at, len(page.script.text))
        return replace(page.script, problems=(ReadProblem(str(self), page.place(at, at)),))


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
        """Return the node below some keys, merged (``<<``) ones included."""
        node: Node | None = self
        for name in path:
            node = node._one(name) if node is not None else None
        return node

    def _one(self, name: str) -> Node | None:
        return next((node._by_name[name] for node in self.layers() if name in node._by_name), None)

    def layers(self) -> Iterator[Node]:
        """Yield the map, then each merged one, depth first and each once: many may merge the same."""
        todo, seen = [self], set[int]()
        while todo and len(seen) < MOST_MERGES:
            node = todo.pop()
            if id(node) not in seen:
                seen.add(id(node))
                yield node
                todo += reversed(node._merged)

    @cached_property
    def _by_name(self) -> dict[str, Node]:
        """The last value of each key; for a map that is read whole."""
        return {key.value: value for key, value in self.pairs if key.value is not None}

    @cached_property
    def _merged(self) -> list[Node]:
        """The maps that this one merges, the last first."""
        merged = [value.items or [value] for key, value in reversed(self.pairs) if key.value == "<<"]
        return [mapping for mappings in merged for mapping in mappings][:MOST_MERGES]

    @property
    def text(self) -> str:
        """Return a scalar's text; empty for anything else."""
        return self.value or ""


def documents(text: str) -> list[Node]:
    """Return a text's documents. Raise UnreadableYaml for the first error."""
    import yaml

    fast = getattr(yaml, "CSafeLoader", None)
    stack: list[Node] = []
    anchors: dict[str, Node] = {}
    roots: list[Node] = []
    left = MOST_EVENTS if fast else MOST_SLOW_EVENTS
    start = 0
    try:
        for event in yaml.parse(text, Loader=fast or yaml.SafeLoader):
            left -= 1
            start = event.start_mark.index if event.start_mark else start
            if left < 0 or len(stack) > DEEPEST:
                raise UnreadableYaml("this YAML is too large or too deep; it was not read", start)
            _take(event, stack, anchors, roots, text)
    except yaml.MarkedYAMLError as error:
        raise _unreadable(text, error, start) from None
    except (yaml.YAMLError, ValueError, UnicodeError) as error:
        raise UnreadableYaml(f"this is not valid YAML: {str(error).splitlines()[0][:200]}", start) from None
    return roots


def _unreadable(text: str, error: yaml.MarkedYAMLError, start: int) -> UnreadableYaml:
    """Return what is wrong in the words of the parser in Python: a browser has no other."""
    import yaml

    if len(text) <= MOST_TO_PARSE_AGAIN:
        try:
            for _ in yaml.parse(text, Loader=yaml.SafeLoader):
                pass
        except yaml.MarkedYAMLError as same:
            error = same
    mark = error.problem_mark or error.context_mark
    at = mark.index if mark else start
    if "{{" in text[:at].rpartition("\n")[2] + text[at:].partition("\n")[0]:
        return UnreadableYaml("this is a template; review what it becomes, as helm template prints it", at)
    return UnreadableYaml(f"this is not valid YAML: {(error.problem or 'it ends early')[:200]}", at)


def _take(event: Any, stack: list[Node], anchors: dict[str, Node], roots: list[Node], text: str) -> None:
    """Add an event's node."""
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
    _hang(node, stack, roots)
    if name in ("SequenceStartEvent", "MappingStartEvent"):
        stack.append(node)


def _hang(node: Node, stack: list[Node], roots: list[Node]) -> None:
    """Attach a node to its open parent; a map key waits for its value."""
    if not stack:
        roots.append(node)
        return
    above = stack[-1]
    if above.kind == "list":
        above.items.append(node)
    elif above.pairs and above.pairs[-1][1] is above:
        above.pairs[-1] = (above.pairs[-1][0], node)
    else:
        above.pairs.append((node, above))


# --- the text of a scalar, with the place of each character


def map_scalar(text: str, node: Node) -> Mapped:
    """Return a scalar's value, each character with its place in the file."""
    value = node.text
    start, end = node.start, node.end
    if node.style in ("'", '"'):
        start, end = start + 1, end - 1
    elif node.style in ("|", ">"):
        start = text.find("\n", start, end) + 1 or end
    if text[start:end].startswith(value):
        return Mapped(value, range(start, start + len(value)))
    return Mapped(value, _align(text, value, start, end, node.style))


def _align(text: str, value: str, at: int, end: int, style: str) -> Sequence[int]:
    """Align text and value; the rest of the text is indentation, folding or escapes."""
    offsets: list[int] = []
    for char in value:
        if style == '"':
            at = _skip_line_end(text, at, end)
        while at < end and not _same(text, at, char, style):
            at += 1
        offsets.append(min(at, end - 1) if end else 0)
        at += _width(text, at, style) if at < end else 0
    return offsets


def _skip_line_end(text: str, at: int, end: int) -> int:
    """Skip a backslash at a line's end, and the next line's indentation."""
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
    """Return how many characters of the text encode one of the value."""
    if style == '"' and text[at] == "\\":
        return {"x": 4, "u": 6, "U": 10}.get(text[at + 1 : at + 2], 2)
    return 2 if style == "'" and text[at : at + 2] == "''" else 1


def word(text: str, node: Node) -> Field:
    """Return a scalar as one word; an expression (style ``$``) is unknown."""
    if node.style == "$":
        return Field((Piece(None),), node.start, node.end)
    whole = map_scalar(text, node)
    return Field(tuple(_runs(whole)), node.start, node.end, quoted=node.style in ("'", '"'))


def _runs(whole: Mapped) -> Iterator[Piece]:
    """Yield the value in pieces that the file contains unchanged."""
    code, at = whole.code, whole.at
    first = 0
    for index in range(1, len(code) + 1):
        if index == len(code) or at[index] != at[index - 1] + 1:
            yield Piece(code[first:index], at[first], at[index - 1] + 1)
            first = index
    if not code:
        yield Piece("", -1, -1)


def comments_of(page: SourceText, roots: Sequence[Node]) -> tuple[Comment, ...]:
    """Return a file's comments."""
    ranges = ((start, start + len(page.text[start:end].rstrip())) for start, end in comments(page.text, roots))
    return tuple(Comment(page.text[start:end], page.place(start, end)) for start, end in ranges)


def comments(text: str, roots: Sequence[Node]) -> Iterator[tuple[int, int]]:
    """Yield the comments' ranges: ``#`` after a blank, outside every scalar."""
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
        stack += [child for pair in node.pairs for child in pair]
