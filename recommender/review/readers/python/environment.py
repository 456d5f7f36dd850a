"""Find the variables that a Python file sets for itself, and which of them a server that it starts can see."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from recommender.review.readers.python.branches import runs_with
from recommender.review.readers.python.changes import dictionary, named_value
from recommender.review.readers.python.lists import ends_before, in_loop
from recommender.review.readers.python.values import Values
from recommender.review.script.model import Assignment, Word
from recommender.review.script.python_uses import last_name
from recommender.review.script.source_map import SourceText

DEEPEST = 3
"""How many functions are followed from a statement to where the file calls it."""


class _SetVariable(NamedTuple):
    """A variable, its value, and what sets it; ``default``: only if nothing else did."""

    name: str
    word: Word
    by: ast.Assign | ast.AugAssign | ast.Call
    default: bool = False


class Environment:
    """The variables that one file sets for itself, and so for what it starts."""

    def __init__(self, page: SourceText, values: Values) -> None:
        self.page = page
        self.values = values
        self.variables = [
            _SetVariable(name, page.word(values.field(value)), node, default)
            for node in values.nodes
            for name, value, default in _set_variables(node)
            if isinstance(node, ast.Assign | ast.AugAssign | ast.Call)
        ]
        self.starts: dict[int, ast.AST] = {}
        """The calls that start something."""

    def at(self, node: ast.AST | None) -> dict[str, Word]:
        """Return the variables that a call sees, all of the file's if it is unknown; of two possible values, none."""
        if node is not None:
            self.starts[id(node)] = node
        found: dict[str, Word] = {}
        for name, word, by, default in self.variables:
            if node is not None and self._is_before(node, by):
                continue
            if name in found and default:
                continue
            if name in found and found[name].value != word.value and not (node is not None and self._leads(by, node)):
                word = word._replace(value=None, literal=None)
            found[name] = word
        return found

    def late(self) -> tuple[Assignment, ...]:
        """Return the variables that are set after all that the file starts."""
        behind = (
            each for each in self.variables if all(self._is_before(start, each.by) for start in self.starts.values())
        )
        return tuple(
            Assignment(name, word, self.page.place(*self.values.span(by)))
            for name, word, by, _ in behind
            if self.starts
        )

    def _leads(self, by: ast.AST, node: ast.AST) -> bool:
        """Return whether a call always comes after a statement, in one function."""
        scopes = self.values.scopes
        statement = by
        while not isinstance(statement, ast.stmt):
            statement = scopes.parents[id(statement)]
        together = scopes.at.get(id(by)) is scopes.at.get(id(node))
        return together and isinstance(node, ast.expr) and runs_with(scopes.parents, statement, node) is True

    def _is_before(self, node: ast.AST, later: ast.AST, depth: int = 0) -> bool:
        """Return whether a call is certainly over when a statement runs: that of a loop may come again."""
        scopes = self.values.scopes
        here, there = scopes.at.get(id(node)), scopes.at.get(id(later))
        if here is None or there is None or depth > DEEPEST:
            return False
        if here is there:
            return isinstance(later, ast.stmt | ast.expr) and ends_before(node, later) and not in_loop(scopes, later)
        sites = scopes.sites(there) if there.function is not None else []
        if sites and all(self._is_before(node, site, depth + 1) for site in sites):
            return True
        sites = scopes.sites(here) if here.function is not None else []
        return bool(sites) and all(self._is_before(site, later, depth + 1) for site in sites)


def _set_variables(node: ast.AST) -> Iterator[tuple[str, ast.expr, bool]]:
    """Yield the variables that a statement or a call sets, and whether it keeps one that is set already."""
    match node:
        case ast.Assign(targets, value):
            for target in targets:
                if isinstance(target, ast.Subscript) and last_name(target.value) == "environ":
                    yield from ((*pair, False) for pair in named_value(target.slice, value))
        case ast.AugAssign(ast.Name("environ") | ast.Attribute(_, "environ"), ast.BitOr(), value):
            yield from ((*pair, False) for pair in dictionary(value))
        case ast.Call(ast.Attribute(whose, what), arguments, keywords):
            environ, pair = last_name(whose) == "environ", len(arguments) == 2
            if pair and ((environ and what == "setdefault") or (last_name(whose) == "os" and what == "putenv")):
                yield from ((*pair, what == "setdefault") for pair in named_value(arguments[0], arguments[1]))
            elif environ and what == "update":
                yield from ((*pair, False) for argument in arguments[:1] for pair in dictionary(argument))
                yield from ((keyword.arg, keyword.value, False) for keyword in keywords if keyword.arg)
