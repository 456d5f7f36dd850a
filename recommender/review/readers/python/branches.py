"""Find the command of LMDeploy among those of several engines, each in a branch of its own."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender.review.readers.python.scopes import Scopes

FIRST = 4
"""How many first words may hold a command's program."""
MOST_BRANCHES = 20


def of_branch(scopes: Scopes, name: ast.expr) -> ast.expr | None:
    """Return the one value of a name that is a command of LMDeploy, if each branch sets another."""
    scope = scopes.binding(name) if isinstance(name, ast.Name) else None
    given = scope.earlier.get(name.id, []) if scope is not None and isinstance(name, ast.Name) else []
    if scope is None or not 1 < len(given) <= MOST_BRANCHES or not isinstance(name, ast.Name):
        return None
    if len(given) != scope.times[name.id]:  # a loop or an import sets it too
        return None
    ours = [value for value, _ in given if _names_lmdeploy(value)]
    apart = len({block for _, block in given}) == len(given)
    return ours[0] if apart and len(ours) == 1 else None


def runs_with(parents: Mapping[int, ast.AST], statement: ast.stmt, value: ast.expr) -> bool | None:
    """Return whether a statement always runs with a value's branch; None if it is in another branch."""
    above: dict[int, ast.AST] = {}
    node: ast.AST = value
    while (parent := parents.get(id(node))) is not None:
        above[id(parent)] = node
        node = parent
    inner: ast.AST = statement
    while (around := parents.get(id(inner))) is not None and id(around) not in above:
        inner = around
    if isinstance(around, ast.If) and (inner in around.body) != (above[id(around)] in around.body):
        return None
    return inner is statement


def _names_lmdeploy(value: ast.expr) -> bool:
    """Return whether a list of words, or a text, begins as a command of LMDeploy."""
    first = value.elts[:FIRST] if isinstance(value, ast.List | ast.Tuple) else getattr(value, "values", [value])[:1]
    return any(isinstance(part, ast.Constant) and "lmdeploy" in str(part.value) for part in first)
