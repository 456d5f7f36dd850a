"""Check the values of a dataclass against its annotations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from recommender.common.errors import RequestError
from recommender.common.text import clip


class FieldType(NamedTuple):
    """The type of a field's values; of a tuple's items too."""

    kind: type
    item: type = object

    def holds(self, value: object) -> bool:
        """Return whether a value is of this type. A whole number is a number; True and False are none."""
        kind = (int, float) if self.kind is float else self.kind
        if not isinstance(value, kind) or isinstance(value, bool):
            return False
        return not isinstance(value, tuple) or all(isinstance(item, self.item) for item in value)

    @property
    def words(self) -> str:
        """What is expected, for an error."""
        known = {str: "text (str)", int: "a whole number (int)", float: "a number (float or int)"}
        return known.get(self.kind) or f"a {self.kind.__name__} of {self.item.__name__}"


@lru_cache(maxsize=8)
def field_types(dataclass: type) -> Mapping[str, FieldType]:
    """Return the type of each field; a choice of words is text."""
    return {name: _field_type(hint) for name, hint in get_type_hints(dataclass).items()}


def _field_type(hint: Any) -> FieldType:
    origin = get_origin(hint)
    return FieldType(str) if origin is Literal else FieldType(origin, get_args(hint)[0]) if origin else FieldType(hint)


def check_field_types(dataclass: Any) -> None:
    """Raise RequestError for the first field whose value has another type. A list, as of JSON, becomes a tuple."""
    for name, field_type in field_types(dataclass.__class__).items():
        value = getattr(dataclass, name)
        if isinstance(value, list) and field_type.kind is tuple:
            value = tuple(value)
            object.__setattr__(dataclass, name, value)
        if type(value) is not field_type.kind or field_type.kind is tuple:  # most values need no closer look
            check_type(name, value, field_type)


def check_type(name: str, value: object, expected: FieldType) -> None:
    """Raise RequestError if a value has another type: what is wrong, what was given, what is expected."""
    if not expected.holds(value):
        items = {type(item).__name__: None for item in value} if isinstance(value, tuple) else ()
        given = type(value).__name__ + (f" of {', '.join(items)}" if items else "")
        raise RequestError(f"{name} {short(value)}: expected {expected.words}, not {given}")


def short(value: object) -> str:
    """Return a value as text; a whole number may be too long to be one."""
    if isinstance(value, int) and abs(value) >= 10**24:
        return "of over 24 digits"
    return clip(repr(value), 40)
