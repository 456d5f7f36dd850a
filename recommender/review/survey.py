"""What a script's tree tells without following it: comments, uses of variables, what is set where, and errors."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from recommender.review.mapped import Mapped, Page
from recommender.review.script import Comment, Trouble, Use

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_NODES = 150_000
MOST_TROUBLES = 10
# Where an expansion is one word whatever it holds; and where a shell splits again.
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
READERS = frozenset({"read", "mapfile", "readarray", "getopts", "unset"})


@dataclass
class Survey:
    """What was found; ``sets`` are names with the offset in the text where a value is given to them."""

    comments: list[Comment] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    sets: list[tuple[int, str]] = field(default_factory=list)

    def set_within(self, start: int, end: int) -> set[str]:
        """The names that a stretch of the text gives values to."""
        first = bisect_left(self.sets, (start, ""))
        last = bisect_right(self.sets, (end, ""))
        return {name for _, name in self.sets[first:last]}


def survey(page: Page, mapped: Mapped, root: Node) -> Survey:
    """Walks the tree once, in a loop: it may be deeper than Python's stack."""
    found = Survey()
    stack: list[tuple[Node, str, bool]] = [(root, "", True)]
    left = MOST_NODES
    while stack and left:
        node, parent, split = stack.pop()
        left -= 1
        split = _splits(node, parent, split)
        _look(found, page, mapped, node, parent, split)
        kind = node.type
        stack.extend((child, kind, split) for child in reversed(node.children))
    found.sets.sort()
    return found


def _splits(node: Node, parent: str, split: bool) -> bool:
    """Whether an unquoted expansion within this node would be split into words."""
    if node.type in WHOLE:
        return False
    if node.type == "test_command":
        return node.child_count > 0 and node.children[0].type == "["
    if node.type == "compound_statement" and node.child_count and node.children[0].type == "((":
        return False
    if node.type in ("command_substitution", "do_group", "compound_statement", "subshell", "case_item"):
        # The first child of a case is what it looks at; its items hold commands, and patterns, which are whole.
        return node.type != "case_item"
    return True if node.type in SPLITTING else split


def _look(found: Survey, page: Page, mapped: Mapped, node: Node, parent: str, split: bool) -> None:
    kind = node.type
    if kind == "comment":
        place = page.place(*mapped.span(node.start_byte, node.end_byte))
        found.comments.append(Comment(page.text[place.start : place.end], place))
    elif kind in ("simple_expansion", "expansion"):
        _use(found, page, mapped, node, split)
    elif kind == "variable_name":
        _name(found, page, mapped, node, parent)
    elif kind == "command":
        _reads(found, mapped, node)
    elif (kind == "ERROR" or node.is_missing) and len(found.troubles) < MOST_TROUBLES:
        start, end = mapped.span(node.start_byte, node.end_byte)
        end = min(end, page.text.find("\n", start) if "\n" in page.text[start:end] else end)
        what = f"a {node.type} is missing here" if node.is_missing else "the shell's grammar has nothing like this"
        found.troubles.append(Trouble(what, page.place(start, end)))


def _use(found: Survey, page: Page, mapped: Mapped, node: Node, split: bool) -> None:
    for child in node.children[:4]:
        if child.type == "subscript" and child.children:
            child = child.children[0]
        if child.type == "variable_name":
            name = mapped.code[child.start_byte : child.end_byte]
            if not name.isdecimal():
                found.uses.append(Use(name, page.place(*mapped.span(node.start_byte, node.end_byte)), split))
            return


def _name(found: Survey, page: Page, mapped: Mapped, node: Node, parent: str) -> None:
    name = mapped.code[node.start_byte : node.end_byte]
    if parent in ("variable_assignment", "for_statement", "select_statement"):
        found.sets.append((node.start_byte, name))
    elif parent in ARITHMETIC:
        found.uses.append(Use(name, page.place(*mapped.span(node.start_byte, node.end_byte)), False))
        after = mapped.code[node.end_byte : node.end_byte + 3].lstrip()
        before = mapped.code[max(0, node.start_byte - 2) : node.start_byte]
        if after[:2] in ("++", "--", "+=", "-=") or before in ("++", "--") or (after[:1] == "=" != after[1:2]):
            found.sets.append((node.start_byte, name))


def _reads(found: Survey, mapped: Mapped, node: Node) -> None:
    """Names that ``read`` and its kin fill."""
    name = node.child_by_field_name("name")
    if name is None or mapped.code[name.start_byte : name.end_byte] not in READERS:
        return
    for child in node.children[:20]:
        if child.type == "word":
            found.sets.append((child.start_byte, mapped.code[child.start_byte : child.end_byte]))
