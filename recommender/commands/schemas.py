"""The JSON schemas of records and outputs."""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel

from recommender.knowledge.index import TYPES
from recommender.maintenance.schema_files import OUTPUT, PLAN, REVIEW


def schemas() -> dict[str, str]:
    """The text of every file of knowledge/schema/, by name: one a record type, and the JSON outputs'."""
    from recommender.fleet.json_output import schema as planned
    from recommender.render.json_output import schema as published
    from recommender.review.output.json_output import schema as reviewed

    made: dict[str, dict[str, Any]] = {}
    kinds: dict[str, type[BaseModel]] = {_kebab(kind.__name__): kind for kind in TYPES.values()}
    for name, kind in sorted(kinds.items()):
        made[name] = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | kind.model_json_schema()
    outputs = {OUTPUT: published(), REVIEW: reviewed(), PLAN: planned()}
    written = {f"{name}.json": each for name, each in made.items()} | outputs
    return {name: json.dumps(_shorten(each), indent=1) + "\n" for name, each in written.items()}


def _shorten(schema: dict[str, Any]) -> dict[str, Any]:
    return {name: schema[name] for name in ("$schema", "title") if name in schema} | _without_titles(schema)


def _without_titles(schema: Any, *, fields: bool = False) -> Any:
    """Return a schema without pydantic's titles: they repeat the names of fields and definitions.

    ``fields``: the keys are names of fields or definitions, of which one may be called title.
    """
    if isinstance(schema, list):
        return [_without_titles(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: _without_titles(value, fields=not fields and name in ("properties", "$defs"))
        for name, value in schema.items()
        if fields or name != "title"
    }


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
