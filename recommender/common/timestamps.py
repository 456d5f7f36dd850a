"""Numbers and points in time as log files write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from recommender.common.units import SECONDS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LEAST_DATE = 1e8
"""Seconds since 1970 that count as a date: 1973."""
EPOCHS = ((LEAST_DATE, ""), (1e11, "s"), (1e14, "ms"), (1e17, "us"), (1e20, "ns"))
"""Numbers below each size count this unit since 1970; holds for dates up to the year 5138."""
SINCE_START = "s from a start"
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.ASCII | re.IGNORECASE)
LONGEST = 40
"""Characters of a number or a date."""
LARGEST = 10**30
"""Largest number that is accepted as a count; Python's integers have no limit."""


def number(value: object) -> int | float | None:
    """Return a finite number, or a text that is one; None for anything else, also for true and false."""
    if isinstance(value, str):
        text = value.strip()
        if len(text) > LONGEST or not text.isascii():
            return None
        if text.isdecimal():
            value = int(text)
        elif NUMBER.fullmatch(text):
            value = float(text)
    if isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST:
        return value  # NaN is in no range
    return None


def seconds(value: object, unit: str = "") -> tuple[float, str] | None:
    """Return a time in seconds and how it was written; None where it is no time.

    A number without a unit is a time since 1970 in the unit that its size suggests; below 1e8 it counts seconds from
    an unknown start. A text is ISO 8601; without a zone it is taken as UTC.
    """
    date = isinstance(value, str) and value[4:5] == "-" and value[:4].isdecimal()
    count = None if date or value is None else number(value)
    if count is not None:
        if abs(count) >= EPOCHS[-1][0]:
            return None
        if unit:
            return count * SECONDS[unit], unit
        unit = next(unit for limit, unit in EPOCHS if abs(count) < limit)
        return (count * SECONDS[unit], unit) if unit else (float(count), SINCE_START)
    if not isinstance(value, str) or len(value) > LONGEST:
        return None
    try:
        moment = datetime.fromisoformat(value.strip().removesuffix(" UTC"))
    except ValueError:
        return None
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - EPOCH).total_seconds(), "ISO 8601"
