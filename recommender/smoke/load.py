"""Drives a load against chat-completion servers and keeps what came of every request."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import statistics
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any, TypeVar

from recommender.smoke.completion import Trouble
from recommender.smoke.exchange import LEAST, Client, Reply, Shape, Target, pool, session
from recommender.smoke.failures import Failure

__all__ = ["Outcome", "Plan", "Shape", "Target", "drive", "run", "size_prompt"]

T = TypeVar("T")
TICK_S = 0.25
LONGER = 5
GIVE_UP = 6  # failures in a row after which nothing gets better
SEED = 20  # of the arrivals
SIZINGS = 6  # requests that size a prompt, at most
# The numbers of a process go on from load to load, so that no text or picture comes twice.
_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how hard: ``concurrency`` in flight, or where that is 0 Poisson arrivals at ``rps``.

    No request starts after ``seconds``, or once ``enough`` ended (0: no such end); all ends at ``limit_s``.
    A closed loop goes on until ``rounds`` of as many answers as clients have come, up to LONGER times ``seconds``:
    of slow answers there would be too few for a rate.
    Every ``stream_every``-th request streams, so that the time to the first token is seen under the load.
    """

    concurrency: int
    rps: float
    seconds: float
    enough: int
    limit_s: float
    stream_every: int = 4
    rounds: int = 0

    @property
    def least(self) -> int:
        """Requests that must have ended before the clock may stop the load."""
        return self.rounds * self.concurrency


@dataclass(slots=True)
class Outcome:
    """What came of a load. The window runs from the first send (of an open loop from its begin) until
    starting stopped: it has no drain in it, but it begins empty.

    ``latencies_ms`` has every success in the order in which they ended, ``ends_ms`` has when each did, from the
    first send on; the first ``window_requests`` lie in the window. ``ttft_ms``, ``streamed_ms``, ``streamed_tokens``
    have the streamed ones, in one order. Token counts are medians. ``failures`` maps a cause to its number and first
    message; ``begun_at`` and ``lost_at``: the first send and those that failed, by perf_counter; ``late_ms``: how late
    one of an open loop was sent at most.
    """

    latencies_ms: list[float] = field(default_factory=list)
    ends_ms: list[float] = field(default_factory=list)
    window_s: float = 0.0
    window_requests: int = 0
    ttft_ms: list[float] = field(default_factory=list)
    streamed_ms: list[float] = field(default_factory=list)
    streamed_tokens: list[int] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)
    lost_at: list[float] = field(default_factory=list)
    begun_at: float = 0.0
    late_ms: float = 0.0
    sent: int = 0
    hung: bool = False


class _Load:
    """One load as it runs."""

    def __init__(self, client: Client, target: Target, plan: Plan) -> None:
        self.client, self.target, self.plan = client, target, plan
        self.out = Outcome()
        self.ends: list[float] = []
        self.tokens: list[tuple[int, int]] = []
        self.good = self.bad = self.streak = 0
        self.begun = time.perf_counter()
        self.first: float | None = None
        self.stopped: float | None = None
        self.busy, self.given = [0] * len(target.urls), [0] * len(target.urls)
        self.heard = [0.0] * len(target.urls)
        self.tasks: set[asyncio.Task[Any]] = set()

    def may_start(self) -> bool:
        """Whether another request may start; the moment that none may any more ends the window."""
        if self.stopped is None and time.perf_counter() >= self.until():
            self.stopped = self.until()
        return self.stopped is None

    def until(self) -> float:
        """When the clock stops the load."""
        return self.begun + self.plan.seconds * (1 if self.good + self.bad >= self.plan.least else LONGER)

    def stop(self, now: float) -> None:
        """Let no more start."""
        self.stopped = now if self.stopped is None else min(self.stopped, now)

    async def one(self) -> bool:
        """Send a request and keep what came of it; whether it succeeded."""
        which = min(range(len(self.busy)), key=lambda each: (self.busy[each], self.given[each]))
        self.out.sent += 1
        self.busy[which] += 1
        self.given[which] += 1
        every = self.plan.stream_every
        stream = every > 0 and self.out.sent % every == 0
        body = self.client.body(next(_NUMBERS), stream)
        begun = time.perf_counter()
        self.first = begun if self.first is None else self.first

        def heard() -> None:
            self.heard[which] = time.perf_counter()

        try:
            self.keep(await self.client.send(self.target.urls[which], body, stream, heard), stream)
        except Trouble as trouble:
            self.count(trouble)
            self.out.lost_at.append(begun)
            if trouble.cause == "requests-hang" and self.heard[which] <= begun:
                self.out.hung = True  # nobody had an answer all the while
                self.stop(time.perf_counter())
            return False
        finally:
            self.busy[which] -= 1
        return True

    def keep(self, reply: Reply, stream: bool) -> None:
        """A success."""
        now = time.perf_counter()
        self.good, self.streak = self.good + 1, 0
        self.ends.append(now)
        self.tokens.append((reply.input_tokens, reply.output_tokens))
        self.out.latencies_ms.append(reply.ms)
        if stream:
            self.out.ttft_ms.append(reply.ttft_ms)
            self.out.streamed_ms.append(reply.ms)
            self.out.streamed_tokens.append(reply.output_tokens)
        self.full(now)

    def count(self, trouble: Trouble, times: int = 1) -> None:
        """A failure."""
        self.bad, self.streak = self.bad + times, self.streak + times
        count, said = self.out.failures.get(trouble.cause, (0, trouble.said))
        self.out.failures[trouble.cause] = (count + times, said)
        self.full(time.perf_counter())

    def full(self, now: float) -> None:
        """Stop where enough ended, or the last that was waited for beyond the time."""
        ended = self.good + self.bad
        late = ended == self.plan.least > 0 and now >= self.begun + self.plan.seconds
        if late or (self.plan.enough and ended >= self.plan.enough):
            self.stop(now)

    async def worker(self) -> None:
        """One of those that keep a request in flight each."""
        failed = 0
        while failed < GIVE_UP and self.may_start():
            good = self.good
            succeeded = await self.one()
            # Another worker's success in between breaks the row too.
            row = failed + 1 if self.good == good else 1
            failed = 0 if succeeded else row

    async def arrivals(self) -> None:
        """Start requests at random moments, however many are in flight."""
        gaps = random.Random(SEED)
        until = self.begun + self.plan.seconds
        at = self.begun + gaps.expovariate(self.plan.rps)
        while at < until and self.streak < GIVE_UP:
            await asyncio.sleep(at - time.perf_counter())
            self.out.late_ms = max(self.out.late_ms, (time.perf_counter() - at) * 1e3)
            if self.stopped is not None:  # not the clock: every planned arrival is sent, though a little late
                return
            self.tasks.add(asyncio.create_task(self.one()))
            at += gaps.expovariate(self.plan.rps)
        self.stop(until if at >= until else time.perf_counter())

    def cut(self, now: float) -> None:
        """The hard end: what is in flight is forgotten, but where the server had said nothing for long."""
        long = min(self.target.timeout_s, self.plan.limit_s) / 2
        for which, busy in enumerate(self.busy):
            silent = now - max(self.heard[which], self.first or now)
            if busy and silent >= long:
                self.out.hung = True
                self.count(Trouble("requests-hang", f"no answer within {silent:.0f} s"), busy)

    async def drive(self, tick: Callable[[int, int], None]) -> Outcome:
        """Run to the end, or until cancelled: no task outlives this."""
        starters = [self.worker] * self.plan.concurrency or [self.arrivals]
        self.tasks.update(asyncio.create_task(each()) for each in starters)
        try:
            while self.tasks:
                left = self.begun + self.plan.limit_s - time.perf_counter()
                if left <= 0:
                    self.cut(time.perf_counter())
                    break
                wait = min(TICK_S, left)
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
        """The counts of the window, and the medians."""
        out = self.out
        opened = self.first if self.plan.concurrency else self.begun
        if self.first is not None:
            out.begun_at = self.first
            out.ends_ms = [(end - self.first) * 1e3 for end in self.ends]
        if opened is not None and self.stopped is not None:
            stopped = self.stopped if self.plan.least else min(self.stopped, self.until())
            out.window_s = max(0.0, stopped - opened)
            out.window_requests = sum(end <= stopped for end in self.ends)
        if self.tokens:
            out.input_tokens = statistics.median_low(taken for taken, _ in self.tokens)
            out.output_tokens = statistics.median_low(given for _, given in self.tokens)
        return out


async def drive(target: Target, shape: Shape, plan: Plan, tick: Callable[[int, int], None]) -> Outcome:
    """Drive a load; ``tick`` is told the successes and failures so far, a few times a second."""
    pool(shape.images > 0, shape.width, shape.height)  # before the clock starts
    async with session(target) as opened:
        return await _Load(Client(opened, target, shape), target, plan).drive(tick)


def run(target: Target, shape: Shape, plan: Plan, tick: Callable[[int, int], None]) -> Outcome:
    """Drive a load from plain code. What a signal's handler raises comes out of here, after all is cancelled."""
    pool(shape.images > 0, shape.width, shape.height)
    return _interruptible(lambda: drive(target, shape, plan, tick))


def size_prompt(target: Target, shape: Shape, wanted_tokens: int) -> int:
    """Characters of prompt with which a request takes ``wanted_tokens`` of input, within one.

    The shortest prompt where template and picture alone take as many. A request that fails raises its failure.
    """
    pool(shape.images > 0, shape.width, shape.height)
    return _interruptible(lambda: _sized(target, shape, wanted_tokens))


async def _sized(target: Target, shape: Shape, wanted: int) -> int:
    """Try lengths until one fits. The first step takes a token for a character, so that it cannot be too long."""
    async with session(target) as opened:

        async def measure(chars: int) -> int:
            client = Client(opened, target, replace(shape, prompt_chars=chars, output_tokens=1))
            try:
                reply = await client.send(target.urls[0], client.body(next(_NUMBERS), False), False, lambda: None)
            except Trouble as trouble:
                raise Failure(trouble.cause, trouble.said) from None
            return reply.input_tokens

        shortest = await measure(LEAST)
        tried, chars, slope = {LEAST: shortest}, LEAST, 1.0
        while len(tried) < SIZINGS and abs(wanted - tried[chars]) > 1:
            chars = max(LEAST, chars + round((wanted - tried[chars]) / slope))
            if chars in tried:
                break
            tried[chars] = await measure(chars)
            # From the shortest to here, not from the last try: a short step says little about the tokenizer.
            slope = (tried[chars] - shortest) / (chars - LEAST) or slope
        return min(tried, key=lambda each: abs(wanted - tried[each]))


def _interruptible(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine such that whatever a signal's handler raises cancels it, and is raised once it has ended.

    A handler runs wherever the loop happens to be, and a loop swallows most of what is raised inside its callbacks.
    """
    raised: list[BaseException] = []
    running: list[asyncio.Task[T]] = []

    def interrupt(error: BaseException) -> None:
        raised.append(error)
        if len(raised) == 1 and running:
            running[0].get_loop().call_soon_threadsafe(running[0].cancel)

    async def main() -> T:
        task = asyncio.ensure_future(work())
        running.append(task)
        if raised:
            task.cancel()
        try:
            return await task
        finally:
            running.clear()

    with _handlers(interrupt):
        try:
            result = asyncio.run(main())
        except asyncio.CancelledError:
            if not raised:
                raise
    if raised:
        raise raised[0]
    return result


@contextmanager
def _handlers(interrupt: Callable[[BaseException], None]) -> Iterator[None]:
    """Gives what the handlers of this process raise to ``interrupt`` for a while; only the main thread has them."""
    main = threading.current_thread() is threading.main_thread()
    handlers: dict[int, Any] = {each: signal.getsignal(each) for each in signal.valid_signals()} if main else {}
    live: list[bool] = []

    def relay(number: int, frame: FrameType | None) -> None:
        try:
            handlers[number](number, frame)
        except BaseException as error:
            # A signal may cut the lines below short: a relay that is left over does as the handler behind it.
            if not live:
                raise
            interrupt(error)

    changed = [number for number, own in handlers.items() if callable(own)]
    try:
        for number in changed:
            signal.signal(number, relay)
        live.append(True)
        yield
    finally:
        live.clear()
        for number in changed:
            signal.signal(number, handlers[number])
