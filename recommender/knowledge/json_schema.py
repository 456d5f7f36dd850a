"""The JSON Schema of a command's JSON output."""

import ast
import inspect
from itertools import pairwise
from typing import Any


def output_schema(kind: type, title: str, version: int) -> dict[str, Any]:
    """Return the schema of an output from its dataclass: closed objects, every field present, ``format`` as given.

    A dataclass without ``format`` gets it as its first field. The docstring below a field is its description.
    """
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    # The dataclasses name record types for the type checker only; pydantic looks them up among the names here.
    from recommender.knowledge import records  # noqa: F401

    class Described(GenerateJsonSchema):
        def dataclass_schema(self, schema: Any) -> dict[str, Any]:
            properties_schema = super().dataclass_schema(schema)
            for name, text in field_docstrings(schema["cls"]).items():
                properties_schema["properties"][name]["description"] = text
            return properties_schema

    schema = TypeAdapter(kind).json_schema(mode="serialization", schema_generator=Described)
    schema["properties"] = {"format": {}} | schema["properties"]
    for part in (schema, *schema.get("$defs", {}).values()):
        if "properties" in part:
            part |= {"additionalProperties": False, "required": list(part["properties"])}
    about = "Rises when a field changes its meaning."
    schema["properties"]["format"] = {"const": version, "type": "integer", "description": about}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema | {"title": title}


def field_docstrings(kind: type) -> dict[str, str]:
    """Return the docstring below each field of a dataclass, those of its bases too."""
    found = {}
    for part in reversed(kind.__mro__[:-1]):
        (node,) = ast.parse(inspect.getsource(part)).body
        assert isinstance(node, ast.ClassDef)
        for field, text in pairwise(node.body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(field.target, ast.Name)
                found[field.target.id] = ast.literal_eval(text.value)
    return found
