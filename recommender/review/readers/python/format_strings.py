"""Return the text that ``"…".format(…)``, ``"…" % …`` and a ``string.Template`` make, with what is put into it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from recommender.common.pattern import pattern
from recommender.review.script.source_map import Piece

if TYPE_CHECKING:
    from recommender.review.readers.python.values import Values

FORMAT = pattern(r"(?P<sign>\{\{|\}\})|\{(?P<name>\w*)(?P<spec>[^{}\w][^{}]*)?\}")
PERCENT = pattern(r"(?P<sign>%%)|%(?:\((?P<name>\w+)\))?(?P<spec>[-+ #\d.]+)?[sdifgr]")
DOLLAR = pattern(r"(?P<sign>\$\$)|\$(?P<brace>\{)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?(brace)\})(?P<spec>)")
MOST_FIELDS, DEEPEST = 40, 4
CHANGES = frozenset({"update", "pop", "popitem", "setdefault", "clear"})


def formatted(values: Values, node: ast.expr, depth: int) -> list[Piece] | None:
    """Return the pieces of a formatted text; None for another expression."""
    left = False
    given: Sequence[ast.expr]
    match node:
        case ast.Call(ast.Attribute(made, "substitute" | "safe_substitute" as how), mappings, keywords):
            template, given, signs = _template(values, made), [], DOLLAR
            named, known = _joined(values, _parts(mappings, keywords), 0)
            left = known and how == "safe_substitute"
        case ast.Call(ast.Attribute(template, "format"), given, keywords):
            named = {keyword.arg: keyword.value for keyword in keywords if keyword.arg}
            signs = FORMAT
        case ast.BinOp(template, ast.Mod(), ast.Dict(names, entries)):
            given, signs = [], PERCENT
            pairs = zip(names, entries, strict=True)
            named = {str(name.value): value for name, value in pairs if isinstance(name, ast.Constant)}
        case ast.BinOp(template, ast.Mod(), right):
            given, named, signs = right.elts if isinstance(right, ast.Tuple) else [right], {}, PERCENT
        case _:
            return None
    pieces = list(values.pieces(template, depth + 1)) if template is not None else []
    if len(pieces) != 1 or pieces[0].text is None or any(isinstance(each, ast.Starred) for each in given):
        return None
    return list(_filled(values, pieces[0], _Blanks(signs, given, named, left), depth))


def _template(values: Values, expression: ast.expr) -> ast.expr | None:
    """Return the text of a ``string.Template``; None for another object."""
    match values.resolve(expression) or expression:
        case ast.Call(ast.Name("Template") | ast.Attribute(_, "Template"), [text]):
            return text
    return None


def _parts(mappings: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> list[tuple[str | None, ast.expr]]:
    return [*((None, each) for each in mappings), *((each.arg, each.value) for each in keywords)]


def _joined(
    values: Values, parts: Iterable[tuple[str | None, ast.expr]], depth: int
) -> tuple[dict[str, ast.expr], bool]:
    """Return named values, with those of dictionaries; what an unknown dictionary may change is left out."""
    named: dict[str, ast.expr] = {}
    known = True
    for name, value in parts:
        if name is not None:
            named[name] = value
            continue
        inner, whole = _dictionary(values, value, depth + 1)
        named, known = (named if whole else {}) | inner, known and whole
    return named, known


def _dictionary(values: Values, node: ast.expr, depth: int) -> tuple[dict[str, ast.expr], bool]:
    """Return the named values of a dictionary that nothing changes, and whether these are all."""
    if depth > DEEPEST or (isinstance(node, ast.Name) and _changes(values, node.id)):
        return {}, False
    match values.resolve(node) or node:
        case ast.Dict(keys, entries):
            pairs = [(_key(key), value) for key, value in zip(keys, entries, strict=True)]
            if all(name != "" for name, _ in pairs):
                return _joined(values, pairs, depth)
        case ast.Call(ast.Name("dict"), mappings, keywords):
            return _joined(values, _parts(mappings, keywords), depth)
    return {}, False


def _key(key: ast.expr | None) -> str | None:
    """Return a key of a dictionary: empty if it is unknown, None for another dictionary in it."""
    return None if key is None else str(key.value) if isinstance(key, ast.Constant) else ""


def _changes(values: Values, name: str) -> bool:
    """Return whether a file changes the entries of a dictionary."""
    for node in values.nodes:
        match node:
            case ast.Subscript(ast.Name(whose), _, ast.Store() | ast.Del()) if whose == name:
                return True
            case ast.Call(ast.Attribute(ast.Name(whose), called)) if whose == name and called in CHANGES:
                return True
            case ast.AugAssign(ast.Name(whose)) if whose == name:
                return True
    return False


class _Blanks(NamedTuple):
    """The blanks of a template, and what fills them; ``partial``: those without a value stay as they are."""

    signs: re.Pattern[str]
    positional: Sequence[ast.expr]
    keywords: dict[str, ast.expr]
    partial: bool


def _filled(values: Values, template: Piece, blanks: _Blanks, depth: int) -> Iterator[Piece]:
    at = count = 0
    for number, match in enumerate(blanks.signs.finditer(template.text or "")):
        yield template.cut(at, match.start())
        at = match.end()
        if match["sign"]:
            yield template.cut(match.start(), match.start() + 1)
            continue
        name = match["name"] or str(count)
        count += not match["name"]
        index = int(name) if name.isdecimal() else len(blanks.positional)
        value = blanks.positional[index] if index < len(blanks.positional) else blanks.keywords.get(name)
        if value is None and blanks.partial:
            yield template.cut(*match.span())
            continue
        plain = value is not None and not match["spec"] and number < MOST_FIELDS
        pieces = list(values.pieces(value, depth + 1)) if plain and value is not None else []
        if pieces and all(piece.text is not None for piece in pieces):
            yield from pieces
        else:
            unknown = template.cut(*match.span())
            yield Piece(None, unknown.start, unknown.end)
    yield template.cut(at, len(template.text or ""))
