"""One chat completion over HTTP: the request, sent, timed and its answer taken to the end."""

from __future__ import annotations

import io
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import aiohttp

from recommender.smoke.completion import END, Trouble, parsed, read, text_of
from recommender.smoke.pictures import pictures, turned

POOL = 64  # pictures of a size; past them they come again, slightly changed
SEED = 20
LEAST = 7  # characters of the shortest text: its number and a space
# uvicorn closes a connection that idles for 5 s: one that is taken up again must be younger.
IDLE_S = 3.0
LARGE = 1 << 20  # aiohttp wants larger bodies in pieces
FILLER = "describe the picture and say what happens in it. "


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


@dataclass(frozen=True, slots=True)
class Reply:
    """One good answer; ``ttft_ms`` 0 where it was not streamed."""

    ms: float
    ttft_ms: float
    input_tokens: int
    output_tokens: int


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
        got = read(response.status, events)
        return Reply(took, (first - begun) * 1e3 if first else 0.0, got.input_tokens, got.output_tokens)


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
        if not visible and event != END and any(map(text_of, parsed(event)["choices"])):
            visible = time.perf_counter()
    return visible or seen, list(last)
