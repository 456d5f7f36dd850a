"""Measured start-up times."""

from __future__ import annotations

import re
from functools import cache

from recommender.knowledge.load import data_root

STARTED = re.compile(r"^[^\S\n]*(?:- )?startup_s: ([\d.]+)$", re.MULTILINE)


@cache
def longest_start() -> float:
    """Return the seconds of the slowest measured start. Files are searched, not parsed: they are large."""
    folder = data_root() / "knowledge" / "evidence"
    texts = (path.read_text(encoding="utf-8") for path in sorted(folder.rglob("*.yaml")))
    return max((float(seconds) for text in texts for seconds in STARTED.findall(text)), default=0.0)
