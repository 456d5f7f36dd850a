"""The part of the package ``tree_sitter`` that reviews use, in a browser: web-tree-sitter parses there.

``site/assets/configure/worker.js`` has the other half: ``parseBash`` gives the tree as JSON, node by node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

NAMED, MISSING, ERROR = 1, 2, 4
"""Bits of a node's flags."""


class Node:
    """A node of the tree."""

    __slots__ = (
        *("_fields", "children", "end_byte", "has_error", "is_missing", "is_named", "parent", "start_byte", "type"),
    )

    def __init__(self, kind: str, flags: int, start: int, end: int) -> None:
        """Make a node without children."""
        self.type, self.start_byte, self.end_byte = kind, start, end
        self.is_named, self.is_missing, self.has_error = (bool(flags & bit) for bit in (NAMED, MISSING, ERROR))
        self.children: list[Node] = []
        self._fields: list[str] = []
        self.parent: Node | None = None

    def add(self, child: Node, field: str) -> None:
        """Append a child with the name of its field, or an empty one."""
        self.children.append(child)
        self._fields.append(field)
        child.parent = self

    def descendant_for_byte_range(self, start: int, end: int) -> Node:
        """Return the smallest node around a range."""
        for child in self.children:
            if child.start_byte <= start and end <= child.end_byte:
                return child.descendant_for_byte_range(start, end)
        return self

    @property
    def child_count(self) -> int:
        """Return the number of children."""
        return len(self.children)

    @property
    def named_child_count(self) -> int:
        """Return the number of named children."""
        return sum(child.is_named for child in self.children)

    def named_child(self, index: int) -> Node:
        """Return a named child by its number."""
        return [child for child in self.children if child.is_named][index]

    def child_by_field_name(self, name: str) -> Node | None:
        """Return the first child of a field, or None."""
        return next(iter(self.children_by_field_name(name)), None)

    def children_by_field_name(self, name: str) -> list[Node]:
        """Return the children of a field."""
        return [child for child, field in zip(self.children, self._fields, strict=True) if field == name]


class Tree:
    """A parsed text."""

    def __init__(self, root_node: Node) -> None:
        """Keep the root."""
        self.root_node = root_node


class Language:
    """A grammar; the browser knows only that of bash."""

    def __init__(self, _: Any) -> None:
        """Take what a grammar's package gives."""


class Parser:
    """A parser of one grammar."""

    def __init__(self, _: Language) -> None:
        """Take the grammar."""

    def parse(self, read: Callable[[int, Any], bytes]) -> Tree:
        """Parse what ``read`` gives from an offset on, until it gives nothing."""
        from js import parseBash  # type: ignore[import-not-found]

        tree = json.loads(parseBash(b"".join(_chunks(read)).decode("ascii")))
        return Tree(build(tree["kinds"], tree["fields"], tree["nodes"]))


def _chunks(read: Callable[[int, Any], bytes]) -> Iterator[bytes]:
    offset = 0
    while chunk := read(offset, None):
        yield chunk
        offset += len(chunk)


def build(kinds: list[str], fields: list[str], nodes: list[int]) -> Node:
    """Return the root. ``nodes`` has six numbers a node, parents first: kind, flags, start, end, field, children."""
    root = Node("", 0, 0, 0)
    open_nodes = [(root, 1)]
    for at in range(0, len(nodes), 6):
        kind, flags, start, end, field, count = nodes[at : at + 6]
        while not open_nodes[-1][1]:
            open_nodes.pop()
        parent, left = open_nodes.pop()
        open_nodes.append((parent, left - 1))
        node = Node(kinds[kind], flags, start, end)
        parent.add(node, fields[field])
        open_nodes.append((node, count))
    (top,) = root.children
    top.parent = None
    return top
