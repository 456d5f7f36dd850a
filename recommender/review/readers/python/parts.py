"""Gather what the configurations of a pipeline give it."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from recommender.review.readers.python.scopes import last_name
from recommender.review.script.model import GivenOption, Launch, Word

Later = dict[int, dict[str, GivenOption | None]]
"""What blocks of a program change in a configuration; of a field that one takes out, None."""


@dataclass
class Parts:
    """The configurations passed to a call, as options."""

    options: list[GivenOption] = field(default_factory=list)
    engine: str = ""
    unsure: bool = False
    unread: list[Word] = field(default_factory=list)
    branches: list[tuple[list[GivenOption], list[GivenOption]]] = field(default_factory=list)
    """Options of a configuration, and what they are if another branch changes it."""


def merged(given: dict[str, GivenOption], changed: Mapping[str, GivenOption | None]) -> dict[str, GivenOption]:
    """Return the fields with changes to them."""
    both = {**given, **changed}
    return {name: option for name, option in both.items() if option is not None}


def instead(launch: Launch, options: list[GivenOption], others: list[GivenOption]) -> Launch:
    """Return a launch with other options in place of some."""
    return launch._replace(options=(*(each for each in launch.options if each not in options), *others))


def with_parts(pipeline: Launch, parts: Parts) -> Launch:
    """Return a pipeline with the configuration that one branch gives it."""
    whole = pipeline._replace(
        options=(*pipeline.options, *parts.options),
        unsure=parts.unsure,
        unread=(*pipeline.unread, *parts.unread),
        engine=parts.engine,
    )
    return whole._replace(alternatives=tuple(instead(whole, *each) for each in parts.branches))


def replaced(node: ast.expr) -> ast.expr | None:
    """Return the configuration of which a call makes a copy: ``replace(config, tp=2)``, ``deepcopy(config)``."""
    made = last_name(node.func) if isinstance(node, ast.Call) and len(node.args) == 1 else ""
    return node.args[0] if isinstance(node, ast.Call) and made in ("replace", "copy", "deepcopy") else None
