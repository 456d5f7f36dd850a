"""A discrete-event simulation of a fleet: servers behind a load balancer with one queue and the fewest connections.

It is the judge of ``recommend plan`` and shares no code with it. Times are in ms, rates in requests/s. Run it to write
``cases/fleet_sizing.yaml`` again: ``python tests/fleet_simulation.py``.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import simpy
import yaml

Draw = Callable[[random.Random], int]
"""A length in tokens, drawn by chance."""
Steps = Generator[simpy.Event, Any, None]


class Terms(NamedTuple):
    """What a request costs a server, and the server's limits.

    A pass takes ``step``, ``row`` for each running request, and ``prefill`` for each prompt that it holds; of that
    ``hidable`` ms read weights while a prompt is computed. ``prompts`` a pass, ``batch`` requests at once.
    """

    prepare: float
    prefill: float
    step: float
    row: float
    batch: int
    prompts: int = 10**9
    hidable: float = 0.0


Kinds = Callable[[random.Random], tuple[int, Terms]]
"""The length of an answer and what its request costs, drawn by chance."""


def fixed(mean: int) -> Draw:
    return lambda _chance: mean


def geometric(mean: int) -> Draw:
    """Each token is the last with the same chance."""
    return lambda chance: max(math.ceil(math.log(1 - chance.random()) / math.log(1 - 1 / mean)), 1)


def log_normal(mean: int, sigma: float = 1.0) -> Draw:
    return lambda chance: max(round(chance.lognormvariate(math.log(mean) - sigma**2 / 2, sigma)), 1)


def nearly_fixed(mean: int, share: float = 0.02) -> Draw:
    """All lengths within a share of the mean are equally likely."""
    return lambda chance: round(mean * chance.uniform(1 - share, 1 + share))


LENGTHS: dict[str, Callable[[int], Draw]] = {
    "fixed": fixed,
    "geometric": geometric,
    "log-normal": log_normal,
    "nearly fixed": nearly_fixed,
}


@dataclass
class Asked:
    """A request: the tokens of its answer, its cost, and when it came, was prepared, had its first and last token."""

    out: int
    terms: Terms
    came: float
    finished: simpy.Event
    ready: float = math.nan
    first: float = math.nan
    done: float = math.nan


@dataclass
class Replica:
    """One server: a thread prepares requests one by one, an engine works passes.

    The engine decides what a pass holds when the pass before it begins. A slot is free two passes after the last token.
    """

    environment: simpy.Environment
    terms: Terms
    prepared: deque[Asked] = field(default_factory=deque)
    running: int = 0
    rows: Counter[Terms] = field(default_factory=Counter)
    connections: int = 0
    ends: defaultdict[int, list[Asked]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.thread = simpy.Resource(self.environment, capacity=1)
        self.woken = self.environment.event()
        self.environment.process(self.engine())

    def serve(self, request: Asked) -> Steps:
        with self.thread.request() as turn:
            yield turn
            yield self.environment.timeout(request.terms.prepare)
        request.ready = self.environment.now
        self.prepared.append(request)
        if not self.woken.triggered:
            self.woken.succeed()
        yield request.finished

    def engine(self) -> Steps:
        terms, clock, passes, decided = self.terms, self.environment, 0, 0.0
        slots: deque[int] = deque()
        while True:
            if not self.prepared and not self.running:
                self.woken = clock.event()
                yield self.woken
            if not self.running:  # no pass is worked without requests
                decided = clock.now
                slots.clear()
            while slots and slots[0] <= passes - 2:
                slots.popleft()
            room = min(terms.batch - self.running - len(slots), terms.prompts)
            joined: list[Asked] = []
            while len(joined) < room and self.prepared and self.prepared[0].ready <= decided:
                joined.append(self.prepared.popleft())
            own = Counter(request.terms for request in joined)
            prompts = sum(each.prefill * number for each, number in own.items())
            plain = terms.step + sum(each.row * number for each, number in self.rows.items())
            length = plain + prompts - min(terms.hidable, prompts) if self.running else max(prompts, terms.step)
            decided, passes = clock.now, passes + 1
            yield clock.timeout(length)
            for request in joined:
                request.first = clock.now
                self.ends[passes + request.out - 1].append(request)
            self.running += len(joined)
            self.rows += own
            for request in self.ends.pop(passes, ()):
                request.done = clock.now
                self.running -= 1
                self.rows[request.terms] -= 1
                slots.append(passes)
                request.finished.succeed()


@dataclass
class Fleet:
    """Servers behind a load balancer that gives each at most ``limit`` requests and keeps the others in one queue."""

    environment: simpy.Environment
    terms: Terms
    servers: int
    limit: int

    def __post_init__(self) -> None:
        self.replicas = [Replica(self.environment, self.terms) for _ in range(self.servers)]
        self.queue: deque[Asked] = deque()
        self.turn = 0

    def take(self, request: Asked) -> None:
        """Send a request to the server with the fewest, taking turns among equals; queue it if all are full."""
        order = self.replicas[self.turn :] + self.replicas[: self.turn]
        least = min(order, key=lambda replica: replica.connections)
        if least.connections >= self.limit:
            self.queue.append(request)
            return
        self.turn = (self.replicas.index(least) + 1) % self.servers
        self.forward(least, request)

    def forward(self, replica: Replica, request: Asked) -> None:
        replica.connections += 1
        self.environment.process(self.follow(replica, request))

    def follow(self, replica: Replica, request: Asked) -> Steps:
        yield from replica.serve(request)
        replica.connections -= 1
        if self.queue:
            self.forward(replica, self.queue.popleft())


class Seen(NamedTuple):
    """What clients see, in ms."""

    mean: float
    p50: float
    p99: float
    ttft_p99: float


def run(
    terms: Terms,
    lengths: Draw,
    servers: int,
    rate: float,
    count: int,
    *,
    burst: float = 1.0,
    variation: float = 1.0,
    seed: int = 11,
    limit: int = 0,
    kinds: Kinds | None = None,
) -> Seen:
    """Return what the clients of ``count`` requests see that come at a rate, in groups of geometric size.

    ``variation``: of the gaps between groups, which have a gamma distribution. ``kinds`` draws requests that cost
    differently, in place of ``lengths``.
    """
    environment, chance, every = simpy.Environment(), random.Random(seed), list[Asked]()
    fleet = Fleet(environment, terms, servers, limit or terms.batch + max(4, math.ceil(terms.batch / 4)))

    def arrive() -> Steps:
        while len(every) < count:
            yield environment.timeout(chance.gammavariate(variation**-2, 1e3 * burst / rate * variation**2))
            more = True
            while more:
                out, own = kinds(chance) if kinds else (lengths(chance), terms)
                every.append(Asked(out, own, environment.now, environment.event()))
                fleet.take(every[-1])
                more = chance.random() < 1 - 1 / burst

    environment.process(arrive())
    environment.run()
    counted = every[count // 10 :]
    times = sorted(request.done - request.came for request in counted)
    firsts = sorted(request.first - request.came for request in counted)
    return Seen(math.fsum(times) / len(times), quantile(times, 0.5), quantile(times, 0.99), quantile(firsts, 0.99))


def quantile(ordered: list[float], share: float) -> float:
    return ordered[math.ceil(share * len(ordered)) - 1]


def capacity(terms: Terms, lengths: Draw, count: int = 20_000) -> float:
    """Return the requests/s of one server at which requests always wait."""
    environment, chance = simpy.Environment(), random.Random(3)
    fleet = Fleet(environment, terms, 1, 2 * terms.batch)
    every = [Asked(lengths(chance), terms, 0.0, environment.event()) for _ in range(count)]
    for request in every:
        fleet.take(request)
    environment.run()
    ends = sorted(request.done for request in every)
    return 1e3 * 0.8 * count / (ends[int(0.9 * count)] - ends[int(0.1 * count)])


# --- the table -------------------------------------------------------------------------------

KINDS: dict[str, tuple[Terms, int]] = {
    "image": (Terms(prepare=9, prefill=6, step=7, row=0.05, batch=32), 16),
    "chat": (Terms(prepare=0.5, prefill=14, step=9, row=0.08, batch=64), 200),
    "rag": (Terms(prepare=1, prefill=120, step=10, row=0.15, batch=32, prompts=2), 100),
    "small": (Terms(prepare=1, prefill=8, step=8, row=0.05, batch=6), 40),
}
"""Servers and the mean length of an answer."""
SHAPES = {
    "image": ["fixed"],
    "chat": ["fixed", "geometric", "log-normal"],
    "rag": ["fixed", "log-normal"],
    "small": ["geometric"],
}
SERVERS, BUSY = (1, 2, 4, 8, 16), (0.3, 0.7, 0.9, 0.95)
BURSTS = [("chat", "log-normal", 8, 0.5, 16, 8), ("image", "fixed", 8, 0.7, 16, 32),
          ("small", "geometric", 2, 0.7, 4, 16), ("rag", "fixed", 16, 0.8, 16, 8), ("chat", "fixed", 4, 0.7, 8, 8),
          ("chat", "geometric", 1, 0.5, 4, 4), ("rag", "log-normal", 8, 0.5, 8, 8),
          ("small", "geometric", 8, 0.8, 16, 32), ("image", "fixed", 2, 0.5, 4, 4),
          ("image", "fixed", 16, 0.9, 4, 4), ("image", "fixed", 24, 0.13, 400, 20),
          ("image", "fixed", 72, 0.04, 400, 20), ("image", "fixed", 256, 0.01, 400, 20),
          ("image", "fixed", 48, 0.45, 100, 20)]  # fmt: skip
"""Mean size of the groups, and so many times the usual requests, of which fewer would not tell the p99."""
UNSEEN = [("image", "fixed", 1, 0.5, 2, 10), ("image", "fixed", 8, 0.5, 8, 10), ("chat", "geometric", 2, 0.5, 4, 8),
          ("chat", "fixed", 1, 0.3, 8, 8), ("image", "fixed", 4, 0.7, 4, 10), ("image", "fixed", 16, 0.3, 32, 20),
          ("chat", "log-normal", 4, 0.5, 8, 8), ("chat", "geometric", 16, 0.7, 8, 8)]  # fmt: skip
"""More of them. They were looked at while the arrivals of bursts were designed, like the others."""
BURSTY = [("image", "fixed", 1, 0.5, 1, 2, 300_000), ("image", "fixed", 4, 0.7, 1, 3, 400_000),
          ("small", "geometric", 8, 0.8, 1, 2, 400_000), ("rag", "log-normal", 16, 0.7, 1, 4, 400_000),
          ("chat", "log-normal", 8, 0.5, 1, 3, 300_000), ("image", "fixed", 1, 0.5, 8, 1, 400_000),
          ("image", "fixed", 4, 0.5, 16, 1, 400_000), ("image", "fixed", 16, 0.7, 32, 1, 600_000),
          ("chat", "fixed", 2, 0.5, 16, 1, 300_000), ("small", "geometric", 4, 0.5, 16, 1, 400_000),
          ("rag", "log-normal", 16, 0.8, 32, 1, 400_000), ("chat", "geometric", 8, 0.7, 32, 1, 400_000),
          ("rag", "fixed", 4, 0.5, 8, 1, 300_000), ("image", "fixed", 4, 0.5, 8, 2, 600_000),
          ("chat", "log-normal", 8, 0.5, 16, 2, 400_000), ("small", "geometric", 16, 0.5, 16, 3, 600_000),
          ("image", "fixed", 16, 0.5, 32, 4, 800_000), ("image", "fixed", 1, 0.3, 32, 1, 600_000),
          ("chat", "geometric", 16, 0.8, 1, 4, 400_000), ("rag", "log-normal", 1, 0.6, 8, 1, 300_000),
          ("image", "fixed", 1, 0.8, 8, 3, 500_000), ("small", "geometric", 8, 0.6, 16, 3, 500_000),
          ("rag", "log-normal", 16, 0.5, 1, 3, 400_000), ("small", "fixed", 8, 0.7, 8, 2, 500_000),
          ("chat", "geometric", 8, 0.8, 8, 2, 500_000), ("image", "fixed", 2, 0.8, 8, 1, 400_000),
          ("image", "fixed", 1, 0.5, 1, 4, 400_000), ("image", "fixed", 2, 0.6, 32, 2, 500_000),
          ("chat", "fixed", 16, 0.3, 32, 3, 500_000), ("small", "geometric", 1, 0.8, 32, 1, 500_000),
          ("rag", "fixed", 8, 0.6, 16, 2, 400_000), ("image", "fixed", 4, 0.7, 8, 3, 500_000),
          ("chat", "geometric", 2, 0.6, 8, 2, 300_000), ("small", "geometric", 16, 0.7, 1, 3, 400_000),
          ("image", "fixed", 8, 0.5, 32, 2, 500_000), ("chat", "log-normal", 4, 0.7, 16, 1, 400_000)]  # fmt: skip
"""Mean size of the groups, coefficient of variation of the gaps between them, and requests.

How many groups are drawn and simulated was chosen with all but the last six before one's eyes."""
MANY = [("image", "fixed", 32, 0.9), ("image", "fixed", 64, 0.7), ("image", "fixed", 64, 0.9),
        ("chat", "nearly fixed", 64, 0.7), ("chat", "nearly fixed", 64, 0.9)]  # fmt: skip
"""More servers than a plan simulates; of the less busy ones, three times the usual requests. Long answers that all have
one length end together after thousands of requests of each server, so that their servers fill up together."""
HOSTS = [("image", "fixed", "p99", 300), ("image", "fixed", "p99", 420), ("chat", "fixed", "p99", 3400),
         ("chat", "geometric", "p99", 14_000), ("chat", "log-normal", "p99", 20_000), ("rag", "fixed", "p99", 4500),
         ("rag", "log-normal", "p99", 24_000), ("small", "geometric", "p99", 1800),
         ("image", "fixed", "ttft_p99", 120), ("chat", "log-normal", "ttft_p99", 500),
         ("rag", "fixed", "ttft_p99", 1200), ("small", "geometric", "ttft_p99", 400)]  # fmt: skip
"""Goals in ms, for the p99 of answers and of first tokens."""
RATES = (2.3, 6.4, 11.7)
"""Requests/s of a fleet, as multiples of one server's capacity."""


def enough(busy: float) -> int:
    """Return how many requests tell the p99 within some percent."""
    return 20_000 if busy < 0.85 else 100_000 if busy < 0.92 else 300_000


def table() -> dict[str, Any]:
    """Return what is simulated of every case: p99 of fleets, and the fewest servers that keep a goal."""
    kinds = [(kind, shape) for kind, shapes in SHAPES.items() for shape in shapes]
    most = {(kind, shape): capacity(KINDS[kind][0], LENGTHS[shape](KINDS[kind][1]))
            for kind, shape in dict.fromkeys([*kinds, *(which[:2] for which in MANY)])}  # fmt: skip
    cases = [(*which, servers, busy, 1, 1) for which in kinds for servers in SERVERS for busy in BUSY]
    many = [(*which, 1, 3 if which[-1] < 0.8 else 1) for which in MANY]
    rows = []
    for kind, shape, servers, busy, burst, times in (*cases, *BURSTS, *many, *UNSEEN):
        rate, count = round(busy * servers * most[kind, shape], 2), enough(busy) * times
        row = {"kind": kind, "lengths": shape, "servers": servers, "rate": rate, "burst": burst, "count": count}
        rows.append(row | rounded(simulate(row)))
        print(*rows[-1].values(), flush=True)
    needed = [found for goal in HOSTS for found in hosts(*goal, most[goal[:2]])]
    bursty = [bursty_row(*case, most[case[:2]]) for case in BURSTY]
    return {"times": rows[: -len(UNSEEN)], "unseen": rows[-len(UNSEEN) :], "hosts": needed, "bursty": bursty}


def bursty_row(
    kind: str, shape: str, servers: int, busy: float, burst: int, variation: int, count: int, most: float
) -> dict[str, Any]:
    """Return the means of two runs: groups that follow each other irregularly take long to tell the p99."""
    terms, mean = KINDS[kind]
    rate = round(busy * servers * most, 2)
    lengths = LENGTHS[shape](mean)
    runs = [run(terms, lengths, servers, rate, count, burst=burst, variation=variation, seed=seed) for seed in (11, 12)]
    row = {"kind": kind, "lengths": shape, "servers": servers, "rate": rate, "burst": burst, "variation": variation}
    row |= {name: round(math.fsum(getattr(seen, name) for seen in runs) / 2, 1) for name in ("p50", "p99", "ttft_p99")}
    print(*row.values(), flush=True)
    return row


def simulate(row: dict[str, Any]) -> Seen:
    terms, mean = KINDS[row["kind"]]
    lengths = LENGTHS[row["lengths"]](mean)
    return run(terms, lengths, row["servers"], row["rate"], row["count"], burst=row["burst"])


def rounded(seen: Seen) -> dict[str, float]:
    return {name: round(value, 1) for name, value in seen._asdict().items()}


def hosts(kind: str, shape: str, figure: str, goal: float, most: float) -> Iterator[dict[str, Any]]:
    """Yield the fewest servers for each rate."""
    for times in RATES:
        row = {"kind": kind, "lengths": shape, "rate": round(times * most, 1), "burst": 1, "count": 60_000}
        servers = math.ceil(times / 0.98)
        while getattr(simulate(row | {"servers": servers}), figure) > goal:
            servers += 1
        print(kind, shape, figure, goal, times, servers, flush=True)
        yield row | {"figure": figure, "goal": goal, "needed": servers}


if __name__ == "__main__":
    text = yaml.safe_dump(table(), sort_keys=False, default_flow_style=None, width=200)
    (Path(__file__).parent / "cases" / "fleet_sizing.yaml").write_text(
        f"# Simulated by tests/fleet_simulation.py, which writes this file. Times in ms, rates in requests/s.\n{text}"
    )
