"""Check the types of a request's fields: programs pass what the command line has already read."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from typing import Any

from recommender.common.errors import RequestError
from recommender.common.text import shorten


def check_types(request: Any) -> None:
    """Raise RequestError for a number where text is expected, and the reverse; defaults say which."""
    for name, kind in _kinds(type(request)):
        value = getattr(request, name)
        if not isinstance(value, kind):
            what = "text" if kind is str else "a number"
            hint = "; for a number of requests use concurrency" if name == "load" else ""
            raise RequestError(f"{name} {shorten(str(value), 40)}: expected {what}{hint}")


@lru_cache(maxsize=4)
def _kinds(dataclass: Any) -> tuple[tuple[str, Any], ...]:
    """Return each field whose default is text or a number, and what it may hold."""
    return tuple(
        (field.name, str if isinstance(field.default, str) else int | float)
        for field in fields(dataclass)
        if isinstance(field.default, str | int | float)
    )
