"""Recognise the statements that change a list or a text after it was made: ``cmd += [...]``, ``self.cmd.append(…)``."""

import ast
from typing import NamedTuple

CHANGING = frozenset({"append", "extend", "insert", "remove", "pop", "clear", "reverse", "sort"})


class Growth(NamedTuple):
    """One such statement, the name or attribute that it changes, and its block."""

    statement: ast.stmt
    target: ast.expr
    block: int


class Added(NamedTuple):
    """What is added to a list: one word or several, always or in some runs only, at its end or at a place in it.

    ``followed``: the file fixes what becomes of the list.
    """

    value: ast.AST
    one: bool = False
    always: bool = True
    followed: bool = True
    at: int | None = None


def key_of(target: ast.expr) -> str:
    """Return a name, or an attribute's name behind a dot; empty for other expressions."""
    return f".{target.attr}" if isinstance(target, ast.Attribute) else getattr(target, "id", "")


def grown_by(node: ast.stmt) -> ast.expr | None:
    """Return the name or attribute that a statement changes in place, or sets to itself and more."""
    target: ast.expr | None = None
    match node:
        case ast.AugAssign(target):
            target = target.value if isinstance(target, ast.Subscript) else target
        case ast.Expr(ast.Call(ast.Attribute(whose, name))) if name in CHANGING:
            target = whose
        case ast.Assign([ast.Subscript(whose, where)]) | ast.Delete([ast.Subscript(whose, where)]):
            fixed = where.operand if isinstance(where, ast.UnaryOp) else where
            number = isinstance(fixed, ast.Constant) and isinstance(fixed.value, int)
            target = whose if isinstance(fixed, ast.Slice | ast.BinOp) or number else None
        case ast.Assign([ast.Name(name) as target], value) if not _is_more(value, name):
            target = None
        case ast.Assign([ast.Attribute(ast.Name(), name) as target], value) if not _is_more(value, f".{name}"):
            target = None
        case ast.Assign([ast.Name() | ast.Attribute(ast.Name()) as target]):
            pass
    return target if isinstance(target, ast.Name | ast.Attribute) else None


def _is_more(value: ast.expr, key: str) -> bool:
    """Return whether a value is what a name stood for, with words behind it; of a name, words in a list."""
    match value:
        case ast.BinOp(ast.Name() | ast.Attribute() as left, ast.Add(), right):
            return key_of(left) == key and (key.startswith(".") or isinstance(right, ast.List | ast.Tuple))
        case ast.List([ast.Starred(left), *_]):
            return key_of(left) == key
    return False


def added(growth: Growth) -> Added:
    """Return what a statement adds to a list."""
    match growth.statement:
        case ast.AugAssign(ast.Name() | ast.Attribute(), ast.Add(), value):
            return Added(value)
        case ast.Assign([ast.Name() | ast.Attribute()], ast.BinOp(_, _, value)):
            return Added(value)
        case ast.Assign([ast.Name() | ast.Attribute()], ast.List([_, *rest]) as whole):
            return Added(ast.copy_location(ast.List(rest, ast.Load()), whole))
        case ast.Assign([ast.Subscript(_, ast.Slice(ast.Constant(int() as at), ast.Constant(end), None))], value):
            if at == end:
                return Added(value, at=at)
        case ast.Expr(ast.Call(ast.Attribute(_, "append"), [value], [])):
            return Added(value, one=True)
        case ast.Expr(ast.Call(ast.Attribute(_, "extend"), [value], [])):
            return Added(value)
        case ast.Expr(ast.Call(ast.Attribute(_, "insert"), [ast.Constant(int() as at), value], [])):
            return Added(value, one=True, at=at)
    return Added(growth.statement, followed=False)
