"""Parse HCL, of Terraform and Nomad, into the nodes of YAML: a block is a map, its labels left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.review.readers.yaml_nodes import DEEPEST, MOST_EVENTS, Node
from recommender.review.shell.grammar import OUTSIDE, Unparsed, parse_with, parser_of

if TYPE_CHECKING:
    import tree_sitter

TRANSPARENT = frozenset({"expression", "literal_value", "collection_value", "body", "template_expr", "one_line_block"})
PASSED_ON = frozenset({"jsonencode", "yamlencode", "tolist", "tostring", "tonumber", "compact", "flatten", "trimspace"})
"""Functions of Terraform whose result holds what they are given."""
DEFAULTS = {"variable": "var", "locals": "local"}
"""Blocks that give names a value, with how a name is used."""


class HclFile:
    """A file's ``root`` node, the ranges of its ``comments``, and where its first error is; None without one.

    ``values`` are those that the file gives to variables and locals, by their names.
    """

    def __init__(self, text: str) -> None:
        """Read a text. Raise Unparsed."""
        self.text = text
        self.left = MOST_EVENTS
        """Values that may still be read: locals may use each other, and themselves, many times over."""
        top, complete = parse_with(parser_of("tree_sitter_hcl", "HCL is"), OUTSIDE.sub(",", text).encode("ascii"))
        if not complete:
            raise Unparsed("this file takes too long to read")
        self.comments = [(node.start_byte, node.end_byte) for node in _walk(top) if node.type == "comment"]
        error = next((node for node in _walk(top) if node.is_error or node.is_missing), None) if top.has_error else None
        self.error_at = error.start_byte if error else None
        self.known: dict[str, tree_sitter.Node] = dict(self._list_known(top))
        self.root = self._map(top, 0)
        self.values = {name.partition(".")[2]: self._value(node, 0) for name, node in self.known.items()}

    def _list_known(self, top: tree_sitter.Node) -> Iterator[tuple[str, tree_sitter.Node]]:
        """Yield the expressions of variables' defaults and of locals, by the name that uses them."""
        for block in (block for body in top.named_children for block in body.named_children if block.type == "block"):
            kind = self._text(block.named_children[0])
            labels = [self._label(child) for child in block.named_children if child.type == "string_lit"]
            for name, value in self._attributes(block) if kind in DEFAULTS else ():
                if kind == "locals" or (name == "default" and labels):
                    yield f"{DEFAULTS[kind]}.{name if kind == 'locals' else labels[0]}", value

    def _attributes(self, block: tree_sitter.Node) -> Iterator[tuple[str, tree_sitter.Node]]:
        for body in block.named_children:
            for each in body.named_children if body.type == "body" else ():
                if each.type == "attribute" and len(each.named_children) > 1:
                    yield self._text(each.named_children[0]), each.named_children[1]

    def _text(self, node: tree_sitter.Node) -> str:
        return self.text[node.start_byte : node.end_byte]

    def _label(self, node: tree_sitter.Node) -> str:
        return self._text(node).strip('"')

    def _map(self, node: tree_sitter.Node, depth: int) -> Node:
        """Return the attributes and blocks of a body, or the elements of an object, as a map."""
        made = Node(node.start_byte, node.end_byte, kind="map")
        stack = list(reversed(node.named_children)) if depth < DEEPEST else []
        while stack:
            child = stack.pop()
            if child.type == "body":
                stack += reversed(child.named_children)
            elif child.type in ("attribute", "object_elem") and len(child.named_children) > 1:
                key, value = child.named_children[0], child.named_children[-1]
                made.pairs.append((self._key(key), self._value(value, depth + 1)))
            elif child.type == "block":
                made.pairs.append((self._key(child.named_children[0]), self._map(child, depth + 1)))
        return made

    def _key(self, node: tree_sitter.Node) -> Node:
        return Node(node.start_byte, node.end_byte, self._label(node))

    def _value(self, node: tree_sitter.Node, depth: int) -> Node:
        """Return an expression's node; what the file does not determine has the style ``$``."""
        while node.type in TRANSPARENT and len(node.named_children) == 1:
            node = node.named_children[0]
        self.left -= 1
        if depth > DEEPEST or self.left < 0:
            return Node(node.start_byte, node.end_byte, "", "$")
        if node.type == "object":
            return self._map(node, depth)
        if node.type == "tuple":
            items = [self._value(child, depth + 1) for child in node.named_children if child.type == "expression"]
            return Node(node.start_byte, node.end_byte, items=items, kind="list")
        if node.type in ("string_lit", "quoted_template"):
            return self._string(node, depth)
        if node.type == "heredoc_template":
            return self._heredoc(node)
        if node.type == "function_call":
            return self._call(node, depth)
        if node.type in ("numeric_lit", "bool_lit"):
            return Node(node.start_byte, node.end_byte, self._text(node))
        return self._used(node, self._text(node), depth)

    def _used(self, node: tree_sitter.Node, name: str, depth: int) -> Node:
        """Return the value of a variable or a local of the file, at its place there."""
        if name in self.known:
            return self._value(self.known[name], depth + 1)
        return Node(node.start_byte, node.end_byte, "", "$")

    def _string(self, node: tree_sitter.Node, depth: int) -> Node:
        inner = self.text[node.start_byte + 1 : node.end_byte - 1]
        if inner.startswith("${") and inner.endswith("}") and inner.count("${") == 1:
            return self._used(node, inner[2:-1].strip(), depth)
        value = inner.replace("$${", "${").replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")
        return Node(node.start_byte, node.end_byte, value, '"')

    def _heredoc(self, node: tree_sitter.Node) -> Node:
        """Return a here-document's text; ``<<-`` takes its indentation off."""
        start, end = self.text.find("\n", node.start_byte) + 1, node.named_children[-1].start_byte
        lines = self.text[start:end].rstrip(" \t").split("\n")
        indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
        cut = min(indents, default=0) if self._text(node.named_children[0]) == "<<-" else 0
        value = "\n".join(line[cut:] for line in lines).replace("$${", "${")
        return Node(node.start_byte, end, value, "|")

    def _call(self, node: tree_sitter.Node, depth: int) -> Node:
        """Return what a function is given, where its result holds it; ``join`` makes a list's words one command."""
        name = self._text(node.named_children[0])
        arguments = [
            argument
            for child in node.named_children
            if child.type == "function_arguments"
            for argument in child.named_children
        ]
        if (name == "join" and len(arguments) == 2) or (name in PASSED_ON and len(arguments) == 1):
            return self._value(arguments[-1], depth + 1)
        if name == "concat":
            lists = [self._value(argument, depth + 1) for argument in arguments]
            items = [item for element in lists for item in (element.items if element.kind == "list" else [element])]
            return Node(node.start_byte, node.end_byte, items=items, kind="list")
        return Node(node.start_byte, node.end_byte, "", "$")


def _walk(top: tree_sitter.Node) -> Iterator[tree_sitter.Node]:
    stack = [top]
    while stack:
        node = stack.pop()
        yield node
        stack += reversed(node.children)
