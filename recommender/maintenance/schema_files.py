"""Compare the files of knowledge/schema/ with the types."""

import json
from collections.abc import Mapping
from pathlib import Path


def stale_schemas(folder: Path, texts: Mapping[str, str]) -> dict[str, str]:
    """Return the wanted schema files, by name, that the folder lacks or has with another content.

    Versions of pydantic write 0 or 0.0 of the same limit, and describe dataclasses or do not, so
    contents are compared, not bytes, and those of the JSON outputs without descriptions.
    """
    stale = {}
    for name, text in texts.items():
        try:
            kept, made = json.loads((folder / name).read_text(encoding="utf-8")), json.loads(text)
            for schema in (kept, made) if "format" in made["properties"] else ():
                for part in (schema, *schema.get("$defs", {}).values()):
                    part.pop("description", None)
            current = kept == made
        except (OSError, ValueError, AttributeError):
            current = False
        if not current:
            stale[name] = text
    return stale
