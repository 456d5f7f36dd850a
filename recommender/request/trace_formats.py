"""What the rows of benchmarks, published traces and access logs call a request's tokens, times and images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from recommender.common.text import normal, shorten
from recommender.common.timestamps import number, seconds
from recommender.request.trace_prefix import Beginning, Prefixes
from recommender.request.trace_rows import Row, inner

MOST_TOKENS = 2_000_000
"""Most tokens of one request; no model has a longer context."""
MOST_SEARCHES = 1_000
"""Rows in which a field is looked for before it counts as one that the file lacks."""
CHARACTERS_A_TOKEN = 4
"""Characters per token of English text; only for prompts with images, whose tokens the text does not show."""
FAILED = ("error", "errored", "failed", "failure", "timeout", "cancelled", "canceled", "aborted")

_TIMES = (
    *("arrival_time", "arrival", "arrived_at", "arrival_timestamp", "timestamp", "@timestamp", "start_time"),
    *("request_start_time", "started_at", "created", "created_at", "request_time", "time", "ts", "datetime", "date"),
)
_ENDS = ("end_time", "request_end_time", "ended_at", "finished_at", "completed_at", "completion_time")
_UNITS = {"": "", "_s": "s", "_sec": "s", "_seconds": "s", "_ms": "ms", "_us": "us", "_ns": "ns"}
TIMES, ENDS = (tuple(name + unit for unit in _UNITS for name in names) for names in (_TIMES, _ENDS))
LATENCIES = {"latency_s": "s", "latency_ms": "ms", "duration_s": "s", "duration_ms": "ms", "elapsed_time": "s"}
UNITS = {normal(name + end): unit for name in (*_TIMES, *_ENDS) for end, unit in _UNITS.items() if unit}
UNITS |= {normal(name): unit for name, unit in LATENCIES.items()}
"""Unit of a time by its field's name."""
_WRAPPED = ("", "response.", "response.body.")
CACHED = ("cached_tokens", "usage.prompt_tokens_details.cached_tokens", "usage.input_tokens_details.cached_tokens")
IMAGES = ("images", "num_images", "image_count", "n_images", "input_metrics.image_count")
MESSAGES = ("messages", "request.messages", "request.body.messages", "body.messages", "input")
STATUS = ("status", "status_code", "http_status", "response.status_code", "response.status")


@dataclass(frozen=True, slots=True)
class Format:
    """A format's name and its fields, the best name first; a dot leads into an object."""

    name: str
    input: tuple[str, ...]
    output: tuple[str, ...]
    time: tuple[str, ...] = TIMES
    unit: str = ""
    """Of times; empty where name or size of a time says it."""
    block: int = 0
    """Tokens of each entry of hash_ids."""
    mark: str = ""
    """A field without which a file is of another format."""


RESULTS = {
    "GuideLLM results": Format("GuideLLM results", ("prompt_tokens",), ("output_tokens",), unit="s"),
    "vllm bench results": Format("vllm bench results", ("input_len",), ("output_len",), ("start_time",), "s"),
}
# Sources: FAST25-release/README.md of kvcache-ai/Mooncake, README.md of alibaba-edu/qwen-bailian-usagetraces-anon and
# HPMLL/BurstGPT, AzureLLMInferenceDataset2023.md and -2024.md of Azure/AzurePublicDataset.
FORMATS = (
    Format("Qwen Bailian trace", ("input_length",), ("output_length",), ("timestamp",), "s", 16, "parent_chat_id"),
    Format("Mooncake trace", ("input_length",), ("output_length",), ("timestamp",), "ms", 512, "hash_ids"),
    Format("Azure LLM inference trace", ("ContextTokens",), ("GeneratedTokens",), ("TIMESTAMP",)),
    Format("BurstGPT trace", ("Request tokens",), ("Response tokens",), ("Timestamp",), "s"),
    Format(
        "OpenAI-style access log",
        tuple(f"{where}usage.{name}_tokens" for where in _WRAPPED for name in ("prompt", "input")),
        tuple(f"{where}usage.{name}_tokens" for where in _WRAPPED for name in ("completion", "output")),
        (*TIMES, "response.created", "response.created_at", "response.body.created"),
    ),
    Format(
        "table of requests",
        (
            *("input_tokens", "prompt_tokens", "context_tokens", "isl", "input_len", "prompt_len", "input_length"),
            *("prompt_length", "num_input_tokens", "num_prompt_tokens", "num_prefill_tokens", "tokens_in"),
        ),
        (
            *("output_tokens", "completion_tokens", "generated_tokens", "osl", "output_len", "response_len"),
            *("output_length", "response_length", "response_tokens", "num_output_tokens", "num_completion_tokens"),
            *("num_generated_tokens", "num_decode_tokens", "tokens_out"),
        ),
    ),
)


class Understood(NamedTuple):
    """One request: tokens, seconds, and what it has in common with others."""

    input: int
    output: int
    time: float | None
    time_form: str
    latency: float | None
    cached: int | None
    images: int | None
    beginning: Beginning = Beginning()


class RowField:
    """A value of a row by the first of its names that a row had."""

    def __init__(self, names: tuple[str, ...]) -> None:
        """Take the names, the best first."""
        nested = [tuple(name.split(".")) for name in names]
        self._paths = [(normal(path[0]), *path[1:]) for path in nested]
        self._paths += [(normal(name),) for name in names if "." in name]  # a column of a flattened object
        self._searches = 0
        self.path: tuple[str, ...] = ()
        """Where the value is; empty until a row has it."""

    def of(self, row: Row) -> Any:
        """Return a row's value; None where it has none."""
        if self.path:
            return row.get(self.path[0]) if len(self.path) == 1 else inner(row, *self.path)
        if self._searches < MOST_SEARCHES:
            self._searches += 1
            for path in self._paths:
                value = inner(row, *path)
                if value is not None:
                    self.path = path
                    return value
        return None

    def unit(self) -> str:
        """Return the unit that the name of a time says; empty if none."""
        return UNITS.get(self.path[0], "") if self.path else ""


def format_of(row: Row) -> Format | None:
    """Return the first format whose tokens a row has."""
    for form in FORMATS:
        marked = not form.mark or normal(form.mark) in row
        if marked and RowField(form.input).of(row) is not None and RowField(form.output).of(row) is not None:
            return form
    return None


class Reader:
    """Understands the rows of a file of one format."""

    def __init__(self, form: Format) -> None:
        """Look for this format's fields."""
        self.format = form
        self.prefixes = Prefixes()
        self.by_characters = False
        """Whether the tokens of prefixes are estimated."""
        self._input, self._output, self._time = RowField(form.input), RowField(form.output), RowField(form.time)
        self._end, self._latency, self._status = RowField(ENDS), RowField(tuple(LATENCIES)), RowField(STATUS)
        self._cached, self._images, self._messages = RowField(CACHED), RowField(IMAGES), RowField(MESSAGES)

    def read(self, row: Row) -> Understood | str:
        """Return a row's request, or the reason why it is none."""
        failure = _failure(row, self._status)
        if failure:
            return failure
        tokens = _tokens(self._input.of(row), "input tokens")
        if isinstance(tokens, str):
            return tokens
        output = _tokens(self._output.of(row), "output tokens")
        if isinstance(output, str):
            return output
        written = self._time.of(row)
        unread = "" if written in (None, "") else shorten(str(written))
        time, form = seconds(written, self.format.unit or self._time.unit()) or (None, unread)
        cached = number(self._cached.of(row))
        known = int(cached) if cached is not None and 0 <= cached <= tokens else None
        images, beginning = self._content(row, tokens)
        return Understood(tokens, output, time, form, self._duration(row, time), known, images, beginning)

    def _duration(self, row: Row, start: float | None) -> float | None:
        """Return a request's seconds from start to end; None if unknown."""
        named = seconds(self._latency.of(row), self._latency.unit())
        if named:
            return max(0.0, named[0])
        end = seconds(self._end.of(row), self.format.unit or self._end.unit())
        return end[0] - start if end and start is not None and end[0] >= start else None

    def _content(self, row: Row, tokens: int) -> tuple[int | None, Beginning]:
        """Add a prompt to the prefixes as far as the row has it; return its images, if known, and its beginnings."""
        block, ids = self.format.block, row.get("hashids")
        if block and isinstance(ids, list):
            return None, self.prefixes.add(ids, range(block, block * len(ids) + 1, block), tokens)
        messages = self._messages.of(row)
        if isinstance(messages, list):
            parts, ends, found = _message_parts(messages, tokens)
            self.by_characters = True
            return found, self.prefixes.add(parts, ends, tokens)
        images = number(self._images.of(row))
        return int(images) if images is not None and 0 <= images <= MOST_TOKENS else None, Beginning()


def _failure(row: Row, status: RowField) -> str:
    """Return what went wrong with a request by its row; empty for nothing."""
    code = status.of(row)
    error = row.get("error")
    if isinstance(code, str) and code.strip().lower() in FAILED:
        return f"failed: {code.strip().lower()}"
    value = number(code)
    if value is not None and 400 <= value <= 599:
        return f"failed: HTTP {value:.0f}"
    nothing = isinstance(error, str) and error.strip().lower() in ("", "none", "null", "nan", "false", "0")
    return "failed" if error and not nothing else ""


def _tokens(value: Any, field_name: str) -> int | str:
    """Return a number of tokens, or the reason why it is none."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return f"{field_name}: missing"
    tokens = number(value)
    if tokens is None or tokens != int(tokens):
        return f"{field_name}: not a whole number"
    if tokens < 1:
        return f"{field_name}: {'negative' if tokens else 'zero'}"
    return int(tokens) if tokens <= MOST_TOKENS else f"{field_name}: above {MOST_TOKENS:,}"


def _message_parts(messages: list[Any], tokens: int) -> tuple[list[Any], list[int], int]:
    """Return the messages of a chat, the tokens up to the end of each, and the number of images.

    There is no tokenizer: a message has the share of the prompt's tokens that it has of the characters.
    """
    read = [(message.get("role"), list(_contents(message))) for message in messages if isinstance(message, dict)]
    images = sum(not is_text for _, contents in read for is_text, _ in contents)
    sizes = [sum(len(value) for is_text, value in contents if is_text) for _, contents in read]
    a_token = CHARACTERS_A_TOKEN if images else max(1, sum(sizes)) / tokens
    ends = [min(tokens, round(size / a_token)) for size in accumulate(sizes)]
    return [(role if isinstance(role, str) else "", *contents) for role, contents in read], ends, images


def _contents(message: Mapping[str, Any]) -> Iterator[tuple[bool, str]]:
    """Yield the contents of a message: whether it is text, and the text or the image's address."""
    content = message.get("content")
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            yield True, part
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            yield True, part["text"]
        elif isinstance(part, dict) and part.get("type") in ("image_url", "input_image", "image"):
            url = inner(part, "image_url", "url") or part.get("image_url")
            yield False, url if isinstance(url, str) else ""
