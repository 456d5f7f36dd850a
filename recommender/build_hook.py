"""Builds the knowledge index into the wheel (used by hatchling)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class IndexHook(BuildHookInterface):  # type: ignore[type-arg,misc]
    """Compiles the YAML records, each validated, into ``recommender/_data/index.json``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Adds the index to the wheel. A broken record fails the build."""
        sys.path.insert(0, self.root)
        from recommender.compiling import compile_index

        text = compile_index(Path(self.root) / "knowledge")
        folder = Path(tempfile.mkdtemp(prefix="recommender-index-"))
        (folder / "index.json").write_text(text, encoding="utf-8")
        build_data["force_include"][str(folder / "index.json")] = "recommender/_data/index.json"
