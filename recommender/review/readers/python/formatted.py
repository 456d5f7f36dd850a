"""Return the text that ``"…".format(…)`` and ``"…" % …`` make, with what is put into it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.review.script.source_map import Piece

if TYPE_CHECKING:
    from recommender.review.readers.python.values import Values

FORMAT = pattern(r"(?P<sign>\{\{|\}\})|\{(?P<name>\w*)(?P<spec>[^{}\w][^{}]*)?\}")
PERCENT = pattern(r"(?P<sign>%%)|%(?:\((?P<name>\w+)\))?(?P<spec>[-+ #\d.]+)?[sdifgr]")
MOST_FIELDS = 40


def formatted(values: Values, node: ast.expr, depth: int) -> list[Piece] | None:
    """Return the pieces of a formatted text; None for another expression."""
    match node:
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
    pieces = list(values.pieces(template, depth + 1))
    if len(pieces) != 1 or pieces[0].text is None or any(isinstance(each, ast.Starred) for each in given):
        return None
    return list(_filled(values, pieces[0], signs, given, named, depth))


def _filled(
    values: Values,
    template: Piece,
    signs: re.Pattern[str],
    given: Sequence[ast.expr],
    named: dict[str, ast.expr],
    depth: int,
) -> Iterator[Piece]:
    at = count = 0
    for number, match in enumerate(signs.finditer(template.text or "")):
        yield template.cut(at, match.start())
        at = match.end()
        if match["sign"]:
            yield template.cut(match.start(), match.start() + 1)
            continue
        name = match["name"] or str(count)
        count += not match["name"]
        value = given[int(name)] if name.isdecimal() and int(name) < len(given) else named.get(name)
        plain = value is not None and not match["spec"] and number < MOST_FIELDS
        pieces = list(values.pieces(value, depth + 1)) if plain and value is not None else []
        if pieces and all(piece.text is not None for piece in pieces):
            yield from pieces
        else:
            unknown = template.cut(*match.span())
            yield Piece(None, unknown.start, unknown.end)
    yield template.cut(at, len(template.text or ""))
