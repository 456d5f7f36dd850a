"""Records as plain attributes, read back from the compiled index."""

from __future__ import annotations

from typing import Any


class Plain:
    """A record read back from the index as plain attributes: it was validated when the index was compiled.

    Immutable, compared by identity. Building the validated types at every start would take a third of a run.
    """

    __slots__ = ("__dict__",)

    def __init__(self, fields: dict[str, Any]) -> None:
        """Take the fields of one JSON object; lists become tuples."""
        self.__dict__.update({name: tuple(value) if type(value) is list else value for name, value in fields.items()})

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"records are immutable; {name} cannot be set")
