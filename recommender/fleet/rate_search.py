"""Find the rate at which servers keep the goals, and the hosts that the peak then needs.

Servers are simulated at rates on a ladder, the same for every goal and load; between them their times are interpolated.
So more load never takes fewer hosts, although a simulation of few requests is off by some percent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from recommender.estimate.arrivals import MOST_SPREAD, OpenServer
from recommender.estimate.load_profile import combine
from recommender.estimate.scheduler.simulation import LoadFigures
from recommender.fleet.aim import Aim, Tail
from recommender.request.request import LEAST

BUSIEST = 0.8
"""Without a goal for times, the share of its capacity that a server is given."""
FEW = 4
BUSIEST_AT_GOALS, BUSIEST_OF_FEW = 0.95, 0.9
"""The same with a goal for times: many servers, and fewer than ``FEW``, whose queue grows sooner."""
RUNGS = 28
TOP = RUNGS - 1
STEP = math.pow(BUSIEST_OF_FEW / (1 - BUSIEST_OF_FEW) / (BUSIEST_AT_GOALS / (1 - BUSIEST_AT_GOALS)), 1 / 3)
"""Ratio of busy to idle time, from one rung to the one above. The ladder ends at 2 % busy; the fourth rung is
``BUSIEST_OF_FEW``."""
EXACT, MOST_SHAPED = 16, 256
"""Each number of servers up to the first is simulated; above it, powers of two up to the second.

Large groups are spread over up to ``MOST_SPREAD``. Of fewer servers than a group has requests, eight numbers between
powers of two are simulated."""
LARGE_GROUP = 16
UNBOUNDED = 2**31
FIRST_RUNG = 20
"""The rung that is tried first: three quarters busy."""
MOST_GROWTH = 64
"""Largest factor from one number of hosts to the next that is tried."""
RUNG_GROWTH = 0.13
"""The usual growth of a time from a rung to the next, as a logarithm."""
HALVINGS = 16
"""Bisection steps between two rungs, to find where a goal is missed."""


@dataclass(frozen=True)
class ServerState:
    """What one server does at a rate. ``busy``: share of its capacity."""

    busy: float
    figures: LoadFigures
    tail: Tail

    @property
    def mean_ms(self) -> float:
        """The mean time of a request."""
        return self.figures.latency.mean

    @property
    def p50_ms(self) -> float:
        """The time within which half of the requests are answered."""
        return self.figures.latency.p50

    @property
    def p99_ms(self) -> float:
        """The time within which 99 % are answered."""
        return self.tail.time(self.figures, "latency", "p99")

    @property
    def requests(self) -> float:
        """The mean number of requests at the server, by Little's law."""
        return self.figures.rps * self.mean_ms / 1e3


def busy_at(rung: float) -> float:
    """Return the share of its capacity that a server is given at a rung."""
    over = BUSIEST_AT_GOALS / (1 - BUSIEST_AT_GOALS) * math.pow(STEP, TOP - rung)
    return over / (1 + over)


def rung_at(busy: float) -> float:
    """Return the place on the ladder, perhaps between two rungs or beyond the last, of a share of the capacity."""
    over = busy / max(1 - busy, 1e-9)
    return TOP + math.log(over * (1 - BUSIEST_AT_GOALS) / BUSIEST_AT_GOALS) / -math.log(STEP)


@dataclass(frozen=True)
class RateSearch:
    """Servers and what is asked of a fleet of them.

    ``ceiling``: requests/s of a server that its cores and network allow. Servers are ``slow`` times as slow as
    predicted. ``effort`` as in ``OpenServer.at``. ``like``: a search that found about the same rungs.
    """

    server: OpenServer
    aim: Aim
    tail: Tail
    per_host: int
    ceiling: float = math.inf
    slow: float = 1.0
    effort: float = 1.0
    like: RateSearch | None = field(default=None, compare=False)
    sustained: dict[int, float] = field(default_factory=dict, compare=False)

    @property
    def peak(self) -> float:
        """The requests/s at the peak."""
        return self.aim.rps * self.aim.peak

    @property
    def most_shaped(self) -> int:
        """The largest number of servers that is simulated."""
        return MOST_SPREAD if self.aim.burst > LARGE_GROUP else MOST_SHAPED

    @property
    def capacity(self) -> float:
        """The requests/s that a server completes while others always wait."""
        return self.server.capacity / self.slow

    def rate(self, rung: float) -> float:
        """Return the requests/s of a server at a rung."""
        return self.capacity * busy_at(rung)

    def find(self, below: int = UNBOUNDED, near: int = 0) -> int:
        """Return the fewest hosts that keep the goals at the peak; 0 if none do, or no fewer than ``below``.

        ``near`` is a guess.
        """
        if self.aim.missed(self.server.alone, self.tail, self.slow):
            return 0
        least = self._hosts_for(TOP)
        low, high, hosts = least - 1, UNBOUNDED, max(near, least)
        # The more servers share a queue, the higher the rate at which each keeps the goals. So if ``needed`` is below
        # ``hosts``, the answer is at least ``needed``; if it is above, the answer is at most ``needed``.
        while low < below - 1 and high - low > 1:
            needed = hosts + 1 if near and self._are_too_few(hosts) else self._needed(hosts)
            if needed <= hosts:
                high, low = hosts, max(low, needed - 1)
            elif needed == UNBOUNDED and self._over(0, self.most_shaped) > 0:  # many more miss the goal too
                return 0
            else:
                low, needed = hosts, min(needed, (2 if near else MOST_GROWTH) * hosts)
            if needed <= low:  # known to be too few: bursts alone miss the goal
                needed = math.isqrt(low * high)
            hosts = min(max(needed, low + 1), high - 1)
        return high if high < below else 0

    def highest_rung(self, hosts: int) -> float:
        """Return the highest rung at which ``hosts`` hosts keep the goals; -1 if there is none."""
        servers = self._servers(hosts)
        if servers not in self.sustained:
            self.sustained[servers] = self._climb(servers) if self.aim.goals else rung_at(BUSIEST)
        return self.sustained[servers]

    def _climb(self, servers: int) -> float:
        """Find the highest place on the ladder that keeps the goals: between the known rungs, then next to them."""
        top = TOP if servers >= FEW else TOP - 3
        (low, kept), (high, missed) = (-1, 0.0), (top + 1, 0.0)
        rung = min(self._first_rung(servers), top)
        while high - low > 1:
            over = self._over(rung, servers)
            if over > 0:
                high, missed = rung, over
            else:
                low, kept = rung, over
            if low >= 0 and missed:
                rung = low + round((high - low) * kept / (kept - missed))
            else:
                rung -= round(math.copysign(min(1 + abs(over) / RUNG_GROWTH, 8), over))
            rung = min(max(rung, low + 1), high - 1)
        return low if low in (-1, top) else low + self._share(low, servers)

    def _first_rung(self, servers: int) -> int:
        """Return the rung to try first: that of about as many servers, or the one that a simple queue would keep."""
        known = {**(self.like.sustained if self.like else {}), **self.sustained}
        if known:
            return max(int(known[min(known, key=lambda other: abs(math.log(other / servers)))]), 0)
        busy = 1.0
        for figure, quantile, most_ms in (goal[1:] for goal in self.aim.goals if goal.figure != "tpot"):
            left = most_ms / self.slow - self.tail.time(self.tail.alone, figure, quantile)
            times = 1 if quantile == "mean" else math.log(100)
            busy = min(busy, 1 - times * self.aim.burst * 1e3 / (servers * self.server.capacity) / max(left, LEAST))
        return round(min(max(rung_at(max(busy, 1e-9)), 0), FIRST_RUNG))

    def _over(self, rung: int, servers: int) -> float:
        """Return the logarithm of a time over its goal, of the goal that is missed most."""
        figures = self.figures(rung, servers)
        times = [(self.slow * self.tail.time(figures, goal.figure, goal.at), goal) for goal in self.aim.goals]
        return max(math.log(max(time, LEAST) / goal.most_ms) for time, goal in times)

    def _servers(self, hosts: int) -> int:
        """Return the number of simulated servers that represent those of ``hosts`` hosts."""
        servers = hosts * self.per_host
        if servers <= EXACT:
            return servers
        fine = self.effort >= 1 and servers <= self.aim.burst
        step = 1 << servers.bit_length() - (4 if fine else 1)
        return min(servers // step * step, self.most_shaped)

    def _are_too_few(self, hosts: int) -> bool:
        """Return whether hosts miss a goal at a rung below the peak: one simulation instead of a climb."""
        rung = min(int(rung_at(self.peak / (hosts * self.per_host) / self.capacity)), TOP)
        return bool(self.aim.goals) and rung >= 0 and self._over(rung, self._servers(hosts)) > 0

    def _needed(self, hosts: int) -> int:
        """Return the hosts that the peak needs if servers are as busy as ``hosts`` hosts allow."""
        rung = self.highest_rung(hosts)
        return self._hosts_for(rung) if rung >= 0 else UNBOUNDED

    def _hosts_for(self, rung: float) -> int:
        rate = min(self.rate(rung), self.ceiling) * self.per_host
        return max(1, math.ceil(self.peak / rate - 1e-9))

    def figures(self, rung: int, servers: int) -> LoadFigures:
        """Return what clients see at a rung if this many servers are as fast as predicted."""
        return self.server.at(self.server.capacity * busy_at(rung), servers, self.aim.burst, self.effort)

    def _share(self, rung: int, servers: int) -> float:
        """Return how far the goals are kept between a rung that keeps them and the next, which does not."""
        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            misses = self.aim.missed(self._figures_between(rung + middle, servers), self.tail, self.slow)
            low, high = (low, middle) if misses else (middle, high)
        return low

    def state(self, hosts: int, slow: float = 1.0) -> ServerState | None:
        """Return a server's state at the peak with ``hosts`` hosts; None if it is busier than the top rung."""
        rate = self.peak / (hosts * self.per_host)
        busy, servers = rate * slow / self.server.capacity, self._servers(hosts)
        place = max(rung_at(busy), 0.0) if busy < 1 else math.inf
        if place > TOP:
            return None
        found, kept = self._figures_between(place, servers), self.sustained.get(servers, 0.0)
        if self.aim.goals and place < kept:  # few requests may seem to contradict that a lower rate is no slower
            found = combine(min, found, self._figures_between(kept, servers))
        found = replace(found, rps=rate, tokens=found.tokens / found.rps * rate)
        return ServerState(busy, slowed(found, slow), self.tail._replace(alone=slowed(self.tail.alone, slow)))

    def _figures_between(self, place: float, servers: int) -> LoadFigures:
        """Interpolate between a rung and the next."""
        low = min(int(place), TOP - 1)
        below = self.figures(low, servers)
        return below if place == low else combine(_between(place - low), below, self.figures(low + 1, servers))


def _between(share: float) -> Callable[[float, float], float]:
    """Return the interpolation between two times on a logarithmic scale."""
    return lambda one, other: math.pow(one, 1 - share) * math.pow(other, share)


def slowed(figures: LoadFigures, slow: float) -> LoadFigures:
    """Return the figures of servers that take ``slow`` times as long."""
    return combine(lambda one, _other: one * slow, figures, figures) if slow != 1.0 else figures
