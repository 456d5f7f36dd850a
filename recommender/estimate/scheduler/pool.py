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
        """Let the servers work what is decided before a time.

        While requests wait for a server, all work in the order of time; else each works alone.
        """
        ends = self.ends
        while self.queue:
            decided = min(self.decided)
            if ends and ends[0][0] <= decided:
                if ends[0][0] > until:
                    return
                ended, place = heapq.heappop(ends)
                self._count(place, -1)
                self._send(place, ended, *self.queue.popleft())
            elif decided < until:
                self._work_server(self.decided.index(decided), decided)
            else:
                return
        for place, decided in enumerate(self.decided):
            if decided < until:
                self._work_server(place, until)
        while ends and ends[0][0] <= until:
            self._count(heapq.heappop(ends)[1], -1)

    def _work_server(self, place: int, until: float) -> None:
        """Let a server work what is decided by a time, its next passes at least."""
        server = self.servers[place]
        server.work()
        while (decided := server.decide()) < until:
            server.work()
        self.decided[place] = decided

    def _end(self, place: int, at: float, _number: int) -> None:
        heapq.heappush(self.ends, (at, place))

    def _send(self, place: int, at: float, number: int, request: SimulatedRequest) -> None:
        self._count(place, 1)
        if self.servers[place].send(at, number, request):
            self.decided[place] = self.servers[place].decide()

    def _count(self, place: int, more: int) -> None:
        self.changes += 1
        self.connections[place] = self.connections[place][0] + more, self.changes
