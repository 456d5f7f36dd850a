"""Simulate servers behind a load balancer: one queue, and each request goes to the server with the fewest.

That is HAProxy's ``balance leastconn`` with ``maxconn`` at each server. Among equals it takes the one that has waited
longest.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Sequence
from functools import partial

from recommender.estimate.scheduler.passes import SimulatedAnswer, SimulatedRequest, SimulatedServer
from recommender.estimate.scheduler.simulation import start


class Pool:
    """The state of the servers and of the load balancer's queue. A server has at most ``limit`` requests."""

    def __init__(self, server: SimulatedServer, servers: int, limit: int) -> None:
        self.limit = limit
        self.servers = [start(server, partial(self._end, place), more=True) for place in range(servers)]
        self.connections = [(0, place) for place in range(servers)]
        """Of each server its requests, and when this number last changed."""
        self.changes = servers
        self.decided = [math.inf] * servers
        self.ends: list[tuple[float, int]] = []
        self.queue: deque[tuple[int, SimulatedRequest]] = deque()
        self.queued: dict[int, float] = {}
        """Arrival times of the requests that had to wait."""

    def answer(self, arrivals: Sequence[tuple[float, SimulatedRequest]]) -> list[SimulatedAnswer]:
        """Return the answers to requests that come at these ms, ascending."""
        for number, (at, request) in enumerate(arrivals):
            self._work(at)
            least = self.connections.index(min(self.connections))
            if self.connections[least][0] < self.limit:
                self._send(least, at, number, request)
            else:
                self.queue.append((number, request))
                self.queued[number] = at
        self._work(math.inf)
        answers = {number: answer for server in self.servers for number, answer in server.answers.items()}
        for number, at in self.queued.items():  # the server knows when it got them
            answers[number] = answers[number]._replace(sent=at)
        return [answers[number] for number in range(len(arrivals))]

    def _work(self, until: float) -> None:
        """Let the servers work what is decided before a time, in the order of time."""
        times, ends = self.decided, self.ends
        while True:
            decided = min(times)
            if decided < until and not (ends and ends[0][0] <= decided):
                place = times.index(decided)
                server = self.servers[place]
                server.work()
                times[place] = server.decide()
            elif ends and ends[0][0] <= until:
                ended, place = heapq.heappop(ends)
                self._count(place, -1)
                if self.queue:
                    self._send(place, ended, *self.queue.popleft())
            else:
                return

    def _end(self, place: int, at: float, _number: int) -> None:
        heapq.heappush(self.ends, (at, place))

    def _send(self, place: int, at: float, number: int, request: SimulatedRequest) -> None:
        self._count(place, 1)
        if self.servers[place].send(at, number, request):
            self.decided[place] = self.servers[place].decide()

    def _count(self, place: int, more: int) -> None:
        self.changes += 1
        self.connections[place] = self.connections[place][0] + more, self.changes
