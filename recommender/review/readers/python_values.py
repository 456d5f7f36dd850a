"""Evaluate Python expressions made of literals and names assigned once."""

import ast
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from recommender.review.script.source_map import Field, Piece, SourceText, limited
from recommender.review.shell.words import split_pieces

MOST_EXPRESSIONS = 400
MOST_BITS = 200
MOST_WORDS = 5000
LITERAL = re.compile(r"[A-Za-z]{0,2}(\"\"\"|'''|\"|')")
NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
CASTS = frozenset({"int", "float", "str", "bool"})
CHANGING = frozenset({"append", "extend", "insert", "remove", "pop", "clear"})


class Values:
    """Evaluate the expressions of one file."""

    def __init__(self, page: SourceText, code: str, tree: ast.Module) -> None:
        """``code`` is the parsed text, with plain line ends."""
        self.page = page
        self.tree = tree
        self.lines = code.split("\n")
        self.nodes = list(ast.walk(tree))
        self.bytes: dict[int, list[int]] = {}
        grown = {
            node.target.id
            for node in self.nodes
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)
        }
        self.lists = self._bound()
        self.names = {name: value for name, value in self.lists.items() if name not in grown}
        self.changed = grown | {
            node.func.value.id
            for node in self.nodes
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in CHANGING
            and isinstance(node.func.value, ast.Name)
        }
        self.left, self.words_left = MOST_EXPRESSIONS, MOST_WORDS

    def _bound(self) -> dict[str, ast.expr]:
        """Return names assigned once, with their value; lists may grow later."""
        times: Counter[str] = Counter()
        values: dict[str, ast.expr] = {}
        for node in self.nodes:
            times.update(_binds(node))
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                values[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
                values[node.target.id] = node.value
        for node in self.nodes:
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                times[node.target.id] -= 1
        return {name: value for name, value in values.items() if times[name] == 1}

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

    def pieces(self, node: ast.expr, depth: int = 0) -> Iterator[Piece]:
        """Yield the text of an expression, as ``str`` would format it."""
        self.left -= 1
        if depth > 12 or self.left < 0:
            yield Piece(None)
        elif isinstance(node, ast.Constant):
            yield self._constant(node)
        elif isinstance(node, ast.Name) and node.id in self.names:
            yield from self.pieces(self.names[node.id], depth + 1)
        elif isinstance(node, ast.JoinedStr):
            yield from self._joined(node, depth)
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
            return Piece(raw.replace("_", ""), start, end) if len(raw) < MOST_BITS else Piece(None)
        return Piece(None)

    def _joined(self, node: ast.JoinedStr, depth: int) -> Iterator[Piece]:
        for part in node.values:
            if isinstance(part, ast.Constant):
                yield Piece(str(part.value))  # its tree position is that of the whole string
            elif isinstance(part, ast.FormattedValue) and part.conversion == -1 and part.format_spec is None:
                yield from self.pieces(part.value, depth + 1)
            else:
                yield Piece(None)

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
        yield Piece(None)

    def _computed(self, node: ast.UnaryOp | ast.BinOp, depth: int) -> Iterator[Piece]:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and self._texts(node):
            yield from self.pieces(node.left, depth + 1)
            yield from self.pieces(node.right, depth + 1)
            return
        number = self._number(node, depth)
        text = None if number is None else str(number)
        start, end = self.span(node)
        yield Piece(text, start, end) if text == self.page.text[start:end] else Piece(text)

    def _texts(self, node: ast.BinOp) -> bool:
        """Return whether a sum concatenates text; one text operand is enough."""
        for side in (node.left, node.right):
            if isinstance(side, ast.Name):
                side = self.names.get(side.id, side)
            if isinstance(side, ast.JoinedStr) or (isinstance(side, ast.Constant) and isinstance(side.value, str)):
                return True
        return False

    def _number(self, node: ast.expr, depth: int) -> int | float | None:
        """Evaluate small arithmetic such as ``16 * 1024``."""
        self.left -= 1
        if depth > 12 or self.left < 0:
            return None
        if isinstance(node, ast.Constant):
            value = node.value
            small = isinstance(value, int | float) and not isinstance(value, bool)
            return value if small and abs(value) < 2**40 else None  # type: ignore[return-value,arg-type]
        if isinstance(node, ast.Name) and node.id in self.names:
            return self._number(self.names[node.id], depth + 1)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._number(node.operand, depth + 1)
            return None if value is None else -value
        if isinstance(node, ast.BinOp):
            return _sum(node.op, self._number(node.left, depth + 1), self._number(node.right, depth + 1))
        return None

    # --- words of a command

    def command(self, node: ast.expr, depth: int = 0) -> list[Field] | None:
        """Return the words of a process's argument list; None if it is not a list."""
        self.words_left = MOST_WORDS if depth == 0 else self.words_left
        if depth > 6 or self.words_left < 0:
            return None
        if isinstance(node, ast.Name) and node.id in self.lists:
            words = self.command(self.lists[node.id], depth + 1)
            unsure = words is not None and node.id in self.changed
            return [*words, Field((Piece(None),), *self.span(node), many=True)] if words and unsure else words
        if isinstance(node, ast.List | ast.Tuple):
            return [field for item in node.elts for field in self.item(item, depth)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            left, right = self.command(node.left, depth + 1), self.command(node.right, depth + 1)
            rest = right if right is not None else [Field((Piece(None),), *self.span(node.right), many=True)]
            return None if left is None else [*left, *rest]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            shlex = isinstance(node.func.value, ast.Name) and node.func.value.id == "shlex" and node.args
            return self.text(node.args[0] if shlex else node.func.value) if shlex or not node.args else None
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


def _binds(node: ast.AST) -> Iterator[str]:
    """Yield the names that a node binds."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, NAMED):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
        yield node.name
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from (name for name in node.names for _ in range(2))


def last_name(node: ast.expr) -> str:
    """Return the last name of a callee: ``c`` for ``a.b.c``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def environment_name(node: ast.expr) -> str:
    """Return the variable that ``os.environ.get`` or ``os.getenv`` reads."""
    if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
        return ""
    name = node.args[0].value
    asks = last_name(node.func) == "getenv" or (
        isinstance(node.func, ast.Attribute) and node.func.attr == "get" and last_name(node.func.value) == "environ"
    )
    return name if asks and isinstance(name, str) else ""
