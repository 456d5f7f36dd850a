"""Numbers of a fleet's autoscaler: requests for each pod, fewest and most pods, and the time before one goes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender.fleet.kubernetes import Size
    from recommender.fleet.layout import Layout

UNPLANNED_SHARE = 0.8
"""Share of its maximum batch that a server is given if no plan says how many requests it has at the peak."""
LEAST_TARGET = 0.1
LONGEST_WINDOW_S, LONGEST_PERIOD_S = 3600, 1800
"""The most that a HorizontalPodAutoscaler takes."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Bounds and target of an autoscaler.

    ``target``: requests running or waiting, for each pod. ``settle_s``: seconds for which fewer pods must suffice
    before one goes. ``drain_s``: seconds between removals.
    """

    target: float
    target_why: str
    least: int
    least_why: str
    most: int
    settle_s: int
    drain_s: int


def scale(layout: Layout, size: Size) -> Scale:
    """Return the numbers for a fleet."""
    config = layout.recommendation.config
    pod_requests = config.share * (layout.requests or UNPLANNED_SHARE * config.max_batch_size)
    spare = min(layout.spare, layout.hosts - 1) * (size.pods // layout.hosts)
    least = math.ceil((size.pods - spare) / layout.peak) + spare
    return Scale(
        target=max(LEAST_TARGET, round(pod_requests, 2)),
        target_why="Predicted requests at a pod, running and waiting, at the peak with all pods up."
        if layout.requests
        else f"{UNPLANNED_SHARE:.0%} of the requests that a pod runs at once. recommend plan gives it for a rate.",
        least=least,
        least_why=f"The mean rate, if the peak is {layout.peak:g} times that{', and the spare pods' if spare else ''}.",
        most=size.pods,
        settle_s=min(LONGEST_WINDOW_S, size.startup_s),
        drain_s=min(LONGEST_PERIOD_S, size.grace_s),
    )
