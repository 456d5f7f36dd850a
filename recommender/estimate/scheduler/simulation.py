"""Simulate a server under a load: closed loops, arrivals and traces.

``passes`` and ``alternating`` make up the engine's passes. The same arguments give the same result: chance comes from a
seed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from typing import Literal, TypeAlias

from recommender.estimate.sampling import SEED, draws
from recommender.estimate.scheduler.alternating import AlternatingSimulation
from recommender.estimate.scheduler.passes import SimulatedAnswer, SimulatedRequest, SimulatedServer, Simulation

Timed: TypeAlias = Literal["ttft", "tpot", "latency"]

WARM_UP = 4
"""Requests of each client that do not count. All start at once, and their waves of prompts fade in so many rounds."""
ROUNDS = 4
"""Requests of each client that count."""
LEAST, MOST = 100, 1500
"""Fewest requests that count, and the most in a closed loop of up to that many clients."""
OPEN_REQUESTS = 800
"""Requests that count where they arrive at a rate; a quarter as many come before them."""
KEEPS_UP = 0.95
"""A server that answers less than this share of the offered rate is overloaded."""
PREFILLED_MS = 1e-6
"""What is left of the prefill of a request that runs."""


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Mean, median, 90th and 99th percentile of a time in ms."""

    mean: float
    """Mean in ms."""
    p50: float
    """Median in ms."""
    p90: float
    """90th percentile in ms."""
    p99: float
    """99th percentile in ms."""

    @classmethod
    def of(cls, values: Iterable[float]) -> Quantiles:
        """Return the mean and the quantiles of a list that is not empty."""
        ordered = sorted(values)
        picks = (ordered[min(math.ceil(share * len(ordered)), len(ordered)) - 1] for share in (0.5, 0.9, 0.99))
        return cls(math.fsum(ordered) / len(ordered), *picks)

    def lengthen_tail(self, alone: float, factor: float) -> Quantiles:
        """Return them with a longer p99: what others add to the ms of a request ``alone`` counts ``factor`` times."""
        alone = min(alone, self.p99)
        return replace(self, p99=alone + factor * (self.p99 - alone))


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """What clients of one server see."""

    ttft: Quantiles
    """Time to first token."""
    tpot: Quantiles
    """Time per output token."""
    latency: Quantiles
    """Time of a whole request."""
    rps: float
    """Answered requests/s."""
    tokens: float
    """Output tokens/s."""
    keeps_up: bool = True
    """False: requests arrive faster than they are answered, and times grow without end."""

    def lengthen_tails(self, first: float, whole: float, factor: float) -> LoadFigures:
        """Return them with longer tails of TTFT and latency; ``first`` and ``whole`` are those of a request alone."""
        ttft, latency = self.ttft.lengthen_tail(first, factor), self.latency.lengthen_tail(whole, factor)
        return replace(self, ttft=ttft, latency=latency)

    def answer_at_most(self, rps: float) -> LoadFigures:
        """Return them with at most ``rps`` requests/s."""
        rps = min(self.rps, rps)
        return replace(self, rps=rps, tokens=self.tokens / self.rps * rps)


def start(server: SimulatedServer, on_done: Callable[[float, int], None], more: bool = False) -> Simulation:
    """Return an idle server with its engine's scheduler; ``on_done`` gets the time and the number of each answer."""
    return (AlternatingSimulation if server.rounds else Simulation)(server, on_done, more=more)


def simulate_closed_loop(
    server: SimulatedServer, turns: Sequence[Sequence[SimulatedRequest]], clients: int
) -> LoadFigures:
    """Return the figures with ``clients`` requests always in flight.

    ``turns`` holds, for each turn of a conversation, requests that are equally likely. The clients begin at turns that
    are spread over the conversation. By Little's law the rate is the number of clients over the mean latency.
    """
    count = min(max(ROUNDS * clients, LEAST), max(MOST, clients))
    # Draw every request equally often: a part of them would have another mean length than all.
    round_length = sum(map(len, turns))
    count = -(-count // round_length) * round_length if round_length <= MOST else count
    drawn = [draws(turn, SEED + place) for place, turn in enumerate(turns)]
    turn_of: dict[int, int] = {}
    numbers = iter(range(2**31))

    def send(at: float, turn: int) -> None:
        number = next(numbers)
        turn_of[number] = turn
        simulation.send(at, number, next(drawn[turn]))

    simulation = start(server, lambda at, number: send(at, (turn_of.pop(number) + 1) % len(turns)))
    for client in range(clients):
        send(0.0, client * len(turns) // clients)
    answers = simulation.answer(range(WARM_UP * clients, WARM_UP * clients + count))
    latency = Quantiles.of(answer.done - answer.sent for answer in answers)
    return _summarise(answers, latency, 1e3 * clients / latency.mean)


def simulate_arrivals(
    server: SimulatedServer,
    turns: Sequence[Sequence[SimulatedRequest]],
    gaps_ms: Iterator[float],
    offered: float,
    counted: int = OPEN_REQUESTS,
) -> LoadFigures:
    """Return the figures where requests arrive after ``gaps_ms``, ``offered`` requests/s on average.

    They arrive however many wait, each turn equally often; the figures are those of ``counted`` requests.
    """
    drawn = [draws(turn, SEED + place) for place, turn in enumerate(turns)]
    times = enumerate(islice(accumulate(gaps_ms), counted // 4 + counted))
    met = [(0.0, request) for request in met_running(turns, round(usually_running(server, turns, offered)[0]))]
    arrivals = [(at, next(drawn[number % len(turns)])) for number, at in times]
    answers = answer_arrivals(server, [*met, *arrivals])[-counted:]
    return summarise_arrivals(answers, offered, _keep_up(answers))


def simulate_replay(
    server: SimulatedServer, arrivals: Sequence[tuple[float, SimulatedRequest]], offered: float
) -> LoadFigures:
    """Return the figures where requests come at these ms, ascending, to an idle server; all count."""
    answers = answer_arrivals(server, arrivals)
    return summarise_arrivals(answers, offered, _keep_up(answers))


def keeps_up(sent: Sequence[float], waits: Sequence[float]) -> bool:
    """Return whether a server answers as fast as requests come: no backlog makes all late ones wait longer.

    ``waits`` are the ms of each request until its first token, ``sent`` when it came, ascending. When the last one ends
    does not tell, as it may be a long one.
    """
    behind = min(waits[-max(len(waits) // 4, 1) :]) - min(waits)
    return behind <= (1 - KEEPS_UP) * (sent[-1] - sent[0])


def _keep_up(answers: Sequence[SimulatedAnswer]) -> bool:
    return keeps_up([answer.sent for answer in answers], [answer.first - answer.sent for answer in answers])


def usually_running(
    server: SimulatedServer, turns: Sequence[Sequence[SimulatedRequest]], rate: float
) -> tuple[float, float]:
    """Estimate how many requests a server runs at ``rate`` requests/s, and how long a pass takes in ms.

    Each pass decodes one token of every running request; prefill delays all of them.
    """
    requests = [request for turn in turns for request in turn]
    output = math.fsum(request.output for request in requests) / len(requests)
    prefill = math.fsum(request.prefill for request in requests) / len(requests)
    row = math.fsum(request.row for request in requests) / len(requests)
    left, running, step = max(1 - rate / 1e3 * prefill, 0.05), 1.0, 0.0
    for _ in range(20):
        step = (server.times.step(running) + running * row) / left
        running = min(rate / 1e3 * output * step, server.batch)
    return max(running, 1.0), step


def met_running(turns: Sequence[Sequence[SimulatedRequest]], count: int) -> list[SimulatedRequest]:
    """Return what is left of requests that are met running; long ones are met more often."""
    chance = random.Random(SEED)
    requests = [request for turn in turns for request in turn]
    met = chance.choices(requests, [request.output for request in requests], k=count)
    left = [chance.randint(1, request.output) for request in met]
    return [
        request._replace(prepare=0.0, prefill=PREFILLED_MS, output=output)
        for request, output in zip(met, left, strict=True)
    ]


def answer_sequence(
    server: SimulatedServer, requests: Sequence[SimulatedRequest], clients: int
) -> Sequence[SimulatedAnswer]:
    """Return the answers to requests that clients take in order: each takes the next one when it has its answer."""
    left = iter(enumerate(requests))

    def send(at: float, _number: int = 0) -> None:
        for number, request in islice(left, 1):
            simulation.send(at, number, request)

    simulation = start(server, send)
    for _ in range(clients):
        send(0.0)
    return simulation.answer(range(len(requests)))


def answer_arrivals(
    server: SimulatedServer, arrivals: Sequence[tuple[float, SimulatedRequest]]
) -> Sequence[SimulatedAnswer]:
    """Return the answers to requests that come at these ms, ascending, to an idle server."""
    simulation = start(server, lambda _at, _number: None)
    for number, (at, request) in enumerate(arrivals):
        simulation.send(at, number, request)
    return simulation.answer(range(len(arrivals)))


def summarise_arrivals(answers: Sequence[SimulatedAnswer], offered: float, keeps_up: bool = True) -> LoadFigures:
    """Return the figures of requests that arrived at ``offered`` requests/s."""
    ends = sorted(answer.done for answer in answers)
    # With a backlog, measure the rate between the first and the last end.
    rate = offered if keeps_up else 1e3 * (len(ends) - 1) / (ends[-1] - ends[0])
    return _summarise(answers, Quantiles.of(answer.done - answer.sent for answer in answers), rate, keeps_up)


def _summarise(
    answers: Sequence[SimulatedAnswer], latency: Quantiles, rps: float, keeps_up: bool = True
) -> LoadFigures:
    several = [answer for answer in answers if answer.output > 1]
    gaps = [(answer.done - answer.first) / (answer.output - 1) for answer in several] or [0.0]
    tokens = math.fsum(answer.output for answer in answers) / len(answers)
    ttft = Quantiles.of(answer.first - answer.sent for answer in answers)
    return LoadFigures(ttft, Quantiles.of(gaps), latency, rps, rps * tokens, keeps_up)
