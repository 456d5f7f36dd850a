"""Make up the engine's passes as TurboMind's scheduler does: each mixes prompts and decoding.

One thread of the server process prepares requests in the order in which they come. The engine takes as many as its
batch has room for and runs passes. A pass decodes one token of each running request, and prefills as many prompt
tokens as its budget leaves, first come first served; a prompt may be cut. What a pass holds is decided when the pass
before it starts, because the engine prepares one pass while another runs. So a request waits for the rest of one pass
and for a whole one before its own, and a slot of the batch is free two passes after its request's last token.
Sources: 0.16.0 src/turbomind/engine/engine.cc (Schedule, InternalThreadEntry) and scheduler.cc
(RunRequiredAdmission), models/llama/context_token_resource.h; the code of later releases is not public.

A pass with prefill hides the reading of weights behind the prefill's arithmetic, and the other way round; only
``pass_base`` is added. That holds for the further passes of a cut prompt, too; the first is within its prefill. Blocks
of the KV cache are reserved for a request's whole length, which is more than the engine does. Times are in ms. The same
arguments give the same result: chance comes from a seed.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from recommender.estimate.closed_loop import ServiceTimes
from recommender.estimate.scheduler.host_loop import HostLoop, Incoming

SLOT_PASSES = 2
"""Passes after its last that an ended request still occupies: the next one, and the one that was already scheduled."""


class SimulatedRequest(NamedTuple):
    """A request: the times that it takes on a server, and its tokens.

    ``prefill``: time of the ``new_tokens``, which no cache holds. ``row``: time added to a decoding step.
    ``context``: tokens of the prompt, with cached ones. ``reused``: cached tokens beyond the prefix that all share.
    ``encoded_again``: time of each further pass of a cut prompt, which encodes its images again.
    """

    prepare: float
    prefill: float
    new_tokens: int
    context: int
    output: int
    row: float
    reused: int = 0
    encoded_again: float = 0.0

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
    share (0: no limit). ``chunk`` is the time to write a token of one stream. ``rounds``: see ``alternating``; 0 where
    a pass mixes prompts and decoding. ``contexts`` is the most that the whole prompts with a part in one pass may add
    up to (0: no limit). ``lock_per_token`` is the time of a stream's token for which an engine in Python
    holds up the thread that prepares images; ``spacing`` is the least time between two requests that reach the engine.
    """

    overhead: float
    pass_base: float
    budget: int
    batch: int
    kv_tokens: int
    times: ServiceTimes
    chunk: float = 0.0
    rounds: int = 0
    contexts: int = 0
    lock_per_token: float = 0.0
    spacing: float = 0.0


class SimulatedAnswer(NamedTuple):
    """When a request was sent, and when its first and its last token came."""

    sent: float
    first: float
    done: float
    output: int


Prompted: TypeAlias = tuple[int, float, SimulatedRequest]
"""A request whose prompt is prefilled: its number, when it was sent, and itself."""
Passes: TypeAlias = tuple[int, float, int, int, list[Prompted]]
"""Passes of the engine that hold the same: their number, the ms of each, the steps that who runs makes in them, the
answers that get a token in the last, and the requests whose first token that is. A plain tuple: millions are made."""


@dataclass
class Simulation:
    """The state of one server; ``send`` puts a request in, ``answer`` works until enough are answered.

    ``more``: requests may still come that are not sent yet, from a load balancer.
    """

    server: SimulatedServer
    on_done: Callable[[float, int], None]
    waiting: deque[Incoming[SimulatedRequest]] = field(default_factory=deque)
    prefilled: int = 0
    """Tokens of the first waiting prompt that passes had."""
    running: list[tuple[int, int, float, float, SimulatedRequest]] = field(default_factory=list)
    """Of each request the step that ends it, its number, when it was sent and when its first token came."""
    answers: dict[int, SimulatedAnswer] = field(default_factory=dict)
    rows: float = 0.0
    held_blocks: int = 0
    passes: int = 0
    steps: int = 0
    freed: deque[int] = field(default_factory=deque)
    host: HostLoop[SimulatedRequest] = field(init=False)
    more: bool = False
    now: float = 0.0
    known_until: float = 0.0
    count: int = 0
    step: float = 0.0
    steps_ms: dict[int, float] = field(default_factory=dict)
    """Of so many requests, a decoding step without their rows."""

    def __post_init__(self) -> None:
        server = self.server
        self.host = HostLoop(server.overhead, server.chunk, server.lock_per_token > 0, server.spacing)

    def send(self, at: float, number: int, request: SimulatedRequest) -> bool:
        """Queue a request; calls come in the order of time. Return whether it may change the chosen passes."""
        return self.host.send(at, number, request, request.prepare) <= self.known_until or self.count != 1

    def answer(self, numbers: range) -> Sequence[SimulatedAnswer]:
        """Work until the requests of these numbers are answered, and return their answers."""
        missing = len(numbers)
        while missing:
            self.decide()
            missing -= self.work(numbers)
        return [self.answers[number] for number in numbers]

    def decide(self) -> float:
        """Choose the next passes; return when what they hold is decided, inf without requests.

        A request that comes before that may be in them: after sending it, decide again.
        """
        self._join(self.known_until)
        if not self.running and not self.waiting:
            self.count = 0
            return self.host.next_ready()
        self.step = self.step_ms()
        self.count = self.count_alike()
        return self.now + (self.count - 2) * self.step if self.count > 1 else self.known_until

    def work(self, numbers: range = range(0)) -> int:
        """Work the chosen passes; return how many of the requests of these numbers they answer."""
        if not self.count:
            self.now = self.known_until = max(self.host.next_ready(), self.now)
            return 0
        began = self.now
        repeats, length, steps, streams, firsts = self.next_passes()
        started, self.now = began + (repeats - 1) * length, began + repeats * length
        self.passes += repeats
        self.steps += steps
        written = self._write(began, length, streams) if self.server.chunk else self.now
        for number, sent, request in firsts:
            heapq.heappush(self.running, (self.steps + request.output - 1, number, sent, written, request))
            self.rows += request.row
        ending = not self.running or self.running[0][0] <= self.steps
        answered = self._finish(written, numbers) if ending else 0
        self.known_until = started if self.running or self.waiting else self.now
        return answered

    def _write(self, began: float, length: float, streams: int) -> float:
        """Write the last pass's tokens; note the passes before it, which delay requests that arrive earlier."""
        if self.more:
            for place in range(max(self.count - 2, 1), self.count):
                self.host.note(began + place * length, streams)
        return self.host.write(self.now, streams)

    def next_passes(self) -> Passes:
        """Return the chosen passes: prompts and decoding in one."""
        decoding, step = len(self.running), self.step
        if not self.waiting:
            return self.count, step, self.count, decoding, []
        prefill, firsts = self._prefill(self.count)
        length = step
        if prefill:
            prefill += self.server.times.expert_pass
            base = self.server.pass_base
            hidden = max(step - self.rows - base - prefill, 0.0)
            length = prefill + base + hidden + self.rows if decoding else max(prefill, self.server.times.step(1))
        return self.count, length, self.count, decoding + len(firsts), firsts

    def step_ms(self) -> float:
        """Return the ms in which a token of each running request is decoded; 0 if none runs."""
        running = len(self.running)
        if not running:
            return 0.0
        if running not in self.steps_ms:
            self.steps_ms[running] = self.server.times.step(running)
        return self.steps_ms[running] + self.rows

    def _join(self, until: float) -> None:
        """Take what is prepared by a time into the engine's queue, as far as the batch has room."""
        freed, host = self.freed, self.host
        while freed and freed[0] <= self.passes - SLOT_PASSES:
            freed.popleft()
        if not (host.incoming or host.later or host.ready or host.unprepared):
            return
        room = self.server.batch - len(self.running) - len(self.waiting) - len(freed)
        while room > 0 and (taken := host.take(until)):
            self.waiting.append(taken)
            room -= 1

    @property
    def _room(self) -> int:
        """Prompt tokens that a pass takes."""
        return self.server.budget + self.server.batch - len(self.running)

    def _prefill(self, passes: int) -> tuple[float, list[Prompted]]:
        """Fill alike passes with prompts; return the time of one, and the requests whose prompts end in the last."""
        left, spent, ended = self._room, 0.0, list[Prompted]()
        waiting, contexts = self.waiting, self.server.contexts or math.inf
        while waiting and left > 0:
            _, number, sent, request, _ = waiting[0]
            if request.context > contexts and contexts < self.server.contexts:  # one alone always fits
                break
            contexts -= request.context
            rest = request.new_tokens - self.prefilled
            if not self.prefilled:
                if not self.has_blocks(request):
                    break
                self.held_blocks += request.blocks
            tokens = left if left < rest else rest
            spent += request.prefill * tokens / request.new_tokens
            if self.prefilled:
                spent += request.encoded_again + (0.0 if self.running else self.server.pass_base)
            left -= tokens
            if tokens * passes < rest:
                self.prefilled += tokens * passes
                break
            self.prefilled = 0
            waiting.popleft()
            ended.append((number, sent, request))
        return spent, ended

    def has_blocks(self, request: SimulatedRequest) -> bool:  # a lone request always has them
        limit, held = self.server.kv_tokens, self.held_blocks
        return not (limit and held and held + request.blocks > limit)

    def count_alike(self) -> int:
        """Return how many passes hold the same: until a request ends, one comes in, or a prompt has its last pass."""
        ends = self.running[0][0] - self.steps if self.running else math.inf
        if self.waiting:
            request = self.waiting[0][3]
            if self.prefilled:  # started: it fills the passes, but writing delays newcomers
                left = request.new_tokens - self.prefilled
                delays = self.host.quiet_until(self.now, True) < math.inf or (self.more and self.server.chunk)
                if self.running and delays:
                    return 1
                return int(max(min((left - 1) // self._room, ends), 1))
            if not self.running or self.has_blocks(request):
                return 1
        # Writing after a pass delays requests that arrive meanwhile; if blocks are missing, all arriving requests
        # wait.
        return self.quiet_passes(ends, bool(self.waiting) or len(self.running) >= self.server.batch)

    def quiet_passes(self, most: float, full: bool) -> int:
        """Return how many passes of decoding there are until a request is on its way in, at most so many."""
        quiet = (self.host.quiet_until(self.now, full) - self.now) / self.step
        quiet = quiet if quiet < most else most
        return int(quiet) if quiet > 1 else 1

    def _finish(self, now: float, numbers: range) -> int:
        """End the requests whose last token a pass brought; return how many have one of these numbers."""
        counted, running = 0, self.running
        while running and running[0][0] <= self.steps:
            _, number, sent, first, request = heapq.heappop(running)
            self.rows -= request.row
            self.held_blocks -= request.blocks
            self.answers[number] = SimulatedAnswer(sent, first, now, request.output)
            counted += number in numbers
            self.freed.append(self.passes)
            self.on_done(now, number)
        if not running:
            self.rows = 0.0  # sums of floats leave a rest
            if not self.waiting:
                self.freed.clear()  # passes without requests take no time
        return counted
