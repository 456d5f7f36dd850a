"""A discrete-event simulation of one server and of fleets: the independent judge of simulated arrivals."""

import random
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import simpy

Steps = Generator[Any, Any, None]


def poisson(rate: float, count: int, rng: random.Random, burst: float = 1.0) -> Iterator[tuple[float, int]]:
    """Gaps in seconds and sizes of bursts: ``rate`` requests a second in geometric bursts of ``burst`` on average."""
    left = count
    while left > 0:
        size = 1
        while rng.random() < 1 - 1 / burst:
            size += 1
        left -= size
        yield rng.expovariate(rate / burst), size


@dataclass
class Server:
    """One thread prepares requests one by one; an engine then carries up to ``batch`` through ``out`` iterations.

    Times in ms. An iteration with m requests takes ``step + m * row`` and the prefill of those that join it.
    """

    environment: simpy.Environment
    prepare: float
    prefill: float
    step: float
    row: float
    out: int
    batch: int
    joining: int = 10**9
    waiting: list[tuple[float, simpy.Event]] = field(default_factory=list)
    running: list[list[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.thread = simpy.Resource(self.environment, capacity=1)
        self.work = self.environment.event()
        self.environment.process(self.engine())

    def ask(self, times: list[float]) -> Steps:
        """One request; its time in ms is noted."""
        came = self.environment.now
        with self.thread.request() as turn:
            yield turn
            yield self.environment.timeout(self.prepare)
        done = self.environment.event()
        self.waiting.append((came, done))
        if not self.work.triggered:
            self.work.succeed()
        yield done
        times.append(self.environment.now - came)

    def engine(self) -> Steps:
        """Iterations as long as there is work."""
        while True:
            if not self.waiting and not self.running:
                self.work = self.environment.event()
                yield self.work
            joined = min(len(self.waiting), self.batch - len(self.running), self.joining)
            for _ in range(joined):
                self.running.append([self.waiting.pop(0)[1], self.out])
            yield self.environment.timeout(self.step + self.row * len(self.running) + joined * self.prefill)
            for each in self.running:
                each[1] -= 1
            for each in [each for each in self.running if not each[1]]:
                self.running.remove(each)
                each[0].succeed()


def drive(
    environment: simpy.Environment, server: Server, gaps: Iterator[tuple[float, int]], times: list[float]
) -> Steps:
    for gap, size in gaps:
        yield environment.timeout(1e3 * gap)
        for _ in range(size):
            environment.process(server.ask(times))
