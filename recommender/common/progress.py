"""Report the progress of long work."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

import click

T = TypeVar("T")
QUIET_S = 2.0
"""Seconds of work without a report."""


def track(items: Iterable[T], task: str, unit: str = "") -> Iterator[T]:
    """Yield the items; report the progress on stderr every ``QUIET_S``. ``unit``: of the items."""
    todo = list(items)
    reported = time.monotonic()
    for number, item in enumerate(todo):
        if time.monotonic() - reported > QUIET_S:
            click.echo(f"{task}: {number} of {len(todo)}{unit}", err=True)
            reported = time.monotonic()
        yield item
