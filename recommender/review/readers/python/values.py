"""Evaluate Python expressions made of literals and names assigned once."""

import ast
import re
from bisect import bisect_left
from collections.abc import Iterator

from recommender.common.pattern import pattern
from recommender.review.readers.python import lists
from recommender.review.readers.python.format_strings import formatted
from recommender.review.readers.python.scopes import Scopes
from recommender.review.readers.python.settings_file import SettingsFile, environment_name
from recommender.review.readers.python.tables import entry
from recommender.review.script.python_uses import last_name
from recommender.review.script.source_map import Field, Piece, SourceText, join_pieces, limited, split_pieces

MOST_EXPRESSIONS = 400
MOST_BITS = 200
MOST_WORDS = 5000
LITERAL = pattern(r"[A-Za-z]{0,2}(\"\"\"|'''|\"|')")
CASTS = frozenset({"int", "float", "str", "bool"})
SAME = {"expanduser", "expandvars", "abspath", "realpath", "normpath", "resolve"}
SAME |= {"absolute", "as_posix", "fspath", "quote", "dedent"}
"""Functions that give the path, or the text, that they take; of a relative path the name at the end stays."""


class Values:
    """Evaluate the expressions of one file."""

    def __init__(self, page: SourceText, code: str, tree: ast.Module) -> None:
        """``code`` is the parsed text, with plain line ends."""
        self.page = page
        self.lines = code.split("\n")
        self.scopes = Scopes(tree)
        self.nodes = self.scopes.nodes
        self.bytes: dict[int, list[int]] = {}
        self.followed: list[tuple[int, int]] = []
        self.left, self.words_left = MOST_EXPRESSIONS, MOST_WORDS
        self.bound: dict[str, ast.expr] = {}
        """Values of a loop's variables in one turn."""
        self.settings = SettingsFile(self)

    # --- places

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Return a node's character range in the file; the tree counts bytes."""
        start = self._offset(getattr(node, "lineno", 1), getattr(node, "col_offset", 0))
        end = self._offset(getattr(node, "end_lineno", None) or 1, getattr(node, "end_col_offset", None) or 0)
        return start, max(start, end)

    def _offset(self, line: int, column: int) -> int:
        starts = self.page.script.lines
        if not 1 <= line <= len(self.lines) or line > len(starts):
            return len(self.page.text)
        text = self.lines[line - 1]
        if text.isascii():
            return starts[line - 1] + column
        if line not in self.bytes:
            counts, total = [0], 0
            for char in text:
                total += len(char.encode("utf-8", "surrogatepass"))
                counts.append(total)
            self.bytes[line] = counts
        return starts[line - 1] + bisect_left(self.bytes[line], column)

    # --- values

    def field(self, node: ast.expr) -> Field:
        """Return an expression as a word."""
        self.left = MOST_EXPRESSIONS
        pieces = limited(self.pieces(node))
        variable = node.id if isinstance(node, ast.Name) else ""
        quoted = isinstance(node, ast.Constant) and isinstance(node.value, str)
        return Field((Piece(None),) if pieces is None else tuple(pieces), *self.span(node), variable, quoted)

    def fields(self, node: ast.expr) -> list[Field]:
        """Return the elements of a list, or one word."""
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return [self.field(element) for element in node.elts]
        return [self.field(node)]

    def resolve(self, node: ast.expr, depth: int = 0) -> ast.expr | None:
        """Return what a name, ``args.tp``, or an entry of a table or a settings file stands for; never None itself."""
        value = None
        if isinstance(node, ast.Name) and node.id in self.bound:
            value = self.bound[node.id]
        elif isinstance(node, ast.Name):
            value = None if lists.is_grown(self.scopes, node) else self.scopes.find(node)
        elif isinstance(node, ast.Attribute):
            whose = self.bound.get(node.value.id) if isinstance(node.value, ast.Name) else None
            value = whose if whose is not None and node.attr == "name" else self.scopes.attribute(node)
            value = None if value is not None and lists.is_grown(self.scopes, node) else value
        elif isinstance(node, ast.Subscript):
            value = entry(self.scopes, node, join_pieces(self.pieces(node.slice, depth + 1)))
        value = self.settings.value(node) or value
        return None if isinstance(value, ast.Constant) and value.value is None else value

    def pieces(self, node: ast.expr, depth: int = 0) -> Iterator[Piece]:
        """Yield the text of an expression, as ``str`` would format it."""
        self.left -= 1
        if depth > 12 or self.left < 0:
            yield Piece(None)
        elif isinstance(node, ast.Constant):
            yield self._constant(node)
        elif (grown := lists.text(self, node, depth)) is not None:
            yield from grown
        elif isinstance(node, ast.Name | ast.Attribute | ast.Subscript):
            value = self.resolve(node, depth)
            yield from self.pieces(value, depth + 1) if value is not None else (Piece(None),)
        elif isinstance(node, ast.JoinedStr):
            yield from self._joined(node, depth)
        elif (made := formatted(self, node, depth)) is not None:
            yield from made
        elif isinstance(node, ast.Call):
            yield from self._call(node, depth)
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or) and environment_name(node.values[0]):
            yield from self.pieces(node.values[-1], depth + 1)
        elif isinstance(node, ast.UnaryOp | ast.BinOp):
            yield from self._computed(node, depth)
        else:
            yield Piece(None)

    def _constant(self, node: ast.Constant) -> Piece:
        start, end = self.span(node)
        raw, value = self.page.text[start:end], node.value
        if isinstance(value, str):
            opening = LITERAL.match(raw)
            if opening:
                inner = (start + opening.end(), end - len(opening[1]))
                if self.page.text[inner[0] : inner[1]] == value:
                    return Piece(value, *inner)
            return Piece(value)
        if value is None or isinstance(value, bool):
            return Piece(str(value), start, end)
        if isinstance(value, int) and value.bit_length() <= MOST_BITS:
            return Piece(str(value), start, end) if raw == str(value) else Piece(str(value))
        if isinstance(value, float):
            plain = raw.replace("_", "") if raw[:1] in "0123456789." else str(value)
            return Piece(plain, start, end) if len(raw) < MOST_BITS else Piece(None)
        return Piece(None)

    def _joined(self, node: ast.JoinedStr, depth: int) -> Iterator[Piece]:
        start, end = self.span(node)
        for part in node.values:
            if isinstance(part, ast.Constant):  # its position in the tree may be that of the whole string
                text = str(part.value)
                for word in (text,) if text in self.page.text[start:end] else re.split(r"(\s+)", text):
                    at = self.page.text.find(word, start, end) if word.strip() else -1
                    yield Piece(word, at, at + len(word)) if at >= 0 else Piece(word)
                    start = at + len(word) if at >= 0 else start
                continue
            opened = self.page.text.find("{", start, end)
            closed = self.page.text.find("}", opened, end)
            plain = isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None
            known = list(self.pieces(part.value, depth + 1)) if plain and isinstance(part, ast.FormattedValue) else []
            yield from known if known and all(p.text is not None for p in known) else (Piece(None, opened, closed + 1),)
            start = max(start, closed + 1)

    def _call(self, node: ast.Call, depth: int) -> Iterator[Piece]:
        """Evaluate casts such as ``int(…)`` and environment defaults."""
        if environment_name(node):
            default = node.args[1] if len(node.args) > 1 else None
            if default is not None and not (isinstance(default, ast.Constant) and default.value in (None, "")):
                yield from self.pieces(default, depth + 1)
                return
        elif isinstance(node.func, ast.Name) and node.func.id in CASTS and len(node.args) == 1 and not node.keywords:
            yield from self.pieces(node.args[0], depth + 1)
            return
        elif replaced := self._replaced(node, depth):
            yield Piece(replaced)
            return
        elif joined := self._join(node, depth):
            yield from joined
            return
        elif parts := _path_parts(node):
            yield from self._path(parts, depth)
            return
        elif isinstance(node.func, ast.Name) and node.func.id == "getattr" and len(node.args) > 1:
            name = join_pieces(self.pieces(node.args[1], depth + 1))
            yield from self.pieces(
                ast.copy_location(ast.Attribute(node.args[0], name or "", ast.Load()), node), depth + 1
            )
            return
        elif (value := self.resolve(node) or self.scopes.returned(node)) is not None:
            yield from self.pieces(value, depth + 1)
            return
        yield Piece(None)

    def _replaced(self, node: ast.Call, depth: int) -> str:
        """Return the text of ``name.replace("_", "-")``; nothing for other calls."""
        match node:
            case ast.Call(ast.Attribute(text, "replace"), [ast.Constant(str() as old), ast.Constant(str() as new)], []):
                return (join_pieces(self.pieces(text, depth + 1)) or "").replace(old, new)
        return ""

    def _join(self, node: ast.Call, depth: int) -> list[Piece]:
        """Return the text of ``" ".join([...])``."""
        blank = node.func.value if isinstance(node.func, ast.Attribute) and node.func.attr == "join" else None
        if not isinstance(blank, ast.Constant) or blank.value != " " or len(node.args) != 1:
            return []
        words = self.command(node.args[0], depth + 1) or []
        parts = ((*word.pieces, Piece(" ")) if not word.many else (Piece(None), Piece(" ")) for word in words)
        return [piece for part in parts for piece in part]

    def _path(self, parts: list[ast.expr], depth: int) -> Iterator[Piece]:
        for at, part in enumerate(parts):
            yield from (Piece("/"),) if at else ()
            yield from self.pieces(part, depth + 1)

    def _computed(self, node: ast.UnaryOp | ast.BinOp, depth: int) -> Iterator[Piece]:
        parts = _operands(node)
        if any(self.is_text(part) for part in parts):
            for part in parts:
                yield from self.pieces(part, depth + 1)
            return
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and self._number(node.left, depth) is None:
            yield from self._path([node.left, node.right], depth)
            return
        number = self._number(node, depth)
        text = None if number is None else str(number)
        start, end = self.span(node)
        yield Piece(text, start, end) if text == self.page.text[start:end] else Piece(text)

    def is_text(self, part: ast.expr) -> bool:
        """Return whether an operand of a sum is a text: then the sum concatenates."""
        value = self.resolve(part) or part
        return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and isinstance(value.value, str))

    def _number(self, node: ast.expr, depth: int) -> int | float | None:
        """Evaluate small arithmetic such as ``16 * 1024``."""
        self.left -= 1
        if depth > 12 or self.left < 0:
            return None
        if isinstance(node, ast.Constant):
            number = node.value
            small = isinstance(number, int | float) and not isinstance(number, bool)
            return number if small and abs(number) < 2**40 else None  # type: ignore[return-value,arg-type]
        if isinstance(node, ast.Name | ast.Attribute) and (value := self.resolve(node)) is not None:
            return self._number(value, depth + 1)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            operand = self._number(node.operand, depth + 1)
            return None if operand is None else -operand
        if isinstance(node, ast.BinOp):
            return _sum(node.op, self._number(node.left, depth + 1), self._number(node.right, depth + 1))
        return None

    # --- words of a command

    def command(self, node: ast.expr, depth: int = 0, base: ast.expr | None = None) -> list[Field] | None:
        """Return the words of a process's argument list; None if it is not a list.

        ``base``: the list that a name or attribute stands for, where that is known.
        """
        self.words_left = MOST_WORDS if depth == 0 else self.words_left
        if depth > 6 or self.words_left < 0:
            return None
        if isinstance(node, ast.Name | ast.Attribute):
            return lists.list_by_name(self, node, depth, base)
        if isinstance(node, ast.List | ast.Tuple):
            self.followed.append(self.span(node))
            return [field for item in node.elts for field in self.item(item, depth)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.command(node.left, depth + 1), self.command(node.right, depth + 1)
            rest = right if right is not None else [Field((Piece(None),), *self.span(node.right), many=True)]
            return None if left is None else [*left, *rest]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            shlex = isinstance(node.func.value, ast.Name) and node.func.value.id == "shlex" and node.args
            return self.text(node.args[0] if shlex else node.func.value) if shlex or not node.args else None
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice):
            return lists.part(self.command(node.value, depth + 1), node.slice)
        if isinstance(node, ast.Call) and (copied := lists.copied(node)) is not None:
            return self.command(copied, depth + 1)
        if isinstance(node, ast.Call) and (value := self.scopes.returned(node)) is not None:
            return self.command(value, depth + 1)
        return None

    def item(self, item: ast.expr, depth: int = 0) -> list[Field]:
        """Return the words of one argument; a starred one may be any number."""
        self.words_left -= 1
        if self.words_left < 0:
            return []
        if not isinstance(item, ast.Starred):
            return [self.field(item)]
        words = self.command(item.value, depth + 1)
        return words if words is not None else [Field((Piece(None),), *self.span(item), many=True)]

    def text(self, node: ast.expr) -> list[Field]:
        """Return the words of a text that is a command."""
        whole = self.field(node)
        split = [Piece(piece.text, piece.start, piece.end, splits=piece.text is not None) for piece in whole.pieces]
        fields = []
        for group in split_pieces(split):
            exact = all(piece.start >= 0 for piece in group)
            span = (group[0].start, group[-1].end) if exact and group else (whole.start, whole.end)
            fields.append(Field(tuple(group), *span))
        return fields


def _path_parts(node: ast.Call) -> list[ast.expr]:
    """Return the parts of the path that a call makes; none of another call."""
    name, method = last_name(node.func), node.func if isinstance(node.func, ast.Attribute) else None
    if name in ("Path", "PurePath") or (name == "join" and method is not None and last_name(method.value) == "path"):
        return node.args
    if name in SAME:
        return node.args[:1] or ([method.value] if method is not None else [])
    return []


def _operands(node: ast.expr) -> list[ast.expr]:
    """Return the operands of a sum, however many; none of another expression."""
    operands: list[ast.expr] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        operands.append(node.right)
        node = node.left
    return [node, *reversed(operands)] if operands else []


def _sum(operator: ast.operator, left: int | float | None, right: int | float | None) -> int | float | None:
    if left is None or right is None:
        return None
    if isinstance(operator, ast.Add):
        return left + right
    if isinstance(operator, ast.Sub):
        return left - right
    if isinstance(operator, ast.Mult):
        return left * right if abs(left) < 2**60 and abs(right) < 2**60 else None
    if isinstance(operator, ast.Pow) and isinstance(left, int) and isinstance(right, int):
        return int(left**right) if 0 <= right <= 64 and abs(left) <= 2**10 else None
    if isinstance(operator, ast.FloorDiv):
        return left // right if right else None
    return None
