"""Expand the words of shell commands as far as the script determines them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.review.script.source_map import (
    ESCAPED,
    Field,
    Mapped,
    Piece,
    SourceText,
    distinct,
    fields_of,
    limited,
    split_pieces,
    with_branches,
)
from recommender.review.script.variables import Variable, Variables
from recommender.review.shell import grammar
from recommender.review.shell.arithmetic import total_of

if TYPE_CHECKING:
    from tree_sitter import Node

BRACES = pattern(r"(?<!\$)\{(?=[^{}\s]*?(?:,|\.\.))[^{}\s]*+\}")
BACKSLASH = pattern(r"\\(\n|.)", re.DOTALL)
ANSI = pattern(r"\\(.)", re.DOTALL)
ANSI_CHARS = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
# Variables that, if unknown, may hold any number of options.
SEVERAL = pattern(r"(?i)\$\{?\w*(args?|argv|opts?|options?|flags?|params?|extras?|cmd)(?![a-z])")
# All words of an array or of the arguments (also guarded against `set -u`), and some of them.
ALL_WORDS = pattern(
    r"\$[@*]|\$\{[@*]\}|\$\{(?P<array>\w+)\[[@*]\]\}|\$\{(?P<guarded>\w+)\[@\]\+\"\$\{(?P=guarded)\[@\]\}\"\}"
)
SOME_WORDS = pattern(r"\$\{(?:\w+\[[@*]\]|[@*]).*\}")
ELEMENT = pattern(r"\$\{(?P<array>\w+)\[\"?(?:\$\{?(?P<variable>\w+)\}?|(?P<key>[\w./-]+))\"?\](?::?[?-][^{}]*)?\}")
KEY = pattern(r"\[([^\]\n]+)\]=")
SLICE = pattern(r"\$\{(?:@|(?P<array>\w+)\[@\]):[ \t]*(?P<first>\d{1,4})(?::(?P<count>\d{1,4}))?\}")
LONGEST_ARRAY = 80
DEEPEST = 30
PLAIN = frozenset({"word", "number"})
SPECIAL = pattern(r"[\\{$\"'`]")
QUOTED = frozenset({"string", "raw_string", "ansi_c_string"})
EXPANSIONS = frozenset({"simple_expansion", "expansion"})
ALWAYS_SET = {"HOME": "~", "PWD": "."}
"""Variables that every shell has, and what stands for their folders."""
UNTOLD = frozenset({"command_substitution", "process_substitution", "arithmetic_expansion"})


class Words:
    """Expand the words of one text."""

    def __init__(self, page: SourceText, mapped: Mapped) -> None:
        """``mapped`` is the text that the nodes belong to."""
        self.page = page
        self.mapped = mapped

    def raw(self, node: Node) -> str:
        """Return a node's text."""
        return self.mapped.code[node.start_byte : node.end_byte]

    def fields(self, node: Node, state: Variables) -> list[Field]:
        """Return the words that an argument expands to."""
        kind = node.type
        start, end = self.mapped.span(node.start_byte, node.end_byte)
        if kind in PLAIN and not node.child_count:
            raw = self.raw(node)
            if not SPECIAL.search(raw):
                return [Field((Piece(raw, start, end),), start, end)]
        if kind in EXPANSIONS and (branches := self._branches(node, state)):
            return branches
        several = self._array(node)
        if several:
            return self._sliced(self.raw(node), several, state, start, end)
        if kind != "string" and kind != "raw_string" and BRACES.search(self._bare(node)):
            return [Field((Piece(None),), start, end, many=True)]
        pieces = limited(self.pieces(node, state))
        if pieces is None:
            return [Field((Piece(None),), start, end, many=True)]
        single = Field(
            tuple(pieces),
            start,
            end,
            variable=self._variable(node),
            quoted=kind in QUOTED,
            inner=self._inner(node),
        )
        split = list(split_pieces(pieces))
        if len(split) == 1:
            return [
                self._mark_unknown(single if len(split[0]) == len(pieces) else replace(single, pieces=tuple(split[0])))
            ]
        fields = [self._mark_unknown(field) for field in fields_of(split, (start, end), single.variable)]
        fields = with_branches(fields)
        return fields if fields or any(piece.splits for piece in pieces) else [single]

    def _branches(self, node: Node, state: Variables) -> list[Field]:
        """Return the options that the first of several branches gives a text, with those of the others."""
        name, operator, _ = self._split_expansion(node)
        variable = state.get(name) if name and not operator else None
        if variable is None or not variable.others:
            return []
        span = self.mapped.span(node.start_byte, node.end_byte)
        texts = ([piece._replace(splits=True) for piece in pieces] for pieces in variable.others)
        words = ([self._mark_unknown(field) for field in fields_of(split_pieces(text), span, name)] for text in texts)
        given = [tuple(with_branches(fields)) for fields in words]
        first, *others = sorted(distinct(given), key=lambda words: not words)
        if not first:  # blanks in each branch
            return []
        mark = Field((Piece(None),), *span, many=True, optional=True, others=tuple(others), own=len(first))
        return [*first, mark]

    def _mark_unknown(self, field: Field) -> Field:
        if any(piece.optional and piece.splits for piece in field.pieces):
            return replace(field, many=True, optional=True)
        loose = any(piece.text is None and piece.splits for piece in field.pieces)
        if loose and len(field.pieces) == 1 and SEVERAL.match(self.page.text, field.start, field.end):
            return replace(field, many=True)
        return replace(field, loose=True) if loose else field

    def one(self, node: Node, state: Variables) -> Field:
        """Return the value of an assignment, which is never split."""
        start, end = self.mapped.span(node.start_byte, node.end_byte)
        taken = limited(self.pieces(node, state))
        if taken is None:
            taken = [self._unknown(node, False)]
        pieces = tuple(Piece(piece.text, piece.start, piece.end) if piece.splits else piece for piece in taken)
        return Field(pieces, start, end, self._variable(node), node.type in QUOTED, inner=self._inner(node))

    # --- pieces

    def pieces(self, node: Node, state: Variables, quoted: bool = False, depth: int = 0) -> Iterator[Piece]:
        """Yield the pieces of a word."""
        kind = node.type
        total = total_of(self.raw(node), state) if kind == "arithmetic_expansion" else ""
        if total:
            yield Piece(total, *self.mapped.span(node.start_byte, node.end_byte))
        elif depth > DEEPEST or node.has_error or kind in UNTOLD:
            yield self._unknown(node, not quoted and kind == "command_substitution")
        elif kind in EXPANSIONS:
            yield from self._expansion(node, state, quoted, depth + 1)
        elif kind in ("string", "translated_string"):
            yield from self._string(node, state, depth)
        elif kind == "raw_string":
            yield self.page.literal(self.mapped, node.start_byte + 1, node.end_byte - 1)
        elif kind == "ansi_c_string":
            piece = self.page.literal(self.mapped, node.start_byte + 2, node.end_byte - 1)
            yield piece._replace(text=ANSI.sub(lambda m: ANSI_CHARS.get(m[1], m[0]), piece.text or ""))
        elif kind in ("concatenation", "command_name", "number") and node.named_child_count:
            yield from self._parts(node.children, node.start_byte, node.end_byte, state, quoted, depth + 1)
        else:
            yield self._plain(node.start_byte, node.end_byte, quoted)

    def _parts(
        self, nodes: list[Node], start: int, end: int, state: Variables, quoted: bool, depth: int
    ) -> Iterator[Piece]:
        """Yield nodes and the text between them, such as the blanks of a default."""
        for child in nodes:
            if child.start_byte > start:
                yield self._plain(start, child.start_byte, quoted)
            yield from self.pieces(child, state, quoted, depth)
            start = max(start, child.end_byte)
        if start < end:
            yield self._plain(start, end, quoted)

    def _plain(self, start: int, end: int, quoted: bool) -> Piece:
        piece = self.page.literal(self.mapped, start, end)
        text = piece.text or ""
        if "\\" in text:
            pattern = ESCAPED if quoted else BACKSLASH
            return piece._replace(text=pattern.sub(lambda match: "" if match[1] == "\n" else match[1], text))
        return piece

    def _string(self, node: Node, state: Variables, depth: int) -> Iterator[Piece]:
        opening = 2 if self.raw(node).startswith("$") else 1
        start, end = node.start_byte + opening, node.end_byte - 1
        expanded = False
        for child in grammar.inside(node):
            if child.type in EXPANSIONS or child.type in UNTOLD:
                raw = self.raw(child)  # the grammar counts blanks between two expansions to the second
                begin = child.start_byte + len(raw) - len(raw.lstrip())
                if begin > start:
                    yield self._plain(start, begin, True)
                yield from self.pieces(child, state, True, depth + 1)
                start, expanded = max(start, child.end_byte), True
        if start < end or not expanded:
            yield self._plain(start, max(start, end), True)

    # --- expansions

    def _expansion(self, node: Node, state: Variables, quoted: bool, depth: int) -> Iterator[Piece]:
        name, operator, rest = self._split_expansion(node)
        element = self._element(node, state) if name == "[]" else None
        variable = state.get(name) if name else None
        if element is not None:
            yield from (piece._replace(splits=not quoted) for piece in element)
        elif operator in (":-", "-", ":=", "="):
            yield from self._default(node, (name, operator, rest), state, quoted, depth)
        elif operator in (":+", "+") and variable is not None and variable.text is not None:
            if variable.text or operator == "+":
                yield from self._rest(node, rest, state, quoted, depth)
        elif operator in ("", ":?", "?") and variable is not None and variable.pieces is not None:
            yield from (piece._replace(splits=not quoted) for piece in variable.pieces)
        elif operator == "" and variable is not None and variable.words and not variable.words[0].many:
            yield from (piece._replace(splits=not quoted) for piece in variable.words[0].pieces)
        elif operator == "" and variable is None and name in ALWAYS_SET:
            yield Piece(ALWAYS_SET[name], *self.mapped.span(node.start_byte, node.end_byte))
        elif operator in (":+", "+") and rest and not quoted:
            # As if the caller had set it; a word of its own is one that a branch adds.
            code = self.mapped.code
            around = code[node.start_byte - 1 : node.start_byte] + code[node.end_byte : node.end_byte + 1]
            apart = not around.strip()
            yield from (Piece(" ", splits=True), Piece("", splits=True, opens=True)) if apart else ()
            yield from self._rest(node, rest, state, quoted, depth)
            yield from (Piece(" ", splits=True), Piece(None, splits=True, optional=True, closes=apart))
        else:
            yield self._unknown(node, not quoted)

    def _element(self, node: Node, state: Variables) -> tuple[Piece, ...] | None:
        """Return ``${ARRAY[INDEX]}``, if the index is known and nothing is cut from the element."""
        match = ELEMENT.fullmatch(self.raw(node).strip())
        variable = state.get(match["array"]) if match else None
        if match is None or variable is None or variable.words is None:
            return None
        index = state.get(match["variable"]) if match["variable"] else None
        key = index.text if index is not None else match["key"]
        for at, word in enumerate(variable.words):
            keyed = KEY.match(word.known_prefix)
            if word.many or key is None:
                return None
            if keyed and keyed[1].strip("\"'") == key:
                return word.after(keyed.end(), self.page.text).pieces
            if not keyed and key == str(at):
                return word.pieces
        return None

    def _unknown(self, node: Node, splits: bool) -> Piece:
        return Piece(None, *self.mapped.span(node.start_byte, node.end_byte), splits)

    def _default(
        self, node: Node, parts: tuple[str, str, list[Node]], state: Variables, quoted: bool, depth: int
    ) -> Iterator[Piece]:
        name, operator, rest = parts
        variable = state.get(name)
        if variable and variable.pieces is not None and (variable.text != "" or not operator.startswith(":")):
            yield from (piece._replace(splits=not quoted) for piece in variable.pieces)
            return
        if variable and not variable.is_known:
            yield self._unknown(node, not quoted)
            return
        pieces = list(self._rest(node, rest, state, quoted, depth))
        if not any(piece.text or piece.text is None for piece in pieces):
            # An empty default means that the caller may give the value.
            pieces = [self._unknown(node, not quoted)._replace(optional=operator in (":-", ":="))]
        if operator in (":=", "=") and name and not name.isdecimal():
            value = tuple(piece._replace(splits=False) for piece in pieces)
            word = self.page.word(Field(value, *self.mapped.span(node.start_byte, node.end_byte), variable=name))
            state.variables[name] = Variable(value, None, word, bool(variable and variable.exported))
        yield from pieces

    def _rest(self, node: Node, rest: list[Node], state: Variables, quoted: bool, depth: int) -> Iterator[Piece]:
        if rest:
            parts = self._parts(rest, rest[0].start_byte, node.end_byte - 1, state, quoted, depth)
            yield from (piece if quoted or piece.splits else self._bare_default(piece) for piece in parts)

    def _bare_default(self, piece: Piece) -> Piece:
        """Split an unquoted default like its expansion, unless it is in quotes."""
        before = self.page.text[piece.start - 1 : piece.start] if piece.start > 0 else ""
        return piece._replace(splits=piece.text is None or before not in ("'", '"'))

    def _split_expansion(self, node: Node) -> tuple[str, str, list[Node]]:
        """Return name, operator and rest; "!" stands for all unknown operators."""
        name, operator = "", ""
        rest: list[Node] = []
        for child in node.children:
            if child.type in ("$", "${", "}"):
                continue
            if not name and child.type in ("variable_name", "special_variable_name"):
                name = self.raw(child)
            elif not name:
                operator += "!"  # ${#X}, ${!X}, or an element of an array
                name = name or ("[]" if child.type == "subscript" else "")
            elif not child.is_named and not operator and not rest:
                operator = child.type
            else:
                rest.append(child)
        return name, operator, rest

    # --- arrays

    def _array(self, node: Node) -> tuple[str, bool] | None:
        """Return the array that a whole argument expands; "?" if only some words."""
        raw = self.raw(node)
        if len(raw) > LONGEST_ARRAY or not ("@" in raw or "*" in raw):
            return None
        quoted = raw.startswith('"') and raw.endswith('"') and len(raw) > 1
        body = raw[1:-1] if quoted else raw
        match = ALL_WORDS.fullmatch(body)
        if match and not (quoted and "*" in body):  # "${A[*]}" is one word
            return match["array"] or match["guarded"] or "@", quoted
        return ("?", quoted) if match or SOME_WORDS.fullmatch(body) else None

    def _sliced(self, raw: str, array: tuple[str, bool], state: Variables, start: int, end: int) -> list[Field]:
        """Return the words of an array, or those of ``${ARRAY[@]:1:2}``."""
        sliced = SLICE.fullmatch(raw.strip('"'))
        if sliced is None:
            return self._elements(array, state, start, end)
        words = self._elements((sliced["array"] or "@", array[1]), state, start, end)
        first = int(sliced["first"]) - (not sliced["array"])  # the arguments count from 1
        last = first + int(sliced["count"]) if sliced["count"] else None
        return words if any(word.many for word in words) or first < 0 else words[first:last]

    def _elements(self, array: tuple[str, bool], state: Variables, start: int, end: int) -> list[Field]:
        name, quoted = array
        if name == "@":
            words = state.arguments
        else:
            variable = state.variables.get(name)
            words = variable.words if variable else None
            if variable and variable.pieces is not None:
                words = (Field(variable.pieces, start, end, name),)
        if words is None:
            return [Field((Piece(None),), start, end, variable=name, quoted=quoted, many=True)]
        return list(words)

    # --- what a node looks like

    def _bare(self, node: Node) -> str:
        """Return a word's text without the content of quotes and expansions."""
        if node.type != "concatenation":
            return self.raw(node)
        kept = ("word", "number", "brace_expression")
        return "".join(self.raw(child) if child.type in kept else "_" for child in node.children)

    def _variable(self, node: Node) -> str:
        """Return the variable that is the whole word."""
        if node.type == "string" and node.named_child_count == 1:
            child = node.named_child(0)
            node = child if child and child.end_byte - child.start_byte == node.end_byte - node.start_byte - 2 else node
        return self._split_expansion(node)[0].replace("[]", "") if node.type in EXPANSIONS else ""

    def _inner(self, node: Node) -> tuple[Mapped, int, int, bool] | None:
        if node.type not in ("string", "raw_string"):
            return None
        return self.mapped, node.start_byte + 1, node.end_byte - 1, node.type == "string"
