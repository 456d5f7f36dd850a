"""Find which names of a Python file a value reaches, and where they are read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

from recommender.review.script.model import Script

SHOWING = frozenset({"print", "debug", "info", "warning", "warn", "error", "log", "echo", "secho"})
"""Calls that only show a value."""
ADDING = frozenset({"append", "extend", "insert", "update", "setdefault"})
Function = ast.FunctionDef | ast.AsyncFunctionDef
Functions = Mapping[str, Function | ast.ClassDef]


class Given(NamedTuple):
    """A range whose value a name gets; ``grows``: beside what it has."""

    start: int
    end: int
    name: str
    grows: bool = False


class PythonNames(NamedTuple):
    """What a file does with its names, by offsets: ``wholes`` are expressions that are no part of another."""

    assignments: tuple[Given, ...] = ()
    uses: tuple[tuple[int, str], ...] = ()
    wholes: tuple[tuple[int, int], ...] = ()

    def whole(self, start: int) -> tuple[int, int]:
        """Return the whole expression around an offset; nothing where there is none."""
        around = (each for each in self.wholes if each[0] <= start < each[1])
        return max(around, key=lambda each: each[1] - each[0], default=(start, start))


@lru_cache(maxsize=16)
def python_names(script: Script) -> PythonNames | None:
    """Return what a Python script does with its names; None if it cannot be parsed."""
    try:
        tree = ast.parse(script.text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    nodes = list(ast.walk(tree))
    places = _Offsets(script)
    functions = {node.name: node for node in nodes if isinstance(node, Function | ast.ClassDef)}
    skipped = {id(part) for node in nodes for part in _without_effect(node)}
    given = (Given(*places.of(value), name, more) for node in nodes for value, name, more in _given(node, functions))
    uses = (
        (places.of(part)[1] - len(name), name) if isinstance(part, ast.Attribute) else (places.of(part)[0], name)
        for part, name in ((node, _read(node)) for node in nodes if id(node) not in skipped)
        if name and isinstance(part, ast.expr)
    )
    statements = (node for node in nodes if isinstance(node, ast.stmt | ast.withitem))
    wholes = (child for node in statements for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
    return PythonNames(tuple(given), tuple(uses), tuple(places.of(child) for child in wholes))


class _Offsets:
    """Convert the parser's places, which count bytes of a line, to offsets."""

    def __init__(self, script: Script) -> None:
        self.rows = script.text.split("\n")
        self.starts = [0]
        for row in self.rows:
            self.starts.append(self.starts[-1] + len(row) + 1)

    def of(self, node: ast.expr) -> tuple[int, int]:
        """Return the range of an expression."""
        end = self._offset(node.end_lineno or node.lineno, node.end_col_offset or node.col_offset)
        return self._offset(node.lineno, node.col_offset), end

    def _offset(self, line: int, column: int) -> int:
        row = self.rows[line - 1]
        before = column if row.isascii() else len(row.encode()[:column].decode("utf-8", "replace"))
        return self.starts[line - 1] + before


def _read(node: ast.AST) -> str:
    """Return the name that an expression reads: a variable, an attribute, or a key of a mapping."""
    if isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return ""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    key = node.slice if isinstance(node, ast.Subscript) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
        key = node.args[0] if node.args else None
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""


def _without_effect(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of what only shows a value, or asks whether there is one, and the owners of what is read."""
    if isinstance(node, ast.Call) and not any(each.arg == "file" for each in node.keywords):
        if last_name(node.func) in SHOWING:
            yield from ast.walk(node)
        elif isinstance(node.func, ast.Attribute) and (node.func.attr in ADDING or _read(node)):
            yield node.func.value
    elif isinstance(node, ast.Attribute | ast.Subscript) and _read(node):
        yield node.value
    elif isinstance(node, ast.If | ast.IfExp) and isinstance(node.test, ast.Name):
        yield node.test


def last_name(node: ast.expr) -> str:
    """Return the last name of a callee: ``c`` for ``a.b.c``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _given(node: ast.AST, functions: Functions) -> Iterator[tuple[ast.expr, str, bool]]:
    """Yield what a statement or a call gives to names: the value, the name, and whether the name has more."""
    if isinstance(node, ast.Assign):
        read = {name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)}
        yield from ((node.value, name, name in read) for target in node.targets for name in _targets(target))
    elif isinstance(node, ast.AnnAssign | ast.NamedExpr) and node.value is not None:
        yield from ((node.value, name, False) for name in _targets(node.target))
    elif isinstance(node, ast.AugAssign):
        yield from ((node.value, name, True) for name in _targets(node.target))
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield from ((node.iter, name, True) for name in _targets(node.target))
    elif isinstance(node, ast.Dict):
        named = zip(node.keys, node.values, strict=True)
        keys = ((value, key.value) for key, value in named if isinstance(key, ast.Constant))
        yield from ((value, key, False) for value, key in keys if isinstance(key, str))
    elif isinstance(node, Function):
        yield from _of_function(node)
    elif isinstance(node, ast.Call):
        yield from _of_call(node, functions)


def _targets(target: ast.expr) -> Iterator[str]:
    """Yield the names that a target binds: a key and an attribute count as names."""
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _targets(element)
    elif isinstance(target, ast.Starred):
        yield from _targets(target.value)
    elif isinstance(target, ast.Subscript):
        if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
            yield target.slice.value
        yield from _targets(target.value)
    else:
        yield last_name(target)


def _of_function(node: Function) -> Iterator[tuple[ast.expr, str, bool]]:
    """Yield the defaults of a function's parameters, and what it returns."""
    taken = [*node.args.posonlyargs, *node.args.args]
    with_default = taken[len(taken) - len(node.args.defaults) :]
    yield from ((value, each.arg, False) for each, value in zip(with_default, node.args.defaults, strict=True))
    named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
    yield from ((value, each.arg, False) for each, value in named if value is not None)
    returned = (each.value for each in ast.walk(node) if isinstance(each, ast.Return | ast.Yield) and each.value)
    yield from ((value, node.name, False) for value in returned)


def _of_call(node: ast.Call, functions: Functions) -> Iterator[tuple[ast.expr, str, bool]]:
    """Yield what a call gives: to the parameters of a function in the file, a list, or an option of a parser."""
    name = last_name(node.func)
    if name in ADDING and isinstance(node.func, ast.Attribute):
        yield from ((value, last_name(node.func.value), True) for value in node.args)
    defined = functions.get(name)
    if defined is not None:
        taken = defined.args.args if isinstance(defined, Function) else []
        taken = taken[1:] if taken and taken[0].arg in ("self", "cls") else taken
        yield from ((value, each.arg, False) for value, each in zip(node.args, taken, strict=False))
        yield from ((keyword.value, keyword.arg, False) for keyword in node.keywords if keyword.arg)
    options = [
        argument.value
        for argument in node.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]
    default = next((keyword.value for keyword in node.keywords if keyword.arg == "default"), None)
    if default is not None and options:
        longest = max(options, key=len)
        yield default, longest.lstrip("-").replace("-", "_"), False
