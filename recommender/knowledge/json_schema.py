"""The JSON Schema of a command's JSON output."""

from typing import Any


def output_schema(kind: Any, title: str, version: int) -> dict[str, Any]:
    """Return the schema of an output from its type: closed objects, every field present, and ``format`` as given.

    ``kind`` is a dataclass or a TypedDict; one without ``format`` gets it as its first field.
    """
    from pydantic import TypeAdapter

    # The dataclasses name record types for the type checker only; pydantic looks them up among the names here.
    from recommender.knowledge import records  # noqa: F401

    schema = TypeAdapter(kind).json_schema(mode="serialization")
    schema["properties"] = {"format": {}} | schema["properties"]
    for part in (schema, *schema.get("$defs", {}).values()):
        if "properties" in part:
            part |= {"additionalProperties": False, "required": list(part["properties"])}
    schema["properties"]["format"] = {"const": version, "type": "integer"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema | {"title": title}
