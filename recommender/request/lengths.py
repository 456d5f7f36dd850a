"""Lengths that vary: fifty equally likely ones stand for a distribution."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from recommender.common.errors import RequestError
from recommender.common.text import shorten
from recommender.common.units import TOKENS, read_quantity

COUNT = 50
"""Lengths that stand for a distribution; the last is its 99th percentile."""
SEED = 7


class MixRequest(NamedTuple):
    """One of the equally likely requests of a mix: its tokens of text and answer, its images, its common prefix."""

    prompt: int
    output: int
    images: int = 0
    prefix: int = 0


def spread(p50: int, p90: int = 0, p99: int = 0) -> tuple[int, ...]:
    """Return ascending, equally likely lengths with these quantiles; one length if it does not vary.

    Their logarithm is piecewise linear over the normal distribution's quantiles, and symmetric about the median; with
    ``p50`` and ``p99`` alone that is log-normal. 0 is not given.
    """
    if max(p90, p99) <= p50:
        return (p50,)
    from statistics import NormalDist  # late: few loads vary, and it takes a fiftieth of every command

    normal = NormalDist()
    known = [(0.0, math.log(p50))]
    known += [(normal.inv_cdf(share), math.log(length)) for share, length in ((0.9, p90), (0.99, p99)) if length]
    lengths = []
    for place in range(COUNT):
        far = normal.inv_cdf((place + 0.5) / COUNT)
        (low, low_log), (high, high_log) = _around(known, abs(far))
        log = low_log + (abs(far) - low) / (high - low) * (high_log - low_log)
        lengths.append(max(round(math.exp(log if far >= 0 else 2 * known[0][1] - log)), 1))
    return tuple(lengths)


def _around(points: Sequence[tuple[float, float]], far: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the known points on both sides; the last two beyond the last."""
    for low, high in pairwise(points):
        if far <= high[0]:
            return low, high
    return points[-2], points[-1]


def pair_lengths(inputs: Sequence[int], outputs: Sequence[int]) -> list[tuple[int, int]]:
    """Pair the lengths of both lists at random, as many pairs as the longer list has."""
    count = max(len(inputs), len(outputs))
    shuffled = [outputs[place * len(outputs) // count] for place in range(count)]
    random.Random(SEED).shuffle(shuffled)
    return [(inputs[place * len(inputs) // count], shuffled[place]) for place in range(count)]


def write_lengths(lengths: Sequence[int]) -> str:
    """Return lengths as the text that ``read_lengths`` reads."""
    return ",".join(map(str, lengths))


def read_lengths(text: str, most: int) -> tuple[int, ...]:
    """Return ascending lengths from a list with commas. Raises RequestError."""
    parts = text.split(",") if text else []
    if len(parts) > 1000 or not all(part.isascii() and part.isdigit() and 1 <= int(part) <= most for part in parts):
        raise RequestError(f"lengths {shorten(text, 40)}: write whole numbers from 1 to {most} with commas between")
    return tuple(sorted(map(int, parts)))


def parse_tokens(option: str, text: str, most: int, spread: bool = True) -> tuple[int, int]:
    """Return median and 99th percentile of ``N`` or, with ``spread``, ``P50:P99``; the latter 0 if not given.

    Raises RequestError.
    """
    p50, colon, p99 = text.partition(":")
    if colon and not (p50.strip() and p99.strip()):
        raise RequestError(f"{option} {shorten(text, 40)}: write median and 99th percentile, such as 500:2000")
    values = [
        _tokens(option, part, most, ", or two as P50:P99" if spread else "")
        for part in ((p50, p99) if colon else (p50,))
    ]
    if colon and values[1] < values[0]:
        raise RequestError(f"{option} {shorten(text, 40)}: p99 is below p50; write the median first, such as 500:2000")
    return values[0], values[1] if colon else 0


def _tokens(option: str, text: str, most: int, also: str) -> int:
    plain = not text.strip()[-1:].isalpha()  # 1.5k is 1,500 tokens, and 16.0 is a slip
    tokens = None if plain and not re.fullmatch(r"\+?[0-9]+", text.strip()) else read_quantity(text, TOKENS)
    if tokens is None or not 1 <= tokens <= most or tokens != int(tokens):
        raise RequestError(
            f"{option} {shorten(text, 40)}: use a whole number from 1 to {most}, also as 8k (8,000) or 8K (8,192){also}"
        )
    return int(tokens)
