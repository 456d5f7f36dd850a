"""One chat completion: the request, the answer read to its end, and what is wrong with it by name."""

from __future__ import annotations

import io
import json
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import aiohttp

from recommender.smoke.pictures import pictures, turned

MESSAGE = 300  # characters kept of a failure's message
POOL = 64  # pictures of a size; past them they come again, slightly changed
SEED = 20
LEAST = 7  # characters of the shortest text: its number and a space
# uvicorn closes a connection that idles for 5 s: one that is taken up again must be younger.
IDLE_S = 3.0
END = b"[DONE]"
LARGE = 1 << 20  # aiohttp wants larger bodies in pieces
FILLER = "describe the picture and say what happens in it. "
MEMORY = re.compile(r"out[ _]of[ _]memory|OutOfMemory|\bOOM\b|cudaErrorMemoryAllocation", re.I)
LENGTH = re.compile(r"length|context|too[ _]long|session(?![ _]?id)", re.I)


@dataclass(frozen=True, slots=True)
class Shape:
    """What each request looks like. ``max_tiles`` 0 leaves the tiles of a picture to the server."""

    images: int
    width: int
    height: int
    prompt_chars: int
    output_tokens: int
    max_tiles: int


@dataclass(frozen=True, slots=True)
class Target:
    """The servers, by their base URLs: each request goes to the one with the fewest in flight."""

    urls: tuple[str, ...]
    model: str
    api_key: str = ""
    timeout_s: float = 120


class Trouble(Exception):
    """One request failed: the name of its cause among the failures, and the server's words."""

    def __init__(self, cause: str, said: str) -> None:
        super().__init__(said)
        self.cause = cause
        self.said = " ".join(said.split())[:MESSAGE]


@dataclass(frozen=True, slots=True)
class Reply:
    """One good answer; ``ttft_ms`` 0 where it was not streamed."""

    ms: float
    ttft_ms: float
    input_tokens: int
    output_tokens: int


def _cause(status: int, text: str, otherwise: str) -> str:
    """The failure that an error text speaks of."""
    if MEMORY.search(text):
        return "out-of-memory-image"
    # Engines of 0.10.0 to 0.15.0 refuse a long input inside an answer, by the name of a status.
    if "INPUT_LENGTH_ERROR" in text or (status == 400 and LENGTH.search(text)):
        return "too-long"
    return otherwise


def _refused(status: int, raw: bytes) -> Trouble:
    """The trouble in an answer whose HTTP status is not 200."""
    text = raw.decode(errors="replace")
    return Trouble(_cause(status, text, "request-failed"), f"HTTP {status}: {text}")


def _parsed(raw: bytes) -> dict[str, Any]:
    """The JSON object of an HTTP 200 body or of an event; raises where it is none, or holds an error."""
    text = raw.decode(errors="replace")
    try:
        body = json.loads(text)
    except ValueError:
        raise Trouble("malformed-json", f"HTTP 200, not JSON: {text}") from None
    if isinstance(body, dict):
        wrong = body.get("error_code") or body.get("error") or body.get("object") == "error"
        choices = body.get("choices")
        if isinstance(choices, list) and all(isinstance(choice, dict) for choice in choices) and not wrong:
            return body
        # LMDeploy's proxy forwards a server's refusal under status 200, with the true status inside.
        inner = body["error"] if isinstance(body.get("error"), dict) else body
        status = inner.get("code")
        raise Trouble(_cause(status if isinstance(status, int) else 200, text, "error-in-200"), f"HTTP 200: {text}")
    raise Trouble("error-in-200", f"HTTP 200: {text}")


def _text(choice: dict[str, Any]) -> str:
    """The text of a choice or of a piece of one, reasoning included."""
    said = choice.get("message") or choice.get("delta")
    return str(said.get("content") or said.get("reasoning_content") or "") if isinstance(said, dict) else ""


def session(target: Target) -> aiohttp.ClientSession:
    """A session for a target that opens as many connections as wanted, and follows no proxy variable."""
    headers = {"Content-Type": "application/json"}
    if target.api_key:
        headers["Authorization"] = f"Bearer {target.api_key}"
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_S),
        timeout=aiohttp.ClientTimeout(total=target.timeout_s),
        headers=headers,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )


@lru_cache(maxsize=2)
def pool(images: bool, width: int, height: int) -> list[str]:
    """The pictures that the requests of a shape take in turn."""
    return pictures(width, height, POOL, SEED) if images else []


class Client:
    """Makes the requests of a shape, sends them and reads the answers."""

    def __init__(self, session: aiohttp.ClientSession, target: Target, shape: Shape) -> None:
        self._session, self._target, self._shape = session, target, shape
        self._pool = pool(shape.images > 0, shape.width, shape.height)
        self._filler = FILLER * (shape.prompt_chars // len(FILLER) + 1)

    def body(self, number: int, stream: bool) -> bytes:
        """A request: its text begins with its number, and its pictures are the next ones."""
        shape = self._shape
        text = f"{number:06d} {self._filler}"[: max(shape.prompt_chars, LEAST)]
        content: list[dict[str, Any]] = [{"type": "text", "text": text}]
        for place in range(number * shape.images, (number + 1) * shape.images):
            turn, index = divmod(place, len(self._pool))
            url: dict[str, Any] = {"url": "data:image/jpeg;base64," + turned(self._pool[index], turn)}
            if shape.max_tiles:
                url["max_dynamic_patch"] = shape.max_tiles
            content.append({"type": "image_url", "image_url": url})
        body: dict[str, Any] = {
            "model": self._target.model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": shape.output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": stream,
        }
        if stream:
            body["stream_options"] = {"include_usage": True}
        return json.dumps(body).encode()

    async def send(self, url: str, body: bytes, stream: bool, heard: Callable[[], None]) -> Reply:
        """Send a request and read the answer to its end; ``heard`` is called once the server said something."""
        begun, first = time.perf_counter(), 0.0
        try:
            async with self._session.post(
                f"{url.rstrip('/')}/v1/chat/completions",
                data=io.BytesIO(body) if len(body) > LARGE else body,
                allow_redirects=False,
            ) as response:
                if stream and response.status == 200:
                    first, events = await _events(response.content, heard)
                else:
                    events = [await response.read(), END]
                    heard()
        except TimeoutError:
            raise Trouble("requests-hang", f"no answer within {self._target.timeout_s:g} s") from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
            raise Trouble("server-died", f"{type(error).__name__}: {error}") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise Trouble("request-failed", f"{type(error).__name__}: {error}") from None
        took = (time.perf_counter() - begun) * 1e3
        if response.status != 200:
            raise _refused(response.status, events[0])
        return Reply(took, (first - begun) * 1e3 if first else 0.0, *_tokens(events))


async def _events(content: aiohttp.StreamReader, heard: Callable[[], None]) -> tuple[float, list[bytes]]:
    """When the first text of a stream came, and its last events: finish, usage, errors and the end mark."""
    seen = visible = 0.0
    last = deque[bytes](maxlen=4)
    async for line in content:
        event = line.removeprefix(b"data:").strip()
        if not event or line.startswith(b":"):
            continue
        last.append(event)
        if not seen:
            seen = time.perf_counter()
            heard()
        # Once text was seen, the events up to the last ones are not worth parsing.
        if not visible and event != END and any(map(_text, _parsed(event)["choices"])):
            visible = time.perf_counter()
    return visible or seen, list(last)


def _tokens(events: list[bytes]) -> tuple[int, int]:
    """Input and output tokens of an answer; raises where it is incomplete, or the engine gave up on it."""
    reason, text = "", ""
    usage: dict[str, Any] = {}
    for body in [_parsed(event) for event in events if event != END]:
        usage = body.get("usage") or usage
        for choice in body["choices"][:1]:
            reason, text = choice.get("finish_reason") or reason, _text(choice) or text
    if END not in events:
        raise Trouble("server-died", "the stream ended without its end mark")
    tokens = usage.get("completion_tokens") or 0
    if reason in ("error", "abort"):
        raise Trouble(_cause(200, text, "request-failed"), f'HTTP 200 with finish_reason "{reason}": {text}')
    if usage and not tokens and reason == "length":  # up to 0.15.0 an input that fills the session ends so
        said = f"HTTP 200 with no token to {usage.get('prompt_tokens')} of input"
        raise Trouble("too-long", f'{said} and finish_reason "length"')
    if not tokens:
        said = f"finish_reason {reason}: {text}" if reason else "no choice"
        raise Trouble("request-failed" if reason else "error-in-200", f"HTTP 200 with no token counted, {said}")
    return int(usage.get("prompt_tokens") or 0), int(tokens)
