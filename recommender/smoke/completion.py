"""What came back of a chat completion, read: its text and tokens, or what is wrong with it by name."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

MESSAGE = 300  # characters kept of a failure's message
END = b"[DONE]"
MEMORY = re.compile(r"out[ _]of[ _]memory|OutOfMemory|bad_alloc|\bOOM\b|cudaErrorMemoryAllocation", re.I)
LENGTH = re.compile(r"length|context|too[ _]long|session(?![ _]?id)", re.I)


class Trouble(Exception):
    """One request failed: the name of its cause among the failures, and the server's words."""

    def __init__(self, cause: str, said: str) -> None:
        super().__init__(said)
        self.cause = cause
        self.said = " ".join(said.split())[:MESSAGE]


@dataclass(frozen=True, slots=True)
class Answer:
    """A good answer. ``text`` is the whole of one body, of a stream that of its last events; ``ended`` says why."""

    text: str
    ended: str
    input_tokens: int
    output_tokens: int


def read(status: int, events: Sequence[bytes]) -> Answer:
    """The answer in a body, or in the last events of a stream up to its end mark. Raises Trouble."""
    if status != 200:
        text = events[0].decode(errors="replace")
        raise Trouble(_cause(status, text, "request-failed"), f"HTTP {status}: {text}")
    ended, text = "", ""
    usage: dict[str, Any] = {}
    for body in [parsed(event) for event in events if event != END]:
        usage = body.get("usage") or usage
        for choice in body["choices"][:1]:
            ended, text = choice.get("finish_reason") or ended, text_of(choice) or text
    if END not in events:
        raise Trouble("server-died", "the stream ended without its end mark")
    tokens = usage.get("completion_tokens") or 0
    if ended in ("error", "abort"):
        raise Trouble(_cause(200, text, "request-failed"), f'HTTP 200 with finish_reason "{ended}": {text}')
    if usage and not tokens and ended == "length":  # up to 0.15.0 an input that fills the session ends so
        said = f"HTTP 200 with no token to {usage.get('prompt_tokens')} of input"
        raise Trouble("too-long", f'{said} and finish_reason "length"')
    if not tokens:
        said = f"finish_reason {ended}: {text}" if ended else "no choice"
        raise Trouble("request-failed" if ended else "error-in-200", f"HTTP 200 with no token counted, {said}")
    return Answer(text, ended, int(usage.get("prompt_tokens") or 0), int(tokens))


def parsed(raw: bytes) -> dict[str, Any]:
    """The JSON object of an HTTP 200 body or of an event. Raises Trouble where it is none, or holds an error."""
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


def text_of(choice: dict[str, Any]) -> str:
    """The text of a choice or of a piece of one, reasoning included."""
    said = choice.get("message") or choice.get("delta")
    return str(said.get("content") or said.get("reasoning_content") or "") if isinstance(said, dict) else ""


def _cause(status: int, text: str, otherwise: str) -> str:
    """The failure that an error text speaks of."""
    if MEMORY.search(text):
        return "out-of-memory-image"
    # Engines of 0.10.0 to 0.15.0 refuse a long input inside an answer, by the name of a status.
    if "INPUT_LENGTH_ERROR" in text or (status == 400 and LENGTH.search(text)):
        return "too-long"
    return otherwise
