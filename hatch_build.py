"""Add the knowledge, the templates and the compiled index to a wheel."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DataHook(BuildHookInterface[Any]):
    """Fill ``recommender/_data/`` of a wheel; an editable install reads the checkout instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile the index; a broken record fails the build with its file and field."""
        if version != "standard":
            return
        root = Path(self.root)
        sys.path.insert(0, self.root)
        from recommender.knowledge.index import compile_index

        self.folder = tempfile.TemporaryDirectory(prefix="recommender-index-")  # removed with this object
        index = Path(self.folder.name) / "index.json"
        index.write_text(compile_index(root / "knowledge"), encoding="utf-8")
        build_data["force_include"] |= {
            str(index): "recommender/_data/index.json",
            str(root / "knowledge"): "recommender/_data/knowledge",
            str(root / "templates"): "recommender/_data/templates",
        }
