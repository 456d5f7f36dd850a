"""The load generator, against stub servers whose behaviour is known."""

from __future__ import annotations

import asyncio
import base64
import gc
import io
import itertools
import json
import logging
import math
import os
import random
import signal
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from cpu_time import is_within
from PIL import Image

from recommender.smoke.client import checks, conversation, http, load, sizing
from recommender.smoke.client import images as made
from recommender.smoke.client.images import pictures, vary
from recommender.smoke.client.load import LoadPlan, Outcome, Shape, Target
from recommender.smoke.failures import KINDS, Failure
from recommender.smoke.filler import write_filler

TEXT = Shape(images=0, width=0, height=0, prompt_chars=40, output_tokens=4, max_tiles=0)
PICTURE = Shape(images=1, width=64, height=48, prompt_chars=40, output_tokens=4, max_tiles=0)
Body = dict[str, Any]
Behaviour = Callable[["Stub", web.Request, Body], Awaitable[web.StreamResponse]]


def answer(given: int = 4, taken: int = 10, reason: str = "length", text: str = "word") -> Body:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
    usage = {"prompt_tokens": taken, "completion_tokens": given, "total_tokens": taken + given}
    return {"object": "chat.completion", "choices": [choice], "usage": usage}


def event(body: Body) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def piece(text: str, reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": reason}
    return event({"object": "chat.completion.chunk", "choices": [choice], **more})


async def stream(request: web.Request, parts: list[bytes | float]) -> web.StreamResponse:
    """Send an event stream: bytes are sent, numbers are waited."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for part in parts:
        if isinstance(part, bytes):
            await response.write(part)
        else:
            await asyncio.sleep(part)
    return response


class Stub:
    """A server in a thread of its own that notes what reaches it and answers as it is told."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.bodies: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.at: list[float] = []
        self.flying = self.most = 0
        self.levels: list[int] = []
        self.loop = asyncio.new_event_loop()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.at.append(time.perf_counter())
        self.flying += 1
        self.most = max(self.most, self.flying)
        self.levels.append(self.flying)
        try:
            body = await request.json()
            self.bodies.append(body)
            self.headers.append(dict(request.headers))
            return await self.behaviour(self, request, body)
        finally:
            self.flying -= 1

    async def start(self) -> None:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/v1/chat/completions", self.handle)
        # A handler ends with its client, so that a test leaves none.
        self.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self.runner.addresses[0][1]}"

    def __enter__(self) -> Stub:
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        asyncio.run_coroutine_threadsafe(self.start(), self.loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.end(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
        self.loop.close()

    async def end(self) -> None:
        await self.runner.cleanup()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await asyncio.sleep(0)  # connections close in the loop's next round

    def texts(self) -> list[str]:
        return [body["messages"][0]["content"][0]["text"] for body in self.bodies]


def steady(delay: float, given: int = 4) -> Behaviour:
    async def behave(stub: Stub, request: web.Request, body: Body) -> web.StreamResponse:
        if not body["stream"]:
            await asyncio.sleep(delay)
            return web.json_response(answer(given))
        usage = event({"choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": given}})
        return await stream(request, [delay, piece("word"), piece("", "length"), usage, b"data: [DONE]\n\n"])

    return behave


def waits(seconds: Callable[[Stub], float]) -> Behaviour:
    """Answer each request after so many seconds, asked anew for each."""

    async def behave(stub: Stub, request: web.Request, body: Body) -> web.StreamResponse:
        await asyncio.sleep(seconds(stub))
        return web.json_response(answer())

    return behave


def says(body: object, status: int = 200) -> Behaviour:
    """Answer every request with this body: bytes and text as they are, anything else as JSON."""

    async def behave(stub: Stub, request: web.Request, asked: Body) -> web.StreamResponse:
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        raw = text.encode() if isinstance(text, str) else text
        return web.Response(body=raw, status=status, content_type="application/json")

    return behave


def streams(*parts: bytes | float) -> Behaviour:
    async def behave(stub: Stub, request: web.Request, asked: Body) -> web.StreamResponse:
        return await stream(request, list(parts))

    return behave


async def hang(stub: Stub, request: web.Request, body: Body) -> web.StreamResponse:
    await asyncio.sleep(60)
    raise AssertionError


async def close_at_once(stub: Stub, request: web.Request, body: Body) -> web.StreamResponse:
    """Closes the connection without a byte."""
    request.transport.abort()
    return web.Response()


async def close_in_body(stub: Stub, request: web.Request, body: Body) -> web.StreamResponse:
    """Closes the connection in the middle of a body of known length."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    await response.prepare(request)
    await response.write(b'{"choices": [')
    request.transport.close()
    return response


async def close_in_stream(stub: Stub, request: web.Request, body: Body) -> web.StreamResponse:
    """Closes the connection in the middle of a stream."""
    response = await stream(request, [piece("word"), piece("word"), 0.02])
    request.transport.close()
    return response


def plan(concurrency: int = 1, seconds: float = 5.0, enough: int = 0, **more: Any) -> LoadPlan:
    return LoadPlan(
        **{"concurrency": concurrency, "rps": 0.0, "seconds": seconds, "enough": enough, "limit_s": 15.0} | more
    )


def drive(stub: Stub, how: LoadPlan, shape: Shape = TEXT, **target: Any) -> Outcome:
    return load.run(Target((stub.url,), "probe", **target), shape, how, lambda done, failed: None)


def driven(behave: Behaviour, *given: Any, **more: Any) -> Outcome:
    """What ``drive`` finds of a server that only this load asks."""
    with Stub(behave) as stub:
        return drive(stub, *given, **more)


def windowed(outcome: Outcome, seconds: float) -> bool:
    """Whether the window lasted so long, but for what passed between the begin and the first send."""
    return 0.5 * seconds < outcome.window_s <= seconds + 1e-9


def rate(outcome: Outcome) -> float:
    return outcome.window_requests / outcome.window_s


# --- the closed loop -------------------------------------------------------------------


def test_a_closed_loop_keeps_its_number_in_flight() -> None:
    """A server that answers one only while seven are there is not kept waiting, and never sees an eighth."""

    async def only_when_full(stub: Stub, request: web.Request, body: Body) -> web.StreamResponse:
        while stub.flying < 7 and len(stub.at) <= 60:
            await asyncio.sleep(0.001)
        return web.json_response(answer())

    with Stub(only_when_full) as stub:
        outcome = drive(stub, plan(7, seconds=30, enough=61, limit_s=40.0, stream_every=0))
        assert stub.most == 7
    assert outcome.sent == len(outcome.latencies_ms) == len(stub.bodies) >= 61
    assert not outcome.failures


def test_littles_law_holds() -> None:
    """In flight = requests a second x mean time of a request, with service times that vary."""
    random_ = random.Random(3)

    outcome = driven(
        waits(lambda stub: random_.uniform(0.02, 0.08)), plan(8, seconds=30, enough=240, limit_s=40.0, stream_every=0)
    )
    in_flight = rate(outcome) * statistics.mean(outcome.latencies_ms) / 1000
    assert in_flight == pytest.approx(8, rel=0.1)


def test_slow_answers_are_waited_for() -> None:
    """Three rounds of four clients take 1.2 s at least, though the load was to take 0.3: it ends with the twelfth."""
    outcome = driven(steady(0.4), plan(4, seconds=0.3, rounds=3, stream_every=0))
    assert outcome.window_requests == 12
    assert len(outcome.latencies_ms) >= 12
    assert 1.2 <= outcome.window_s == pytest.approx(outcome.ends_ms[11] / 1000, abs=0.01)


def test_but_not_without_end() -> None:
    """A server that takes a second for each is waited for five times the seconds asked for, no longer."""
    outcome = driven(steady(1.0), plan(2, seconds=0.3, rounds=9, stream_every=0))
    assert outcome.window_s == pytest.approx(0.3 * load.LONGER, abs=0.05)
    assert outcome.window_requests == 2
    assert not outcome.failures


def test_fast_answers_end_with_the_clock() -> None:
    """Where the rounds came in time, the load takes the seconds asked for."""
    outcome = driven(steady(0.01), plan(2, seconds=0.5, rounds=3, stream_every=0))
    assert windowed(outcome, 0.5)
    assert outcome.window_requests > 6


def test_every_success_has_its_end() -> None:
    """From the first send on, in the order of the latencies: what is sent follows an end, one by one."""
    random_ = random.Random(4)

    outcome = driven(waits(lambda stub: random_.uniform(0.0, 0.08)), plan(5, enough=60, stream_every=0))
    assert len(outcome.ends_ms) == len(outcome.latencies_ms) >= 60
    assert outcome.ends_ms == sorted(outcome.ends_ms)
    assert outcome.latencies_ms != sorted(outcome.latencies_ms)
    sent = sorted(end - took for end, took in zip(outcome.ends_ms, outcome.latencies_ms, strict=True))
    assert sent[0] >= 0
    assert sent[4] < outcome.ends_ms[0]  # five at once; from then on each after an end
    assert all(begun >= end for begun, end in zip(sent[5:], outcome.ends_ms, strict=False))
    assert statistics.median(begun - end for begun, end in zip(sent[5:], outcome.ends_ms, strict=False)) < 10
    inside = outcome.ends_ms[: outcome.window_requests]
    assert inside[-1] == pytest.approx(outcome.window_s * 1e3, abs=1e-3)


def test_latency_is_what_the_server_takes() -> None:
    """Never less than the server's delay, and little more where nothing else runs meanwhile: the least of them."""
    outcome = driven(steady(0.05), plan(1, seconds=30, enough=12, limit_s=40.0), PICTURE)
    assert 50 <= min(outcome.latencies_ms) <= 75
    assert (outcome.input_tokens, outcome.output_tokens) == (10, 4)


def test_latency_spans_the_body() -> None:
    """A body that comes late counts, not only its head."""

    async def slow(stub: Stub, request: web.Request, body: Body) -> web.StreamResponse:
        text = json.dumps(answer()).encode()
        response = web.StreamResponse(headers={"Content-Length": str(len(text))})
        await response.prepare(request)
        await response.write(text[:20])
        await asyncio.sleep(0.1)
        await response.write(text[20:])
        return response

    assert min(driven(slow, plan(1, enough=3, stream_every=0)).latencies_ms) >= 100


def test_the_window_has_no_drain_in_it() -> None:
    """Requests a second are those of the window, though the last requests take long to drain."""
    outcome = driven(waits(lambda stub: 0.04 if len(stub.at) <= 12 else 0.9), plan(4, seconds=0.8, stream_every=0))
    assert windowed(outcome, 0.8)
    assert outcome.ends_ms[-1] > 1000
    inside = [end for end in outcome.ends_ms if end <= 1e3 * outcome.window_s]
    assert outcome.window_requests == len(inside) <= len(outcome.latencies_ms) - 4


def test_enough_ends_it() -> None:
    """No request starts after so many have ended, and the window ends there."""
    outcome = driven(steady(0.01), plan(4, seconds=30, enough=20))
    assert 20 <= len(outcome.latencies_ms) <= 23
    assert outcome.window_requests == 20
    assert outcome.window_s < 15


def test_the_hard_end_cuts() -> None:
    """A request that is still out at the limit is neither a success nor a failure of a server that answers others."""
    count = itertools.count()

    with Stub(waits(lambda stub: 5 if next(count) == 2 else 0.02)) as stub:
        begun = time.perf_counter()
        outcome = drive(stub, plan(2, seconds=0.6, limit_s=0.9, stream_every=0))
        assert time.perf_counter() - begun < 4.5
    assert outcome.sent == len(outcome.latencies_ms) + 1
    assert not outcome.failures
    assert windowed(outcome, 0.6)


def test_progress_is_told_but_not_too_often() -> None:
    """At most four times a second but for the last one, counts that only rise, the last of them complete."""
    told: list[tuple[float, int, int]] = []
    with Stub(steady(0.02)) as stub:
        target = Target((stub.url,), "probe")
        outcome = load.run(
            target, TEXT, plan(2, seconds=0.9), lambda done, failed: told.append((time.perf_counter(), done, failed))
        )
    assert len(told) >= 2
    assert all(later - sooner > 0.24 for (sooner, *_), (later, *_) in itertools.pairwise(told[:-1]))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert told[-1][1:] == (len(outcome.latencies_ms), 0)


# --- the open loop ---------------------------------------------------------------------


@pytest.mark.parametrize("burstiness", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(
    ("rps", "seconds", "enough"), [(4, 6, 0), (0.5, 20, 0), (30, 20, 60), (7.3, 1, 400), (0.1, 2, 0)]
)
def test_as_many_arrive_as_the_rate_says(rps: float, seconds: float, enough: int, burstiness: float) -> None:
    """In a load however short, or in the part of it after which enough have ended; more come after that."""
    asked = plan(0, rps=rps, seconds=seconds, enough=enough, burstiness=burstiness)
    lasts = min(seconds, enough / rps) if enough else seconds
    arrivals = list(itertools.takewhile(lambda at: at < 3 * lasts, load.random_arrivals(asked)))
    assert arrivals == sorted(arrivals)
    assert min(arrivals) >= 0
    assert sum(at < lasts for at in arrivals) == max(round(rps * lasts), 1)
    assert max(arrivals) >= lasts


def test_arrivals_are_poisson_and_the_same_each_time() -> None:
    """They come when an exponential of the seed says, as many as the rate, whatever is in flight."""
    random_ = random.Random(load.SEED)
    gaps = [random_.expovariate(250) for _ in range(301)]
    gaps = [gap * 1.2 / sum(gaps) for gap in gaps[:-1]]
    planned = list(itertools.accumulate(gaps))
    assert statistics.mean(gaps) == pytest.approx(1 / 250, rel=0.15)
    assert statistics.stdev(gaps) / statistics.mean(gaps) == pytest.approx(1, abs=0.2)
    with Stub(steady(0.3)) as stub:
        begun = time.perf_counter()
        outcome = drive(stub, plan(0, rps=250, seconds=1.2))
        late = [at - begun - due for at, due in zip(stub.at, planned, strict=True)]
    assert min(late) >= 0  # none before its time, and none much later: how much, the machine's other work decides
    assert statistics.quantiles(late, n=10)[0] < 0.1
    assert 0 < outcome.late_ms <= 1e3 * max(late)  # sent before it arrived
    assert outcome.sent == len(planned) == len(outcome.latencies_ms)
    assert stub.most > 20  # none waits for an answer
    assert outcome.window_s == pytest.approx(1.2)
    # Those of the last 0.3 s are not answered inside, nor more of them on a machine that is slow.
    assert 0.2 * len(planned) < outcome.window_requests < 0.85 * len(planned)


def test_a_generator_that_stands_still_tells_how_long() -> None:
    """What holds its loop for 200 ms makes arrivals late by nearly as much; a closed loop has no plan to miss."""
    stood = []

    def tick(done: int, failed: int) -> None:
        if done and not stood:
            stood.append(True)
            time.sleep(0.2)

    with Stub(steady(0.01)) as stub:
        open_loop = load.run(Target((stub.url,), "probe"), TEXT, plan(0, rps=200, seconds=1), tick)
        assert open_loop.late_ms > 150
        assert drive(stub, plan(4, seconds=0.3)).late_ms == 0


def test_an_open_loop_gives_up_when_all_fails() -> None:
    """After six failures in a row no more arrive."""
    outcome = driven(says("broken", 500), plan(0, rps=20, seconds=12))
    assert 6 <= outcome.sent <= 60  # of 240
    assert outcome.window_s < 6


# --- streams ---------------------------------------------------------------------------


def test_time_to_the_first_token() -> None:
    """From the send to the first text, not to an empty first piece; tokens and time are those of the same request."""
    usage = event({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 6}})
    words: list[bytes | float] = [each for _ in range(5) for each in (0.02, piece("word"))]
    parts = [0.04, piece(""), 0.06, piece("word"), *words, piece("", "length"), usage, b"data: [DONE]\n\n"]
    outcome = driven(streams(*parts), plan(2, enough=6, stream_every=1))
    assert 100 <= min(outcome.ttft_ms) <= 140
    assert 200 <= min(outcome.latencies_ms) <= 270
    assert {tokens for _, tokens in outcome.tokens} == {6}
    assert outcome.streamed == list(range(len(outcome.latencies_ms)))
    assert all(first < whole for first, whole in zip(outcome.ttft_ms, outcome.latencies_ms, strict=True))


def test_every_fourth_request_streams() -> None:
    """And asks for the token counts."""
    with Stub(steady(0.0)) as stub:
        outcome = drive(stub, plan(1, enough=12))
    assert [body["stream"] for body in stub.bodies] == [False, False, False, True] * 3
    assert all(body["stream_options"] == {"include_usage": True} for body in stub.bodies if body["stream"])
    assert len(outcome.ttft_ms) == 3


USED = {"prompt_tokens": 9, "completion_tokens": 2}
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([piece("a", usage=USED), piece("b", "length", usage=USED), DONE], id="0.7 to 0.9"),
        pytest.param([piece("a", usage=None), piece("b", "length", usage=USED), DONE], id="0.10"),
        pytest.param(
            [piece("a", usage=None), piece("b", "length", usage=None), event({"choices": [], "usage": USED}), DONE],
            id="0.15 to 0.18",
        ),
        pytest.param([piece("", "length"), event({"choices": [], "usage": USED}), DONE], id="no visible text"),
        pytest.param([b": ping\n\n", piece("a", "length", usage=USED).replace(b"\n", b"\r\n"), DONE], id="comments"),
    ],
)
def test_the_token_counts_of_streams(parts: list[bytes | float]) -> None:
    """Wherever a release puts them."""
    outcome = driven(streams(*parts), plan(1, enough=1, stream_every=1))
    assert not outcome.failures
    assert (outcome.streamed, outcome.input_tokens, outcome.output_tokens) == ([0], 9, 2)
    assert outcome.ttft_ms[0] > 0


# --- failures --------------------------------------------------------------------------

REFUSAL = {"message": "Input length (2361) must be smaller than the model context length (2048).", "code": 400}
INTERNAL = "internal error happened, status code ResponseType.{}"
WHOLE = [
    ("too-long", says({**REFUSAL, "object": "error"}, 400), "HTTP 400"),
    ("too-long", says({"message": "The request exceeds the model context length.", "object": "error"}, 400), "exceeds"),
    ("too-long", says(answer(0, 2361, "length", "")), "2361 of input"),
    ("too-long", says(answer(0, 2361, "error", INTERNAL.format("INPUT_LENGTH_ERROR"))), "INPUT_LENGTH"),
    ("too-long", says({**REFUSAL, "object": "error"}), "Input length"),  # forwarded by the proxy
    ("request-failed", says({"message": "Request preprocessing failed.", "object": "error"}, 400), "preprocessing"),
    ("request-failed", says({"message": "The session_id 3 is occupied.", "object": "error"}, 400), "occupied"),
    ("request-failed", says({"message": "An internal server error occurred."}, 500), "HTTP 500"),
    ("request-failed", says({"message": "Unauthorized."}, 401), "HTTP 401"),
    ("request-failed", says(b"\xff", 429), "HTTP 429"),
    ("request-failed", says(answer(0, 30, "error", INTERNAL.format("INTERNAL_ENGINE_ERROR"))), "finish_reason"),
    ("request-failed", says(answer(0, 30, "abort", "")), "abort"),
    ("request-failed", says(answer(3, 30, "abort", "half")), "abort"),
    ("request-failed", says(answer(0, 30, "stop", "")), "no token"),
    ("error-in-200", says({"error_code": 10402, "text": "Failed to get response after a period of time"}), "10402"),
    ("error-in-200", says('{"error_code": 10400, "text": "The request model name does not exist"}\n'), "10400"),
    ("error-in-200", says(json.dumps('{"error_code": 10402}')), "10402"),
    ("error-in-200", says({"message": "The inference engine is unavailable.", "code": 503, "object": "error"}), "503"),
    ("error-in-200", says({"error": {"message": "no", "code": 500}}), "no"),
    ("error-in-200", says({"object": "chat.completion", "choices": []}), ""),
    ("error-in-200", says({"object": "chat.completion", "choices": [7]}), ""),
    ("error-in-200", says([1]), ""),
    ("malformed-json", says("<html>hello</html>"), "<html>"),
    ("malformed-json", says(""), ""),
    ("malformed-json", says('{"choices": ['), ""),
    ("out-of-memory-image", says({"message": "CUDA out of memory. Tried to allocate 2 GiB"}, 500), "CUDA"),
    ("out-of-memory-image", says(answer(0, 30, "error", INTERNAL.format("OUT_OF_MEMORY"))), "OUT_OF_MEMORY"),
    ("out-of-memory-image", says({"message": "torch.OutOfMemoryError", "object": "error"}), "Memory"),
    ("out-of-memory-image", says("std::bad_alloc", 500), "bad_alloc"),
    ("server-died", close_at_once, ""),
    ("server-died", close_in_body, ""),
]
STREAMED = [
    ("too-long", says({**REFUSAL, "object": "error"}, 400), "HTTP 400"),
    ("too-long", streams(event({"error": {**REFUSAL, "object": "error"}}), DONE), "Input length"),
    ("too-long", streams(piece("", "length", usage={"prompt_tokens": 300, "completion_tokens": 0}), DONE), "300"),
    ("too-long", streams(piece(INTERNAL.format("INPUT_LENGTH_ERROR"), "error"), DONE), "INPUT_LENGTH"),
    ("error-in-200", streams(piece("a"), event({"error": {"message": "no", "code": 500}}), DONE), "no"),
    ("request-failed", streams(piece("a"), piece("internal error happened", "error", usage=USED), DONE), "internal"),
    ("request-failed", streams(piece("a"), piece("b", "length"), DONE), "no token counted"),
    ("error-in-200", streams(piece("a"), b'{"error_code": 10402, "text": "Failed"}\n\n\n'), "10402"),
    ("error-in-200", streams(DONE), ""),
    ("error-in-200", says({"error_code": 10400, "text": "no such model"}), "10400"),
    ("malformed-json", streams(b"data: {'choices': []}\n\n", DONE), "choices"),
    ("server-died", close_in_stream, ""),
    ("server-died", streams(piece("a"), piece("b")), "end mark"),
    ("server-died", close_at_once, ""),
]


@pytest.mark.parametrize(
    ("every", "cause", "behaviour", "said"),
    [(0, *case) for case in WHOLE] + [(1, *case) for case in STREAMED],
)
def test_failures_by_cause(every: int, cause: str, behaviour: Behaviour, said: str) -> None:
    """A load and a single check name a fault alike; the load keeps its first message."""
    with Stub(behaviour) as stub:
        outcome = drive(stub, plan(1, enough=1, stream_every=every, limit_s=60.0), timeout_s=30)
        if not every:
            with pytest.raises(Failure, match="a request: ") as raised:
                checks.Server(stub.url).chat({}, "a request")
            assert raised.value.kind.name == cause
    assert set(outcome.failures) == {cause} <= set(KINDS)
    count, message = outcome.failures[cause]
    assert every or cause == "server-died" or raised.value.message == f"a request: {message}"
    assert count == 1
    assert said in message
    assert len(message) <= 300
    assert not outcome.latencies_ms
    assert not outcome.ttft_ms


def test_a_server_that_is_not_there() -> None:
    """Refused connections are a dead server; nothing hangs."""
    with Stub(steady(0)) as stub:
        pass
    outcome = drive(stub, plan(3))
    assert outcome.failures.keys() == {"server-died"}
    assert outcome.sent == outcome.failures["server-died"][0] <= 18
    assert outcome.window_requests == 0


def test_long_messages_are_cut() -> None:
    """Three hundred characters of the first one are kept."""
    outcome = driven(says("x" * 5000, 500), plan(1))
    assert outcome.failures["request-failed"][0] == 6
    assert len(outcome.failures["request-failed"][1]) == 300


def test_a_worker_stops_after_six_failures_in_a_row() -> None:
    """Each of them on its own."""
    outcome = driven(says("broken", 500), plan(3, seconds=10))
    assert outcome.failures["request-failed"][0] == outcome.sent == 18


def test_successes_in_between_keep_it_going() -> None:
    """A load with a failing half goes on to its end."""
    count = itertools.count()

    async def half(stub: Stub, request: web.Request, body: Body) -> web.StreamResponse:
        await asyncio.sleep(0.002)
        return web.json_response(answer(), status=200 if next(count) % 4 == 0 else 500)

    outcome = driven(half, plan(2, enough=60, stream_every=0))
    assert outcome.sent >= 60
    assert outcome.failures["request-failed"][0] == pytest.approx(45, abs=3)


def test_a_server_that_hangs() -> None:
    """All time out and nobody hears a thing: hung, and no more requests are tried."""
    with Stub(hang) as stub:
        begun = time.perf_counter()
        outcome = drive(stub, plan(4, seconds=10), timeout_s=0.4)
        assert time.perf_counter() - begun < 9
    assert outcome.failures["requests-hang"][0] == outcome.sent == 4
    assert "0.4 s" in outcome.failures["requests-hang"][1]


def test_a_server_that_hangs_until_the_hard_end() -> None:
    """The limit comes before the time-out: hung all the same, and counted."""
    assert driven(hang, plan(4, seconds=10, limit_s=1.0), timeout_s=30).failures["requests-hang"][0] == 4


def test_a_stream_that_hangs_after_its_head() -> None:
    """Headers alone are no answer."""
    assert driven(streams(20.0), plan(2, stream_every=1), timeout_s=0.4).failures.keys() == {"requests-hang"}


def test_one_slow_request_is_no_hang() -> None:
    """While others are answered, a time-out is a failure of its own."""
    count = itertools.count()

    outcome = driven(
        waits(lambda stub: 30 if next(count) == 5 else 0.02), plan(3, seconds=2.0, stream_every=0), timeout_s=1.5
    )
    assert outcome.failures["requests-hang"][0] == 1
    assert len(outcome.latencies_ms) > 20


# --- requests --------------------------------------------------------------------------


def test_what_is_sent() -> None:
    """The body is what LMDeploy reads, with the key where there is one."""
    shape = Shape(images=2, width=64, height=48, prompt_chars=100, output_tokens=7, max_tiles=6)
    with Stub(steady(0)) as stub:
        drive(stub, plan(1, enough=1), shape, api_key="secret")
        body, headers = stub.bodies[0], stub.headers[0]
    text, *images = body["messages"][0]["content"]
    assert len(text["text"]) == 100
    assert [image["image_url"]["max_dynamic_patch"] for image in images] == [6, 6]
    assert images[0]["image_url"]["url"] != images[1]["image_url"]["url"]
    assert images[0]["image_url"]["url"].startswith("data:image/jpeg;base64,")
    assert {key: body[key] for key in ("model", "max_tokens", "ignore_eos", "temperature", "stream")} == {
        "model": "probe",
        "max_tokens": 7,
        "ignore_eos": True,
        "temperature": 0,
        "stream": False,
    }
    assert headers["Authorization"] == "Bearer secret"
    assert headers["Content-Type"] == "application/json"


def test_no_two_requests_are_alike() -> None:
    """Text differs from its first word on and the picture differs, from load to load and past the pool's end."""
    with Stub(steady(0)) as stub:
        drive(stub, plan(4, enough=100), PICTURE)
        drive(stub, plan(4, enough=100), PICTURE)
        texts = stub.texts()
        urls = [body["messages"][0]["content"][1]["image_url"]["url"] for body in stub.bodies]
    assert len({text.split()[0] for text in texts}) == len(texts) >= 200
    assert {len(text) for text in texts} == {40}
    assert len(set(urls)) == len(urls)


def test_tiles_are_left_to_the_server_unless_given() -> None:
    """No max_dynamic_patch for 0."""
    with Stub(steady(0)) as stub:
        drive(stub, plan(1, enough=1), PICTURE)
    assert set(stub.bodies[0]["messages"][0]["content"][1]["image_url"]) == {"url"}


@pytest.mark.filterwarnings("error")
def test_bodies_of_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large pictures go through, without a word of warning."""
    monkeypatch.setattr(http, "POOL", 1)
    shape = Shape(images=1, width=2600, height=2000, prompt_chars=40, output_tokens=4, max_tiles=0)
    with Stub(steady(0)) as stub:
        outcome = drive(stub, plan(1, enough=1), shape)
        assert len(json.dumps(stub.bodies[0])) > 1 << 20
    assert not outcome.failures


def test_requests_spread_over_the_servers() -> None:
    """Each next one goes to the server with the fewest in flight."""
    with Stub(steady(0.02)) as one, Stub(steady(0.02)) as two:
        target = Target((one.url, two.url + "/"), "probe")
        load.run(target, TEXT, plan(4, enough=60), lambda done, failed: None)
        assert one.most == two.most == 2
        assert len(one.bodies) == pytest.approx(len(two.bodies), abs=6)
    with Stub(steady(0.02)) as one, Stub(steady(0.02)) as two:
        load.run(Target((one.url, two.url), "probe"), TEXT, plan(1, enough=20), lambda done, failed: None)
        assert len(one.bodies) == len(two.bodies) == 10
    with Stub(steady(0.005)) as fast, Stub(steady(1.0)) as slow:
        target = Target((fast.url, slow.url), "probe")
        load.run(target, TEXT, plan(4, seconds=30, enough=60), lambda done, failed: None)
        assert len(fast.bodies) > 4 * len(slow.bodies)


def test_proxy_variables_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead proxy in the environment changes nothing."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    outcome = driven(steady(0), plan(1, enough=2))
    assert not outcome.failures
    assert len(outcome.latencies_ms) == 2


# --- the length of the prompt ----------------------------------------------------------


def tokenizing(count: Callable[[str], int], limit: int = 1 << 20) -> Behaviour:
    """Counts the tokens of a text and adds 300 for template and picture."""

    async def behave(stub: Stub, request: web.Request, body: Body) -> web.StreamResponse:
        taken = 300 + count(body["messages"][0]["content"][0]["text"])
        if taken >= limit:
            return web.json_response(REFUSAL, status=400)
        return web.json_response(answer(1, taken))

    return behave


def words(text: str) -> int:
    """A tokenizer of words, with two tokens for the long ones and one a digit."""
    return sum(len(word) if word.isdigit() else 1 + (len(word) > 6) for word in text.split())


@pytest.mark.parametrize("wanted", [330, 512, 1500, 8000])
@pytest.mark.parametrize(
    ("count", "most"),
    [(len, 2), (lambda text: math.ceil(len(text) / 4), 4), (words, 6)],
    ids=["bytes", "fours", "words"],
)
def test_the_prompt_is_sized(count: Callable[[str], int], most: int, wanted: int) -> None:
    """With a few requests the input has as many tokens as wanted, and none was longer than that."""
    with Stub(tokenizing(count, wanted + 20)) as stub:
        chars = sizing.size_prompt(Target((stub.url,), "probe"), PICTURE, wanted)
        assert len(stub.bodies) <= most
        assert {body["max_tokens"] for body in stub.bodies} == {1}
    text = write_filler("123456 ", chars)
    assert abs(300 + count(text) - wanted) <= 1


def test_a_prompt_that_cannot_be_short_enough() -> None:
    """The shortest there is."""
    with Stub(tokenizing(len)) as stub:
        assert sizing.size_prompt(Target((stub.url,), "probe"), PICTURE, 200) == conversation.LEAST
        assert len(stub.bodies) == 1


@pytest.mark.parametrize(("behaviour", "cause"), [(tokenizing(len, 200), "too-long"), (close_at_once, "server-died")])
def test_sizing_that_fails(behaviour: Behaviour, cause: str) -> None:
    """The failure is the run's, with its cause."""
    with Stub(behaviour) as stub, pytest.raises(Failure) as raised:
        sizing.size_prompt(Target((stub.url,), "probe"), PICTURE, 400)
    assert raised.value.kind.name == cause


# --- interruptions ---------------------------------------------------------------------


class Stopped(Exception):
    """What a signal's handler raises in these tests."""


@pytest.fixture
def quiet(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Checks that asyncio logged nothing, and that no task, session or socket was left to the garbage collector.

    To be called while the stub still runs: what that leaves behind when it ends is its own affair.
    """
    caplog.set_level(logging.WARNING)
    gc.collect()  # what earlier tests left
    lost: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda each: lost.append(str(each)))

    def check() -> None:
        gc.collect()
        assert not lost
        assert not [record.getMessage() for record in caplog.records if record.name == "asyncio"]

    return check


def stopping(number: int, frame: object) -> None:
    raise Stopped


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, stopping)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("error")
@pytest.mark.usefixtures("alarm")
def test_a_signal_ends_it_at_any_moment(quiet: Callable[[], None]) -> None:
    """What a handler raises comes out each time, soon, and the handlers are as before."""
    random_ = random.Random(1)
    with Stub(steady(0.003)) as stub:
        drive(stub, plan(1, enough=1), PICTURE)
        for _ in range(25):
            begun = time.perf_counter()
            with pytest.raises(Stopped):  # noqa: PT012 - it may ring before the load begins
                signal.setitimer(signal.ITIMER_REAL, random_.uniform(0.0002, 0.06))
                drive(stub, plan(8, seconds=20), PICTURE)
            assert time.perf_counter() - begun < 10
            assert signal.getsignal(signal.SIGALRM) is stopping
        quiet()


@pytest.mark.filterwarnings("error")
def test_ctrl_c_ends_it(quiet: Callable[[], None]) -> None:
    """KeyboardInterrupt comes out, while requests hang and in the open loop too."""
    for how in (plan(4, seconds=20), plan(0, rps=50, seconds=20)):
        with Stub(hang) as stub:
            timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
            begun = time.perf_counter()
            with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - as above
                timer.start()
                drive(stub, how)
            assert time.perf_counter() - begun < 10
            timer.join()
            quiet()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_only_notes_lets_it_run(quiet: Callable[[], None]) -> None:
    """The handlers of others still run, and a load that they do not end goes on."""
    noted: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, frame: noted.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with Stub(steady(0.01)) as stub:
            outcome = drive(stub, plan(2, seconds=0.3))
            quiet()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert noted == [signal.SIGALRM]
    assert windowed(outcome, 0.3)


@pytest.mark.filterwarnings("error")
def test_cancelling_leaves_nothing(quiet: Callable[[], None]) -> None:
    """A cancelled drive leaves no task and no open session."""

    async def cancelled(target: Target) -> int:
        task = asyncio.create_task(load.drive(target, TEXT, plan(5, seconds=20), lambda done, failed: None))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return len(asyncio.all_tasks())

    with Stub(hang) as stub:
        assert asyncio.run(cancelled(Target((stub.url,), "probe"))) == 1
        quiet()


def test_an_error_in_the_display_comes_out(quiet: Callable[[], None]) -> None:
    """It ends the load too."""

    def broken(done: int, failed: int) -> None:
        raise Stopped

    with Stub(steady(0.01)) as stub:
        with pytest.raises(Stopped):
            load.run(Target((stub.url,), "probe"), TEXT, plan(3, seconds=20), broken)
        quiet()


# --- pictures --------------------------------------------------------------------------


def decoded(picture: str) -> Image.Image:
    image = Image.open(io.BytesIO(base64.b64decode(picture)), formats=["JPEG"])
    image.load()
    return image


@pytest.mark.parametrize("size", [(1, 1), (448, 448), (1280, 720), (30, 2000), (301, 299)])
def test_pictures_have_their_size_and_repeat_by_seed(size: tuple[int, int]) -> None:
    """The same arguments give the same pictures, another seed or number others."""
    three = pictures(*size, 3, 1)
    assert three == pictures(*size, 3, 1)
    assert len(three) == 3
    assert all(decoded(picture).size == size and decoded(picture).mode == "RGB" for picture in three)
    if size != (1, 1):
        assert len({*three, *pictures(*size, 3, 2)}) == 6


def test_pictures_are_like_photos() -> None:
    """Colour, fine grain, and about the bytes that a photo has at this quality."""
    (picture,) = pictures(1280, 720, 1, 1)
    pixels = np.asarray(decoded(picture), dtype=np.float64)
    assert pixels.std() > 30
    assert 1 < np.abs(np.diff(pixels, axis=1)).mean() < 15
    assert 0.1 < len(picture) * 0.75 / (1280 * 720) < 0.5


def test_a_pool_of_pictures_is_quick() -> None:
    """64 of 1280x720 in half of the processor time that four cores have in two seconds."""
    begun = time.process_time()
    assert len(set(pictures(1280, 720, 64, 9))) == 64
    assert is_within(time.process_time() - begun, 4)


def test_a_pool_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Huge pictures are fewer, at least one, and bounded in memory."""
    assert made.POOL_PIXELS // (8000 * 8000) == 3
    assert made.POOL_PIXELS * 0.8 < 256e6
    monkeypatch.setattr(made, "POOL_PIXELS", 5 * 100 * 100)
    assert len(pictures(100, 100, 64, 1)) == 5
    assert len(pictures(300, 300, 64, 1)) == 1


def test_a_turned_picture_is_another_of_the_same_length() -> None:
    """Its pixels differ from every other turn's, though not by much."""
    (picture,) = pictures(448, 448, 1, 1)
    turns = [vary(picture, turn) for turn in range(40)]
    assert turns[0] == picture
    assert {len(turn) for turn in turns} == {len(picture)}
    pixels = [np.asarray(decoded(turn), dtype=np.int16) for turn in turns]
    assert len({pixel.tobytes() for pixel in pixels}) == 40
    assert max(np.abs(pixel - pixels[0]).mean() for pixel in pixels) < 3
