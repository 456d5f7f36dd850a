"""Measured start-up times."""

from __future__ import annotations

from functools import cache

from recommender.knowledge.load import load


@cache
def longest_start() -> float:
    """Return the seconds of the slowest measured start."""
    store = load()
    return max((run.startup_s for run in (*store.evidence.values(), *store.probes.values())), default=0.0)
