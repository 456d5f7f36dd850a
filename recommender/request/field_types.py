"""Check the types of a request's fields: programs pass what the command line has already read."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from recommender.common.errors import RequestError
from recommender.common.text import shorten

if TYPE_CHECKING:
    from recommender.request.request import Request


def check_types(request: Request) -> None:
    """Raise RequestError for a number where text is expected, and the reverse; defaults say which."""
    for field in fields(request):
        value, text = getattr(request, field.name), isinstance(field.default, str)
        if isinstance(field.default, str | int | float) and not isinstance(value, str if text else int | float):
            hint = "; for a number of requests use concurrency" if field.name == "load" else ""
            what = "text" if text else "a number"
            raise RequestError(f"{field.name} {shorten(str(value), 40)}: expected {what}{hint}")
