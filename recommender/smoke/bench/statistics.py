"""Compare answers to the same images: counts, intervals and exact tests.

Without scipy: it would replace ``wilson`` and ``sign_test``, ten lines in all, with an optional dependency of 40 MB.
It has no counterpart of ``newcombe``.
"""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recommender.knowledge.run_figures import quantile
from recommender.smoke.bench.answers import same_value
from recommender.smoke.bench.ask import ImageAnswer, Round

Z = 1.959963984540054
"""Quantile of the normal distribution for 95 % confidence."""
SURE = 0.05
"""Significance level of the exact tests."""


@dataclass(frozen=True, slots=True)
class Share:
    """``count`` ``of`` cases, with Wilson's 95 % interval."""

    count: int
    """Cases that count."""
    of: int
    """All cases."""
    low: float
    """Low end of Wilson's 95 % interval."""
    high: float
    """High end of Wilson's 95 % interval."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Paired yes-or-no outcomes: cases where only ``first`` or only ``second`` holds."""

    of: int
    """All cases."""
    first: int
    """Cases where only the first holds."""
    second: int
    """Cases where only the second holds."""
    p_value: float
    """P value of McNemar's exact test."""


@dataclass(frozen=True, slots=True)
class AccuracyComparison:
    """Compare the accuracy of A and B, judged by the labels.

    In ``pairs``, ``first`` counts the images that only A answered right. ``low`` to ``high`` is the 95 % interval of
    B's accuracy minus A's, over images that both answered. It is widened to include 0 if the exact test finds no
    difference, so that the two never contradict each other.
    """

    a: Share
    """Right answers of A."""
    again: Share | None
    """Right answers of A's second pass; null: there was none."""
    b: Share | None
    """Right answers of B; null: there are none."""
    pairs: Pairs | None
    """Images that only one of them answered right; null: no pairs."""
    low: float = 0.0
    """Low end of the 95 % interval of the difference."""
    high: float = 0.0
    """High end of the 95 % interval of the difference."""

    @property
    def difference(self) -> float:
        """Return B's accuracy minus A's over the images that both answered."""
        return (self.pairs.second - self.pairs.first) / self.pairs.of if self.pairs else 0.0


@dataclass(frozen=True, slots=True)
class MeasuredSpeed:
    """Speed of one pass over the images; times in ms, failures excluded."""

    answered: int
    """Answered requests."""
    rate: float
    """Requests/s."""
    median_ms: float
    """Median latency in ms."""
    p95_ms: float
    """95th percentile of the latency in ms."""


@dataclass(frozen=True, slots=True)
class AnswerStatistics:
    """All statistics of a comparison.

    ``beyond`` counts images where only B, or only A's repeat, deviates from A's first answer; ``different`` names the
    images that A and B answer differently.
    """

    agreement: Share | None
    itself: Share | None
    beyond: Pairs | None
    accuracy: AccuracyComparison | None
    different: tuple[str, ...]


def compare_answers(a: Round, again: Round | None, b: Round | None, labels: Mapping[str, Any]) -> AnswerStatistics:
    """Compare the answers; images without an answer do not count."""
    values_a, values_again, values_b = answer_values(a), answer_values(again), answer_values(b)
    in_both = [name for name in values_a if name in values_b]
    repeated = [name for name in values_a if name in values_again]
    all_three = [name for name in in_both if name in values_again]
    changed = [not same_value(values_a[name], values_b[name]) for name in all_three]
    unsteady = [not same_value(values_a[name], values_again[name]) for name in all_three]
    return AnswerStatistics(
        agreement=_share([same_value(values_a[name], values_b[name]) for name in in_both]) if in_both else None,
        itself=_share([same_value(values_a[name], values_again[name]) for name in repeated]) if repeated else None,
        beyond=_discordant_pairs(changed, unsteady) if all_three else None,
        accuracy=_accuracy(values_a, values_again, values_b, labels),
        different=tuple(sorted(name for name in in_both if not same_value(values_a[name], values_b[name]))),
    )


def answer_values(image_round: Round | None) -> dict[str, Any]:
    """Return the values of a round by image."""
    return (
        {name: answer.value for name, answer in image_round.answers.items() if not answer.cause} if image_round else {}
    )


def measure_speed(image_round: Round) -> MeasuredSpeed:
    """Return the speed of a round."""
    times = [answer.ms for answer in image_round.answers.values() if answer.ms]
    return MeasuredSpeed(
        answered=len(times),
        rate=len(times) / image_round.window_s if image_round.window_s else 0.0,
        median_ms=statistics.median(times) if times else 0.0,
        p95_ms=quantile(times, 0.95),
    )


def count_failures(image_round: Round) -> dict[str, tuple[int, str]]:
    """Return count and first message of each cause of failure, commonest first."""
    failed = [answer for answer in image_round.answers.values() if answer.cause]
    first_answers: dict[str, ImageAnswer] = {}
    for answer in failed:
        first_answers.setdefault(answer.cause, answer)
    return {
        cause: (count, first_answers[cause].message)
        for cause, count in Counter(answer.cause for answer in failed).most_common()
    }


def _accuracy(
    values_a: Mapping[str, Any], values_again: Mapping[str, Any], values_b: Mapping[str, Any], labels: Mapping[str, Any]
) -> AccuracyComparison | None:
    def right(values: Mapping[str, Any]) -> dict[str, bool]:
        return {name: same_value(value, labels[name]) for name, value in values.items() if name in labels}

    a, again, b = right(values_a), right(values_again), right(values_b)
    if not a:
        return None
    in_both = [name for name in a if name in b]
    right_a, right_b = [a[name] for name in in_both], [b[name] for name in in_both]
    pairs = _discordant_pairs(right_a, right_b) if in_both else None
    low, high = newcombe(right_a, right_b) if in_both else (0.0, 0.0)
    if pairs and pairs.p_value >= SURE:
        low, high = min(low, 0.0), max(high, 0.0)
    return AccuracyComparison(
        a=_share(list(a.values())),
        again=_share(list(again.values())) if again else None,
        b=_share(list(b.values())) if b else None,
        pairs=pairs,
        low=low,
        high=high,
    )


def _share(outcomes: Sequence[bool]) -> Share:
    return Share(sum(outcomes), len(outcomes), *wilson(sum(outcomes), len(outcomes)))


def _discordant_pairs(first: Sequence[bool], second: Sequence[bool]) -> Pairs:
    only_first = sum(x and not y for x, y in zip(first, second, strict=True))
    only_second = sum(y and not x for x, y in zip(first, second, strict=True))
    return Pairs(len(first), only_first, only_second, sign_test(only_first, only_second))


def wilson(count: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share; valid for few cases and for 0 or all."""
    part, spread = count / total, Z * Z / total
    middle = (part + spread / 2) / (1 + spread)
    half = Z / (1 + spread) * math.sqrt(part * (1 - part) / total + spread / total / 4)
    return (0.0 if not count else middle - half), (1.0 if count == total else middle + half)


def sign_test(heads: int, tails: int) -> float:
    """Return the two-sided exact p-value of a fair coin (McNemar's exact test)."""
    total = heads + tails
    tail = sum(math.comb(total, k) for k in range(min(heads, tails) + 1))
    return float(min(1, 2 * tail / 2**total))


def newcombe(first: Sequence[bool], second: Sequence[bool]) -> tuple[float, float]:
    """Return the 95 % interval of a paired difference (Newcombe 1998, method 10)."""
    total = len(first)
    neither = sum(not x and not y for x, y in zip(first, second, strict=True))
    both = sum(x and y for x, y in zip(first, second, strict=True))
    ones, twos = sum(first), sum(second)
    product = ones * (total - ones) * twos * (total - twos)
    # The correlation; a positive one shortens the interval, so it is reduced (Newcombe's correction).
    cross = both * neither - (ones - both) * (twos - both)
    correlation = (max(cross - total / 2, 0.0) if cross > 0 else cross) / math.sqrt(product) if product else 0.0
    (low_1, high_1), (low_2, high_2) = wilson(ones, total), wilson(twos, total)
    p_1, p_2 = ones / total, twos / total

    def reach(distance: float, other_distance: float) -> float:
        return math.sqrt(
            max(
                0.0, distance * distance - 2 * correlation * distance * other_distance + other_distance * other_distance
            )
        )

    return p_2 - p_1 - reach(p_2 - low_2, high_1 - p_1), p_2 - p_1 + reach(high_2 - p_2, p_1 - low_1)
