"""Check the value of an option against its record: type, choices and range.

The only such check: ``estimate``, ``--with``, ``check``, ``smoke`` and the review rules all call it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from recommender.common.errors import RequestError
from recommender.common.text import shorten

if TYPE_CHECKING:
    from recommender.knowledge import records


def _finite(text: str) -> float:
    """Return a number of a JSON text. Raises ValueError for one that has no literal in Python."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _json(text: str) -> Any:
    return json.loads(text, parse_float=_finite, parse_constant=_finite)


TYPES: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "json": (_json, "a JSON object"),
}
"""By type: what reads a text of it (raises ValueError), and its name within a sentence."""

DIVIDES = ("low_confidence_static", "sequential")
"""Strategies of diffusion that divide a block by its steps."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why LMDeploy refuses a value. ``by``: its parser, or a check after parsing; ``expectation``: what it accepts."""

    by: Literal["parser", "range"]
    expectation: str


def refuse(accepted: records.Accepted, text: str, python: bool = False) -> Refusal | None:
    """Return why LMDeploy refuses one value of an option; None if it accepts it.

    Numbers are read as argparse reads them. Infinity and NaN are out of every range. ``python``: the value is given in
    Python, not on a command line, where 0 may stand for another value.
    """
    if accepted.type == "bool":
        return None if text in ("true", "false") else Refusal("parser", "true or false")
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        return Refusal("parser", "text in UTF-8")
    if accepted.choices:
        known = (plain(text) if accepted.type == "int" else text) in accepted.choices
        return None if known else Refusal("parser", f"one of {', '.join(accepted.choices)}")
    if accepted.type == "str":
        return None
    convert, wanted = TYPES[accepted.type]
    try:
        value = convert(text)
    except (ValueError, RecursionError):
        return Refusal("parser", wanted)
    stands_for_another = bool(accepted.zero) and value == 0 and not python
    if accepted.type == "json" or stands_for_another or _in_range(accepted, value):
        return None
    return Refusal("range", describe(accepted))


def runs_on_turbomind(flag: records.Flag, text: str) -> bool:
    """Return whether TurboMind runs a value that the parser accepts: each that has an encoding."""
    return not flag.encodings or any(encoding.text == plain(text) for encoding in flag.encodings)


def is_used(option: str, given: Mapping[str, str | None], architecture: str, is_read: bool) -> bool:
    """Return whether a launch uses a number, as ``given`` has it: none refuses what it does not use.

    Some need another option, a diffusion model or several replicas. ``is_read``: the engine itself reads the option.
    A value in ``given`` is None if it is not known.
    """
    diffuses, replicas = architecture.startswith("SDAR"), int(_whole(given.get("dp")))
    if option == "speculative-num-draft-tokens":
        return "speculative-algorithm" in given
    if option == "max-prefill-iters":  # else --max-prefill-token-num replaces it
        return _whole(given.get("num-tokens-per-iter")) != "0"
    if option == "dllm-denoising-steps":  # a divisor; below 0 it counts as the most steps
        return diffuses and given.get("dllm-unmasking-strategy") in DIVIDES and _whole(given.get(option)) == "0"
    if option in ("nnodes", "node-rank"):
        return replicas > 1 or is_read
    return replicas > 1 if option == "dp-rank" else diffuses or option != "dllm-block-length"


def _whole(text: str | None) -> str:
    """Return a whole number as Python writes it, 0 if there is none."""
    return str(int(text)) if text and re.fullmatch(r"[-+]?\d{1,9}", text) else "0"


def check(name: str, accepted: records.Accepted, text: str) -> None:
    """Raise RequestError, with what is accepted, if LMDeploy refuses the value."""
    refusal = refuse(accepted, text)
    if refusal:
        raise RequestError(f"{name}: expected {refusal.expectation}, got {shorten(text)}")


def is_zero(text: str) -> bool:
    """Return whether a value that is accepted is the number 0."""
    try:
        return float(text) == 0
    except ValueError:
        return False


def describe(accepted: records.Accepted) -> str:
    """Return what an option accepts, as words within a sentence, such as ``a whole number from 1 to 65535``."""
    if accepted.choices:
        return f"one of {', '.join(accepted.choices)}"
    words = TYPES[accepted.type][1] if accepted.type in TYPES else "text"
    if accepted.above:
        return f"{words} above {accepted.above}" + (f" and up to {accepted.maximum}" if accepted.maximum else "")
    if accepted.minimum and accepted.maximum:
        return f"{words} from {accepted.minimum} to {accepted.maximum}"
    if accepted.minimum:
        return f"{words} of at least {accepted.minimum}"
    return f"{words} up to {accepted.maximum}" if accepted.maximum else f"{words}, not infinite"


def plain(text: str) -> str:
    """Return a number or the name of one as the parser reads it: 08 is 8, INT8 is int8."""
    try:
        return str(int(text))
    except ValueError:
        return text.lower()


def _in_range(accepted: records.Accepted, value: float) -> bool:
    # A whole number may be too large for a float, so only floats are asked whether they are finite.
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return (
        (not accepted.minimum or value >= float(accepted.minimum))
        and (not accepted.maximum or value <= float(accepted.maximum))
        and (not accepted.above or value > float(accepted.above))
    )
