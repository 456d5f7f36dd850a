"""What the answers of two artefacts to the same pictures amount to: counts, intervals and exact tests."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recommender.measured import share
from recommender.smoke.answers import same
from recommender.smoke.ask import Answer, Round

Z = 1.959963984540054
"""Of the normal distribution 95 % lie within so many deviations of its middle."""


SURE = 0.05
"""What comes less often by chance alone is called a difference."""


@dataclass(frozen=True, slots=True)
class Share:
    """So many ``of`` so many, and between which shares the truth lies with 95 % confidence (Wilson's interval)."""

    count: int
    of: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Pairs:
    """Two yes-or-no findings on the same pictures, where they differ: ``first`` alone, and ``second`` alone.

    ``p_value``: were both as likely, the chance that the two counts lie at least so far apart (McNemar's exact test).
    """

    of: int
    first: int
    second: int
    p_value: float


@dataclass(frozen=True, slots=True)
class Accuracy:
    """How often the answers are the labels. Of the pairs ``first`` counts A's, ``second`` B's lone right answers.

    ``low`` to ``high``: B's accuracy less A's, 95 % interval, from the pictures that both answered; widened to hold 0
    where the exact test of the pairs cannot tell, so that the two never say different things.
    """

    a: Share
    again: Share | None
    b: Share | None
    pairs: Pairs | None
    low: float = 0.0
    high: float = 0.0

    @property
    def difference(self) -> float:
        """B's accuracy less A's, from the pictures that both answered."""
        return (self.pairs.second - self.pairs.first) / self.pairs.of if self.pairs else 0.0


@dataclass(frozen=True, slots=True)
class Speed:
    """Of one pass over the pictures. Times in ms; failures have none."""

    answered: int
    rate: float
    median_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class Contrast:
    """All that is computed. ``beyond``: pictures where only B leaves A's first answer, and where only A's second does.

    ``different`` names the pictures that A and B answer differently.
    """

    agreement: Share | None
    itself: Share | None
    beyond: Pairs | None
    accuracy: Accuracy | None
    different: tuple[str, ...]


def contrast(a: Round, again: Round | None, b: Round | None, labels: Mapping[str, Any]) -> Contrast:
    """Compares what was answered; a picture without an answer counts for nothing here."""
    first, second, other = read(a), read(again), read(b)
    both = [name for name in first if name in other]
    twice = [name for name in first if name in second]
    all_three = [name for name in both if name in second]
    changed = [not same(first[name], other[name]) for name in all_three]
    unsteady = [not same(first[name], second[name]) for name in all_three]
    return Contrast(
        agreement=_share([same(first[name], other[name]) for name in both]) if both else None,
        itself=_share([same(first[name], second[name]) for name in twice]) if twice else None,
        beyond=_pairs(changed, unsteady) if all_three else None,
        accuracy=_accuracy(first, second, other, labels),
        different=tuple(sorted(name for name in both if not same(first[name], other[name]))),
    )


def read(made: Round | None) -> dict[str, Any]:
    """The values of a round by picture, of those that have one."""
    return {name: each.value for name, each in made.answers.items() if not each.cause} if made else {}


def speed(made: Round) -> Speed:
    """How fast a round was."""
    times = [each.ms for each in made.answers.values() if each.ms]
    return Speed(
        answered=len(times),
        rate=len(times) / made.window_s if made.window_s else 0.0,
        median_ms=statistics.median(times) if times else 0.0,
        p95_ms=share(times, 0.95),
    )


def failures(made: Round) -> dict[str, tuple[int, str]]:
    """How often each cause kept a picture from its answer, and the first words of it; the commonest cause first."""
    failed = [each for each in made.answers.values() if each.cause]
    said: dict[str, Answer] = {}
    for each in failed:
        said.setdefault(each.cause, each)
    return {cause: (count, said[cause].said) for cause, count in Counter(each.cause for each in failed).most_common()}


def _accuracy(
    first: Mapping[str, Any], second: Mapping[str, Any], other: Mapping[str, Any], labels: Mapping[str, Any]
) -> Accuracy | None:
    def right(values: Mapping[str, Any]) -> dict[str, bool]:
        return {name: same(value, labels[name]) for name, value in values.items() if name in labels}

    a, again, b = right(first), right(second), right(other)
    if not a:
        return None
    both = [name for name in a if name in b]
    one, two = [a[name] for name in both], [b[name] for name in both]
    pairs = _pairs(one, two) if both else None
    low, high = paired(one, two) if both else (0.0, 0.0)
    if pairs and pairs.p_value >= SURE:
        low, high = min(low, 0.0), max(high, 0.0)
    return Accuracy(
        a=_share(list(a.values())),
        again=_share(list(again.values())) if again else None,
        b=_share(list(b.values())) if b else None,
        pairs=pairs,
        low=low,
        high=high,
    )


def _share(found: Sequence[bool]) -> Share:
    return Share(sum(found), len(found), *wilson(sum(found), len(found)))


def _pairs(first: Sequence[bool], second: Sequence[bool]) -> Pairs:
    alone = sum(one and not two for one, two in zip(first, second, strict=True))
    other = sum(two and not one for one, two in zip(first, second, strict=True))
    return Pairs(len(first), alone, other, sign_test(alone, other))


def wilson(count: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share by Wilson's score: it holds for few cases, and at none and all of them."""
    part, spread = count / of, Z * Z / of
    middle = (part + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(part * (1 - part) / of + spread / of / 4)
    return (0.0 if not count else middle - half), (1.0 if count == of else middle + half)


def sign_test(one: int, other: int) -> float:
    """The chance that so many fair coins fall at least so unevenly, to either side."""
    of = one + other
    tail = sum(math.comb(of, k) for k in range(min(one, other) + 1))
    return float(min(1, 2 * tail / 2**of))


def paired(first: Sequence[bool], second: Sequence[bool]) -> tuple[float, float]:
    """The 95 % interval of the second share less the first, both of the same cases (Newcombe 1998, method 10)."""
    of = len(first)
    neither = sum(not one and not two for one, two in zip(first, second, strict=True))
    both = sum(one and two for one, two in zip(first, second, strict=True))
    ones, twos = sum(first), sum(second)
    product = ones * (of - ones) * twos * (of - twos)
    # How alike the two are, shrunk a little where that makes the interval shorter.
    cross = both * neither - (ones - both) * (twos - both)
    alike = (max(cross - of / 2, 0.0) if cross > 0 else cross) / math.sqrt(product) if product else 0.0
    (low_1, high_1), (low_2, high_2) = wilson(ones, of), wilson(twos, of)
    p_1, p_2 = ones / of, twos / of

    def reach(mine: float, other: float) -> float:
        return math.sqrt(max(0.0, mine * mine - 2 * alike * mine * other + other * other))

    return p_2 - p_1 - reach(p_2 - low_2, high_1 - p_1), p_2 - p_1 + reach(high_2 - p_2, p_1 - low_1)
