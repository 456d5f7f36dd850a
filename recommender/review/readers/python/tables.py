"""Find what a loop over a table, or a look-up in one, may give to names: an expression for each turn."""

import ast
from collections.abc import Callable, Iterator
from functools import lru_cache

from recommender.review.readers.python.scopes import FUNCTIONS, Scopes
from recommender.review.script.python_uses import last_name

MOST_ROWS = 12
DUMPS = ("asdict", "vars")
Row = dict[str, ast.expr]


def rows(scopes: Scopes, node: ast.AST) -> list[Row]:
    """Return what the names of the loop around a node, or of a look-up in its function, are in each turn."""
    around: ast.AST | None = scopes.parents.get(id(node))
    while around is not None and not isinstance(around, FUNCTIONS):
        if isinstance(around, ast.For) and (found := list(_bound(around.target, _turns(scopes, around.iter)))):
            return found[:MOST_ROWS]
        around = scopes.parents.get(id(around))
    return _looked_up(scopes, around) if around is not None else []


@lru_cache(maxsize=64)
def _looked_up(scopes: Scopes, function: ast.AST) -> list[Row]:
    """Return the rows of a table if a function unpacks one of them, by a key that is unknown before a run."""
    for statement in ast.walk(function):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        value = statement.value if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Subscript):
            table = _table(scopes, value.value)
            values = table.values if isinstance(table, ast.Dict) and not isinstance(value.slice, ast.Constant) else []
            if found := list(_bound(target, values)):
                return found[:MOST_ROWS]
    return []


def entry(scopes: Scopes, node: ast.Subscript, key: str | None) -> ast.expr | None:
    """Return what a table of the file holds under a key."""
    table = _table(scopes, node.value) if isinstance(node.value, ast.Name) else None
    found = [value for name, value in _pairs(table) if isinstance(name, ast.Constant) and str(name.value) == key]
    return found[0] if len(found) == 1 else None


def loop_around(scopes: Scopes, added: ast.AST) -> ast.For | None:
    """Return the loop whose body adds an expression to a list."""
    statement: ast.AST | None = added
    while statement is not None and not isinstance(statement, ast.stmt):
        statement = scopes.parents.get(id(statement))
    loop = scopes.parents.get(id(statement))
    return loop if isinstance(loop, ast.For) else None


def turns(scopes: Scopes, resolve: Callable[[ast.expr], ast.expr | None], loop: ast.For | None) -> Iterator[Row]:
    """Yield what the variables of a loop over a dictionary's items, or over the fields of an object, are in each turn.

    ``resolve`` looks up names.
    """
    match loop:
        case ast.For(target, ast.Call(called, [whose])) if last_name(called) == "fields":
            yield from _fields(scopes, whose, loop, target)
        case ast.For(target, ast.Call(ast.Attribute(ast.Call(called, [whose]), "items"))) if last_name(called) in DUMPS:
            yield from _fields(scopes, whose, loop, target)
        case ast.For(ast.Tuple([ast.Name(name), ast.Name(other)]), ast.Call(ast.Attribute(given, "items"))):
            yield from ({name: key, other: value} for key, value in _pairs(resolve(given) or given))


def _fields(scopes: Scopes, whose: ast.expr, loop: ast.For, target: ast.expr) -> Iterator[Row]:
    """Yield the fields of an object, one a turn; none if a switch is among them, which a loop treats otherwise."""
    names = [each.id for each in (target, *getattr(target, "elts", ())) if isinstance(each, ast.Name)]
    found, skipped = scopes.fields_of(whose), set(_skipped(loop))
    constants = {name: value.value for name, value in found.items() if isinstance(value, ast.Constant)}
    if any(isinstance(value, bool) for value in constants.values()):
        return
    for name, value in found.items():
        if name not in skipped and constants.get(name, ...) is not None:
            yield dict(zip(names, (ast.Constant(name), value), strict=False))


def _skipped(loop: ast.For) -> Iterator[str]:
    """Yield the names of ``if field.name == "model": continue``, and of a list in its place."""
    for each in loop.body:
        if isinstance(each, ast.If) and isinstance(each.test, ast.Compare) and isinstance(each.body[0], ast.Continue):
            yield from (str(one.value) for one in ast.walk(each.test) if isinstance(one, ast.Constant))


def _pairs(table: ast.expr | None) -> list[tuple[ast.expr, ast.expr]]:
    """Return the entries of ``{…}`` or ``dict(…)``; none if another table is part of it."""
    pairs: list[tuple[ast.expr | None, ast.expr]] = []
    if isinstance(table, ast.Dict):
        pairs = list(zip(table.keys, table.values, strict=True))
    elif isinstance(table, ast.Call) and last_name(table.func) == "dict" and not table.args:
        pairs = [(ast.Constant(each.arg) if each.arg else None, each.value) for each in table.keywords]
    known = [(key, value) for key, value in pairs if key is not None]
    return known if len(known) == len(pairs) else []


def _table(scopes: Scopes, node: ast.expr) -> ast.expr | None:
    return scopes.find(node) if isinstance(node, ast.Name) else node


def _turns(scopes: Scopes, iterable: ast.expr) -> list[ast.expr]:
    """Return the elements of a list, the items of a dictionary, or the pairs that zip makes."""
    called = last_name(iterable.func) if isinstance(iterable, ast.Call) else ""
    if isinstance(iterable, ast.Call) and called == "items" and isinstance(iterable.func, ast.Attribute):
        table = _table(scopes, iterable.func.value)
        return [ast.Tuple([key, value]) for key, value in _pairs(table)]
    if isinstance(iterable, ast.Call) and called == "zip":
        columns = [_elements(scopes, each) for each in iterable.args]
        return [ast.Tuple(list(each)) for each in zip(*columns, strict=False)]
    return _elements(scopes, iterable)


def _elements(scopes: Scopes, node: ast.expr) -> list[ast.expr]:
    table = _table(scopes, node)
    return list(table.elts) if isinstance(table, ast.List | ast.Tuple) else []


def _bound(target: ast.expr, values: list[ast.expr]) -> Iterator[Row]:
    """Yield the names of each turn; nothing if a turn has another form, or for numbers alone: sweeps try extremes."""
    turns = [_names(target, value) for value in values[: MOST_ROWS + 1]]
    if len(turns) > 1 and all(any(_is_text(value) for value in turn.values()) for turn in turns):
        yield from turns


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _names(target: ast.expr, value: ast.expr) -> Row:
    if isinstance(target, ast.Name):
        return {target.id: value}
    if not (isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple | ast.List)):
        return {}
    if len(target.elts) != len(value.elts):
        return {}
    parts = [_names(name, each) for name, each in zip(target.elts, value.elts, strict=True)]
    return {name: each for part in parts for name, each in part.items()} if all(parts) else {}
