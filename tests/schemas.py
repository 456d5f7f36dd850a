"""Outputs against the schemas in knowledge/schema/."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parents[1] / "knowledge" / "schema"


@lru_cache
def validator(name: str) -> Draft202012Validator:
    """The validator of a schema, which is a valid one."""
    schema = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def valid(name: str, text: str) -> Any:
    """The JSON of a text that holds to a schema."""
    found = json.loads(text)
    validator(name).validate(found)
    return found


def objects(schema: Any) -> list[dict[str, Any]]:
    if isinstance(schema, list):
        return [each for part in schema for each in objects(part)]
    if not isinstance(schema, dict):
        return []
    own = [schema] if schema.get("type") == "object" and "properties" in schema else []
    return own + [each for part in schema.values() for each in objects(part)]
