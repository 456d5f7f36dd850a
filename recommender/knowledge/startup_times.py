"""How long servers take to start."""

from __future__ import annotations

from functools import cache

from recommender.knowledge.load import load


@cache
def longest_start(engine: str = "turbomind") -> float:
    """Return the seconds of an engine's longest start: the slowest measured one.

    An engine without runs of its own has a coefficient, ``pytorch-start``: how many times as long it takes.
    """
    store = load()
    longest = max((run.startup_s for run in (*store.evidence.values(), *store.probes.values())), default=0.0)
    times = store.coefficients.get(f"{engine}-start")
    return longest * times.value if times else longest


def describe_longest_start(engine: str) -> str:
    """Say how long it is, and from where this is known."""
    measured, expected = longest_start(), longest_start(engine)
    if measured == expected:
        return f"the longest start measured ({measured:.0f} s, warm disk)"
    return (
        f"the longest start expected ({expected:.0f} s: TurboMind's {measured:.0f} s, times {expected / measured:.1f})"
    )
