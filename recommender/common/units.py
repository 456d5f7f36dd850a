"""Units of memory and time, and how people write them."""

from __future__ import annotations

import re
from collections.abc import Mapping

GIB = 2**30

MIB = 2**20

MS: Mapping[str, float] = {"": 1.0, "ms": 1.0, "s": 1e3, "m": 60e3, "min": 60e3}
"""Milliseconds in a unit of time; a number alone is in ms."""
IN_GIB: Mapping[str, float] = {
    "": 1.0,
    "g": 1.0,
    "gib": 1.0,
    "gb": 1e9 / GIB,
    "mib": 1 / 1024,
    "mb": 1e6 / GIB,
    "tib": 1024.0,
}
"""GiB in a unit of memory; a number alone is in GiB, and g is GiB as in docker's options."""
SECONDS: Mapping[str, float] = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Seconds in a unit of time, as log files and compose files write it."""
PER_SECOND: Mapping[str, float] = {"": 1.0, "s": 1.0, "min": 1 / 60, "m": 1 / 60, "h": 1 / 3600}
"""Requests/s in a rate by the time after its slash; a number alone is per second."""
BYTES: Mapping[str, int] = {"": 1, "k": 2**10, "m": MIB, "g": GIB, "t": 2**40}
"""Bytes in a unit of docker's sizes."""
TOKENS: Mapping[str, float] = {"": 1, "k": 1000, "K": 1024, "m": 1_000_000, "M": 2**20}
"""Tokens in a unit: k is 1,000 and K is 1,024, as vLLM reads its options."""

SECONDS_FROM = 10_000
"""Milliseconds from which a time is written in seconds."""

_NUMBER = re.compile(
    r"\+?(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)(?P<power>[eE][+-]?[0-9]{1,3})?\s*(?P<unit>[A-Za-z]*)", re.ASCII
)


def duration(ms: float) -> str:
    """Return a time as people read it: 6.9 ms, 1,326 ms, 21.9 s; round ones from 1 s on in seconds."""
    if ms >= SECONDS_FROM or (ms >= 1000 and ms % 100 == 0):
        return f"{_trim(f'{ms / 1000:,.1f}')} s" if ms < 100_000 else f"{ms / 1000:,.0f} s"
    return f"{ms:,.0f} ms" if ms >= 20 else f"{_trim(f'{ms:.1f}')} ms" if ms >= 1 else f"{ms:.3g} ms"


def _trim(number: str) -> str:
    return number.removesuffix(".0")


def read_number(text: str) -> float | None:
    """Return a text as a number; None if it is none."""
    try:
        return float(text)
    except ValueError:
        return None


def read_quantity(text: str, units: Mapping[str, float]) -> float | None:
    """Return a number with a unit, in the units' base; None if it is neither. Units of ``TOKENS`` heed the case."""
    match = _NUMBER.fullmatch(text.strip()) if len(text) <= 40 else None
    if not match:
        return None
    unit = match["unit"]
    factor = units.get(unit, units.get(unit.lower()))
    return None if factor is None else float(match["number"] + (match["power"] or "")) * factor
