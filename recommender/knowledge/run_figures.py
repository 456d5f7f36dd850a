"""Compute the figures of a recorded run's phases, for pages and fits alike."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from recommender.knowledge.store import WITH_PREFIX

if TYPE_CHECKING:
    from recommender.knowledge import records

P99_SAMPLES = 300
LEAST_ROUNDS = 2
"""Rounds of answers that a closed loop needs, so that the first can be left out."""
BALANCE = 0.05
"""Largest relative difference between the concurrency of a steady closed loop and requests/s times mean latency."""


def name_workload(phase: records.Phase) -> str:
    """Return the workload of a phase whose lengths vary; one with a shared prefix is a workload of its own."""
    return (phase.drawn.workload + WITH_PREFIX * bool(phase.drawn.prefix_tokens)) if phase.drawn else ""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """The figures of one phase. Times in ms; 0: not measured (a p99 needs 300 samples).

    ``requests`` were answered; the times are those of ``samples`` of them (see ``records.Phase``). ``balance`` is
    requests/s times the mean latency in the same window, over the requests in flight: 1 by Little's law; 0 for an
    open loop, or without times. Where lengths vary, a request counts in the mean by its part in the window, as in the
    rate: the answers that end in a short window are the short ones.
    """

    requests: int
    """Answered requests."""
    samples: int
    """Answers that the times are of."""
    failed: int
    """Failed requests."""
    rps: float
    """Requests/s."""
    output_tokens_s: float
    """Output tokens/s."""
    p50_ms: float
    """Median latency in ms."""
    p95_ms: float
    """95th percentile of the latency in ms."""
    p99_ms: float
    """99th percentile of the latency in ms; 0: under 300 samples."""
    ttft_ms: float
    """Median time to first token in ms; 0: not measured."""
    token_ms: float
    """Time per output token in ms; 0: not measured."""
    balance: float
    """Requests/s times mean latency over concurrency: 1 in a steady load; 0: not computed."""

    @property
    def trusted(self) -> bool:
        """Return whether rate and times agree, so that fits, verdicts and tables may use them.

        A load whose answers all came after its window has no rate, although they have times.
        """
        if self.requests and not self.rps:
            return False
        return not self.balance or abs(self.balance - 1) <= BALANCE


def numbers(text: str) -> list[int]:
    """Return the whole numbers of a record's text."""
    return list(_parse_numbers(text))


@lru_cache(maxsize=64)
def _parse_numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


def write_numbers(values: Iterable[float]) -> str:
    """Return numbers, rounded, as the text of a record."""
    return " ".join(map(str, map(round, values)))


def quantile(values: Sequence[float], part: float) -> float:
    """Return the nearest-rank quantile of values, ``part`` from 0 to 1; 0 without any values."""
    ordered = sorted(values)
    return float(ordered[max(0, math.ceil(part * len(ordered) - 1e-9) - 1)]) if ordered else 0.0


class SteadyTimes(NamedTuple):
    """Times in ms of the requests that count. TPOT: of the streamed answers of several tokens.

    ``inside`` is the mean latency in the window, ``rps`` the requests/s there.
    """

    latency: Sequence[float]
    ttft: Sequence[float]
    tpot: Sequence[float]
    inside: float
    rps: float


def steady_times(phase: records.Phase) -> SteadyTimes:
    """Return the times of a phase without those of its opening, as ``records.Phase`` says."""
    answered = numbers(phase.latencies_ms)
    streamed = _streamed(phase, answered)
    rps = phase.window_requests / phase.window_s if phase.window_s else 0.0
    times, inside = answered, _mean(answered)
    if steady(phase):
        ends = list(accumulate(numbers(phase.gaps_ms)))
        opening = _opening(ends, answered, phase.concurrency)
        # Where lengths vary, the longest of the first requests may last as long as the window: one round is enough.
        last = phase.concurrency - 1 if phase.drawn else max(opening)
        opened, closed = ends[last], ends[phase.window_requests - 1]
        parts = _parts(ends, answered, opened, closed)
        times = [ms for place, ms in enumerate(answered) if place not in opening]
        inside = _mean([ms for place, ms in enumerate(answered[: phase.window_requests]) if place not in opening])
        if counted := math.fsum(parts):
            rps = counted / (closed - opened) * 1000
            if phase.drawn:
                inside = math.fsum(part * ms for part, ms in zip(parts, answered, strict=True)) / counted
        streamed = [answer for answer in streamed if answer.place not in opening]
    elif _rounds(phase) >= LEAST_ROUNDS and not phase.gaps_ms:
        times, inside = answered[phase.concurrency :], _mean(answered[phase.concurrency : phase.window_requests])
        rps = phase.concurrency / inside * 1000
    tpot = [(answer.whole - answer.first) / answer.steps for answer in streamed if answer.steps]
    return SteadyTimes(times, [answer.first for answer in streamed], tpot, inside, rps)


@lru_cache(maxsize=4096)
def figures(phase: records.Phase) -> RunFigures:
    """Return medians, quantiles and rates of a phase, from its raw times."""
    times, ttft, tpot, inside, rps = steady_times(phase)
    in_flight = rps * inside / 1000
    return RunFigures(
        requests=len(numbers(phase.latencies_ms)),
        samples=len(times),
        failed=sum(failure.count for failure in phase.failures),
        rps=rps,
        output_tokens_s=rps * _mean_output(phase),
        p50_ms=float(statistics.median(times)) if times else 0.0,
        p95_ms=quantile(times, 0.95),
        p99_ms=quantile(times, 0.99) if len(times) >= P99_SAMPLES else 0.0,
        ttft_ms=float(statistics.median(ttft)) if ttft else 0.0,
        token_ms=statistics.median(tpot) if tpot else 0.0,
        balance=in_flight / phase.concurrency if phase.concurrency else 0.0,
    )


def list_waits(phase: records.Phase) -> tuple[list[int], list[int]]:
    """Return when requests were sent, ascending, and the ms that each waited: for its first token where lengths vary.

    Else for its whole answer, because only some are streamed. Empty without the times between answers.
    """
    answered, ends = numbers(phase.latencies_ms), list(accumulate(numbers(phase.gaps_ms)))
    waits = (
        {each.place: each.first for each in _streamed(phase, answered)} if phase.drawn else dict(enumerate(answered))
    )
    pairs = sorted((ends[place] - answered[place], wait) for place, wait in waits.items() if place < len(ends))
    return [sent for sent, _ in pairs], [wait for _, wait in pairs]


def steady(phase: records.Phase) -> bool:
    """Return whether a phase has enough rounds to leave the first out: see ``records.Phase``."""
    return _rounds(phase) >= LEAST_ROUNDS and len(numbers(phase.gaps_ms)) == len(numbers(phase.latencies_ms))


def late_rps(phase: records.Phase) -> float:
    """Return the requests/s of a closed loop after its first round, or in its last quarter; 0 without times.

    A window of under two rounds holds the opening, in which all prompts are read and few answers end: with 256 in
    flight it showed 13.9 requests/s where 24 were answered, and the smaller of two batches as the faster one.
    """
    answered, ends = numbers(phase.latencies_ms), list(accumulate(numbers(phase.gaps_ms)))
    last = min(phase.window_requests, len(ends)) - 1
    first = min(phase.concurrency - 1, 3 * last // 4)
    if not phase.concurrency or len(ends) != len(answered) or last < 1 or ends[last] <= ends[first]:
        return 0.0
    opened, closed = ends[first], ends[last]
    return math.fsum(_parts(ends, answered, opened, closed)) / (closed - opened) * 1000


def _rounds(phase: records.Phase) -> int:
    """Return how many times each client of a closed loop was answered in the window; 0 for any other load."""
    counted = min(phase.window_requests, len(numbers(phase.latencies_ms)))
    return counted // phase.concurrency if phase.concurrency and not phase.failures else 0


def _parts(ends: Sequence[int], answered: Sequence[int], opened: int, closed: int) -> list[float]:
    """Return the share of each request's duration that lies between two times in ms.

    A rate from the ends alone would add or lose up to a round where answers come in waves.
    """
    return [
        (max(0, min(end, closed) - max(end - took, opened)) / took if took else float(opened < end <= closed))
        for end, took in zip(ends, answered, strict=True)
    ]


def _mean(values: Sequence[float]) -> float:
    return statistics.fmean(values) if values else 0.0


def _opening(ends: Sequence[int], answered: Sequence[int], clients: int) -> set[int]:
    """Return the places of the answers to the requests sent first.

    The answers that ended first would not do: they are the shortest.
    """
    sent = [end - took for end, took in zip(ends, answered, strict=True)]
    return set(sorted(range(len(sent)), key=sent.__getitem__)[:clients])


class _Streamed(NamedTuple):
    """A streamed answer: its place among all, times in ms, and tokens after the first."""

    place: int
    first: int
    whole: int
    steps: int


def _streamed(phase: records.Phase, answered: Sequence[int]) -> list[_Streamed]:
    """Return the streamed answers; a time to a first token without an answer is left out."""
    firsts = numbers(phase.ttft_ms)
    places = [place - 1 for place in accumulate(numbers(phase.streamed))] or range(len(firsts))
    outputs = numbers(phase.drawn.output_tokens) if phase.drawn else [phase.output_tokens] * len(answered)
    least = 0 if phase.drawn else 1
    return [
        _Streamed(place, first, answered[place], max(outputs[place] - 1, least))
        for place, first in zip(places, firsts, strict=False)
        if 0 <= place < min(len(answered), len(outputs))
    ]


def _mean_output(phase: records.Phase) -> float:
    outputs = numbers(phase.drawn.output_tokens) if phase.drawn else []
    return statistics.fmean(outputs) if outputs else phase.output_tokens
