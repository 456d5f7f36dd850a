"""Fill the HTML templates of ``site/overrides``, and write data into a page for its scripts."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from recommender.knowledge.load import data_root


def fill(name: str, **values: Any) -> str:
    """Return a filled template; texts are escaped."""
    return _environment().get_template(name).render(values)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(data_root() / "site" / "overrides"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def to_json(value: Any) -> str:
    """Return JSON that can stand in a script element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
