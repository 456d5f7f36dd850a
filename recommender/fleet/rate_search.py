"""Find the rate at which a server keeps the goals, and the hosts that the peak then needs.

A server is simulated at rates on a ladder, the same for every goal and load; between them its times are interpolated.
So more load or a stricter goal never takes fewer hosts, although a simulation of few requests is off by some percent.
Servers that take turns get more regular arrivals the more there are; a fleet is simulated with the servers of a power
of two of hosts (``width``), no more than it has.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

from recommender.estimate.arrivals import MOST_DEALT, OpenServer
from recommender.estimate.load_profile import combine
from recommender.estimate.scheduler.simulation import LoadFigures
from recommender.fleet.aim import Aim, time_at

BUSIEST = 0.8
"""Without a goal for times, the share of its capacity that a server is given."""
BUSIEST_AT_GOALS = 0.9
"""With one. Beyond it small errors of the predicted capacity decide how long the queue is."""
RUNGS, RUNG_STEP = 31, 0.9
"""Rates on the ladder, and one as a share of the next: from 4 % of the busiest."""
TOP = RUNGS - 1
UNBOUNDED = 2**31


@dataclass(frozen=True)
class ServerState:
    """What one server does at a rate. ``busy``: share of its capacity; ``tail`` as in ``time_at``."""

    busy: float
    figures: LoadFigures
    tail: float = 1.0

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
        return time_at(self.figures, "latency", "p99", self.tail)

    @property
    def requests(self) -> float:
        """The mean number of requests at the server, by Little's law."""
        return self.figures.rps * self.mean_ms / 1e3


@dataclass(frozen=True)
class RateSearch:
    """A server and what is asked of a fleet of them.

    ``tail`` as in ``time_at``. ``ceiling``: requests/s of a server that its cores and network allow.
    """

    server: OpenServer
    aim: Aim
    tail: float
    per_host: int
    ceiling: float = math.inf

    @property
    def peak(self) -> float:
        """The requests/s at the peak."""
        return self.aim.rps * self.aim.peak

    def rate(self, rung: float) -> float:
        """Return the requests/s of a rung of the ladder; at the last one a server is as busy as it may be."""
        busiest = BUSIEST_AT_GOALS if self.aim.goals else BUSIEST
        return self.server.capacity * busiest * math.pow(RUNG_STEP, TOP - rung)

    def figures(self, rung: int, width: int) -> LoadFigures:
        """Return what one server does at a rung."""
        return self.server.at(self.rate(rung), width * self.per_host, self.aim.burst)

    def hosts_for(self, rung: float) -> int:
        """Return the hosts that hold the peak with servers at this rung."""
        return max(1, math.ceil(self.peak / (min(self.rate(rung), self.ceiling) * self.per_host) - 1e-9))

    def find(self, below: int = UNBOUNDED) -> tuple[int, int]:
        """Return the fewest hosts and their width; ``below`` and 0 if it takes no fewer."""
        best = (below, 0)
        width = 1 << self.hosts_for(TOP).bit_length() - 1
        while width < best[0]:
            rung = self.highest_rung(width, best[0])
            if rung >= 0:
                best = min(best, (max(width, self.hosts_for(rung)), width))
            if width * self.per_host >= MOST_DEALT:
                break
            width *= 2
        return best

    def highest_rung(self, width: int, below: int = UNBOUNDED) -> float:
        """Return the highest rung that keeps the goals, or a place between two.

        -1 if none does, or if it takes no fewer hosts than ``below``.
        """
        low, high = 0, TOP
        if not self._missed(TOP, width):
            return TOP
        if self._missed(0, width):
            return -1
        while high - low > 1:
            if self.hosts_for(high) >= below:
                return -1
            middle = (low + high) // 2
            low, high = (low, middle) if self._missed(middle, width) else (middle, high)
        return low + self._share(low, high, width)

    def _missed(self, rung: int, width: int) -> bool:
        return bool(self.aim.goals and self.aim.missed(self.figures(rung, width), self.tail))

    def _share(self, low: int, high: int, width: int) -> float:
        """Return how far the goals are kept between a rung that keeps them and one that does not."""
        below, above = self.figures(low, width), self.figures(high, width)
        shares = []
        for goal in self.aim.missed(above, self.tail):
            at = partial(time_at, figure=goal.figure, quantile=goal.quantile, tail=self.tail)
            shares.append(math.log(goal.most_ms / at(below)) / math.log(at(above) / at(below)))
        return min(shares)

    def state(self, hosts: int, width: int, kept: float) -> ServerState:
        """Return a server's state at the peak; its goals are kept up to the rung ``kept``."""
        rate = self.peak / (hosts * self.per_host)
        place = TOP + math.log(self.rate(TOP) / rate) / math.log(RUNG_STEP)
        place = min(max(place, 0.0), kept)
        low = min(int(place), TOP - 1)
        found = self._between(low, place, width)
        if low < int(kept):  # a lower rate takes no longer, whatever a simulation of few requests says
            found = combine(min, found, self._between(min(int(kept), TOP - 1), kept, width))
        rps = replace(found, rps=rate, tokens=found.tokens / found.rps * rate)
        return ServerState(rate / self.server.capacity, rps, self.tail)

    def _between(self, low: int, place: float, width: int) -> LoadFigures:
        """Interpolate between a rung and the next, on logarithmic scales."""
        below = self.figures(low, width)
        if place == low:
            return below

        def mixed(one: float, other: float) -> float:
            return math.pow(one, low + 1 - place) * math.pow(other, place - low)

        return combine(mixed, below, self.figures(low + 1, width))
