"""How long servers take to start."""

from __future__ import annotations

from functools import cache

from recommender.knowledge.load import load


@cache
def longest_start(engine: str = "turbomind") -> float:
    """Return the seconds of an engine's slowest measured start."""
    store = load()
    runs = [run for run in store.evidence.values() if run.engine == engine]
    probes = store.probes.values() if engine == "turbomind" else ()
    return max((run.startup_s for run in (*runs, *probes)), default=0.0)


FAST_VOLUME_BYTES_S = 10**9
"""What a fast network volume, or a cheap SSD, reads in a second: more than most models are loaded from."""


def describe_longest_start(engine: str) -> str:
    """Say how long it is, and from where this is known."""
    return f"the longest start measured ({longest_start(engine):.0f} s, warm disk)"
