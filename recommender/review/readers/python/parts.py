"""Gather what the configurations of a pipeline give it."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from recommender.review.readers.python.values import Values
from recommender.review.script.model import GivenOption, Launch, Word
from recommender.review.script.python_uses import last_name

Later = dict[int, dict[str, GivenOption | None]]
"""Changes of a configuration by later blocks; None for a field that one removes."""


@dataclass
class Parts:
    """The configurations passed to a call, as options."""

    options: list[GivenOption] = field(default_factory=list)
    engine: str = ""
    others: list[str] = field(default_factory=list)
    """Further engines, where a run chooses one."""
    unsure: bool = False
    unread: list[Word] = field(default_factory=list)
    branches: list[tuple[list[GivenOption], list[GivenOption]]] = field(default_factory=list)
    """Options of a configuration, and what they are if another branch changes it."""


def merged(options: dict[str, GivenOption], changes: Mapping[str, GivenOption | None]) -> dict[str, GivenOption]:
    """Return the fields with changes to them."""
    both = {**options, **changes}
    return {name: option for name, option in both.items() if option is not None}


def instead(launch: Launch, options: list[GivenOption], replacements: list[GivenOption]) -> Launch:
    """Return a launch with some ``options`` replaced by ``replacements``."""
    return launch._replace(options=(*(each for each in launch.options if each not in options), *replacements))


def with_parts(pipeline: Launch, parts: Parts) -> Launch:
    """Return a pipeline with the configuration that one branch gives it."""
    whole = pipeline._replace(
        options=(*pipeline.options, *parts.options),
        unsure=parts.unsure,
        unread=(*pipeline.unread, *parts.unread),
        engine=parts.engine,
    )
    return whole._replace(alternatives=tuple(alternatives(whole, parts)))


def alternatives(launch: Launch, parts: Parts) -> Iterator[Launch]:
    """Yield what other branches make of a launch, and what the other engine makes of it."""
    yield from (instead(launch, *each) for each in parts.branches)
    for engine in parts.others:
        own = (each._replace(callee=engine if each.callee == launch.engine else each.callee) for each in launch.options)
        yield launch._replace(engine=engine, options=tuple(own))


def classes(values: Values, callee: ast.expr) -> list[ast.expr]:
    """Return the names among which a conditional, a table or branches choose what is called; of an alias, the one."""
    given = [callee]
    if isinstance(callee, ast.Name):
        scope = values.scopes.binding(callee)
        found = values.scopes.find(callee)
        earlier = [value for value, _ in scope.earlier.get(callee.id, ())] if scope is not None else []
        sure = scope is not None and len(earlier) == scope.times[callee.id]
        given = [found] if found is not None else earlier if sure else []
    return [name for each in given for name in _choices(values, each)]


def _choices(values: Values, expression: ast.expr) -> list[ast.expr]:
    match expression:
        case ast.Name() | ast.Attribute():
            return [expression]
        case ast.IfExp(_, first, second):
            return [*_choices(values, first), *_choices(values, second)]
        case ast.Subscript(table, key):
            whole = values.resolve(table) or table
            pairs = zip(whole.keys, whole.values, strict=True) if isinstance(whole, ast.Dict) else ()
            wanted = key.value if isinstance(key, ast.Constant) else None
            held = ((name.value if isinstance(name, ast.Constant) else None, value) for name, value in pairs)
            return [value for name, value in held if wanted is None or name == wanted]
    return []


def replaced(node: ast.expr) -> ast.expr | None:
    """Return the configuration that a call copies: ``replace(config, tp=2)``, ``deepcopy(config)``."""
    made = last_name(node.func) if isinstance(node, ast.Call) and len(node.args) == 1 else ""
    return node.args[0] if isinstance(node, ast.Call) and made in ("replace", "copy", "deepcopy") else None
