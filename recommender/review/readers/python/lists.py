"""Follow what is added to a list of words, or to a text, by its name or by an attribute of ``self``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from recommender.review.readers.python import shared
from recommender.review.readers.python.branches import of_branch, runs_with
from recommender.review.readers.python.growth import Added, Growth, added, key_of
from recommender.review.readers.python.tables import Row, loop_around, turns
from recommender.review.script.source_map import Field, Piece

if TYPE_CHECKING:
    from recommender.review.readers.python.scopes import Scope, Scopes
    from recommender.review.readers.python.values import Values

ADDS = frozenset({"append", "extend"})
When = Literal["always", "maybe", "unknown", ""]
"""Whether a list grows before it is used; nothing: it does not."""
MOST_STATEMENTS = 200
"""How many statements that change one name are followed."""
LOOPS = (ast.For, ast.AsyncFor, ast.While)


def list_by_name(
    values: Values, node: ast.Name | ast.Attribute, depth: int, base: ast.expr | None
) -> list[Field] | None:
    """Return the words of a list by its name or attribute, with those that are added to it; None if it is no list.

    ``base`` is the list as it is made, where that is known.
    """
    scopes = values.scopes
    base = base or initial_value(scopes, node) or of_branch(scopes, node)
    if isinstance(base, ast.Name | ast.Attribute) and isinstance(whole := shared.root(scopes, base), ast.expr):
        base = whole
    words = values.command(base, depth + 1) if base is not None else None
    if words is None or base is None:
        return None
    grown = list(additions(scopes, node, base))
    certain = sum(not addition.always for addition in grown) < 2  # of several, some may exclude each other
    for loop, group in groupby(grown, key=lambda addition: loop_around(scopes, addition.value)):
        some = list(group)
        values.followed += [values.span(addition.value) for addition in some if addition.followed]
        if rows := list(turns(scopes, values.resolve, loop)):
            words += _looped(values, rows, some, depth)
            continue
        for addition in some:
            words = _grown(values, words, addition, certain, depth)
    return words


def _grown(values: Values, words: list[Field], new: Added, certain: bool, depth: int) -> list[Field]:
    """Return the words with those that one statement adds; what is not followed may be any words."""
    at = len(words) if new.at is None else new.at
    place = at >= 0 and not any(word.many for word in words[:at])
    if not new.followed or not isinstance(new.value, ast.expr) or (new.at is not None and not place):
        return [*words, Field((Piece(None),), *values.span(new.value), many=True)]
    more = [values.field(new.value)] if new.one else values.command(new.value, depth + 1)
    sure = (new.always or certain) and more is not None
    sure = sure and (new.always or new.at is None)
    many = Field((Piece(None),), *values.span(new.value), many=True, optional=more is not None)
    return [*words[:at], *(more or ()), *(() if sure else (many,)), *words[at:]]


def _looped(values: Values, rows: list[Row], additions: list[Added], depth: int) -> list[Field]:
    """Return the words that each turn of a loop adds."""
    words, around = list[Field](), values.bound
    for row in rows:
        values.bound = around | row
        for each in additions:
            if isinstance(each.value, ast.expr):
                words += [values.field(each.value)] if each.one else values.command(each.value, depth + 1) or []
    values.bound = around
    return words


def copied(node: ast.Call) -> ast.expr | None:
    """Return what a call copies, as a list: ``list(cmd)``, ``cmd.copy()``."""
    match node:
        case ast.Call(ast.Name("list" | "tuple" | "copy" | "deepcopy"), [whose], []):
            return whose
        case ast.Call(ast.Attribute(ast.Name("copy"), "copy" | "deepcopy"), [whose], []):
            return whose
        case ast.Call(ast.Attribute(whose, "copy"), [], []):
            return whose
    return None


def part(words: list[Field] | None, ends: ast.Slice) -> list[Field] | None:
    """Return a part of the words; None if the file does not fix it."""
    try:
        first, last = (ast.literal_eval(end) if end else None for end in (ends.lower, ends.upper))
        step = ast.literal_eval(ends.step) if ends.step else 1
        whole = first in (None, 0) and last is None
        counted = words is not None and (whole or not any(word.many for word in words))
        return words[first:last] if counted and words is not None and step == 1 else None
    except (ValueError, TypeError):
        return None


def text(values: Values, node: ast.expr, depth: int) -> list[Piece] | None:
    """Return a text by its name or attribute, with what is added to it; None for anything else."""
    if not isinstance(node, ast.Name | ast.Attribute) or key_of(node) not in values.scopes.growth:
        return None
    base = initial_value(values.scopes, node)
    grown = list(additions(values.scopes, node, base, False)) if base is not None else []
    if base is None or not grown or not values.is_text(base):
        return None
    pieces = list(values.pieces(base, depth + 1))
    for addition in grown:
        whole = addition.always and addition.followed and isinstance(addition.value, ast.expr) and not addition.one
        unknown = [Piece(" "), Piece(None, *values.span(addition.value))]
        pieces += (
            values.pieces(addition.value, depth + 1) if whole and isinstance(addition.value, ast.expr) else unknown
        )
    return pieces


def initial_value(scopes: Scopes, node: ast.Name | ast.Attribute) -> ast.expr | None:
    """Return the expression that a name, or an attribute of ``self``, is set to."""
    if isinstance(node, ast.Name):
        return scopes.find(node)
    own = isinstance(node.value, ast.Name) and node.value.id == "self" and node.attr in scopes.attributes
    return scopes.attribute(node) if own else None


def is_grown(scopes: Scopes, node: ast.expr) -> bool:
    """Return whether something is added to what a name or attribute stands for."""
    if not isinstance(node, ast.Name | ast.Attribute) or key_of(node) not in scopes.growth:
        return False
    grown = additions(scopes, node, initial_value(scopes, node), passed=False)
    return len(scopes.growth[key_of(node)]) > MOST_STATEMENTS or any(
        _adds(addition.value, scopes) for addition in grown
    )


def additions(
    scopes: Scopes, node: ast.Name | ast.Attribute, base: ast.expr | None, passed: bool = True
) -> Iterator[Added]:
    """Yield what is added to a list or a text before its use, then what may be added at another time.

    ``passed``: include what a function adds to its argument.
    """
    events = [(growth, scope, added(growth)) for growth, scope in scopes.growth.get(key_of(node), ())]
    events += _passed(scopes, node) if passed else ()
    others = shared.changes(scopes, node, base) if passed and base is not None else []
    events += [(growth, scope, added(growth)) for growth, scope, _ in others]
    by_others = {id(growth.statement): "same" if sure else "unknown" for growth, _, sure in others}
    if len(events) > MOST_STATEMENTS:
        yield Added(events[0][0].statement, followed=False)
        return
    events.sort(key=lambda event: (event[0].statement.lineno, event[0].statement.col_offset))
    late: list[Added] = []
    for growth, scope, new in events:
        whose = by_others.get(id(growth.statement)) or _whose(scopes, node, growth.target)
        when = _when(scopes, node, base, growth, scope) if whose == "same" else whose
        if when == "unknown":
            late.append(Added(growth.statement, followed=False))
        elif when:
            yield new._replace(always=new.always and when == "always")
    if base is not None and isinstance(node, ast.Name):
        yield from _set_to_more(scopes, node, base)
    yield from late


def _adds(value: ast.AST, scopes: Scopes) -> bool:
    """Return whether a value is added to a number, a text or the end of a list."""
    around = scopes.parents.get(id(value))
    call = around.func if isinstance(around, ast.Call) else None
    return isinstance(around, ast.AugAssign) or (isinstance(call, ast.Attribute) and call.attr in ADDS)


def _whose(scopes: Scopes, node: ast.Name | ast.Attribute, target: ast.expr) -> str:
    """Return "same" if a statement changes what a name stands for, "unknown" if it may, nothing if not."""
    if isinstance(node, ast.Name):
        return "same" if isinstance(target, ast.Name) and scopes.binding(target) is scopes.binding(node) else ""
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
        return ""
    whose, owner = scopes.at[id(node)].owner, scopes.at[id(target)].owner
    if target.value.id == "self" and owner == whose:
        return "same"
    others = {scopes.at[id(value)].owner for value in scopes.attributes.get(node.attr, ())}
    return "" if target.value.id == "self" and owner in others else "unknown"


def _when(scopes: Scopes, node: ast.Name | ast.Attribute, base: ast.expr | None, growth: Growth, scope: Scope) -> When:
    """Return whether a statement changes a list before it is used."""
    statement, use, loads = growth.statement, scopes.at.get(id(node)), isinstance(node.ctx, ast.Load)
    home, block = _home(scopes, node, base)
    if base is not None and scopes.at.get(id(base)) is scope and ends_before(statement, base):
        return ""
    if loads and scope is use and not in_loop(scopes, node):
        with_use = runs_with(scopes.parents, statement, node)
        if with_use is None or not ends_before(statement, node):
            return ""
        if with_use:
            return "always"
    if scope is home:
        several = isinstance(node, ast.Attribute) and len(scopes.attributes.get(node.attr, ())) > 1
        chosen = base if several else of_branch(scopes, node)
        with_base = growth.block == block if chosen is None else runs_with(scopes.parents, statement, chosen)
        return "" if with_base is None else "always" if with_base else "maybe"
    return "maybe" if loads and scope is use else "unknown"


def _home(scopes: Scopes, node: ast.Name | ast.Attribute, base: ast.expr | None) -> tuple[Scope | None, int]:
    """Return the scope in which a list is made, and the block."""
    scope = scopes.binding(node) if isinstance(node, ast.Name) else None
    given = scope.values.get(node.id) if scope is not None and isinstance(node, ast.Name) else None
    alias = given is not None and isinstance(given[0], ast.Name | ast.Attribute)
    if isinstance(node, ast.Attribute) or (alias and base is not None):
        return (scopes.at.get(id(base)), scopes.block(base)) if base is not None else (None, 0)
    if scope is None or node.id in scope.values:
        return scope, scope.values[node.id][1] if scope is not None else 0
    return scope, id(scope.function.body) if scope.function is not None else 0


def _set_to_more(scopes: Scopes, node: ast.Name, base: ast.expr) -> Iterator[Added]:
    """Yield a value of a name that is made of another one, unless the name stands for it: ``cmd = cmd + more``."""
    scope = scopes.binding(node)
    for value, _ in scope.earlier.get(node.id, ()) if scope is not None and of_branch(scopes, node) is base else ():
        own = (each for each in ast.walk(value) if isinstance(each, ast.Name) and each.id == node.id)
        if value is not base and any(own):
            yield Added(value, followed=False)


def _passed(scopes: Scopes, node: ast.Name | ast.Attribute) -> Iterator[tuple[Growth, Scope, Added]]:
    """Yield the calls of the file's functions that take a list and add to it."""
    for function, parameter, new in _growers(scopes):
        names = [argument.arg for argument in (*function.args.posonlyargs, *function.args.args)]
        at = names.index(parameter) - (names[0] in ("self", "cls"))
        for call in scopes.calls.get(function.name, ()):
            given = [word.value for word in call.keywords if word.arg == parameter] + call.args[at : at + 1]
            statement: ast.AST | None = call
            while statement is not None and not isinstance(statement, ast.stmt):
                statement = scopes.parents.get(id(statement))
            if statement is not None and given and type(given[0]) is type(node) and key_of(given[0]) == key_of(node):
                yield Growth(statement, given[0], scopes.block(call)), scopes.at[id(call)], new


@lru_cache(maxsize=64)
def _growers(scopes: Scopes) -> list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str, Added]]:
    """Return the functions that add to a list which they take: function, parameter and what they add."""
    found = []
    for events in scopes.growth.values():
        for growth, scope in events:
            function, taken = scope.function, shared.root(scopes, growth.target)
            if function is None or not isinstance(taken, ast.arg):
                continue
            if taken in (*function.args.posonlyargs, *function.args.args) and len(scopes.functions[function.name]) == 1:
                new = added(growth)
                found.append((function, taken.arg, new._replace(always=growth.block == id(function.body))))
    return found


def in_loop(scopes: Scopes, node: ast.AST) -> bool:
    """Return whether a loop of the same function is around a node."""
    around: ast.AST | None = node
    while around is not None and not isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
        if isinstance(around, LOOPS):
            return True
        around = scopes.parents.get(id(around))
    return False


def ends_before(first: ast.AST, node: ast.stmt | ast.expr) -> bool:
    """Return whether a statement or a call stands before a node."""
    end = getattr(first, "end_lineno", 0), getattr(first, "end_col_offset", 0)
    return end <= (node.lineno, node.col_offset)
