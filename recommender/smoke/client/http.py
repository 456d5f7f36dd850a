"""Send one chat completion over HTTP and time it.

aiohttp is of the extra ``smoke``: it is imported where a request is sent, because types of this package are read
without it.
"""

from __future__ import annotations

import io
import json
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from recommender.smoke.client.completion import END, BadCompletion, choice_text, parse_body, read_completion
from recommender.smoke.client.conversation import LEAST, ChatRequest, Drawn
from recommender.smoke.client.images import pictures, vary
from recommender.smoke.filler import write_filler

if TYPE_CHECKING:
    import aiohttp

POOL = 64  # images of a load; then they repeat, slightly changed
SEED = 20
# uvicorn closes a connection after 5 idle seconds: reuse only younger ones.
IDLE_S = 3.0
LARGE = 1 << 20  # aiohttp wants larger bodies in pieces


@dataclass(frozen=True, slots=True)
class Shape:
    """The form of each request; ``max_tiles`` 0 lets the server choose the tiles.

    Where requests differ, ``drawn`` says how; width and height are then those of the largest images.
    """

    images: int
    width: int
    height: int
    prompt_chars: int
    output_tokens: int
    max_tiles: int
    drawn: Drawn | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The servers' base URLs; each request goes to the least busy one."""

    urls: tuple[str, ...]
    model: str
    api_key: str = ""
    timeout_s: float = 120


@dataclass(frozen=True, slots=True)
class Reply:
    """One good answer; ``ttft_ms`` is 0 if it was not streamed."""

    ms: float
    ttft_ms: float
    input_tokens: int
    output_tokens: int
    text: str = ""


def open_session(target: Target) -> aiohttp.ClientSession:
    """Return an HTTP session with unlimited connections that ignores proxy variables."""
    import aiohttp

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


def picture_pools(shape: Shape) -> dict[tuple[int, int], list[str]]:
    """Return by size the images that the requests of a shape use in turn."""
    if not shape.images:
        return {}
    sizes = [size[:2] for size in shape.drawn.sizes] if shape.drawn and shape.drawn.sizes else []
    return _pools(tuple(sizes) or ((shape.width, shape.height),))


@lru_cache(maxsize=2)
def _pools(sizes: tuple[tuple[int, int], ...]) -> dict[tuple[int, int], list[str]]:
    return {size: pictures(*size, max(POOL // len(sizes), 1), SEED) for size in sizes}


class Client:
    """Build the requests of a shape, send them and read the answers."""

    def __init__(self, session: aiohttp.ClientSession, target: Target, shape: Shape) -> None:
        self._session, self._target, self._shape = session, target, shape
        self._pools = picture_pools(shape)
        self._repeats = bool(shape.drawn and shape.drawn.turns > 1)

    def body(self, number: int, stream: bool, request: ChatRequest | None = None) -> bytes:
        """Return a request's body: what a conversation asks, else a numbered prompt; and the next images of a pool."""
        shape = self._shape
        if request is None:
            text = write_filler(f"{number:06d} ", max(shape.prompt_chars, LEAST))
            request = ChatRequest((("user", text),), shape.output_tokens, number)
        messages: list[dict[str, Any]] = [
            {"role": role, "content": [{"type": "text", "text": text}] if role == "user" else text}
            for role, text in request.messages
        ]
        messages[0]["content"] += self._images(request)
        body: dict[str, Any] = {
            "model": self._target.model,
            "messages": messages,
            "max_tokens": request.output_tokens,
            "ignore_eos": True,
            "temperature": 0,
            "stream": stream,
        }
        if stream:
            body["stream_options"] = {"include_usage": True}
        return json.dumps(body).encode()

    def _images(self, request: ChatRequest) -> list[dict[str, Any]]:
        shape, parts = self._shape, []
        pool = self._pools[request.size or (shape.width, shape.height)] if shape.images else []
        for place in range(request.pictured * shape.images, (request.pictured + 1) * shape.images):
            turn, index = divmod(place, len(pool))
            url: dict[str, Any] = {"url": "data:image/jpeg;base64," + vary(pool[index], turn)}
            if shape.max_tiles:
                url["max_dynamic_patch"] = shape.max_tiles
            parts.append({"type": "image_url", "image_url": url})
        return parts

    async def send(self, url: str, body: bytes, stream: bool, on_data: Callable[[], None]) -> Reply:
        """Send a request and read its answer; call ``on_data`` at the first bytes."""
        import aiohttp

        begun, first, text = time.perf_counter(), 0.0, ""
        try:
            async with self._session.post(
                f"{url.rstrip('/')}/v1/chat/completions",
                data=io.BytesIO(body) if len(body) > LARGE else body,
                allow_redirects=False,
            ) as response:
                if stream and response.status == 200:
                    first, text, events = await _read_events(response.content, on_data, self._repeats)
                else:
                    events = [await response.read(), END]
                    on_data()
        except TimeoutError:
            raise BadCompletion("requests-hang", f"no answer within {self._target.timeout_s:g} s") from None
        except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, OSError) as error:
            raise BadCompletion("server-died", f"{type(error).__name__}: {error}") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise BadCompletion("request-failed", f"{type(error).__name__}: {error}") from None
        took = (time.perf_counter() - begun) * 1e3
        completion = read_completion(response.status, events)
        ttft = (first - begun) * 1e3 if first else 0.0
        return Reply(took, ttft, completion.input_tokens, completion.output_tokens, text or completion.text)


async def _read_events(
    content: aiohttp.StreamReader, on_data: Callable[[], None], whole: bool
) -> tuple[float, str, list[bytes]]:
    """Return the time of a stream's first text, its text if ``whole``, and its last events."""
    first_event = first_text = 0.0
    last, texts = deque[bytes](maxlen=4), []
    async for line in content:
        event = line.removeprefix(b"data:").strip()
        if not event or line.startswith(b":"):
            continue
        last.append(event)
        if not first_event:
            first_event = time.perf_counter()
            on_data()
        # After the first text only the last events matter, unless the text is said again.
        if (whole or not first_text) and event != END:
            text = "".join(map(choice_text, parse_body(event)["choices"]))
            texts.append(text)
            first_text = first_text or (time.perf_counter() if text else 0.0)
    return first_text or first_event, "".join(texts), list(last)
