"""CPU cores that a server keeps busy, as runs measured them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.request.resolved_request import ResolvedRequest

End: TypeAlias = Literal["value", "high"]
"""What was measured in the mean, or at the high end."""


IDLE, REQUEST, TILE = "server-cores", "request-core-ms", "tile-core-ms"
"""Ids of the coefficients."""


def idle_cores(resolved: ResolvedRequest, config: Configuration, end: End = "value") -> float:
    """Return the cores of a server without load: a thread spins for each GPU."""
    return config.tp * _measured(resolved, IDLE, end)


def request_cores(resolved: ResolvedRequest, config: Configuration, end: End = "value") -> float:
    """Return the cores that one request a second adds."""
    tiles = resolved.mean_images * sum(share * own.tiles(config.max_tiles) for own, share in resolved.each_size())
    return (_measured(resolved, REQUEST, end) + tiles * _measured(resolved, TILE, end)) / 1e3


def _measured(resolved: ResolvedRequest, name: str, end: End) -> float:
    coefficient = resolved.store.coefficients[name]
    return coefficient.high if end == "high" else coefficient.value
