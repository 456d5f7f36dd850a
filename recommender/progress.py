"""Long work that says how far it is."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import click

T = TypeVar("T")
QUIET_S = 2.0
"""Seconds of work without a word."""


def told(items: Iterable[T], what: str, unit: str = "") -> Iterator[T]:
    """Passes items on; says on stderr how far it is, once it takes longer than ``QUIET_S``. ``unit``: of the items."""
    todo = list(items)
    said = time.monotonic()
    for number, item in enumerate(todo):
        if time.monotonic() - said > QUIET_S:
            click.echo(f"{what}: {number} of {len(todo)}{unit}", err=True)
            said = time.monotonic()
        yield item
