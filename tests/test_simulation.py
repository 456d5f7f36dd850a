"""The simulated server against one that works single passes, cases by hand and queueing theory."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from itertools import accumulate, count
from operator import itemgetter
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recommender.estimate import sampling
from recommender.estimate.closed_loop import ServiceTimes
from recommender.estimate.scheduler import alternating, host_loop, simulation
from recommender.estimate.scheduler.passes import SimulatedRequest, SimulatedServer
from recommender.estimate.scheduler.simulation import Quantiles

Times: TypeAlias = tuple[float, float, float]
"""When a request was sent, had its first token and its last, in ms."""
Client: TypeAlias = tuple[float, Sequence[SimulatedRequest]]
"""When a client sends its first request, and all that it sends, one after another."""
Follow: TypeAlias = Callable[[int], SimulatedRequest | None]
"""From the number of an answered request to what its client sends next."""


class Coarse(random.Random):
    """Chance in sixteenths: sums and products of such numbers have no rounding errors, so results compare exactly."""

    def uniform(self, a: float, b: float) -> float:
        """One of 17 values from a to b."""
        return a + round(16 * self.random()) / 16 * (b - a)


def server(
    step: float = 10.0,
    base: float = 0.0,
    overhead: float = 0.0,
    experts: float = 0.0,
    chunk: float = 0.0,
    **limits: int,
) -> SimulatedServer:
    """A server of ``step`` ms a pass of which ``base`` cannot be hidden, otherwise without limits and overheads."""
    times = ServiceTimes(0.0, 0.0, step, 0.0, 0.0, step - base, 4 * experts, 0.5, 1.0, 2 * experts)
    limits = {"budget": 8192, "batch": 64, "kv_tokens": 0} | limits
    return SimulatedServer(overhead, base, **limits, times=times, chunk=chunk)


def request(output: int = 1, prefill: float = 1.0, tokens: int = 16, **changed: float) -> SimulatedRequest:
    """A request that nothing prepares and that adds nothing to a step, unless it is said."""
    return SimulatedRequest(changed.get("prepare", 0.0), prefill, tokens, tokens, output, changed.get("row", 0.0))


# --- one pass after another --------------------------------------------------------------


@dataclass(eq=False)
class Naive:
    """A request on its way."""

    number: int
    sent: float
    ready: float
    asked: SimulatedRequest
    left: int
    given: int = 0
    first: float = math.nan
    turns: int = host_loop.TURNS

    @property
    def size(self) -> int:
        """Tokens of KV cache that it needs: new ones, and those that it reuses."""
        return self.asked.reused + self.asked.new_tokens + self.asked.output

    @property
    def held(self) -> int:
        """Tokens of KV cache, from the begin of the prefill on."""
        return self.size if self.left < self.asked.new_tokens else 0


class NaiveServer:
    """Works every pass by itself, by the rules of the module's docstring."""

    def __init__(self, place: SimulatedServer, follow: Follow, chance: random.Random) -> None:
        self.place, self.follow, self.chance = place, follow, chance
        self.outside: list[Naive] = []
        self.line: list[Naive] = []
        self.running: list[Naive] = []
        self.slots: list[int] = []  # passes that brought a last token; the slot is taken for two more
        self.answers: dict[int, Times] = {}
        self.numbers, self.thread, self.now, self.decided, self.passes = count(), 0.0, 0.0, 0.0, 0
        self.written = self.opens_at = 0.0

    def send(self, at: float, asked: SimulatedRequest) -> None:
        self.thread = max(self.thread, at) + asked.prepare
        ready = self.thread + self.place.overhead * self.chance.uniform(*host_loop.JITTER)
        self.outside.append(Naive(next(self.numbers), at, ready, asked, asked.new_tokens))

    def run(self, wanted: range) -> list[Times]:
        """When the wanted requests were sent, had their first token and their last."""
        while not all(number in self.answers for number in wanted):
            self.slots = [ended for ended in self.slots if ended > self.passes - 2]
            for one in sorted(self.outside, key=lambda one: (one.ready, one.number)):
                taken = len(self.line) + len(self.running) + len(self.slots)
                comes = max(one.ready, self.opens_at)
                if comes <= self.decided and taken < self.place.batch:
                    self.opens_at = comes + self.place.spacing
                    self.outside.remove(one)
                    self.line.append(one)
            if self.line or self.running:
                self.work()
            else:
                self.now = self.decided = max(self.now, self.next_ready())
        return [self.answers[number] for number in wanted]

    def next_ready(self) -> float:
        """When the first of those on their way may reach the engine."""
        return max(min(one.ready for one in self.outside), self.opens_at)

    def work(self) -> None:
        """Work one pass."""
        decoding = tuple(self.running)
        spent, goes_on, begun = self.fill()
        spent += self.place.times.expert_pass if spent else 0.0  # once a pass, however many prompts it holds
        plain, rows = self.place.times.step(len(decoding)), sum(one.asked.row for one in decoding)
        if decoding:
            length = rows + (self.place.pass_base + max(spent, plain - self.place.pass_base) if spent else plain)
        else:  # a prompt's time holds the launches of one pass
            length = max(spent + self.place.pass_base * goes_on, self.place.times.step(1))
        began, self.now, self.passes = self.now, self.now + length, self.passes + 1
        for one in (*decoding, *begun):
            one.given += 1
        written = self.write(len(decoding) + len(begun))
        for one in begun:
            one.first = written
        self.running += begun
        ended = [one for one in sorted(self.running, key=lambda one: one.number) if one.given == one.asked.output]
        for one in ended:
            self.running.remove(one)
            self.slots.append(self.passes)
            self.answers[one.number] = (one.sent, one.first, written)
            if (then := self.follow(one.number)) is not None:
                self.send(written, then)
        self.decided = began
        if not self.line and not self.running:  # passes without requests take no time
            self.decided = self.now
            self.slots.clear()

    def write(self, streams: int) -> float:
        """When the loop has written a pass's tokens. What comes in before that waits for the rest of it."""
        self.written = max(self.now + self.place.chunk * streams, self.written)
        for one in self.outside:
            if one.turns and one.sent <= self.written and self.now < one.ready:
                one.ready += self.written - max(one.sent, self.now)
                one.turns -= self.written > self.now
        return self.written

    def fill(self) -> tuple[float, bool, list[Naive]]:
        """Prefill those in line; the ms of arithmetic, whether a cut prompt goes on, and those whose prompt ends."""
        begun: list[Naive] = []
        room, spent, goes_on = self.place.budget + self.place.batch - len(self.running), 0.0, False
        whole = 0
        for one in tuple(self.line):
            if whole and self.place.contexts and whole + one.asked.context > self.place.contexts:
                break
            whole += one.asked.context
            full = sum(other.held for other in (*self.running, *self.line, *begun))
            if one.held:
                goes_on = True
                spent += one.asked.encoded_again
            elif self.place.kv_tokens and full and full + one.size > self.place.kv_tokens:
                break
            part = min(room, one.left)
            room, one.left = room - part, one.left - part
            spent += one.asked.prefill * part / one.asked.new_tokens
            if one.left:
                break
            begun.append(self.line.pop(0))
        return spent, goes_on, begun


class NaiveTurns(NaiveServer):
    """Works every pass by itself, where prompts and decoding take turns: see ``alternating``."""

    decoded, parted = 0, False

    def work(self) -> None:
        """Work one pass."""
        if not self.line:
            self.decoded = 0
        begun = self.prompts() if self.line and self.is_prompts_turn() else None
        began = self.now
        if begun is None:
            streams = list(self.running)
            self.now += self.place.times.step(len(streams)) + sum(one.asked.row for one in streams)
            self.decoded, self.parted = self.decoded + bool(self.line), False
        else:
            spent, streams = begun
            self.now += max(spent + self.place.times.expert_pass, self.place.times.step(1))
            self.decoded = 0
        self.passes += 1
        for one in streams:
            one.given += 1
        written = self.write(len(streams))
        for one in streams if begun else ():
            one.first = written
            self.running.append(one)
        for one in sorted(self.running, key=lambda one: one.number):
            if one.given == one.asked.output:
                self.running.remove(one)
                self.slots.append(self.passes)
                self.answers[one.number] = (one.sent, one.first, written)
                if (then := self.follow(one.number)) is not None:
                    self.send(written, then)
        self.decided = began
        if not self.line and not self.running:
            self.decided = self.now
            self.slots.clear()

    def is_prompts_turn(self) -> bool:
        """Few run, much waits, decoding had its passes, or a prompt goes on after one of these."""
        enough = sum(one.left for one in self.line) >= self.place.budget
        few = 2 * len(self.running) < self.place.batch
        goes_on = bool(self.line[0].held)
        return not self.running or (not self.parted and (goes_on or few or enough or self.decoded >= self.place.rounds))

    def prompts(self) -> tuple[float, list[Naive]] | None:
        """Whole prompts that fit, or a part of one that is too long; None if the cache has no room for the first."""
        room, spent, begun = self.place.budget, 0.0, []
        for one in tuple(self.line):
            full = sum(other.held for other in (*self.running, *self.line, *begun))
            goes_on = bool(one.held)
            if begun and one.left > room:
                break
            if not goes_on and self.place.kv_tokens and full and full + one.size > self.place.kv_tokens:
                break
            part = min(room, one.left)
            room, one.left = room - part, one.left - part
            spent += one.asked.prefill * part / one.asked.new_tokens
            if one.left:
                self.parted = True
                break
            begun.append(self.line.pop(0))
            if goes_on:
                break
        return (spent, begun) if spent or begun else None


class NaiveShared(NaiveTurns):
    """As above, where a thread prepares slower while tokens are written: its work is counted down pass by pass."""

    def __init__(self, place: SimulatedServer, follow: Follow, chance: random.Random) -> None:
        super().__init__(place, follow, chance)
        self.work_left: dict[Naive, list[float]] = {}

    def send(self, at: float, asked: SimulatedRequest) -> None:
        one = Naive(next(self.numbers), at, math.inf, asked, asked.new_tokens)
        self.outside.append(one)
        self.work_left[one] = [asked.prepare, self.place.overhead * self.chance.uniform(*host_loop.JITTER)]

    def pass_time(self, since: float, until: float, rate: float) -> None:
        """Count down what is prepared, one after another, and then what each needs beside the thread."""
        free = since
        for one in sorted(self.work_left, key=lambda one: (one.sent, one.number)):
            left, begun = self.work_left[one], max(free, one.sent)
            for stage in (0, 1):
                took = min(left[stage] / rate, max(until - begun, 0.0))
                left[stage] -= took * rate
                begun += took
                if left[stage] > 1e-12:
                    break
                if not stage:
                    free = begun
            else:
                one.ready = begun
                del self.work_left[one]
                continue
            if left[0] > 1e-12:
                return

    def next_ready(self) -> float:
        """When the first is ready if no pass runs until then; the thread's work is counted down to that time."""
        kept = {one: list(left) for one, left in self.work_left.items()}
        self.pass_time(self.now, math.inf, 1.0)
        at = super().next_ready()
        for one in kept:
            one.ready = math.inf
        self.work_left = kept
        self.pass_time(self.now, at + 1e-9, 1.0)
        return at + 1e-9

    def prompts(self) -> tuple[float, list[Naive]] | None:
        """As above; such a pass holds up nothing."""
        begun = super().prompts()
        self.held_up = begun is None
        return begun

    def work(self) -> None:
        """Work one pass."""
        began, running, self.held_up = self.now, len(self.running), True
        super().work()
        share = min(self.place.lock_per_token * running / (self.now - began), alternating.MOST_HELD)
        self.pass_time(began, self.now, 1 - share * self.held_up)


class Jumping:
    """The module's own simulation, as the naive one is called."""

    def __init__(self, place: SimulatedServer, follow: Follow, chance: random.Random) -> None:
        self.follow, self.numbers = follow, count()
        self.made = simulation.start(place, self.done)
        self.made.host.chance = chance

    def send(self, at: float, asked: SimulatedRequest) -> None:
        self.made.send(at, next(self.numbers), asked)

    def done(self, at: float, number: int) -> None:
        if (then := self.follow(number)) is not None:
            self.send(at, then)

    def run(self, wanted: range) -> list[Times]:
        return [(answer.sent, answer.first, answer.done) for answer in self.made.answer(wanted)]


def play(
    kind: type[NaiveServer | Jumping], place: SimulatedServer, clients: Sequence[Client], chance: random.Random
) -> list[Times]:
    """The times of all requests, in the order of sending; clients are in the order of their first request."""
    owners, rest = list(range(len(clients))), [iter(asked[1:]) for _, asked in clients]

    def follow(number: int) -> SimulatedRequest | None:
        after = next(rest[owners[number]], None)
        owners.extend([owners[number]] if after else [])
        return after

    made = kind(place, follow, chance)
    for at, asked in clients:
        made.send(at, asked[0])
    return made.run(range(sum(len(asked) for _, asked in clients)))


def quarters(low: int, high: int) -> st.SearchStrategy[float]:
    """Multiples of a quarter: exact in binary."""
    return st.integers(4 * low, 4 * high).map(lambda whole: whole / 4)


REQUESTS = st.builds(
    SimulatedRequest,
    prepare=quarters(0, 3) | quarters(0, 40),
    prefill=quarters(1, 60),
    new_tokens=st.sampled_from([1, 4, 16, 64]),
    context=st.just(64),
    output=st.integers(1, 5) | st.integers(1, 60),
    row=quarters(0, 2),
    reused=st.sampled_from([0, 0, 11, 64]),
    encoded_again=st.just(0.0),
)
SERVERS = st.builds(
    server,
    step=quarters(5, 20),
    base=quarters(0, 5),
    experts=quarters(0, 2),
    overhead=quarters(0, 30),
    chunk=st.just(0.0) | quarters(0, 4),
    budget=st.sampled_from([1, 7, 16, 40, 500]),
    batch=st.sampled_from([1, 2, 3, 8]),
    kv_tokens=st.sampled_from([0, 0, 20, 90, 200]),
    contexts=st.sampled_from([0, 0, 40, 100, 150]),
)
WITH_IMAGES = st.builds(lambda asked, again: asked._replace(encoded_again=again), REQUESTS, quarters(0, 9))


def clients(requests: st.SearchStrategy[SimulatedRequest]) -> st.SearchStrategy[list[Client]]:
    """Up to seven clients, in the order of their first request."""
    each = st.tuples(quarters(0, 5) | quarters(0, 300), st.lists(requests, min_size=1, max_size=4).map(tuple))
    return st.lists(each, min_size=1, max_size=7).map(lambda all_: sorted(all_, key=itemgetter(0)))


ONE = SimulatedRequest(prepare=0.0, prefill=1.0, new_tokens=1, context=64, output=1, row=0.0)
# The writing of passes in which nobody gets blocks delays the client that comes at 30.5.
BLOCKED: list[Client] = [
    (0.0, (ONE, ONE)),
    (0.0, (ONE._replace(new_tokens=4, output=2), ONE, ONE)),
    *((0.0, (ONE,) * count) for count in (4, 1, 1)),
    (0.0, (ONE._replace(output=14),)),
    (30.5, (ONE,)),
]
# While a prompt takes several passes, their writing delays the client that comes at 50.5, pass by pass.
DELAYED: list[Client] = [
    (0.0, (ONE._replace(output=40),)),
    (1.0, (ONE._replace(new_tokens=16, prefill=4.0),)),
    (50.5, (ONE,)),
]


@example(server(step=5.0, base=0.0, experts=0.0, overhead=0.25, chunk=0.25, budget=1, batch=3, kv_tokens=20), BLOCKED)
@example(server(overhead=16.0, chunk=4.0, budget=2, batch=4), DELAYED)
@given(SERVERS, clients(WITH_IMAGES))
@settings(max_examples=300)
def test_a_jump_over_passes_is_exact(place: SimulatedServer, clients: list[Client]) -> None:
    """Every request has its tokens at the very times that a simulation of single passes finds."""
    assert play(Jumping, place, clients, Coarse(1)) == play(NaiveServer, place, clients, Coarse(1))


@given(
    SERVERS,
    clients(REQUESTS),
    st.integers(1, 16),
)
@settings(max_examples=300)
def test_a_jump_over_passes_that_take_turns_is_exact(
    place: SimulatedServer, clients: list[Client], rounds: int
) -> None:
    """As above, where a pass holds prompts or decoding."""
    place = replace(place, rounds=rounds)
    assert play(Jumping, place, clients, Coarse(1)) == play(NaiveTurns, place, clients, Coarse(1))


@given(st.integers(0, 2**32), st.integers(1, 16), st.sampled_from([1, 3, 8]))
@settings(max_examples=200)
def test_a_jump_over_passes_that_hold_up_the_preparing_thread_is_exact(seed: int, rounds: int, batch: int) -> None:
    """As above, where writing a step's tokens costs time to prepare, and prompts come apart; no two times are alike."""
    chance = random.Random(seed)

    def asked() -> SimulatedRequest:
        times = chance.uniform(0, 60), chance.uniform(1, 60), chance.randint(1, 64), 64, chance.randint(1, 40)
        return SimulatedRequest(*times, chance.uniform(0, 2))

    place = replace(
        server(chance.uniform(5, 20), overhead=chance.uniform(0, 30), batch=batch, budget=100),
        rounds=rounds,
        lock_per_token=chance.uniform(0.1, 5),
        spacing=chance.choice([0.0, chance.uniform(0, 80)]),
    )
    if chance.random() < 0.5:
        clients = [(0.0, tuple(asked() for _ in range(chance.randint(1, 5)))) for _ in range(chance.randint(1, 7))]
    else:
        clients = [(at, (asked(),)) for at in sorted(chance.uniform(0, 600) for _ in range(chance.randint(1, 20)))]
    answers = zip(
        play(Jumping, place, clients, random.Random(1)),
        play(NaiveShared, place, clients, random.Random(1)),
        strict=True,
    )
    assert all(one == pytest.approx(other, abs=1e-5) for one, other in answers)


@given(SERVERS, st.lists(REQUESTS, min_size=2, max_size=12), quarters(0, 50))
@settings(max_examples=150)
def test_no_more_at_once_than_batch_and_cache_hold(
    place: SimulatedServer, asked: list[SimulatedRequest], gap: float
) -> None:
    """From each first to each last token; a request that is too long for the cache has it alone."""
    answers = play(Jumping, place, [(gap * number, [one]) for number, one in enumerate(asked)], random.Random(1))
    for _, now, _ in answers:
        pairs = zip(asked, answers, strict=True)
        inside = [one.reused + one.new_tokens + one.output for one, (_, first, done) in pairs if first <= now < done]
        assert len(inside) <= place.batch
        assert not place.kv_tokens or len(inside) < 2 or sum(inside) <= place.kv_tokens


@given(st.integers(1, 60), st.integers(1, 12), st.integers(50, 200), st.integers(1, 30))
@settings(max_examples=60)
def test_first_tokens_come_in_the_order_of_sending(clients: int, output: int, tokens: int, batch: int) -> None:
    """First come, first served, where all have the same overhead; whoever waits."""
    chance = random.Random(clients)
    asked = [request(chance.randint(1, output), 3.0, tokens, prepare=chance.random()) for _ in range(clients)]
    sent = [(float(number), [one]) for number, one in enumerate(asked)]
    firsts = [first for _, first, _ in play(Jumping, server(budget=100, batch=batch), sent, chance)]
    assert firsts == sorted(firsts)


# --- by hand -----------------------------------------------------------------------------


def tokens(place: SimulatedServer, *sent: tuple[float, SimulatedRequest]) -> list[tuple[float, ...]]:
    """When each request had its first and its last token."""
    return [answer[1:] for answer in play(Jumping, place, [(at, [one]) for at, one in sent], random.Random(1))]


@pytest.mark.parametrize(("prefill", "first"), [(30.0, 30.0), (4.0, 12.0)])
def test_one_request_alone(prefill: float, first: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Overhead, preparing, prefill and a step a token; a pass reads all weights, so none is shorter than a step."""
    monkeypatch.setattr(host_loop, "JITTER", (1.0, 1.0))
    asked = request(5, prefill, prepare=3.0, row=0.5)
    found = simulation.simulate_closed_loop(server(12.0, overhead=7.0), [[asked]], 1)
    assert found.ttft == Quantiles(*[7 + 3 + first] * 4)
    assert found.tpot == Quantiles(*[12.5] * 4)
    assert found.latency == Quantiles(*[7 + 3 + first + 4 * 12.5] * 4)
    assert found.rps == pytest.approx(1e3 / (10 + first + 50), rel=1e-12)
    assert found.tokens == pytest.approx(5e3 / (10 + first + 50), rel=1e-12)


def test_tokens_come_when_all_streams_are_written() -> None:
    """A ms a stream: alone, 1 after passes that end at 10 and 30; of two, 2 after those at 10 and 20."""
    assert tokens(server(10.0, chunk=1.0), (0.0, request(3))) == [(11, 31)]
    assert tokens(server(10.0, chunk=1.0), (0.0, request(2)), (0.0, request(2))) == [(12, 22), (12, 22)]


def test_requests_reach_the_engine_apart() -> None:
    """40 ms apart: those at 0 enter at 0, 40 and 80, that at 100 at 120, that at 300 at once."""
    sent = [(at, request(1)) for at in (0.0, 0.0, 0.0, 100.0, 300.0)]
    firsts = [first for first, _ in tokens(replace(server(10.0), spacing=40.0, rounds=16), *sent)]
    assert firsts == [10, 50, 90, 130, 310]


def test_a_request_on_its_way_waits_for_what_is_written() -> None:
    """Ready at 19 it is in the pass of 30 to 40; writing after 10 makes that 21, too late: the pass of 40 to 50."""
    both = (0.0, request(9)), (9.0, request(2, prepare=10.0))
    assert tokens(server(10.0), *both) == [(10, 90), (40, 50)]
    assert tokens(server(10.0, chunk=2.0), *both) == [(12, 92), (54, 64)]


def test_a_request_waits_for_four_turns_of_the_loop_at_most() -> None:
    """Written for 20 after each pass of 10; ready at 11, 31, 51, 71, then 91: the pass of 110 to 120, two streams."""
    both = (0.0, request(30)), (5.0, request(1, prepare=6.0))
    assert tokens(server(10.0, chunk=20.0), *both)[1] == (160, 160)


def test_a_request_that_comes_while_tokens_are_written_waits_for_the_rest() -> None:
    """Sent at 13 and ready at 19; the token of the pass to 10 is written until 16, so 22: seen at 30, not at 20."""
    both = (0.0, request(9)), (13.0, request(1, prepare=6.0))
    assert tokens(server(10.0), *both)[1] == (40, 40)
    assert tokens(server(10.0, chunk=6.0), *both)[1] == (62, 62)


def test_a_request_waits_for_the_rest_of_a_pass_and_for_another() -> None:
    """Ready at 12, it is seen as the pass of 20 to 30 begins, and so is in the one of 30 to 40."""
    assert tokens(server(10.0), (0.0, request(9)), (12.0, request(2))) == [(10, 90), (40, 50)]


def test_a_slot_is_free_two_passes_after_the_last_token() -> None:
    """The second ends with the third pass, so the third request is in the sixth. Prefills of 1 ms hide a step of 1."""
    assert tokens(server(1.0, batch=2), *((0.0, request(output)) for output in (10, 3, 2))) == [(2, 11), (2, 4), (7, 8)]


def test_a_slot_is_not_free_sooner_because_only_a_prompt_is_left() -> None:
    """The first ends with the second pass. The third request is not in the third pass, with the rest of the second's
    prompt: it comes after that, when the engine was idle. Passes: 10 tokens + 2, 10 + 1 and 7; a token takes 1 ms.
    """
    asked = ((0.0, request(2, 10.0, 10)), (0.0, request(1, 20.0, 20)), (0.0, request(1, 3.0, 3)))
    assert tokens(server(1.0, budget=10, batch=2), *asked) == [(12, 23), (30, 30), (33, 33)]


def test_a_cut_prompt_by_hand() -> None:
    """A prompt of 40 tokens and 40 ms over passes of 16: 16, 16, 8; each further pass adds what is not hidden."""
    assert tokens(server(10.0, 2.0, budget=15, batch=1), (0.0, request(1, 40.0, 40))) == [(16 + 18 + 10, 44)]


def test_images_of_a_cut_prompt_are_encoded_again() -> None:
    """As above, with 7 ms more in each further pass."""
    asked = request(1, 40.0, 40)._replace(encoded_again=7.0)
    assert tokens(server(10.0, 2.0, budget=15, batch=1), (0.0, asked)) == [(16 + 25 + 17, 58)]


def test_a_prompt_hides_the_reading_of_weights() -> None:
    """The second prompt's pass takes its prefill and the 2 ms that nothing hides, or the step if that is longer."""
    for prefill, length in ((30.0, 32.0), (3.0, 10.0)):
        found = tokens(server(10.0, 2.0), (0.0, request(4, 10.0)), (5.0, request(1, prefill)))
        assert found == [(10, 20 + length + 10), (20 + length, 20 + length)]


def test_a_pass_is_no_longer_for_decoding_less() -> None:
    """The rest of a cut prompt and a whole one share a pass, and the reading of weights: 10 ms, or 2 + 1 + 20."""
    cut, whole = request(1, 17.0, 17), request(1, 20.0, 10)
    assert tokens(server(10.0, 2.0, budget=14, batch=2), (0.0, cut), (0.0, whole)) == [(16 + 23, 39), (39, 39)]


def test_a_cache_for_one_serves_one_after_the_other() -> None:
    """Three requests of 16 + 4 tokens, room for 39: each begins the pass after the one before it ended."""
    assert tokens(server(1.0, kv_tokens=39), *[(0.0, request(4))] * 3) == [(1, 4), (5, 8), (9, 12)]


# --- a trace -----------------------------------------------------------------------------


@given(st.lists(st.tuples(quarters(0, 60), st.integers(1, 12), st.integers(1, 90)), min_size=2, max_size=40))
@settings(max_examples=40)
def test_a_replay_is_the_naive_one(gaps: list[tuple[float, int, int]]) -> None:
    """Requests with their own arrivals and lengths, in their order; each is answered and counted."""
    place = server(8.0, 1.5, 3.0, batch=3, budget=50)
    times = accumulate(gap for gap, *_ in gaps)
    arrivals = [(at, request(out, 0.25 * new, new, prepare=0.5)) for at, (_, out, new) in zip(times, gaps, strict=True)]
    naive = NaiveServer(place, lambda _number: None, random.Random(sampling.SEED))
    for at, each in arrivals:
        naive.send(at, each)
    sent, first, done = np.array(naive.run(range(len(arrivals)))).T
    found = simulation.simulate_replay(place, arrivals, 1.0)
    for quantiles, spent in ((found.ttft, first - sent), (found.latency, done - sent)):
        ranks = np.quantile(spent, [0.5, 0.9, 0.99], method="inverted_cdf")
        assert astuple(quantiles) == pytest.approx((spent.mean(), *ranks), rel=1e-9)


@pytest.mark.parametrize(("gap", "rate", "keeps_up"), [(20.0, 50, True), (11.0, 1e3 / 11, True), (5.0, 100, False)])
def test_a_replay_above_capacity(gap: float, rate: float, keeps_up: bool) -> None:
    """A hundred answers of one pass of 10 ms each, one at a time: more than 100 a second fall behind."""
    arrivals = [(gap * place, request(1, 10.0)) for place in range(100)]
    found = simulation.simulate_replay(server(10.0, batch=1), arrivals, 1e3 / gap)
    assert found.keeps_up is keeps_up
    assert found.rps == pytest.approx(rate, rel=0.02)


def test_a_long_last_answer_is_no_overload() -> None:
    """Ten short answers and one of a thousand passes, which ends long after they came."""
    arrivals = [(20.0 * place, request(2, 1.0)) for place in range(10)] + [(200.0, request(1000, 1.0))]
    assert simulation.simulate_replay(server(10.0), arrivals, 50.0).keeps_up


# --- closed loops ------------------------------------------------------------------------


def in_conversation(place: SimulatedServer, turns: Sequence[SimulatedRequest], begins: Sequence[int]) -> NaiveServer:
    """A naive server with a client for each first turn, which sends turn after turn, again and again."""
    turn_of = dict(enumerate(begins))

    def follow(number: int) -> SimulatedRequest:
        turn_of[len(turn_of)] = turn = (turn_of[number] + 1) % len(turns)
        return turns[turn]

    naive = NaiveServer(place, follow, random.Random(sampling.SEED))
    for turn in begins:
        naive.send(0.0, turns[turn])
    return naive


@pytest.mark.parametrize(("clients", "batch", "kv"), [(1, 8, 0), (5, 8, 0), (24, 8, 0), (20, 64, 900)])
def test_a_closed_loop_is_the_naive_one(clients: int, batch: int, kv: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turn after turn of each client, of which four are left out. Clients over latency are the answers in a span."""
    monkeypatch.setattr(simulation, "ROUNDS", 40)
    place = server(8.0, 1.5, 3.0, batch=batch, budget=100, kv_tokens=kv)
    turns = [request(30, 11.0 + 7 * turn, 80 + 64 * turn, prepare=0.7, row=0.05) for turn in range(3)]
    naive = in_conversation(place, turns, [math.floor(3 * client / clients) for client in range(clients)])
    count = 3 * math.ceil(max(100, 40 * clients) / 3)
    sent, first, done = np.array(naive.run(range(4 * clients, 4 * clients + count))).T
    found = simulation.simulate_closed_loop(place, [[turn] for turn in turns], clients)
    pairs = ((found.ttft, first - sent), (found.tpot, (done - first) / 29), (found.latency, done - sent))
    for quantiles, times in pairs:
        ranks = np.quantile(times, [0.5, 0.9, 0.99], method="inverted_cdf")
        # Not exact: times of many passes are a product here and a sum there.
        assert astuple(quantiles) == pytest.approx((times.mean(), *ranks), rel=1e-9)
    assert found.rps == pytest.approx(1e3 * clients / (done - sent).mean(), rel=1e-9)
    # Of 40 rounds one is cut by the span's begin and end.
    assert found.rps == pytest.approx(1e3 * (len(done) - 1) / (done.max() - done.min()), rel=1 / 40)
    assert found.tokens == pytest.approx(30 * found.rps, rel=1e-9)


@pytest.mark.parametrize(("clients", "budget"), [(4, 2048), (16, 2048), (48, 2048), (48, 8192)])
def test_a_short_loop_is_a_long_one(clients: int, budget: int) -> None:
    """Long prompts with short answers, as of code completion: all start at once, and what they then do fades.

    The rate is that of 2,500 answers after 1,000 of a server that draws each length alone.
    """
    chance = random.Random(3)
    lengths = [(round(chance.lognormvariate(7.3, 0.9)), round(chance.lognormvariate(2.6, 1.1))) for _ in range(50)]
    asked = [request(out + 1, 0.04 * new, new + 1, prepare=0.7, row=new * 1e-5) for new, out in lengths]
    place = server(6.0, 0.5, 1.0, batch=64, budget=budget)
    naive = NaiveServer(place, lambda _number: chance.choice(asked), random.Random(sampling.SEED))
    for _ in range(clients):
        naive.send(0.0, chance.choice(asked))
    done = sorted(end for _, _, end in naive.run(range(4000)))
    found = simulation.simulate_closed_loop(place, [asked], clients)
    assert found.rps == pytest.approx(1e3 * 2500 / (done[3500] - done[1000]), rel=0.03)


@pytest.mark.parametrize("clients", [4, 8])
def test_a_long_conversation_has_its_mean_turn(clients: int) -> None:
    """Fewer clients than turns: the later turns, whose prompts are longer, count as much as the first ones."""
    turns = [request(10, 5.0 * turn, 10 + turn) for turn in range(1, 31)]
    place = server(6.0, batch=8, budget=10**6)
    naive = in_conversation(place, turns, [random.Random(client).randrange(30) for client in range(clients)])
    done = sorted(end for _, _, end in naive.run(range(3000)))
    found = simulation.simulate_closed_loop(place, [[turn] for turn in turns], clients)
    assert found.rps == pytest.approx(1e3 * 2400 / (done[2800] - done[400]), rel=0.03)


@given(st.integers(1, 37), st.integers(1, 20), st.integers(2, 40), quarters(0, 20), quarters(1, 40))
@settings(max_examples=25)
def test_no_station_serves_too_many(clients: int, batch: int, output: int, prepare: float, prefill: float) -> None:
    """One thread prepares, and each answer takes its passes beside as many others as the batch holds."""
    place, asked = server(8.0, 1.0, 2.0, batch=batch), request(output, prefill, prepare=prepare, row=0.25)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "ROUNDS", 40)
        found = simulation.simulate_closed_loop(place, [[asked]], clients)
    assert found.latency.p50 >= prepare + output * 8.0
    # A share of 1/40 is allowed: of 40 rounds counted one is cut by the span's begin and end.
    assert found.rps * max(prepare, (output - 1) * 8.0 / min(clients, batch)) <= 1e3 * (1 + 1 / 40)
