"""The line in an artefact's head that holds its request as JSON."""

import re
from collections.abc import Mapping
from typing import Any

from recommender.common.errors import RequestError
from recommender.common.field_types import field_types
from recommender.common.parse import parse_json
from recommender.common.text import masked, one_line
from recommender.common.user_file import Unreadable
from recommender.request.request import Request

REQUEST_FORM = r"#[^\S\n]*request:[^\S\n]*(\S[^\n]*|)"
REQUEST_LINE = re.compile(f"^{REQUEST_FORM}$", re.MULTILINE)
MOST_CHARACTERS, MOST_OF_A_TEXT = 100_000, 10_000
TYPES: Mapping[str, type] = {name: field_type.kind for name, field_type in field_types(Request).items()} | {
    "follow": str,
    "with": dict,
    "without": list,
    "comments": str,
}
"""The fields of a head and their types; texts are the values of ``with`` and the items of ``without``."""


class HeadError(RequestError):
    """The request in a head cannot be used; the message says which field is wrong, and how to fix it."""


def read_head(text: str) -> dict[str, Any] | None:
    """Return the request in the head of a text, each field of its type; None if it has none.

    Raises HeadError for broken JSON or a value of a wrong type.
    """
    line = REQUEST_LINE.search(text)
    request = line[1].strip() if line else ""
    if not (request.startswith("{") and request.endswith("}")):
        return None
    return parse_head(request)


def parse_head(request: str) -> dict[str, Any]:
    """Return a request from its JSON, each field of its type. Raises HeadError."""
    if len(request) > MOST_CHARACTERS:
        raise HeadError("the request in its head is too long; render it anew")
    try:
        head = parse_json(request)
    except Unreadable as error:
        raise HeadError(f"the request in its head cannot be read ({error}); render it anew") from None
    return check_types(head)


def check_types(head: object) -> dict[str, Any]:
    """Return a request's fields if each has its type. Raises HeadError."""
    if not isinstance(head, dict):
        raise HeadError("the request in its head cannot be used (no JSON object); render it anew")
    for name, value in head.items():
        kind = TYPES.get(name, object)
        right = type(value) in ((int, float) if kind is float else (kind,)) or kind is object
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        right = right and not (isinstance(value, str) and len(value) > MOST_OF_A_TEXT)
        if not right or not all(isinstance(part, str) and len(part) <= MOST_OF_A_TEXT for part in parts):
            shown = masked(one_line(name))[:40]
            raise HeadError(f"the request in its head cannot be used ({shown} has a wrong value); render it anew")
    return head
