"""What the phases of a recorded run amount to: every figure of a page or of a fit is computed here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender import records as r

P99_SAMPLES = 300


@dataclass(frozen=True, slots=True)
class Figures:
    """What one phase of a record amounts to. Times in ms; 0: not measured (a p99 needs 300 samples).

    ``requests`` were answered; the times are those of ``samples`` of them (see ``records.Phase``).
    """

    requests: int
    samples: int
    failed: int
    rps: float
    output_tokens_s: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    ttft_ms: float
    token_ms: float


def numbers(text: str) -> list[int]:
    """The whole numbers of a record's text."""
    return [int(each) for each in text.split()]


def share(values: Sequence[float], part: float) -> float:
    """The value that so large a part of the values does not exceed (nearest rank); 0 without any."""
    ordered = sorted(values)
    return float(ordered[max(0, math.ceil(part * len(ordered) - 1e-9) - 1)]) if ordered else 0.0


def figures(phase: r.Phase) -> Figures:
    """Medians, shares and rates of a phase, from its raw runs."""
    answered = numbers(phase.latencies_ms)
    streamed = list(zip(numbers(phase.ttft_ms), numbers(phase.streamed_ms), strict=True))
    rps = phase.window_requests / phase.window_s if phase.window_s else 0.0
    every = answered
    if steady(phase):
        ends = list(accumulate(numbers(phase.gaps_ms)))
        rps = _rate(ends[: phase.window_requests], phase.concurrency) or rps
        opening = _opening(ends, answered, phase.concurrency)
        every = [ms for place, ms in enumerate(answered) if place not in opening]
        streamed = _without(opening, streamed, answered)
    first = [start for start, _ in streamed]
    steps = max(1, phase.output_tokens - 1)
    token = [(end - start) / steps for start, end in streamed]
    return Figures(
        requests=len(answered),
        samples=len(every),
        failed=sum(each.count for each in phase.failures),
        rps=rps,
        output_tokens_s=rps * phase.output_tokens,
        p50_ms=float(statistics.median(every)) if every else 0.0,
        p95_ms=share(every, 0.95),
        p99_ms=share(every, 0.99) if len(every) >= P99_SAMPLES else 0.0,
        ttft_ms=float(statistics.median(first)) if first else 0.0,
        token_ms=statistics.median(token) if token else 0.0,
    )


def steady(phase: r.Phase) -> bool:
    """Whether the figures of a phase can do without its first round: see ``records.Phase``."""
    clients, count = phase.concurrency, len(numbers(phase.gaps_ms))
    rounds = min(phase.window_requests, count) // clients if clients else 0
    return rounds >= 2 and count == len(numbers(phase.latencies_ms)) and not phase.failures


def _rate(ends: Sequence[int], clients: int) -> float:
    """Answers a second: a round's over its mean time, wherever one fits behind the first; 0 where all end at once.

    The rounds overlap. A few that do not would do where the answers come one by one or all together, but where
    they come in waves of another size than the round, or of ragged ends, it matters where a round begins.
    """
    took = statistics.fmean(ends[last] - ends[last - clients] for last in range(2 * clients - 1, len(ends)))
    return clients / took * 1000 if took else 0.0


def _opening(ends: Sequence[int], answered: Sequence[int], clients: int) -> set[int]:
    """The places of the answers to the first requests sent: not the first to end, which are the shortest ones."""
    sent = [end - took for end, took in zip(ends, answered, strict=True)]
    return set(sorted(range(len(sent)), key=sent.__getitem__)[:clients])


def _without(opening: set[int], streamed: Sequence[tuple[int, int]], answered: Sequence[int]) -> list[tuple[int, int]]:
    """The streamed answers but those of the opening. They stand in the order of all, so each is found by its time."""
    places = enumerate(answered)
    found = [(next((place for place, ms in places if ms == each[1]), -1), each) for each in streamed]
    return [each for place, each in found if place not in opening]
