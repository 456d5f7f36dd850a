"""The figures of a closed loop, against simulated servers whose steady rate and times theory gives."""

import base64
import heapq
import math
import random
import statistics
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest
from pydantic import TypeAdapter, ValidationError

from recommender.knowledge import records, run_figures
from recommender.smoke import record
from recommender.smoke.client.load import Outcome
from recommender.smoke.result import Load, LoadResult

Draw = Callable[[random.Random], float]
# When a request that is sent at a time is answered: told the times of sending, gives (end, sent) in order of the ends.
Server = Callable[[random.Random, list[float]], Iterator[tuple[float, float]]]


def around(mean: float, spread: float) -> Draw:
    """Service times spread evenly around a mean."""
    return lambda chance: mean * chance.uniform(1 - spread, 1 + spread)


def stations(count: int, draw: Draw) -> Server:
    """A queue in front of stations that serve a request each."""

    def serve(chance: random.Random, waiting: list[float]) -> Iterator[tuple[float, float]]:
        busy: list[tuple[float, float]] = []
        now = 0.0
        while waiting or busy:
            while waiting and len(busy) < count:
                sent = waiting.pop(0)
                heapq.heappush(busy, (max(sent, now) + draw(chance), sent))
            now, sent = heapq.heappop(busy)
            yield now, sent

    return serve


def waves(batch: int, draw: Draw) -> Server:
    """Takes up to so many at once, and answers them all at once."""

    def serve(chance: random.Random, waiting: list[float]) -> Iterator[tuple[float, float]]:
        now = 0.0
        while waiting:
            taken, waiting[:] = waiting[:batch], waiting[batch:]
            now = max(now, taken[0]) + draw(chance)
            for sent in taken:
                yield now, sent

    return serve


@dataclass(frozen=True)
class Case:
    """So many clients at a server, its true rate, and how much too low the rate of the window is at least."""

    name: str
    clients: int
    server: Server
    rate: float
    window_off: float


def simulated(case: Case, seed: int, seconds: float = 20.0, enough: int = 400) -> Outcome:
    """A closed loop: each client sends again once it has its answer, until time or answers are enough."""
    chance, waiting = random.Random(seed), [0.0] * case.clients
    ended: list[tuple[float, float]] = []
    stopped = seconds
    for end, sent in case.server(chance, waiting):
        ended.append((end, sent))
        if len(ended) == enough:
            stopped = min(stopped, end)
        if end < stopped:
            waiting.append(end)
    return Outcome(
        latencies_ms=[(end - sent) * 1e3 for end, sent in ended],
        ends_ms=[end * 1e3 for end, _ in ended],
        window_s=stopped,
        window_requests=sum(end <= stopped for end, _ in ended),
    )


def phase(outcome: Outcome, clients: int) -> records.Phase:
    return record._phase(LoadResult(Load(clients, 0.0, 0, 0, 0), outcome, 0, 0.0, 0.0, {}))


CASES = [
    Case("all in step", 16, waves(16, around(0.8, 0)), 16 / 0.8, 0.03),
    Case("all in step, ragged", 16, waves(16, around(0.9, 0.1)), 16 / 0.9, 0.01),
    Case("waves smaller than the round", 16, waves(12, around(0.7, 0.05)), 12 / 0.7, 0.01),
    Case("waves of a round and a part", 64, waves(24, around(1.0, 0.05)), 24.0, -0.01),
    Case("one station", 16, stations(1, around(0.05, 0)), 20.0, 0.0),
    Case("one station, random", 8, stations(1, around(0.05, 0.5)), 20.0, 0.0),
    Case("one each", 16, stations(16, around(1.0, 0.2)), 16.0, 0.015),
    Case("one each, many", 64, stations(64, around(1.0, 0.2)), 64.0, 0.06),
    Case("one each, few rounds", 128, stations(128, around(1.0, 0.2)), 128.0, 0.12),
    Case("half of them", 128, stations(64, around(1.0, 0.2)), 64.0, 0.06),
]
SEEDS = range(12)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_rate_of_a_closed_loop_is_the_steady_one(case: Case) -> None:
    """Within 1.5 % of theory, where requests over the window are off by several percent; Little's law holds."""
    got, old, product = [], [], []
    for seed in SEEDS:
        made = phase(simulated(case, seed), case.clients)
        figures = run_figures.figures(made)
        got.append(figures.rps)
        old.append(made.window_requests / made.window_s)
        product.append(figures.rps * figures.p50_ms / 1000)
    assert statistics.fmean(got) == pytest.approx(case.rate, rel=0.015)
    assert 1 - statistics.fmean(old) / case.rate >= case.window_off
    if "waves" not in case.name:  # a request that waits for the next wave makes the median no mean
        assert statistics.fmean(product) == pytest.approx(case.clients, rel=0.02)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_rate_of_a_record_without_gaps(case: Case) -> None:
    """Within 4 % of theory: latencies alone tell it by Little's law."""
    got = [
        run_figures.figures(phase(simulated(case, seed), case.clients).model_copy(update={"gaps_ms": ""})).rps
        for seed in SEEDS
    ]
    assert statistics.fmean(got) == pytest.approx(case.rate, rel=0.04)


def test_a_phase_is_trusted_where_little_s_law_holds() -> None:
    """A steady load over many rounds is; one that slows down fivefold before its window ends is not."""
    case = Case("", 16, stations(16, around(1.0, 0.2)), 16.0, 0.0)
    assert all(run_figures.figures(phase(simulated(case, seed), 16)).trusted for seed in SEEDS)
    ends = [1000] * 4 + [2000] * 4 + [3000] * 4 + [7900] * 1 + [8000] * 3
    times = [1000] * 12 + [4900] + [5000] * 3
    slows = run_figures.figures(hand_made(ends, times, 4, window_requests=13, window_s=7.9))
    assert slows.balance == pytest.approx((8 + 1 + 3 * 0.98) / 6.9 * (8 * 1.0 + 4.9) / 9 / 4, rel=1e-3)
    assert not slows.trusted


def test_a_phase_without_an_answer_in_its_window_is_not_trusted() -> None:
    """It has no rate, whatever the times of the answers after it."""
    late = run_figures.figures(hand_made([900] * 4, [900] * 4, 4, window_requests=0, window_s=0.5))
    assert (late.requests, late.rps, late.p50_ms, late.trusted) == (4, 0.0, 900.0, False)


def test_exponential_times_keep_their_median() -> None:
    """The first requests sent are left out of the times: the first to end would be the short ones among them."""
    case = Case("", 64, stations(64, lambda chance: chance.expovariate(1.0)), 64.0, 0.0)
    medians, short = [], []
    for seed in SEEDS:
        outcome = simulated(case, seed)
        medians.append(run_figures.figures(phase(outcome, 64)).p50_ms)
        short.append(statistics.median(outcome.latencies_ms[64:]))
    assert statistics.fmean(medians) == pytest.approx(1000 * math.log(2), rel=0.04)
    assert statistics.fmean(short) > 1.1 * 1000 * math.log(2)


def hand_made(ends: Sequence[float], latencies: Sequence[float], clients: int, **more: object) -> records.Phase:
    made = phase(Outcome(list(latencies), list(ends), ends[-1] / 1000, len(ends)), clients)
    return made.model_copy(update=more)


# Two clients: 900 and 500 ms at the start, then 100 ms each; the slow one ends after two of the second round.
ENDS = [500, 600, 700, 800, 900, 900, 1000, 1000, 1100, 1100]
TIMES = [500, 100, 100, 100, 900, 100, 100, 100, 100, 100]


def test_times_leave_the_first_round_out() -> None:
    """Of all answers and of the streamed ones, wherever in the order they ended; all are counted."""
    made = hand_made(ENDS, TIMES, 2, ttft_ms="400 60 800 60", streamed="1 1 3 1", output_tokens=5)
    got = run_figures.figures(made)
    assert (got.requests, got.samples) == (10, 8)
    assert (got.p50_ms, got.p95_ms, got.ttft_ms, got.token_ms) == (100, 100, 60, 10)
    # The slow one of the first two ends at 900 ms; from there two clients end two requests each 100 ms.
    assert got.rps == pytest.approx(20)
    assert got.balance == pytest.approx(20 * statistics.fmean([100] * 8) / 1000 / 2)


@pytest.mark.parametrize(
    "changed",
    [
        {"gaps_ms": "500 100"},
        {"concurrency": 0, "arrivals_rps": 9.0},
        {"concurrency": 6},
        {"window_requests": 3},
        {"failures": (records.FailedRequests(cause="too-long", count=1, said=""),)},
    ],
    ids=["other gaps", "open", "one round", "a short window", "failures"],
)
def test_without_two_whole_rounds_the_window_counts(changed: dict[str, object]) -> None:
    """And so do the times of all answers."""
    made = hand_made(ENDS, TIMES, 2, **changed)
    got = run_figures.figures(made)
    assert not run_figures.steady(made)
    assert got.rps == made.window_requests / made.window_s
    assert (got.samples, got.p95_ms) == (10, 900)


def test_answers_that_all_end_at_once() -> None:
    """No round took any time: the window tells the rate."""
    made = hand_made([1000] * 6, [1000] * 6, 2)
    assert run_figures.steady(made)
    assert run_figures.figures(made).rps == 6.0


def test_rounding_does_not_add_up() -> None:
    """Gaps of 0.4 ms are no gaps of 0 ms: their sum is the last end, rounded once."""
    made = hand_made([0.4 * number for number in range(1, 1001)], [0.4] * 1000, 1)
    gaps = run_figures.numbers(made.gaps_ms)
    assert len(gaps) == 1000
    assert set(gaps) == {0, 1}
    assert sum(gaps) == 400
    assert run_figures.figures(made).rps == pytest.approx(2500, rel=0.01)


def test_long_lists_are_packed_and_come_back() -> None:
    """A record's long list is a zlib stream in base 85 in its file, low bytes first, and plain text to every reader."""
    values = [250 + 7 * step % 90 for step in range(400)]
    values[7] = 70_000
    plain = " ".join(map(str, values))
    packed = records.pack(plain)
    assert packed.startswith("planes:")
    assert len(packed) < len(plain) / 2
    planes = zlib.decompress(base64.b85decode(packed.removeprefix("planes:")))
    for place in range(4):
        assert list(planes[400 * place : 400 * (place + 1)]) == [value >> 8 * place & 255 for value in values]
    numbers = TypeAdapter(records.Numbers)
    assert numbers.validate_python(packed) == plain
    assert records.pack("12 13") == "12 13" == numbers.validate_python("12 13")


ODD = "planes:" + base64.b85encode(zlib.compress(b"12345")).decode()
"""A stream of no whole numbers."""


@pytest.mark.parametrize("broken", ["planes:", "planes:abc", "planes:" + "~" * 40, ODD, "1 2 x"])
def test_a_broken_list_is_refused(broken: str) -> None:
    """Neither cut streams nor other texts are read as numbers."""
    with pytest.raises(ValidationError):
        TypeAdapter(records.Numbers).validate_python(broken)


def test_what_follows_the_opening_tells_a_short_load_s_rate() -> None:
    """One and a half rounds of a server that takes 2 s longer at first: the window says 14.7/s, the truth is 32."""
    late = Case("opens late", 32, stations(1, around(1 / 32, 0.2)), 32.0, 0.0)
    for seed in SEEDS:
        outcome = simulated(late, seed, seconds=1.5)
        shifted = [end + 2000 for end in outcome.ends_ms]
        times = [
            took + 2000 * (place < 32 and abs(end - took) < 1e-6)
            for place, (end, took) in enumerate(zip(outcome.ends_ms, outcome.latencies_ms, strict=True))
        ]
        made = hand_made(shifted, times, 32, window_requests=outcome.window_requests, window_s=outcome.window_s + 2)
        assert not run_figures.steady(made)
        assert run_figures.figures(made).rps < 16
        assert run_figures.late_rps(made) == pytest.approx(32, rel=0.1)


def test_a_load_without_times_has_no_late_rate() -> None:
    """Nor has one whose answers all come at once, or an open one."""
    assert run_figures.late_rps(hand_made(ENDS, TIMES, 2, gaps_ms="")) == 0
    assert run_figures.late_rps(hand_made([1000] * 6, [1000] * 6, 2)) == 0
    assert run_figures.late_rps(hand_made(ENDS, TIMES, 0, arrivals_rps=9.0)) == 0
