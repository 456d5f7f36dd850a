"""Simulate servers behind a load balancer at a rate of arrivals: their capacity, and what clients see.

If there are more than ``MOST_POOLED`` servers, only that many are simulated, with their share of the requests. That
is cautious: the more servers share a queue, the shorter it is. A large group of requests is spread over all.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import accumulate, islice

from recommender.estimate import load_profile, speed
from recommender.estimate.configuration import Configuration
from recommender.estimate.sampling import SEED, gaps_of
from recommender.estimate.scheduler.passes import SimulatedRequest, SimulatedServer
from recommender.estimate.scheduler.pool import Pool
from recommender.estimate.scheduler.simulation import (
    PREFILLED_MS,
    LoadFigures,
    answer_arrivals,
    met_running,
    summarise_arrivals,
    usually_running,
)
from recommender.estimate.scheduler.typical_arrivals import SimpleQueue, typical_gaps
from recommender.request.resolved_request import ResolvedRequest

MOST_POOLED = 16
MOST_RUNNING = 250
"""Requests that all simulated servers together run at once, roughly; more barely shorten a queue."""
MOST_SHARES = 4
"""Most shares into which arrivals are divided among servers: more make those of one server barely more regular."""
MOST_SPREAD = 1024
"""Most servers over which a large group of requests is spread."""
QUEUED = 1000
"""Requests that wait at first where a server's capacity is simulated, at least."""
COUNTED = (1000, 40_000)
"""Fewest and most requests that count; with less than half of the effort, fewer."""
GROUPS, MOST_OF_GROUPS, LEAST_GROUPS, VERY_LARGE = 600, 24_000, 50, 64
"""Where requests come in groups: groups to count, the most requests in them, the fewest groups, and the size of a group
from which half as many requests count. More would take too long."""
EACH = 160
"""Requests of each server that count, at least: it starts with nothing to prepare, and has its usual queue only after
dozens of requests. Where batches are compared, fewer do."""
WANDERING = 25
"""A queue fluctuates over 1 / (1 - busy)² requests. This multiple of them counts, more with few servers."""
GROUPS_WANDER = 2
"""If requests come in groups, this multiple counts: only a long stretch has typical crowds."""
FEW = 4
FAR_APART_MS = 1e9
ARRIVALS_SEED = 15
"""Of a hundred seeds, the one whose queue with equal service times waits most nearly as theory says.

A few thousand requests of others may lack the rare crowds that make the longest queues."""


@dataclass(frozen=True)
class OpenServer:
    """A server and the requests that arrive at it; ``burstiness`` as in ``gaps_of``."""

    server: SimulatedServer
    turns: tuple[tuple[SimulatedRequest, ...], ...]
    burstiness: float

    @cached_property
    def capacity(self) -> float:
        """The requests/s that it completes while others always wait."""
        count = max(QUEUED, 10 * self.server.batch)
        queued = [*met_running(self.turns, self.server.batch), *_requests(self.turns, count)]
        answers = answer_arrivals(self.server, [(0.0, request) for request in queued])
        ends = sorted(answer.done for answer in answers)[count // 10 : -count // 10]
        return 1e3 * (len(ends) - 1) / (ends[-1] - ends[0])

    @cached_property
    def alone(self) -> LoadFigures:
        """What clients see where each request finds a server idle."""
        requests = [request for turn in self.turns for request in turn]
        spread = [(number * FAR_APART_MS, request) for number, request in enumerate(requests)]
        return summarise_arrivals(answer_arrivals(self.server, spread), 1e3 / FAR_APART_MS)

    def at(self, rate: float, servers: int = 1, together: float = 1.0, effort: float = 1.0) -> LoadFigures:
        """Return what clients of ``servers`` servers see, at one server's requests/s; ``together`` as in ``gaps_of``.

        ``effort``: the requests that are simulated, as a share of what the p99 of whole answers needs.
        """
        if together > 1:  # the number of servers that share a group matters, so do not pool it
            shares = -(-min(servers, MOST_SPREAD) // MOST_POOLED)
            pooled = min(servers, MOST_SPREAD) // shares
            shares = min(shares, max(math.ceil(together), MOST_SHARES))
        else:
            running, _ = usually_running(self.server, self.turns, rate)
            pooled = min(servers, MOST_POOLED, max(int(MOST_RUNNING / running), FEW))
            shares = min(1 << (servers // pooled).bit_length() - 1, MOST_SHARES)
        return _simulate(self, rate, pooled, shares, together, effort)

    def simplify(self, rate: float, pooled: int) -> SimpleQueue:
        """Return ``pooled`` servers as a simple queue, at one server's requests/s."""
        requests = [request for turn in self.turns for request in turn]
        prefill = math.fsum(request.prefill for request in requests)
        prepare = math.fsum(request.prepare for request in requests)
        station = rate / 1e3 * max(prefill, prepare, self.server.spacing * len(requests)) / len(requests)
        return SimpleQueue(station, self.server.batch * pooled, self.capacity / rate)


def places(batch: int) -> int:
    """Return the requests that the load balancer gives a server: its batch, and those that it prepares meanwhile."""
    return batch + max(4, math.ceil(batch / 4))


@lru_cache(maxsize=1024)
def _simulate(server: OpenServer, rate: float, pooled: int, shares: int, together: float, effort: float) -> LoadFigures:
    counted = _count(min(rate / server.capacity, 0.95), pooled, shares, together, server.burstiness, effort)
    running, step = usually_running(server.server, server.turns, rate)
    # Start with requests already running, so that the first arrivals find the servers as busy as later ones do.
    # Arrivals after the last counted one keep the servers busy until all counted requests are answered.
    begun = met_running(server.turns, round(running * pooled))
    longest = max(request.output for turn in server.turns for request in turn) * step
    before, after = counted // 4, min(int(longest * rate * pooled / 1e3), counted)
    count = before + counted + after
    if together > 1 or server.burstiness > 1:
        queue = server.simplify(rate, pooled)
        gaps = typical_gaps(queue, before, counted, after, together, server.burstiness, shares)
        stretch = 1e3 / (rate * pooled)
    else:
        gaps = list(islice(gaps_of(rate * pooled, server.burstiness, ARRIVALS_SEED, dealt=shares), count))
        stretch = count * 1e3 / (rate * pooled) / max(math.fsum(gaps), PREFILLED_MS)  # to exactly this rate
    arrivals = zip(accumulate(gap * stretch for gap in gaps), _requests(server.turns, count), strict=True)
    pool = Pool(server.server, pooled, places(server.server.batch))
    answers = pool.answer([*((0.0, request) for request in begun), *arrivals])
    first = len(begun) + before
    return summarise_arrivals(answers[first : first + counted], rate, rate < server.capacity)


def _count(busy: float, pooled: int, shares: int, together: float, burstiness: float, effort: float) -> int:
    """Return how many requests count where servers are ``busy`` for this share of the time."""
    # By Kingman's formula, uneven arrivals lengthen the queue, and the time over which it varies, by this factor.
    uneven = max((1 + burstiness**2) / 2, 1)
    group = max(together / shares, 1) * uneven
    share = min(effort, 1)
    wandering = WANDERING * max(2 * FEW / (pooled * shares), 0.5) * group / (1 - busy) ** 2
    if together > 1:
        most = MOST_OF_GROUPS // (2 if together > VERY_LARGE else 1)
        least = max(COUNTED[0] * 2 * FEW, min(GROUPS * group, most), LEAST_GROUPS * group)
        enough = share * max(GROUPS_WANDER * wandering, least)
    else:
        enough = max(share * wandering, share**2 * EACH * pooled, effort * COUNTED[0] * uneven)
    return int(min(enough, min(2 * effort, 1) * COUNTED[1]))


def _requests(turns: Sequence[Sequence[SimulatedRequest]], count: int) -> Iterator[SimulatedRequest]:
    """Yield as many requests of each turn; within a turn, yield each equally often, in random order."""
    chance = random.Random(SEED)
    drawn = []
    for turn in turns:
        copies = list(turn) * -(-count // (len(turns) * len(turn)))
        chance.shuffle(copies)
        drawn.append(iter(copies))
    return (next(drawn[number % len(turns)]) for number in range(count))


def open_server(resolved: ResolvedRequest, config: Configuration, kv_tokens: int) -> OpenServer:
    """Return one of several servers of a configuration; ``kv_tokens`` is the size of its KV cache, 0 for no limit."""
    request = resolved.request
    coefficients = speed.scale_coefficients(resolved.store, request.host_scale, request.card_scale)
    each = -(-resolved.concurrency // config.servers)
    times_of = partial(speed.shared_times, concurrency=each, coefficients=coefficients)
    server, turns = load_profile.describe_server(resolved, config, each, coefficients, times_of, kv_tokens, alone=False)
    return OpenServer(server, turns, resolved.burstiness)
