"""Simulate one server of several that share what arrives: its capacity, and its times at a rate.

The load balancer gives a request to the server with the fewest. Simulated is one that takes turns: a server gets every
``dealt``-th arrival. That knows less. Next to SimPy's fewest connections the mean was never shorter; the p99 was up to
12 % shorter with servers 80 % busy, and 18 % at 90 %.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache, partial

from recommender.estimate import load_profile, speed
from recommender.estimate.configuration import Configuration
from recommender.estimate.sampling import gaps_of
from recommender.estimate.scheduler.passes import SimulatedRequest, SimulatedServer
from recommender.estimate.scheduler.simulation import (
    OPEN_REQUESTS,
    LoadFigures,
    simulate_arrivals,
    simulate_closed_loop,
)
from recommender.request.resolved_request import ResolvedRequest

MOST_DEALT = 32
"""Servers that take turns, at most; with more, arrivals at one are hardly more regular."""
WAITING_CLIENTS = 64
"""With at least so many requests beyond the batch a server is never idle."""
GROUPS = 100
"""Groups of requests that arrive together at a server, at least."""
MOST_REQUESTS = 8000


@dataclass(frozen=True)
class OpenServer:
    """A server and the requests that arrive at it; ``burstiness`` as in ``gaps_of``."""

    server: SimulatedServer
    turns: tuple[tuple[SimulatedRequest, ...], ...]
    burstiness: float

    @cached_property
    def capacity(self) -> float:
        """The requests/s that it completes while others always wait."""
        return simulate_closed_loop(self.server, self.turns, self.server.batch + WAITING_CLIENTS).rps

    def at(self, rate: float, dealt: int = 1, together: float = 1.0) -> LoadFigures:
        """Return what clients see at a server's requests/s; ``dealt`` and ``together`` as in ``gaps_of``."""
        return _simulate(self, rate, min(dealt, MOST_DEALT), together)


@lru_cache(maxsize=1024)
def _simulate(server: OpenServer, rate: float, dealt: int, together: float) -> LoadFigures:
    gaps = gaps_of(rate, server.burstiness, together=together, dealt=dealt)
    counted = max(OPEN_REQUESTS, min(int(GROUPS * together / dealt), MOST_REQUESTS))
    return simulate_arrivals(server.server, server.turns, gaps, rate, counted)


def open_server(resolved: ResolvedRequest, config: Configuration, kv_tokens: int) -> OpenServer:
    """Return one of several servers of a configuration; ``kv_tokens`` is the size of its KV cache, 0 for no limit."""
    request = resolved.request
    coefficients = speed.scale_coefficients(resolved.store, request.host_scale, request.card_scale)
    each = -(-resolved.concurrency // config.servers)
    times_of = partial(speed.shared_times, concurrency=each, coefficients=coefficients)
    server, turns = load_profile.describe_server(resolved, config, each, coefficients, times_of, kv_tokens, alone=False)
    return OpenServer(server, turns, resolved.burstiness)
