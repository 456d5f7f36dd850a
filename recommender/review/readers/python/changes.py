"""Find what a Python file changes after it created a configuration or a dictionary: ``config.tp = 2``."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from recommender.review.readers.python.scopes import last_name
from recommender.review.readers.python.values import Values

DEEPEST = 4
"""How many dictionaries copy each other."""


class Change(NamedTuple):
    """One changed field: its name (empty if unknown), the value, where both are, and the statement."""

    name: str
    value: ast.expr
    place: tuple[int, int]
    whole: tuple[int, int]
    statement: ast.stmt


def changes(values: Values) -> dict[str, list[Change]]:
    """Return the changes of a file by the name of what they change."""
    found: dict[str, list[Change]] = {}
    for node in values.nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target = node.targets[0]
            if isinstance(target, ast.Attribute | ast.Subscript):
                found.setdefault(dotted(target.value), []).append(_assigned(values, node, target))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and called.attr == "update":
                found.setdefault(dotted(called.value), []).extend(_updated(values, node, node.value))
    return found


def _assigned(values: Values, node: ast.Assign, target: ast.Attribute | ast.Subscript) -> Change:
    start, end = values.span(target)
    whole = start, values.span(node)[1]
    if isinstance(target, ast.Attribute):
        return Change(target.attr, node.value, (end - len(target.attr), end), whole, node)
    key = target.slice
    name = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
    first, last = values.span(key)
    return Change(name, node.value, (first + 1, last - 1) if name else (first, last), whole, node)


def _updated(values: Values, node: ast.Expr, call: ast.Call) -> Iterator[Change]:
    for keyword in call.keywords:
        start, end = values.span(keyword)
        name = keyword.arg or ""
        yield Change(name, keyword.value, (start, start + len(name)), (start, end), node)
    for given in call.args:
        pairs = list(dictionary(values.resolve(given) or given, values))
        for name, value in pairs or [("", given)]:
            yield Change(name, value, values.span(value), values.span(value), node)


def dotted(node: ast.expr) -> str:
    """Return a name, or an attribute of one such as ``self.config``; nothing for other expressions."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def named(name: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield a value with its name, if that is a string."""
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield name.value, value


def dumped(values: Values, node: ast.expr) -> ast.expr | None:
    """Return the fields of an object as a dictionary: of ``config.model_dump()``, ``asdict(config)`` and the like."""
    match node:
        case ast.Call(ast.Attribute(whose, "model_dump" | "dict" | "to_dict" | "_asdict"), []):
            pass
        case ast.Call(called, [whose], []) if last_name(called) in ("asdict", "vars"):
            pass
        case _:
            return None
    fields = values.scopes.fields_of(whose)
    keys = [ast.Constant(name) for name in fields]
    return ast.copy_location(ast.Dict(list(keys), list(fields.values())), node) if fields else None


def dictionary(node: ast.expr, values: Values | None = None, depth: int = 0) -> Iterator[tuple[str, ast.expr]]:
    """Yield the named values of a dictionary, with those of another one that it copies if ``values`` finds that."""
    parts: list[tuple[str | None, ast.expr]] = []
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        parts = [each for name, value in pairs for each in ([(None, value)] if name is None else named(name, value))]
    elif isinstance(node, ast.Call) and last_name(node.func) in ("dict", "copy", "deepcopy"):
        whose = [node.func.value] if isinstance(node.func, ast.Attribute) and not node.args else node.args
        parts = [*((None, each) for each in whose[:1]), *((each.arg, each.value) for each in node.keywords)]
    for name, value in parts:
        if name is not None:
            yield name, value
        elif values is not None and depth < DEEPEST:
            yield from dictionary(values.resolve(value) or value, values, depth + 1)
