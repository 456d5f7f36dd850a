"""The server process's event loop: it takes requests in and writes the tokens of all streams, in one thread.

After a pass each running request has a token to write, which takes the loop ``chunk`` ms; a stream that still waits
for its turn gets both tokens in one piece, so no more than one piece a stream is ever behind. The token of a pass
reaches its client when the pieces are written: first tokens are the last in the engine's list, and the end of an answer
is written after its last token. A request on its way in has several turns of the loop to wait for.

With an engine in Python, images are not prepared while tokens are written, and reach the engine a certain time after
each other, or later: all share the lock of Python's interpreter.
Times are in ms.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from recommender.estimate.sampling import SEED

R = TypeVar("R")

TURNS = 4
"""Turns of the loop between a request's bytes and the engine: its data, its task, the thread that checks its JSON, and
the task that writes its answer. Source: LMDeploy 0.18.0, lmdeploy/serve/openai/chat_completions/serving.py
(``chat_completions_v1``, ``Depends(validate_json_request)``, ``ManagedStreamingResponse``)."""
JITTER = (0.5, 1.5)
"""Range of the random factor on a request's overhead; it keeps clients from staying in step."""


Incoming: TypeAlias = tuple[float, int, float, R, int]
"""A request on its way to the engine: when it will be there, its number, when it was sent, the request, and the turns
that it may still wait. A plain tuple: millions are made."""


def _delay(waiting: Incoming[R], now: float, written_at: float) -> Incoming[R]:
    """Let a request wait for what is written after a pass."""
    ready, number, sent, request, turns = waiting
    return (ready + written_at - (sent if sent > now else now), number, sent, request, turns - 1) if turns else waiting


def _held(at: float, now: float, until: float, share: float) -> float:
    """Return the end of work that would end ``at`` a time, where a ``share`` of ``now`` to ``until`` is lost."""
    passed = (until - now) * (1 - share)
    if at <= now:
        return at
    return now + (at - now) / (1 - share) if at - now < passed else at + (until - now) * share


@dataclass
class HostLoop(Generic[R]):
    """The loop of one server; ``overhead`` is a request's time beside it.

    ``spacing`` is the least time between two requests that reach the engine.

    ``shared``: passes hold up the thread that prepares. A request is then prepared when the thread is free: only then
    are the passes known that hold it up.
    """

    overhead: float
    chunk: float
    shared: bool = False
    spacing: float = 0.0
    unprepared: deque[tuple[float, int, R, float]] = field(default_factory=deque)
    later: list[tuple[float, int, Incoming[R]]] = field(default_factory=list)
    incoming: list[Incoming[R]] = field(default_factory=list)
    ready: deque[Incoming[R]] = field(default_factory=deque)
    free: float = 0.0
    written_at: float = 0.0
    opens_at: float = 0.0
    """When the next request may reach the engine."""
    writes: deque[tuple[float, float]] = field(default_factory=partial(deque, maxlen=4))
    """When the last passes ended, and when their tokens were written."""
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))

    def send(self, at: float, number: int, request: R, prepare: float) -> float:
        """Take a request in, which costs ``prepare``; calls come in the order of time.

        Return when it is ready, as far as that is known.
        """
        if self.shared:
            self.unprepared.append((at, number, request, prepare))
            return max(at, self.free) + prepare + JITTER[0] * self.overhead
        self.free = (at if at > self.free else self.free) + prepare
        ready = self.free + self.overhead * self.chance.uniform(*JITTER)
        incoming = (ready, number, at, request, TURNS)
        if not self.chunk:  # nothing will delay it
            heapq.heappush(self.incoming, incoming)
        elif at >= self.written_at:  # nor did what was written
            heapq.heappush(self.later, (at, number, incoming))
        else:
            for now, written in self.writes:
                if at < written and now < incoming[0]:
                    incoming = _delay(incoming, now, written)
            heapq.heappush(self.incoming, incoming)
        return incoming[0]

    def write(self, now: float, streams: int) -> float:
        """Write a pass's tokens of so many streams; return when that is done. Requests on their way in wait."""
        done = now + self.chunk * streams
        if done < self.written_at:
            done = self.written_at
        self.written_at = done
        self.writes.append((now, done))
        if done > now:
            if self.later and self.later[0][0] <= done:
                self._receive(done)
            if self.incoming:
                while self.incoming and self.incoming[0][0] <= now:
                    self.ready.append(heapq.heappop(self.incoming))
                if self.incoming:
                    self.incoming = [_delay(incoming, now, done) for incoming in self.incoming]
                    heapq.heapify(self.incoming)
        return done

    def note(self, now: float, streams: int) -> None:
        """Remember a write that delays only requests that are sent later but arrive before it."""
        self.writes.append((now, max(now + self.chunk * streams, self.written_at)))

    def hold(self, now: float, until: float, share: float) -> None:
        """Hold the preparing thread up for a ``share`` of the time from ``now`` ``until`` a pass ends."""
        self._prepare(now)
        self.incoming = [
            (ready if ready <= now else _held(ready, now, until, share), number, sent, request, turns)
            for ready, number, sent, request, turns in self.incoming
        ]
        self.free = _held(self.free, now, until, share)
        while self._begins() < until:
            self._prepare_next(until, share)
        heapq.heapify(self.incoming)

    def _prepare(self, until: float) -> None:
        while self._begins() <= until:
            self._prepare_next()

    def _begins(self) -> float:
        """Return when the thread begins with the next request; inf without one."""
        return max(self.unprepared[0][0], self.free) if self.unprepared else math.inf

    def _prepare_next(self, until: float = 0.0, share: float = 0.0) -> None:
        at, number, request, prepare = self.unprepared.popleft()
        began = max(at, self.free)
        self.free = began + prepare
        ready = self.free + self.overhead * self.chance.uniform(*JITTER)
        if began < until:
            self.free, ready = (_held(each, began, until, share) for each in (self.free, ready))
        heapq.heappush(self.incoming, (ready, number, at, request, TURNS))

    def _receive(self, until: float) -> None:
        while self.later and self.later[0][0] <= until:
            heapq.heappush(self.incoming, heapq.heappop(self.later)[2])

    def take(self, until: float) -> Incoming[R] | None:
        """Return the next request that is ready by a time."""
        if self.unprepared:
            self._prepare(until)
        if self.later and self.later[0][0] <= until:
            self._receive(until)
        if self.ready:
            return self.ready.popleft() if self.ready[0][0] <= until else None
        if not self.incoming or max(self.incoming[0][0], self.opens_at) > until:
            return None
        taken = heapq.heappop(self.incoming)
        self.opens_at = max(taken[0], self.opens_at) + self.spacing
        return taken

    def next_ready(self) -> float:
        """Return when the next request is ready, if the loop has nothing to write until then; inf without one."""
        if self.ready:
            return self.ready[0][0]
        while self._begins() < (self.incoming[0][0] if self.incoming else math.inf):
            self._prepare_next()
        while self.later and (not self.incoming or self.later[0][0] < self.incoming[0][0]):
            self._receive(self.later[0][0])
        return max(self.incoming[0][0], self.opens_at) if self.incoming else math.inf

    def _soonest(self) -> float:
        """Return when a request that is not prepared may be ready at best; inf without one."""
        return self._begins() + self.unprepared[0][3] + JITTER[0] * self.overhead if self.unprepared else math.inf

    def quiet_until(self, now: float, full: bool) -> float:
        """Return until when no request is on its way in; to a ``full`` batch none goes, but writing delays them."""
        if not self.chunk:
            ready = self.incoming[0][0] if self.incoming else math.inf
            return math.inf if full else max(min(ready, self._soonest()), self.opens_at)
        if self.incoming or (self.ready and not full):
            return now
        return self.later[0][0] if self.later else math.inf
