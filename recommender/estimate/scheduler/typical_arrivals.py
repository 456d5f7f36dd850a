"""Find a typical stretch among many arrivals in groups.

The p99 of requests that come in groups depends on the few largest groups and on those that come close together. A
stretch of some hundred groups, drawn by chance, has too many or too few of them, and its p99 is off by a third.
Therefore many groups are drawn, a simple queue gives the wait of each, and the stretch whose share of long waits equals
that of all is simulated.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

SEED = 11
STRETCHES, MOST_DRAWN = (8, 48), 100_000
"""Groups drawn to choose a stretch from: fewest and most as multiples of its own groups, and the most in all."""
STARTS = 1000
"""Places where a stretch may begin that are compared."""
QUANTILES = {0.5: 1, 0.9: 1, 0.97: 2, 0.99: 4}
"""About these quantiles of all waits are the limits above which requests of a stretch are counted; and their weights.

The p99 counts most: where few requests find no slot it may be ten times the p98."""
FEWEST = 1e-12


class SimpleQueue(NamedTuple):
    """Servers as one queue; the unit of time is the mean gap between two requests.

    A request takes ``station`` of the slowest part that takes one after the other, such as prefill. ``slots`` requests
    run at once, of which ``capacity`` end in a unit of time if all slots are taken.
    """

    station: float
    slots: int
    capacity: float

    def waits(self, gaps: Sequence[float], sizes: Sequence[int]) -> tuple[list[float], list[float]]:
        """Return how long the first request of each group waits, and how long the last."""
        work, inside = 0.0, 0.0
        firsts: list[float] = []
        lasts: list[float] = []
        slots, capacity, hold = self.slots, self.capacity, self.slots / self.capacity
        station, exp, add_first, add_last = self.station, math.exp, firsts.append, lasts.append
        for gap, size in zip(gaps, sizes, strict=True):
            work = work - gap if work > gap else 0.0
            if inside <= slots:
                inside *= exp(-gap / hold)
            elif gap < (over := (inside - slots) / capacity):
                inside -= gap * capacity
            else:
                inside = slots * exp((over - gap) / hold)
            add_first(work + (inside - slots) / capacity if inside > slots else work)
            work += size * station
            inside += size
            add_last(work + (inside - slots) / capacity if inside > slots else work)
        return firsts, lasts


def typical_gaps(
    queue: SimpleQueue, before: int, counted: int, after: int, together: float, burstiness: float, dealt: int
) -> list[float]:
    """Return the gaps of a stretch of requests whose ``counted`` ones wait as those of all groups; others come around.

    ``together``, ``burstiness`` and ``dealt`` as in ``gaps_of``; the mean gap of all groups is 1.
    """
    count = before + counted + after
    groups = math.ceil(count / max(together / dealt, 1))
    fewest, most = (times * groups for times in STRETCHES)
    drawn = max(fewest, min(most, MOST_DRAWN))
    rounded = 1 << (drawn - 1).bit_length()  # so that one cached draw serves many lengths
    gaps, sizes = _draw_groups(together, burstiness, dealt, rounded)
    gaps, sizes = gaps[:drawn], sizes[:drawn]
    firsts, lasts = queue.waits(gaps, sizes)
    numbers = list(accumulate(sizes, initial=0))
    marks = [(mark, mark.sums[-1] / numbers[-1]) for mark in _sum_marks(firsts, lasts, sizes) if mark.sums[-1]]

    def differs(start: int) -> float:
        first = bisect_left(numbers, numbers[start] + before)
        last = bisect_left(numbers, numbers[first] + counted)
        requests = numbers[last] - numbers[first]
        parts = []
        for (weight, groups, sums), usual in marks:
            share = (sums[bisect_left(groups, last)] - sums[bisect_left(groups, first)]) / requests
            parts.append(weight * abs(math.log((share + FEWEST) / usual)))
        return math.fsum(parts)

    last_start = bisect_left(numbers, numbers[-1] - count - max(sizes))
    start = min(range(0, max(last_start, 1), max(last_start // STARTS, 1)), key=differs)
    stretch: list[float] = []
    for gap, size in zip(gaps[start:], sizes[start:], strict=True):
        stretch += [gap, *(0.0,) * (size - 1)]
        if len(stretch) >= count:
            break
    return stretch[:count]


class _Mark(NamedTuple):
    """What tells stretches apart, with its weight: ``sums`` of it until each group that has any, and of all."""

    weight: int
    groups: Sequence[int]
    sums: Sequence[float]


def _sum_marks(firsts: Sequence[float], lasts: Sequence[float], sizes: Sequence[int]) -> list[_Mark]:
    """Return what tells stretches apart.

    That is how many requests are above each limit, and by how much; their waits lie evenly between those of a group's
    first and last. Of the highest limit also all requests of groups that exceed it: these delay the decoding of all.
    """
    middles = [(first + last) / 2 for first, last in zip(firsts, lasts, strict=True)]
    numbers: Sequence[int] = range(1, len(sizes) + 1)
    if max(sizes) > 1:
        order = sorted(range(len(middles)), key=middles.__getitem__)
        numbers = list(accumulate(map(sizes.__getitem__, order)))
    ordered = sorted(middles)
    marks: list[_Mark] = []
    groups: Sequence[int] = range(len(lasts))
    for quantile, weight in QUANTILES.items():  # groups above a limit are above all lower ones
        limit = ordered[bisect_left(numbers, quantile * numbers[-1])]
        groups = [group for group in groups if lasts[group] > limit]
        marks += _sum_above(limit, weight, groups, firsts, lasts, sizes)
    marks.append(_Mark(1, groups, list(accumulate((float(sizes[group]) for group in groups), initial=0.0))))
    return marks


def _sum_above(
    limit: float,
    weight: int,
    groups: Sequence[int],
    firsts: Sequence[float],
    lasts: Sequence[float],
    sizes: Sequence[int],
) -> Iterator[_Mark]:
    """Yield how many requests of the groups that reach a limit are above it, and by how much."""
    above: list[float] = []
    beyond: list[float] = []
    for group in groups:
        first, last, size = firsts[group], lasts[group], float(sizes[group])
        if first >= limit:
            beyond.append(size * (last - first + 2 * (first - limit)) / 2)
        else:
            size *= (last - limit) / (last - first)
            beyond.append(size * (last - limit) / 2)
        above.append(size)
    yield _Mark(weight, groups, list(accumulate(above, initial=0.0)))
    yield _Mark(weight, groups, list(accumulate(beyond, initial=0.0)))


@lru_cache(maxsize=8)
def _draw_groups(together: float, burstiness: float, dealt: int, count: int) -> tuple[list[float], list[int]]:
    """Return the gaps before groups, and their requests, of one of so many servers that they are dealt to."""
    chance = random.Random(SEED)
    shape = 1 / burstiness**2
    scale = together / dealt / shape
    rest = math.log1p(-1 / together) if together > 1 else -math.inf
    gaps: list[float] = []
    sizes: list[int] = []
    gap, left = 0.0, 0
    while len(gaps) < count:
        gap += chance.gammavariate(shape, scale)
        mine, left = divmod(left + int(math.log(1 - chance.random()) / rest) + 1, dealt)
        if mine:
            gaps.append(gap)
            sizes.append(mine)
            gap = 0.0
    return gaps, sizes
