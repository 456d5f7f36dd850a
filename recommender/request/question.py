"""The question of a request and the JSON schema of its answer, as the user gives them."""

from __future__ import annotations

import json
from typing import Any

from recommender.common.errors import RequestError
from recommender.common.parse import parse_json
from recommender.common.text import shorten
from recommender.common.user_file import Unreadable, read_text

MOST = 8000
"""Characters of a question or a schema: a generated file holds them."""
KINDS = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def read_schema(option: str, name: str) -> dict[str, Any]:
    """Return the request's field for a file with a JSON schema. Raises RequestError."""
    shown = f"{option} {shorten(name, 60)}"
    try:
        schema = parse_json(read_text(name))
    except OSError as error:
        raise RequestError(f"{option} {shorten(name, 60)}: {error.strerror}; name a file with a JSON schema") from None
    except Unreadable as error:
        raise RequestError(f"{shown}: {error}") from None
    text = json.dumps(schema, separators=(",", ":"))
    check_schema(shown, text)
    return {"response_schema": text}


def check_schema(where: str, text: str) -> None:
    """Raise RequestError unless a text is a JSON schema of a sensible size, as far as its form tells."""
    try:
        schema = parse_json(text)
    except Unreadable as error:
        raise RequestError(f"{where}: {error}") from None
    if not isinstance(schema, dict):
        raise RequestError(f'{where}: a JSON schema is an object, such as {{"type": "object", "properties": {{}}}}')
    if len(text) > MOST:
        raise RequestError(f"{where}: a schema of {len(text):,} characters; use up to {MOST:,}")
    kinds = schema.get("type", [])
    for kind in kinds if isinstance(kinds, list) else [kinds]:
        if kind not in KINDS:
            raise RequestError(f"{where}: type {shorten(str(kind), 40)}; use one of {', '.join(sorted(KINDS))}")
    for field, wanted in (("properties", dict), ("required", list)):
        if not isinstance(schema.get(field, wanted()), wanted):
            form = "an object" if wanted is dict else "a list"
            raise RequestError(f"{where}: {field} must be {form}")


def check_prompt(text: str) -> None:
    """Raise RequestError for a question that cannot be sent."""
    if not text.strip() or "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise RequestError("--prompt: the question is empty or not valid UTF-8; write what a request asks")
    if len(text) > MOST:
        raise RequestError(f"--prompt: {len(text):,} characters; use up to {MOST:,}, and --input-tokens for the length")
