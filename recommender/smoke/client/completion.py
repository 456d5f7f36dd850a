"""Read the reply to a chat completion: its text and tokens, or its failure."""

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


class BadCompletion(Exception):
    """A failed request: the name of its cause and the server's message."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = " ".join(message.split())[:MESSAGE]


@dataclass(frozen=True, slots=True)
class Completion:
    """A good answer; ``text`` is a whole body's, or that of a stream's last events."""

    text: str
    ended: str
    input_tokens: int
    output_tokens: int


def read_completion(status: int, events: Sequence[bytes]) -> Completion:
    """Return the answer in a body or in a stream's last events; raise BadCompletion."""
    if status != 200:
        text = events[0].decode(errors="replace")
        raise BadCompletion(_error_cause(status, text, "request-failed"), f"HTTP {status}: {text}")
    finish, text = "", ""
    usage: dict[str, Any] = {}
    for body in [parse_body(event) for event in events if event != END]:
        usage = body.get("usage") or usage
        for choice in body["choices"][:1]:
            finish, text = choice.get("finish_reason") or finish, choice_text(choice) or text
    if END not in events:
        raise BadCompletion("server-died", "the stream ended without its end mark")
    tokens = usage.get("completion_tokens") or 0
    if finish in ("error", "abort"):
        raise BadCompletion(
            _error_cause(200, text, "request-failed"), f'HTTP 200 with finish_reason "{finish}": {text}'
        )
    if usage and not tokens and finish == "length":  # up to 0.15.0 an input that fills the session ends so
        message = f"HTTP 200 with no token to {usage.get('prompt_tokens')} of input"
        raise BadCompletion("too-long", f'{message} and finish_reason "length"')
    if not tokens:
        message = f"finish_reason {finish}: {text}" if finish else "no choice"
        raise BadCompletion(
            "request-failed" if finish else "error-in-200", f"HTTP 200 with no token counted, {message}"
        )
    return Completion(text, finish, int(usage.get("prompt_tokens") or 0), int(tokens))


def parse_body(raw: bytes) -> dict[str, Any]:
    """Return the JSON of a body or event; raise BadCompletion if it holds an error."""
    text = raw.decode(errors="replace")
    try:
        body = json.loads(text)
    except ValueError:
        raise BadCompletion("malformed-json", f"HTTP 200, not JSON: {text}") from None
    if isinstance(body, dict):
        wrong = body.get("error_code") or body.get("error") or body.get("object") == "error"
        choices = body.get("choices")
        if isinstance(choices, list) and all(isinstance(choice, dict) for choice in choices) and not wrong:
            return body
        # LMDeploy's proxy forwards a server's refusal under status 200, with the true status inside.
        inner = body["error"] if isinstance(body.get("error"), dict) else body
        status = inner.get("code")
        raise BadCompletion(
            _error_cause(status if isinstance(status, int) else 200, text, "error-in-200"), f"HTTP 200: {text}"
        )
    raise BadCompletion("error-in-200", f"HTTP 200: {text}")


def choice_text(choice: dict[str, Any]) -> str:
    """Return the text of a choice or of a stream's piece, reasoning included."""
    message = choice.get("message") or choice.get("delta")
    return str(message.get("content") or message.get("reasoning_content") or "") if isinstance(message, dict) else ""


def _error_cause(status: int, text: str, otherwise: str) -> str:
    if MEMORY.search(text):
        return "out-of-memory-image"
    # Engines 0.10.0 to 0.15.0 refuse a long input inside an answer, by a status name.
    if "INPUT_LENGTH_ERROR" in text or (status == 400 and LENGTH.search(text)):
        return "too-long"
    return otherwise
