"""Find the names that stand for one object: ``c = cmd`` and ``a = b = Config()`` make no copy."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from recommender.review.readers.python.growth import Growth, key_of
from recommender.review.readers.python.scopes import DEEPEST, parameters

if TYPE_CHECKING:
    from recommender.review.readers.python.scopes import Scope, Scopes

Event = tuple[Growth, "Scope", bool]
"""A statement that changes an object, where it is, and whether its name certainly stands for that object."""


def root(scopes: Scopes, node: ast.AST | None) -> ast.AST | None:
    """Return the expression that makes what a name stands for, or the parameter that takes it; None if unknown."""
    for _ in range(DEEPEST):
        if isinstance(node, ast.Name):
            scope = scopes.binding(node)
            taken = parameters(scope.function) if scope is not None and scope.function is not None else ()
            if scope is not None and node.id not in scope.values:
                return next((each for each in taken if each.arg == node.id), None)
            node = scopes.find(node) if scope is not None else None
        elif isinstance(node, ast.Attribute):
            node = scopes.attribute(node)
        else:
            return node
    return None


def names_of(scopes: Scopes, made: ast.AST) -> list[ast.expr]:
    """Return the names and attributes that stand for what an expression makes."""
    return _targets(scopes).get(id(made), [])


@lru_cache(maxsize=64)
def _targets(scopes: Scopes) -> dict[int, list[ast.expr]]:
    found: dict[int, list[ast.expr]] = {}
    for target, value in scopes.assigned:
        found.setdefault(id(root(scopes, value)), []).append(target)
    return found


def changes(scopes: Scopes, node: ast.Name | ast.Attribute, base: ast.expr) -> list[Event]:
    """Return what changes a list in place by another name than this one."""
    events = [] if isinstance(base, ast.Tuple) else _changes(scopes).get(id(base), [])
    return [event for event in events if not _is_named(scopes, node, event[0].target)]


def _is_named(scopes: Scopes, node: ast.Name | ast.Attribute, target: ast.expr) -> bool:
    own = key_of(target) == key_of(node)
    if isinstance(node, ast.Name) and isinstance(target, ast.Name):
        return own and scopes.binding(target) is scopes.binding(node)
    return own


@lru_cache(maxsize=64)
def _changes(scopes: Scopes) -> dict[int, list[Event]]:
    found: dict[int, list[Event]] = {}
    for growth, scope in (event for events in scopes.growth.values() for event in events):
        match growth.statement:
            case ast.Assign([ast.Name() | ast.Attribute()]):
                continue  # a sum is another list
        target = growth.target
        if (made := root(scopes, target)) is not None:
            found.setdefault(id(made), []).append((growth, scope, True))
            continue
        whose = scopes.binding(target) if isinstance(target, ast.Name) else None
        for value, _ in whose.earlier.get(key_of(target), ()) if whose is not None else ():
            if isinstance(value, ast.Name | ast.Attribute):
                found.setdefault(id(root(scopes, value)), []).append((growth, scope, False))
    return found
