"""Find what a Python file changes after it created a configuration or a dictionary: ``config.tp = 2``."""

import ast
from collections.abc import Iterator
from typing import NamedTuple

from recommender.review.readers.python.values import Values
from recommender.review.script.python_uses import last_name

DEEPEST = 4
"""Most dictionaries in a row that copy each other."""


class Change(NamedTuple):
    """One changed field: its name (empty if unknown), the value, where both are, and the statement.

    ``gone``: the field is taken out of a dictionary.
    """

    name: str
    value: ast.expr
    place: tuple[int, int]
    whole: tuple[int, int]
    statement: ast.stmt
    gone: bool = False


def changes(values: Values) -> dict[str, list[Change]]:
    """Return the changes of a file by the name of what they change."""
    found: dict[str, list[Change]] = {}
    for node in values.nodes:
        for whose, change in _changes(values, node) if isinstance(node, ast.stmt) else ():
            found.setdefault(dotted(whose).removesuffix(".__dict__"), []).append(change)
    _by_functions(values, found)
    return found


def _changes(values: Values, node: ast.stmt) -> Iterator[tuple[ast.expr, Change]]:
    """Yield what a statement changes: the object, and how."""
    match node:
        case ast.Assign([ast.Attribute() | ast.Subscript() as target], value) if value:
            yield target.value, _assigned(values, node, target, value)
        case ast.AnnAssign(ast.Attribute() | ast.Subscript() as target, _, ast.expr() as value):
            yield target.value, _assigned(values, node, target, value)
        case ast.AugAssign(ast.Attribute() | ast.Subscript() as target, operator, value):
            computed = ast.copy_location(ast.BinOp(target, operator, value), node)
            yield target.value, _assigned(values, node, target, computed)
        case ast.AugAssign(ast.Name() as whose, ast.BitOr(), value):
            yield from ((whose, change) for change in _merged(values, node, value))
        case ast.Delete([ast.Subscript(whose, ast.Constant(str() as name))]) | ast.Expr(
            ast.Call(ast.Attribute(whose, "pop"), [ast.Constant(str() as name), *_])
        ):
            yield whose, _unknown(values, node, node)._replace(name=name, gone=True)
        case ast.Delete([ast.Subscript(whose)]) | ast.Expr(
            ast.Call(ast.Attribute(whose, "pop" | "popitem" | "clear" | "setdefault"))
        ):
            yield whose, _unknown(values, node, node)
        case ast.Expr(ast.Call(ast.Attribute(whose, "update")) as call):
            yield from ((whose, change) for change in _updated(values, node, call))
        case ast.Expr(ast.Call(ast.Name("setattr"), [whose, name, value]) as call):
            yield from ((whose, change) for change in _set(values, node, call, name, value))


def _unknown(values: Values, node: ast.stmt, place_node: ast.AST) -> Change:
    """Return a change whose field or value the file does not determine."""
    place = values.span(place_node)
    value = place_node if isinstance(place_node, ast.expr) else ast.copy_location(ast.Name("", ast.Load()), place_node)
    return Change("", value, place, place, node)


def _set(values: Values, node: ast.Expr, call: ast.Call, name: ast.expr, value: ast.expr) -> Iterator[Change]:
    """Yield the change of ``setattr(config, "tp", 2)``; of a loop over the items of a dictionary, one an item."""
    loop = values.scopes.parents.get(id(node))
    match name, value, loop:
        case ast.Constant(str() as field), _, _:
            yield Change(field, value, values.span(name), values.span(call), node)
        case ast.Name(key), ast.Name(held), ast.For(
            ast.Tuple([ast.Name(first), ast.Name(second)]), ast.Call(ast.Attribute(given, "items"), [])
        ) if (key, held) == (first, second) and list(dictionary(values.resolve(given) or given, values)):
            for field, one in dictionary(values.resolve(given) or given, values):
                yield Change(field, one, values.span(one), values.span(one), loop)
        case _:
            yield _unknown(values, node, call)


def _merged(values: Values, node: ast.stmt, mapping: ast.expr) -> Iterator[Change]:
    """Yield the fields of a dictionary that is put into another one."""
    whole = values.resolve(mapping) or mapping
    pairs = list(dictionary(whole, values))
    for name, value in pairs:
        yield Change(name, value, values.span(value), values.span(value), node)
    lacking = list(unknown_parts(whole, values)) if pairs or _is_empty(whole) else [mapping]
    yield from (_unknown(values, node, each) for each in lacking)


def _is_empty(node: ast.expr) -> bool:
    return isinstance(node, ast.Dict) and not node.keys


def _by_functions(values: Values, changes_by_name: dict[str, list[Change]]) -> None:
    """Add what functions of the file change in an object that they take, where they are called."""
    scopes = values.scopes
    for parameter, changed in list(changes_by_name.items()):
        for change in list(changed):
            function = scopes.at[id(change.statement)].function
            names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)] if function else []
            if function is None or parameter not in names or len(scopes.functions[function.name]) > 1:
                continue
            at = names.index(parameter) - (names[0] in ("self", "cls"))
            for call in scopes.calls.get(function.name, ()):
                given = [word.value for word in call.keywords if word.arg == parameter] + call.args[at : at + 1]
                statement = scopes.parents.get(id(call))
                if given and dotted(given[0]) and isinstance(statement, ast.Expr):
                    always = scopes.block(change.statement) == id(function.body)
                    new = change if always else _unknown(values, change.statement, change.statement)
                    changes_by_name.setdefault(dotted(given[0]), []).append(new._replace(statement=statement))


def _assigned(values: Values, node: ast.stmt, target: ast.Attribute | ast.Subscript, value: ast.expr) -> Change:
    start, end = values.span(target)
    whole = start, values.span(node)[1]
    if isinstance(target, ast.Attribute):
        return Change(target.attr, value, (end - len(target.attr), end), whole, node)
    key = target.slice
    name = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
    first, last = values.span(key)
    return Change(name, value, (first + 1, last - 1) if name else (first, last), whole, node)


def _updated(values: Values, node: ast.Expr, call: ast.Call) -> Iterator[Change]:
    for keyword in call.keywords:
        start, end = values.span(keyword)
        name = keyword.arg or ""
        yield Change(name, keyword.value, (start, start + len(name)), (start, end), node)
    for given in call.args:
        yield from _merged(values, node, given)


def dotted(node: ast.expr) -> str:
    """Return a name, or an attribute of one such as ``self.config``; nothing for other expressions."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def named_value(name: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
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
    for name, value in _parts(node):
        if name is not None:
            yield name, value
        elif values is not None and depth < DEEPEST:
            yield from dictionary(values.resolve(value) or value, values, depth + 1)


def unknown_parts(node: ast.expr, values: Values, depth: int = 0) -> Iterator[ast.expr]:
    """Yield what a dictionary copies and ``values`` does not find."""
    for name, value in _parts(node):
        whole = values.resolve(value) or value
        if name is None and (isinstance(whole, ast.Dict) or list(_parts(whole))) and depth < DEEPEST:
            yield from unknown_parts(whole, values, depth + 1)
        elif name is None:
            yield value


def of_caller(values: Values, node: ast.expr) -> bool:
    """Return whether a value comes from ``**options`` of a function that is never called in the file."""
    for name in (each for each in ast.walk(node) if isinstance(each, ast.Name)):
        scope = values.scopes.at.get(id(name))
        taken = scope.function.args.kwarg if scope is not None and scope.function is not None else None
        if scope is not None and taken is not None and taken.arg == name.id and not values.scopes.sites(scope):
            return True
    return False


def _parts(node: ast.expr) -> Iterator[tuple[str | None, ast.expr]]:
    """Yield the named values of a dictionary; the dictionaries that it copies have no name."""
    if isinstance(node, ast.Dict):
        for name, value in zip(node.keys, node.values, strict=True):
            yield from [(None, value)] if name is None else named_value(name, value)
    elif isinstance(node, ast.Call) and last_name(node.func) in ("dict", "copy", "deepcopy"):
        whose = [node.func.value] if isinstance(node.func, ast.Attribute) and not node.args else node.args
        yield from ((None, each) for each in whose[:1])
        yield from ((each.arg, each.value) for each in node.keywords)
