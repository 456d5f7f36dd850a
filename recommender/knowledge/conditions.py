"""The condition language of the knowledge base: ``NAME OPERATOR OPERAND``.

A condition is parsed once into a closure, because a recommendation evaluates
thousands. Names, kinds and operators are those of ``knowledge/GUIDELINES.md``.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

from packaging.version import InvalidVersion, Version

from recommender.common.units import duration

Kind: TypeAlias = Literal["number", "text", "flag", "version"]
Value: TypeAlias = int | float | str | bool | Version
Values: TypeAlias = Mapping[str, Value]
Test: TypeAlias = Callable[[Values], bool]
Compare: TypeAlias = Callable[[Any, Any], bool]

_TABLE: tuple[tuple[Kind, str, str], ...] = (
    ("version", "", "lmdeploy"),
    ("text", "gpu.", "id name"),
    ("version", "gpu.", "compute_capability"),
    ("number", "gpu.", "count memory_gib available_gib"),
    ("flag", "gpu.", "nvlink"),
    ("text", "model.", "id hub architecture family quantization quantization_version dtype needs"),
    ("flag", "model.", "vision tiled mixture request_tiles remote_code turbomind pytorch"),
    ("number", "model.", "quantization_bits quantization_group hidden layers heads kv_heads head_dim"),
    ("number", "model.", "intermediate vocab max_positions max_tiles tile_tokens"),
    ("number", "request.", "images image_width image_height tiles image_tokens prompt_tokens input_tokens"),
    ("number", "request.", "longest_tokens largest_tokens ending_per_pass steady_budget"),
    ("number", "request.", "output_tokens total_tokens concurrency concurrency_per_server rps cpus p99_ms ttft_ms"),
    ("number", "request.", "tpot_ms latency_ms prefix_tokens turns"),
    ("text", "request.", "ttft_at tpot_at latency_at"),
    ("text", "request.", "goal kv backend"),
    ("text", "config.", "backend dtype log_level communicator model_format chat_template server_name proxy_url"),
    ("text", "config.", "unmet_needs cache_sized_by kv_bits_by"),
    ("number", "config.", "session_len max_batch_size prefill_tokens block_len kv_bits tp servers share cards port"),
    ("number", "config.", "omp_threads cache_ratio max_tiles max_tokens temperature batch_room_mib"),
    ("flag", "config.", "prefix_caching trust_remote_code disable_docs structured_output"),
    ("number", "estimate.", "forward_tokens kv_tokens kv_requests kv_blocks kv_needed_tokens warmup_tokens"),
    ("number", "estimate.", "weights_gib kv_gib total_gib peak_gib free_gib latency_ms p99_ms ttft_ms rps"),
    ("number", "estimate.", "ttft_at_ms tpot_at_ms latency_at_ms"),
)
NAMES: Mapping[str, Kind] = MappingProxyType(
    {prefix + name: kind for kind, prefix, names in _TABLE for name in names.split()}
)

_EQUAL = ("==", "!=", "in", "not in")
_ORDER = (*_EQUAL, "<", "<=", ">", ">=")
OPERATORS: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {"number": (*_ORDER, "multiple of"), "version": _ORDER, "text": _EQUAL, "flag": ("==", "!=")}
)
_SHAPE = re.compile(r"(\S+)\s+(==|!=|<=|>=|<|>|not in|in|multiple of)\s+(.+)")
_HOLE = re.compile(r"\{([^{}]*)\}")
_TIME = re.compile(r"\{(\w+\.\w+_ms)\} ms")
_EXAMPLE = {"number": "8 or 0.5", "version": "0.10.0", "text": 'awq or "" (empty)', "flag": "true or false"}


class ConditionError(ValueError):
    """A condition or message that cannot be used. The message says which, why and what to write."""


_COMPARE: Mapping[str, Compare] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda left, right: left in right,
    "not in": lambda left, right: left not in right,
    "multiple of": lambda left, right: bool(right) and left % right == 0,
}


@dataclass(frozen=True)
class Condition:
    """One parsed comparison; ``holds(values)`` evaluates it."""

    text: str
    names: tuple[str, ...]
    holds: Test = field(repr=False, compare=False)


@lru_cache(maxsize=1024)
def version(text: str) -> Version:
    """Parse a version; cached."""
    return Version(text)


def unknown(name: str, text: str) -> ConditionError:
    """Return the error for a name that is not in the vocabulary, with the nearest names."""
    near = difflib.get_close_matches(name, NAMES, n=3, cutoff=0.6)
    hint = f"did you mean {' or '.join(near)}?" if near else "the names are in knowledge/GUIDELINES.md"
    return ConditionError(f"{text!r}: unknown name {name!r}; {hint}")


@lru_cache(maxsize=4096)
def parse(text: str) -> Condition:
    """Parse one condition; cached. Raises ConditionError with the text and what to write instead."""
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise ConditionError(f"{text!r}: write NAME OPERATOR OPERAND, such as: gpu.count >= 2")
    name, sign, operand = match.groups()
    if name not in NAMES:
        raise unknown(name, text)
    kind = NAMES[name]
    if sign not in OPERATORS[kind]:
        raise ConditionError(f"{text!r}: {name} is a {kind}; use one of {', '.join(OPERATORS[kind])}")
    if operand in NAMES:
        if NAMES[operand] != kind or sign.endswith("in"):
            raise ConditionError(f"{text!r}: {name} is a {kind}; {sign} cannot compare it with {operand}")
        return Condition(text, (name, operand), _test(text, name, _COMPARE[sign], None, operand))
    right: object
    if sign.endswith("in"):
        if not (operand.startswith("[") and operand.endswith("]") and operand[1:-1].strip()):
            raise ConditionError(f"{text!r}: after {sign!r} write a list, such as: {name} {sign} [a, b]")
        right = tuple(_literal(item.strip(), kind, text) for item in operand[1:-1].split(","))
    else:
        right = _literal(operand, kind, text)
    if sign == "multiple of" and right == 0:
        raise ConditionError(f"{text!r}: nothing is a multiple of 0; write a number above 0")
    return Condition(text, (name,), _test(text, name, _COMPARE[sign], right))


def _literal(item: str, kind: Kind, text: str) -> Value:
    """Return an operand that is not a name as a value of its kind."""
    quoted = re.fullmatch(r'"([^"]*)"', item)
    if kind == "text" and quoted:
        return quoted[1]
    if re.fullmatch(r"(gpu|model|request|config|estimate)\.\w+", item):
        raise unknown(item, text)
    try:
        if kind == "number" and re.fullmatch(r"-?\d+", item):
            return int(item)
        if kind == "number" and re.fullmatch(r"-?\d+\.\d+", item):
            return float(item)
        if kind == "version":
            return version(item)
    except InvalidVersion:
        pass
    if kind == "flag" and item in ("true", "false"):
        return item == "true"
    if kind == "text" and re.fullmatch(r"[\w./:+-]+", item):
        return item
    raise ConditionError(f"{text!r}: {item!r} is not a {kind}; write {_EXAMPLE[kind]}, or a name of that kind")


def _test(text: str, name: str, compare: Compare, right: object, other: str = "") -> Test:
    """Return a closure that compares a name with a literal, or with another name."""

    def with_literal(values: Values) -> bool:
        try:
            return compare(values[name], right)
        except KeyError:
            raise ConditionError(f"{text!r}: no value was given for {name}") from None

    def with_name(values: Values) -> bool:
        try:
            return compare(values[name], values[other])
        except KeyError as error:
            raise ConditionError(f"{text!r}: no value was given for {error.args[0]}") from None

    return with_name if other else with_literal


@lru_cache(maxsize=4096)
def holes(text: str) -> tuple[str, ...]:
    """Return the names that a message fills in, in order. Raises ConditionError for an unknown one."""
    names = tuple(_HOLE.findall(text))
    if strange := [name for name in names if name not in NAMES]:
        raise unknown(strange[0], text)
    return names


def fill(text: str, values: Values) -> str:
    """Return a message with each {name} replaced by its value; a time before " ms" may become seconds."""
    if missing := [name for name in holes(text) if name not in values]:
        raise ConditionError(f"{text!r}: no value was given for {', '.join(missing)}")
    text = _TIME.sub(lambda match: duration(cast("float", values[match[1]])), text)
    return _HOLE.sub(lambda match: show(values[match[1]]), text)


def show(value: Value) -> str:
    """Return a value as people read it: 23,087 and 0.8 and true."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and abs(value) < 100:
        return f"{value:{'.4g' if abs(value) >= 10 else '.3g'}}"
    if isinstance(value, float) and not value.is_integer():
        digits = len(str(int(abs(value)))) - 3 if abs(value) >= 10_000 else 0
        return show(round(value / 10**digits) * 10**digits)
    if isinstance(value, (int, float)):
        return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}"
    return str(value)
