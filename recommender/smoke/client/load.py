"""Drive a load against chat-completion servers and record every request."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, count, islice
from typing import Any

from recommender.estimate.sampling import draws, gaps_of
from recommender.smoke.client.completion import BadCompletion
from recommender.smoke.client.conversation import Conversation
from recommender.smoke.client.http import Client, Reply, Shape, Target, open_session, picture_pools
from recommender.smoke.client.interruption import run_interruptible
from recommender.smoke.client.replay import Replay
from recommender.smoke.client.sizing import NUMBERS

__all__ = ["LoadPlan", "Outcome", "Shape", "Target", "drive", "run"]

TICK_S = 0.25
LONGER = 5
GIVE_UP = 6  # consecutive failures after which a client stops
SEED = 20  # for the arrivals


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A load's length: at a ``concurrency``, or where that is 0 arrivals at ``rps``.

    No request starts after ``seconds`` or once ``enough`` have ended (0: no limit); everything ends at ``limit_s``. A
    closed loop continues until each client has ``rounds`` answers, but at most LONGER times ``seconds``: fewer answers
    give no rate. Every ``stream_every``-th request streams to measure TTFT under load. ``burstiness`` is the
    coefficient of variation of the gaps between arrivals; 1 is Poisson. With ``arrivals_s``, seconds since the start,
    requests leave at these times instead.
    """

    concurrency: int
    rps: float
    seconds: float
    enough: int
    limit_s: float
    stream_every: int = 4
    rounds: int = 0
    burstiness: float = 1.0
    arrivals_s: tuple[float, ...] = ()

    @property
    def least(self) -> int:
        """Return the requests that must end before the clock may stop the load."""
        return self.rounds * self.concurrency


def random_arrivals(plan: LoadPlan) -> Iterator[float]:
    """Yield the seconds after which requests arrive at random.

    While the load lasts, as many arrive as its rate says. By chance alone 16 instead of 24 came in 6 s at 4
    requests/s, and the server seemed too slow. Given their number, Poisson arrivals are as random as any.
    """
    gaps = (gap / 1e3 for gap in gaps_of(plan.rps, plan.burstiness, SEED))
    lasts = min(plan.seconds, plan.enough / plan.rps) if plan.enough else plan.seconds
    *ends, whole = accumulate(islice(gaps, max(round(plan.rps * lasts), 1) + 1))
    yield from (end / whole * lasts for end in ends)
    yield from accumulate(gaps, initial=lasts)


@dataclass(slots=True)
class Outcome:
    """The result of a load.

    The window runs from the first send (open loop: from the start) until no request may start; it includes the
    ramp-up and excludes the drain. ``latencies_ms`` holds each success in the order of its end and ``ends_ms`` the
    end, from the first send; the first ``window_requests`` lie in the window. ``ttft_ms`` are of the streamed
    ones, whose places among all, from 0, are ``streamed``. ``tokens`` are input and output of each success,
    ``input_tokens`` and ``output_tokens`` their medians. ``failures`` maps a cause
    to its count and first message. ``begun_at`` and ``lost_at`` (sends of failed requests) are perf_counter times.
    ``late_ms`` is the largest delay of an open-loop send.
    """

    latencies_ms: list[float] = field(default_factory=list)
    ends_ms: list[float] = field(default_factory=list)
    window_s: float = 0.0
    window_requests: int = 0
    ttft_ms: list[float] = field(default_factory=list)
    streamed: list[int] = field(default_factory=list)
    tokens: list[tuple[int, int]] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    lost_at: list[float] = field(default_factory=list)
    begun_at: float = 0.0
    late_ms: float = 0.0
    sent: int = 0


class _Load:
    def __init__(self, client: Client, target: Target, shape: Shape, plan: LoadPlan) -> None:
        self.client, self.target, self.drawn, self.plan = client, target, shape.drawn, plan
        self.pairs = draws(self.drawn.pairs if self.drawn else [(0, 0)])
        # Clients begin at turns spread over a conversation, so that the load has all turns from its beginning. If the
        # context is limited, they begin at neighbouring turns: the tokens of an invented history are not known yet.
        drawn = shape.drawn if shape.drawn and not shape.drawn.max_context else None
        apart = drawn.turns // plan.concurrency if drawn and plan.concurrency else 1
        self.begun_talks, self.idle = count(step=max(apart, 1)), deque[Conversation]()
        self.replay = Replay(shape.drawn) if shape.drawn and shape.drawn.replay else None
        self.out = Outcome()
        self.ends: list[float] = []
        self.good = self.bad = self.streak = 0
        self.begun = time.perf_counter()
        self.first: float | None = None
        self.stopped: float | None = None
        self.busy, self.given = [0] * len(target.urls), [0] * len(target.urls)
        self.heard = [0.0] * len(target.urls)
        self.tasks: set[asyncio.Task[Any]] = set()

    def may_start(self) -> bool:
        """Return whether another request may start; the first False ends the window."""
        if self.stopped is None and time.perf_counter() >= self.until():
            self.stopped = self.until()
        return self.stopped is None

    def until(self) -> float:
        return self.begun + self.plan.seconds * (1 if self.good + self.bad >= self.plan.least else LONGER)

    def stop(self, now: float) -> None:
        """Start no more requests."""
        self.stopped = now if self.stopped is None else min(self.stopped, now)

    def free_conversation(self) -> Conversation | Replay | None:
        """Return the conversation that waits longest, else a new one; None if all requests are alike."""
        if self.drawn is None or self.replay:
            return self.replay
        return self.idle.popleft() if self.idle else Conversation(self.drawn, self.pairs, next(self.begun_talks))

    async def send_one(self) -> bool:
        """Send a request, record its result and return whether it succeeded."""
        which = min(range(len(self.busy)), key=lambda server: (self.busy[server], self.given[server]))
        self.out.sent += 1
        self.busy[which] += 1
        self.given[which] += 1
        every = self.plan.stream_every
        stream = every > 0 and self.out.sent % every == 0
        talk, number = self.free_conversation(), next(NUMBERS)
        body = self.client.body(number, stream, talk.ask(number) if talk else None)
        begun = time.perf_counter()
        self.first = begun if self.first is None else self.first

        def note_data() -> None:
            self.heard[which] = time.perf_counter()

        try:
            reply = await self.client.send(self.target.urls[which], body, stream, note_data)
            self.add_success(reply, stream)
            if talk:
                talk.hear(reply.input_tokens, reply.output_tokens, reply.text)
        except BadCompletion as trouble:
            if talk:
                talk.forget()
            self.add_failure(trouble)
            self.out.lost_at.append(begun)
            if trouble.cause == "requests-hang" and self.heard[which] <= begun:
                self.stop(time.perf_counter())  # no client got an answer meanwhile
            return False
        finally:
            self.busy[which] -= 1
            self.idle.extend([talk] if isinstance(talk, Conversation) else [])
        return True

    def add_success(self, reply: Reply, stream: bool) -> None:
        now = time.perf_counter()
        self.good, self.streak = self.good + 1, 0
        self.ends.append(now)
        self.out.tokens.append((reply.input_tokens, reply.output_tokens))
        self.out.latencies_ms.append(reply.ms)
        if stream:
            self.out.ttft_ms.append(reply.ttft_ms)
            self.out.streamed.append(len(self.out.latencies_ms) - 1)
        self.stop_if_enough(now)

    def add_failure(self, trouble: BadCompletion, times: int = 1) -> None:
        self.bad, self.streak = self.bad + times, self.streak + times
        count, message = self.out.failures.get(trouble.cause, (0, trouble.message))
        self.out.failures[trouble.cause] = (count + times, message)
        self.stop_if_enough(time.perf_counter())

    def stop_if_enough(self, now: float) -> None:
        """Stop once enough requests, or the awaited last one, have ended."""
        ended = self.good + self.bad
        late = ended == self.plan.least > 0 and now >= self.begun + self.plan.seconds
        if late or (self.plan.enough and ended >= self.plan.enough):
            self.stop(now)

    async def worker(self) -> None:
        """Keep one request in flight."""
        failed = 0
        while failed < GIVE_UP and self.may_start():
            good = self.good
            succeeded = await self.send_one()
            # Another worker's success ends the series too.
            row = failed + 1 if self.good == good else 1
            failed = 0 if succeeded else row

    async def arrivals(self) -> None:
        """Start requests at a trace's or at random moments, whatever the concurrency."""
        until = self.begun + self.plan.seconds
        for after in self.plan.arrivals_s or random_arrivals(self.plan):
            at = self.begun + after
            if at >= until or self.streak >= GIVE_UP:
                break
            await asyncio.sleep(at - time.perf_counter())
            self.out.late_ms = max(self.out.late_ms, (time.perf_counter() - at) * 1e3)
            if self.stopped is not None:  # not by the clock: every planned arrival is sent, even if late
                return
            self.tasks.add(asyncio.create_task(self.send_one()))
        if self.streak < GIVE_UP and self.plan.arrivals_s:  # a window as long as planned gives the trace's rate
            await asyncio.sleep(until - time.perf_counter())
        self.stop(until if self.streak < GIVE_UP else time.perf_counter())

    def abandon(self, now: float) -> None:
        """End hard: drop open requests, counting those of a long silent server as hung."""
        long = min(self.target.timeout_s, self.plan.limit_s) / 2
        for which, busy in enumerate(self.busy):
            silent = now - max(self.heard[which], self.first or now)
            if busy and silent >= long:
                self.add_failure(BadCompletion("requests-hang", f"no answer within {silent:.0f} s"), busy)

    async def drive(self, tick: Callable[[int, int], None]) -> Outcome:
        """Run to the end or until cancelled; no task outlives this."""
        starters = [self.worker] * self.plan.concurrency or [self.arrivals]
        self.tasks.update(asyncio.create_task(starter()) for starter in starters)
        try:
            while self.tasks:
                remaining = self.begun + self.plan.limit_s - time.perf_counter()
                if remaining <= 0:
                    self.abandon(time.perf_counter())
                    break
                wait = min(TICK_S, remaining)
                done, _ = await asyncio.wait(self.tasks, timeout=wait, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
                self.tasks -= done
                tick(self.good, self.bad)
            self.stop(time.perf_counter())
        finally:
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(*self.tasks, return_exceptions=True)
        return self.outcome()

    def outcome(self) -> Outcome:
        """Return the window's counts and the medians."""
        out = self.out
        opened = self.first if self.plan.concurrency else self.begun
        if self.first is not None:
            out.begun_at = self.first
            out.ends_ms = [(end - self.first) * 1e3 for end in self.ends]
        if opened is not None and self.stopped is not None:
            stopped = self.stopped if self.plan.least else min(self.stopped, self.until())
            out.window_s = max(0.0, stopped - opened)
            out.window_requests = sum(end <= stopped for end in self.ends)
        if out.tokens:
            out.input_tokens = statistics.median_low(input_tokens for input_tokens, _ in out.tokens)
            out.output_tokens = statistics.median_low(output_tokens for _, output_tokens in out.tokens)
        return out


async def drive(target: Target, shape: Shape, plan: LoadPlan, tick: Callable[[int, int], None]) -> Outcome:
    """Drive a load; pass ``tick`` the successes and failures a few times a second."""
    picture_pools(shape)  # before the clock starts
    async with open_session(target) as opened:
        return await _Load(Client(opened, target, shape), target, shape, plan).drive(tick)


def run(target: Target, shape: Shape, plan: LoadPlan, tick: Callable[[int, int], None]) -> Outcome:
    """Drive a load from synchronous code.

    What a signal handler raises is raised here, after everything is cancelled.
    """
    picture_pools(shape)
    return run_interruptible(lambda: drive(target, shape, plan, tick))
