"""Requests that arrive at a rate, at a configuration that was not chosen for it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.estimate.speed import estimate

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.request.request import Request
    from recommender.request.resolved_request import ResolvedRequest


def tells_rate_only(request: Request) -> bool:
    """Return whether a request tells how many arrive a second, and not how many are in flight."""
    return bool(request.rps) and not request.load and not request.concurrency


def arrive_at(resolved: ResolvedRequest, config: Configuration) -> ResolvedRequest:
    """Return the request as it arrives at a configuration's servers; without a rate, or with a load, as it is.

    The concurrency is three standard deviations above the mean, which is that of Little's law, or all places.
    """
    request, places = resolved.request, config.max_batch_size * config.servers
    if not tells_rate_only(request) or places < 1:
        return resolved
    arriving = replace(resolved, rps=request.planned_rps, concurrency=places)
    mean = arriving.rps * estimate(arriving, config, ranged=False).latency_ms.value / 1e3
    return replace(arriving, concurrency=min(math.ceil(mean + 3 * math.sqrt(mean)), places))
