"""What hatchling adds to a wheel: the knowledge, the templates and the compiled index."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DataHook(BuildHookInterface[Any]):
    """Fills ``recommender/_data/`` of a wheel. An editable install gets none: it reads the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Validates every record on the way; a broken one fails the build with its file and field."""
        if version != "standard":
            return
        root = Path(self.root)
        sys.path.insert(0, self.root)
        from recommender.compiling import compile_index

        self.folder = tempfile.TemporaryDirectory(prefix="recommender-index-")  # goes with this object
        index = Path(self.folder.name) / "index.json"
        index.write_text(compile_index(root / "knowledge"), encoding="utf-8")
        build_data["force_include"] |= {
            str(index): "recommender/_data/index.json",
            str(root / "knowledge"): "recommender/_data/knowledge",
            str(root / "templates"): "recommender/_data/templates",
        }
