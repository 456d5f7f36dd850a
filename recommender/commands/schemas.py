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
    return {name: json.dumps(each, indent=2) + "\n" for name, each in written.items()}


def _kebab(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower()
