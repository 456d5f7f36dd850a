"""Move what was read in one text to its places in another."""

from collections.abc import Callable, Mapping
from typing import Any

from recommender.review.script.model import Span


def relocate(value: Any, place: Callable[[Span], Span]) -> Any:
    """Return a launch, a comment or the like with ``place`` applied to each of its places."""
    if isinstance(value, Span):
        return place(value)
    if isinstance(value, Mapping):
        return {name: relocate(each, place) for name, each in value.items()}
    if isinstance(value, tuple):
        parts = [relocate(each, place) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
