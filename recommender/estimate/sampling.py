"""Draw requests and the gaps between their arrivals; the same seed gives the same ones."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import cycle, islice
from typing import TypeVar

T = TypeVar("T")

SEED, GROUPS_SEED = 7, 11
DRAWN, MOST_STRETCHES = 150_000, 60
"""Arrivals in groups among which the usual stretch is found, and stretches that are compared."""


def draws(requests: Sequence[T], seed: int = SEED) -> Iterator[T]:
    """Yield all requests once in a random order, again and again, so that even few draws have the right mean."""
    order = list(requests)
    random.Random(seed).shuffle(order)
    return cycle(order)


def gaps_of(rate: float, burstiness: float = 1.0, seed: int = SEED, *, dealt: int = 1) -> Iterator[float]:
    """Yield the ms between arrivals of ``rate`` requests/s; ``burstiness`` is their coefficient of variation.

    1 gives Poisson arrivals, more gives bursts (gamma distributed gaps, as in vLLM's benchmark). Requests are ``dealt``
    to so many servers in turn; the gaps and the rate are those of one.
    """
    chance = random.Random(seed)
    shape = 1 / burstiness**2
    scale = 1e3 / (rate * dealt) / shape
    while True:
        yield chance.gammavariate(dealt * shape, scale)


def group_gaps(together: float, burstiness: float = 1.0, seed: int = SEED, *, dealt: int = 1) -> Iterator[float]:
    """Yield gaps as ``gaps_of``, 1 on average, of requests that come ``together`` in groups of geometric size."""
    chance = random.Random(seed)
    shape, most = 1 / burstiness**2, math.log1p(-1 / together)
    scale = together / dealt / shape
    gap, skipped = 0.0, 0
    while True:
        gap += chance.gammavariate(shape, scale)
        skipped += int(math.log(1 - chance.random()) / most) + 1
        for _ in range(skipped // dealt):
            yield gap
            gap = 0.0
        skipped %= dealt


@lru_cache(maxsize=64)
def usual_group_gaps(
    busy: float, before: int, count: int, after: int, together: float, burstiness: float = 1.0, dealt: int = 1
) -> Sequence[float]:
    """Return ``group_gaps`` of so many requests that count, of those before and after them.

    Large groups and crowds are rare. So of many stretches of arrivals it takes the one in which a simple queue, which
    is ``busy`` for this share of the time, waits most nearly as in all of them.
    """
    each = before + count
    stretches = min(max(DRAWN // each, 1), MOST_STRETCHES)
    gaps = _long_group_gaps(max(DRAWN, each) + count, together, burstiness, dealt)
    work, waits = 0.0, list[float]()
    for gap in gaps[: stretches * each]:
        work = work - gap + busy if work > gap else busy
        waits.append(work)
    marks = [_marks(waits[start + before : start + each]) for start in range(0, stretches * each, each)]
    usual = _marks(waits)
    off = [sum(abs(math.log(one / other)) for one, other in zip(found, usual, strict=True)) for found in marks]
    start = off.index(min(off)) * each
    return gaps[start : start + each + after]


@lru_cache(maxsize=8)
def _long_group_gaps(count: int, together: float, burstiness: float, dealt: int) -> list[float]:
    return list(islice(group_gaps(together, burstiness, GROUPS_SEED, dealt=dealt), count))


def _marks(values: list[float]) -> list[float]:
    """Return the mean and some quantiles."""
    ordered = sorted(values)
    picks = (ordered[int(share * len(ordered))] for share in (0.5, 0.9, 0.97, 0.99))
    return [math.fsum(ordered) / len(ordered), *picks]


def pair_lengths(inputs: Sequence[int], outputs: Sequence[int]) -> list[tuple[int, int]]:
    """Pair the lengths of both lists at random, as many pairs as the longer list has."""
    count = max(len(inputs), len(outputs))
    shuffled = [outputs[place * len(outputs) // count] for place in range(count)]
    random.Random(SEED).shuffle(shuffled)
    return [(inputs[place * len(inputs) // count], shuffled[place]) for place in range(count)]
