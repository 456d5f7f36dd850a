"""Collect from a script's tree: comments, variable uses, assignments, errors."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.review.script.model import Comment, ReadProblem, Use
from recommender.review.script.source_map import Mapped, SourceText
from recommender.review.script.variables import Variables

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_NODES = 150_000
MOST_PROBLEMS = 10
# Nodes in which an expansion stays one word, and nodes in which the shell splits.
_WHOLE = """
    string translated_string variable_assignment arithmetic_expansion heredoc_body herestring_redirect
    file_redirect case_statement c_style_for_statement
"""
WHOLE = frozenset(_WHOLE.split())
SPLITTING = frozenset({"command", "array", "for_statement"})
_ARITHMETIC = """
    binary_expression unary_expression postfix_expression ternary_expression parenthesized_expression
    arithmetic_expansion compound_statement c_style_for_statement
"""
ARITHMETIC = frozenset(_ARITHMETIC.split())
GIVEN = pattern(r"\"?\$(?:[1-9]|OPTARG|\{(?:[1-9]|OPTARG)(?:[#%][^{}]*)?\}|\{\w+##?\*=\})\"?")
"""What the caller gives: an argument of the script, or of one of its options."""
READERS = frozenset({"read", "mapfile", "readarray", "getopts", "unset"})
LET = pattern(r"\b[A-Za-z_]\w*(?=\s*(?:[-+*/%&|^]?=(?!=)|<<=|>>=|\+\+|--))|(?<=\+\+|--)[A-Za-z_]\w*")
"""What an expression of ``let`` sets."""


@dataclass
class Survey:
    """What was collected; ``sets`` pairs an offset with the name set there."""

    comments: list[Comment] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    problems: list[ReadProblem] = field(default_factory=list)
    sets: list[tuple[int, str]] = field(default_factory=list)
    grows: list[tuple[int, str]] = field(default_factory=list)

    def forget_within(self, state: Variables, start: int, end: int) -> None:
        """Mark what is set in a range of the text as unknown; arrays that only grow there keep their words."""
        state.grow(_within(self.grows, start, end) - _within(self.sets, start, end))
        state.forget(_within(self.sets, start, end))


def _within(places: list[tuple[int, str]], start: int, end: int) -> set[str]:
    first, last = bisect_left(places, (start, "")), bisect_right(places, (end, ""))
    return {name for _, name in places[first:last]}


def survey(page: SourceText, mapped: Mapped, root: Node) -> Survey:
    """Walk the tree once, iteratively: it may exceed Python's recursion limit."""
    result = Survey()
    stack: list[tuple[Node, str, bool]] = [(root, "", True)]
    left = MOST_NODES
    while stack and left:
        node, parent, split = stack.pop()
        left -= 1
        split = _splits(node, split)
        _look(result, page, mapped, node, parent, split)
        kind = node.type
        stack.extend((child, kind, split) for child in reversed(node.children))
    result.sets.sort()
    result.grows.sort()
    return result


def _splits(node: Node, split: bool) -> bool:
    """Return whether an unquoted expansion in this node is split into words."""
    if node.type in WHOLE:
        return False
    if node.type == "test_command":
        return node.child_count > 0 and node.children[0].type == "["
    if node.type == "compound_statement" and node.child_count and node.children[0].type == "((":
        return False
    if node.type in ("command_substitution", "do_group", "compound_statement", "subshell", "case_item"):
        # A case's subject and patterns stay one word; its items contain commands.
        return node.type != "case_item"
    return True if node.type in SPLITTING else split


def _look(result: Survey, page: SourceText, mapped: Mapped, node: Node, parent: str, split: bool) -> None:
    kind = node.type
    if kind == "comment":
        place = page.place(*mapped.span(node.start_byte, node.end_byte))
        result.comments.append(Comment(page.text[place.start : place.end], place))
    elif kind in ("simple_expansion", "expansion"):
        _use(result, page, mapped, node, split)
    elif kind == "variable_name":
        _name(result, page, mapped, node, parent)
    elif kind == "command":
        _reads(result, mapped, node)
    elif (kind == "ERROR" or node.is_missing) and len(result.problems) < MOST_PROBLEMS:
        start, end = mapped.span(node.start_byte, node.end_byte)
        end = min(end, page.text.find("\n", start) if "\n" in page.text[start:end] else end)
        what = f"a {node.type} is missing here" if node.is_missing else "this is not valid shell syntax"
        result.problems.append(ReadProblem(what, page.place(start, end)))


def _use(result: Survey, page: SourceText, mapped: Mapped, node: Node, split: bool) -> None:
    for child in node.children[:4]:
        if child.type == "subscript" and child.children:
            child = child.children[0]
        if child.type == "variable_name":
            name = mapped.code[child.start_byte : child.end_byte]
            if not name.isdecimal():
                result.uses.append(Use(name, page.place(*mapped.span(node.start_byte, node.end_byte)), split))
            return


def _name(result: Survey, page: SourceText, mapped: Mapped, node: Node, parent: str) -> None:
    name = mapped.code[node.start_byte : node.end_byte]
    value = node.parent.child_by_field_name("value") if node.parent and parent == "variable_assignment" else None
    if value is not None and GIVEN.fullmatch(mapped.code, value.start_byte, value.end_byte):
        return  # what the value is afterwards depends on the branch, see commands.py
    if parent in ("variable_assignment", "for_statement", "select_statement"):
        grows = value is not None and value.type == "array" and mapped.code[node.end_byte : node.end_byte + 1] == "+"
        (result.grows if grows else result.sets).append((node.start_byte, name))
    elif parent in ARITHMETIC:
        result.uses.append(Use(name, page.place(*mapped.span(node.start_byte, node.end_byte)), False))
        after = mapped.code[node.end_byte : node.end_byte + 3].lstrip()
        before = mapped.code[max(0, node.start_byte - 2) : node.start_byte]
        if after[:2] in ("++", "--", "+=", "-=") or before in ("++", "--") or (after[:1] == "=" != after[1:2]):
            result.sets.append((node.start_byte, name))


def _reads(result: Survey, mapped: Mapped, node: Node) -> None:
    """Collect the names that ``read``, ``let`` and similar commands set."""
    name = node.child_by_field_name("name")
    command = mapped.code[name.start_byte : name.end_byte] if name is not None else ""
    for child in node.children[1:20] if command == "let" else ():
        text = mapped.code[child.start_byte : child.end_byte]
        result.sets += [(child.start_byte, set_there) for set_there in LET.findall(text)]
    for child in node.children[:20] if command in READERS else ():
        if child.type == "word":
            result.sets.append((child.start_byte, mapped.code[child.start_byte : child.end_byte]))
