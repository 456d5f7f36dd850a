"""Simulate a server pass by pass, as TurboMind's scheduler works, jumping from event to event.

One thread of the server process prepares requests in the order in which they come. The engine takes as many as its
batch has room for and runs passes. A pass decodes one token of each running request, and prefills as many prompt
tokens as its budget leaves, first come first served; a prompt may be cut. What a pass holds is decided when the pass
before it starts, because the engine prepares one pass while another runs. So a request waits for the rest of one pass
and for a whole one before its own, and a slot of the batch is free two passes after its request's last token.
Sources: 0.16.0 src/turbomind/engine/engine.cc (Schedule, InternalThreadEntry) and scheduler.cc
(RunRequiredAdmission); the code of later releases is not public.

A pass with prefill hides the reading of weights behind the prefill's arithmetic, and the other way round; only
``pass_base`` is added. That holds for the further passes of a cut prompt, too; the first is within its prefill. Blocks
of the KV cache are reserved for a request's whole length, which is more than the engine does. Times are in ms. The same
arguments give the same result: chance comes from a seed.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from typing import Literal, NamedTuple, TypeAlias

from recommender.estimate.closed_loop import ServiceTimes
from recommender.estimate.sampling import SEED, draws
from recommender.estimate.scheduler.host_loop import HostLoop

Timed: TypeAlias = Literal["ttft", "tpot", "latency"]

SLOT_PASSES = 2
"""The pass that follows a request's last one holds it still, and the one after that was decided then."""
ROUNDS = 3
"""Requests of each client that count, after one that does not."""
LEAST, MOST = 60, 1500
"""Requests that count: at least and, for a closed loop of up to so many clients, at most."""
OPEN_REQUESTS = 800
"""Requests that count where they arrive at a rate; a quarter as many come before them."""
KEEPS_UP = 0.95
"""A server that answers less than this share of the offered rate is overloaded."""


class SimulatedRequest(NamedTuple):
    """What a request asks of a server.

    ``prefill`` is the time of the ``new_tokens`` that no cache holds, ``row`` what the request adds to a decoding step,
    ``context`` its prompt's tokens with the cached ones, ``output`` its answer's. Not all share the ``reused`` ones.
    """

    prepare: float
    prefill: float
    new_tokens: int
    context: int
    output: int
    row: float
    reused: int = 0

    @property
    def blocks(self) -> int:
        """The tokens of the KV cache that it holds alone when it ends."""
        return self.reused + self.new_tokens + self.output


@dataclass(frozen=True)
class SimulatedServer:
    """A server's limits and the times that do not depend on the request.

    ``overhead`` is the time of HTTP and tokenising, beside the preparing thread. ``times`` gives the decoding step of
    m requests without their rows, of which ``pass_base`` is launches and sampling and cannot be hidden.
    ``budget`` are prompt tokens a pass, ``batch`` requests, ``kv_tokens`` the cache beside the prefix that all requests
    share (0: no limit). ``chunk`` is the time to write a token of one stream.
    """

    overhead: float
    pass_base: float
    budget: int
    batch: int
    kv_tokens: int
    times: ServiceTimes
    chunk: float = 0.0


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Mean, median, 90th and 99th percentile of a time in ms."""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Quantiles:
        """Return those of a list that is not empty: the value below which so many lie."""
        ordered = sorted(values)
        picks = (ordered[min(math.ceil(share * len(ordered)), len(ordered)) - 1] for share in (0.5, 0.9, 0.99))
        return cls(math.fsum(ordered) / len(ordered), *picks)


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """What clients of one server see. ``rps`` is in requests/s, ``tokens`` in output tokens/s, times in ms.

    ``keeps_up`` is False if requests arrive faster than they are answered; the times then grow without end.
    """

    ttft: Quantiles
    tpot: Quantiles
    latency: Quantiles
    rps: float
    tokens: float
    keeps_up: bool = True


class Answer(NamedTuple):
    """When a request was sent, and when its first and its last token came."""

    sent: float
    first: float
    done: float
    output: int


@dataclass
class _Simulation:
    """The state of one server; ``send`` puts a request in, ``answer`` works until enough are answered."""

    server: SimulatedServer
    on_done: Callable[[float, int], None]
    waiting: deque[list[float]] = field(default_factory=deque)
    running: list[tuple[int, int, float, float]] = field(default_factory=list)
    asked: dict[int, SimulatedRequest] = field(default_factory=dict)
    answers: dict[int, Answer] = field(default_factory=dict)
    rows: float = 0.0
    held: int = 0
    passes: int = 0
    freed: deque[int] = field(default_factory=deque)
    host: HostLoop[SimulatedRequest] = field(init=False)

    def __post_init__(self) -> None:
        self.host = HostLoop(self.server.overhead, self.server.chunk)

    def send(self, at: float, number: int, request: SimulatedRequest) -> None:
        """Queue a request; calls come in the order of time."""
        self.host.send(at, number, request, request.prepare)

    def answer(self, wanted: range) -> Sequence[Answer]:
        """Work until the wanted requests are answered, and return their answers."""
        missing, now, known = len(wanted), 0.0, 0.0
        while missing:
            self._join(known)
            if not self.running and not self.waiting:
                now = known = max(self.host.next_ready(), now)
                continue
            decoding = len(self.running)
            step = self.server.times.step(decoding) + self.rows if decoding else 0.0
            count = self._alike_passes(now, step)
            prefill, firsts = self._prefill(count) if self.waiting else (0.0, [])
            length = step
            if prefill:
                prefill += self.server.times.expert_pass
                base = self.server.pass_base
                hidden = max(step - self.rows - base - prefill, 0.0)
                length = prefill + base + hidden + self.rows if decoding else max(prefill, self.server.times.step(1))
            started = now + (count - 1) * length
            self.passes, now = self.passes + count, now + count * length
            written = self.host.write(now, decoding + len(firsts)) if self.server.chunk else now
            for number, sent in firsts:
                request = self.asked[number]
                heapq.heappush(self.running, (self.passes + request.output - 1, number, sent, written))
                self.rows += request.row
            missing -= self._finish(written, wanted)
            known = started if self.running or self.waiting else now
        return [self.answers[number] for number in wanted]

    def _join(self, known: float) -> None:
        """Take what is prepared by a time into the engine's queue, as far as the batch has room."""
        while self.freed and self.freed[0] <= self.passes - SLOT_PASSES:
            self.freed.popleft()
        room = self.server.batch - len(self.running) - len(self.waiting) - len(self.freed)
        while room > 0 and (taken := self.host.take(known)):
            self.asked[taken.number] = taken.request
            self.waiting.append([taken.number, taken.sent, taken.request.new_tokens])
            room -= 1

    @property
    def _room(self) -> int:
        """Prompt tokens that a pass takes."""
        return self.server.budget + self.server.batch - len(self.running)

    def _prefill(self, passes: int) -> tuple[float, list[tuple[int, float]]]:
        """Fill alike passes with prompts; return the time of one, and the requests whose prompts end in the last."""
        left, spent, ended = self._room, 0.0, []
        while self.waiting and left > 0:
            entry = self.waiting[0]
            request = self.asked[int(entry[0])]
            whole = entry[2] == request.new_tokens
            if whole:
                if not self._has_blocks(request):
                    break
                self.held += request.blocks
            tokens = min(left, entry[2])
            part = request.prefill * tokens / request.new_tokens
            spent += part
            if not whole and not self.running:
                spent += self.server.pass_base
            left -= int(tokens)
            entry[2] -= tokens * passes
            if entry[2]:
                break
            self.waiting.popleft()
            ended.append((int(entry[0]), entry[1]))
        return spent, ended

    def _has_blocks(self, request: SimulatedRequest) -> bool:  # one alone always gets them
        return not (self.server.kv_tokens and self.held and self.held + request.blocks > self.server.kv_tokens)

    def _alike_passes(self, now: float, step: float) -> int:
        """Return how many passes hold the same: until a request ends, one comes in, or a prompt has its last pass."""
        ends = self.running[0][0] - self.passes if self.running else math.inf
        if self.waiting:
            number, _, left = self.waiting[0]
            request = self.asked[int(number)]
            if left < request.new_tokens:  # begun: it fills the passes alone, but writing delays who comes
                if self.running and self.host.quiet_until(now, True) < math.inf:
                    return 1
                return int(max(min((left - 1) // self._room, ends), 1))
            if not self.running or self._has_blocks(request):
                return 1
        # What the loop writes after a pass delays who comes meanwhile; where blocks are missing, all who come wait.
        full = bool(self.waiting) or len(self.running) >= self.server.batch
        return int(max(min(ends, (self.host.quiet_until(now, full) - now) / step), 1))

    def _finish(self, now: float, wanted: range) -> int:
        """End the requests whose last token a pass brought; return how many of them are wanted."""
        counted = 0
        while self.running and self.running[0][0] <= self.passes:
            _, number, sent, first = heapq.heappop(self.running)
            request = self.asked.pop(number)
            self.rows -= request.row
            self.held -= request.blocks
            self.answers[number] = Answer(sent, first, now, request.output)
            counted += number in wanted
            self.freed.append(self.passes)
            self.on_done(now, number)
        if not self.running:
            self.rows = 0.0  # sums of floats leave a rest
            if not self.waiting:
                self.freed.clear()  # passes without requests take no time
        return counted


def simulate_closed_loop(
    server: SimulatedServer, turns: Sequence[Sequence[SimulatedRequest]], clients: int
) -> LoadFigures:
    """Return the figures with ``clients`` requests always in flight.

    ``turns`` holds, for each turn of a conversation, requests that are equally likely; each client begins at another
    turn. By Little's law the rate is the number of clients over the mean latency.
    """
    count = min(max(ROUNDS * clients, LEAST), max(MOST, clients))
    drawn = [draws(turn, SEED + place) for place, turn in enumerate(turns)]
    turn_of: dict[int, int] = {}
    numbers = iter(range(2**31))

    def send(at: float, turn: int) -> None:
        number = next(numbers)
        turn_of[number] = turn
        simulation.send(at, number, next(drawn[turn]))

    simulation = _Simulation(server, lambda at, number: send(at, (turn_of.pop(number) + 1) % len(turns)))
    for client in range(clients):
        send(0.0, client % len(turns))
    answers = simulation.answer(range(clients, clients + count))
    latency = Quantiles.of(answer.done - answer.sent for answer in answers)
    return _summarise(answers, latency, 1e3 * clients / latency.mean)


def simulate_arrivals(
    server: SimulatedServer,
    turns: Sequence[Sequence[SimulatedRequest]],
    gaps_ms: Iterator[float],
    offered: float,
    counted: int = OPEN_REQUESTS,
) -> LoadFigures:
    """Return the figures where requests arrive after ``gaps_ms``, ``offered`` requests/s in the mean.

    They come however many wait, of all turns alike; ``counted`` of them count.
    """
    before = counted // 4
    drawn = [draws(turn, SEED + place) for place, turn in enumerate(turns)]
    times = enumerate(islice(accumulate(gaps_ms), before + counted))
    answers = answer_arrivals(server, [(at, next(drawn[number % len(turns)])) for number, at in times])[before:]
    span = max(answer.done for answer in answers) - answers[0].sent
    median = Quantiles.of(answer.done - answer.sent for answer in answers).p50
    # The last ones take their latency after they came; a server that keeps up ends soon after.
    return _summarise_open(answers, offered, answers[-1].sent - answers[0].sent >= KEEPS_UP * (span - median))


def simulate_replay(
    server: SimulatedServer, arrivals: Sequence[tuple[float, SimulatedRequest]], offered: float
) -> LoadFigures:
    """Return the figures where requests come at these ms, ascending, to an idle server; all count.

    It is overloaded if late ones all wait longer than early ones, by more than the time that it is behind.
    """
    answers = answer_arrivals(server, arrivals)
    waits = [answer.first - answer.sent for answer in answers]
    behind = min(waits[-max(len(waits) // 4, 1) :]) - min(waits)
    return _summarise_open(answers, offered, behind <= (1 - KEEPS_UP) * (arrivals[-1][0] - arrivals[0][0]))


def answer_sequence(server: SimulatedServer, requests: Sequence[SimulatedRequest], clients: int) -> Sequence[Answer]:
    """Return the answers to requests that clients take in order: each takes the next one when it has its answer."""
    left = iter(enumerate(requests))

    def send(at: float, _number: int = 0) -> None:
        for number, request in islice(left, 1):
            simulation.send(at, number, request)

    simulation = _Simulation(server, send)
    for _ in range(clients):
        send(0.0)
    return simulation.answer(range(len(requests)))


def answer_arrivals(server: SimulatedServer, arrivals: Sequence[tuple[float, SimulatedRequest]]) -> Sequence[Answer]:
    """Return the answers to requests that come at these ms, ascending, to an idle server."""
    simulation = _Simulation(server, lambda _at, _number: None)
    for number, (at, request) in enumerate(arrivals):
        simulation.send(at, number, request)
    return simulation.answer(range(len(arrivals)))


def _summarise_open(answers: Sequence[Answer], offered: float, keeps_up: bool) -> LoadFigures:
    ends = sorted(answer.done for answer in answers)
    # A backlog of earlier requests is no time of its own.
    rate = offered if keeps_up else 1e3 * (len(ends) - 1) / (ends[-1] - ends[0])
    return _summarise(answers, Quantiles.of(answer.done - answer.sent for answer in answers), rate, keeps_up)


def _summarise(answers: Sequence[Answer], latency: Quantiles, rps: float, keeps_up: bool = True) -> LoadFigures:
    several = [answer for answer in answers if answer.output > 1]
    gaps = [(answer.done - answer.first) / (answer.output - 1) for answer in several] or [0.0]
    tokens = math.fsum(answer.output for answer in answers) / len(answers)
    ttft = Quantiles.of(answer.first - answer.sent for answer in answers)
    return LoadFigures(ttft, Quantiles.of(gaps), latency, rps, rps * tokens, keeps_up)
