"""The two stations of a request against queueing theory's closed forms, and servers that share a card."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.estimate import closed_loop

TIMES = st.floats(0.01, 300)


def service(**changed: Any) -> closed_loop.ServiceTimes:
    """Demands in ms, all 0 but those given."""
    return closed_loop.ServiceTimes(
        **({"prepare": 0.0, "prefill": 0.0, "step_base": 0.0, "step_row": 0.0, "full_pass": 0.0} | changed)
    )


def test_a_step_by_hand() -> None:
    """A base, a part a request, and experts: half of 16 ms for the first token, half of the rest for each further."""
    plain = service(step_base=10.0, step_row=0.5)
    assert [plain.step(running) for running in (0, 1, 8)] == [10.0, 10.5, 14.0]
    mixture = plain._replace(expert_most=16.0, expert_missed=0.5, expert_spread=1.0)
    assert [mixture.step(running) for running in (1, 2, 3, 4)] == [18.5, 23.0, 25.5, 27.0]
    half = mixture._replace(expert_spread=0.5)  # two further tokens count as one
    assert [half.step(running) for running in (1, 3, 5)] == [18.5, 23.5, 26.5]
    assert mixture._replace(expert_spread=0.0).step(8) == 14.0 + 8.0
    launched = mixture._replace(expert_launches=12.5)  # launches and reads overlap: the longer counts
    assert [launched.step(running) for running in (1, 2, 3)] == [10.5 + 12.5, 11.0 + 12.5, 25.5]


@given(TIMES, TIMES, st.integers(1, 40), st.integers(1, 20))
@settings(max_examples=150)
def test_one_at_a_time_in_the_engine_is_a_cycle_of_two_queues(
    prepare: float, engine: float, concurrency: int, tokens: int
) -> None:
    """Two exponential stations with N requests: the second is idle 1 of 1 + r + ... + r^N of the time."""
    ratio = engine / prepare
    idle = 1 / math.fsum(ratio**number for number in range(concurrency + 1))
    terms = service(prepare=prepare, prefill=engine / 2, step_base=engine / 2 / tokens)
    made = closed_loop.solve_loop(terms, tokens, concurrency, 1)
    assert made.rate == pytest.approx((1 - idle) / engine, rel=1e-9)
    assert made.engine == pytest.approx(engine, rel=1e-9) or concurrency > 1
    assert made.rate * (made.waiting + made.engine) == pytest.approx(concurrency, rel=1e-9)


@given(TIMES, TIMES, st.integers(1, 60), st.integers(1, 20))
@settings(max_examples=150)
def test_an_engine_that_is_never_full_is_machine_repair(
    prepare: float, step: float, concurrency: int, tokens: int
) -> None:
    """N machines that run for so many steps and one repairman: he is idle by Erlang's loss formula."""
    load = tokens * step / prepare
    blocked = 1.0
    for number in range(1, concurrency + 1):
        blocked = load * blocked / (number + load * blocked)
    # By Erlang B of the machines that run: all of them run and none is prepared.
    made = closed_loop.solve_loop(service(prepare=prepare, step_base=step), tokens, concurrency, concurrency)
    assert made.rate == pytest.approx((1 - blocked) / prepare, rel=1e-9)
    assert made.engine == pytest.approx(tokens * step, rel=1e-9)


def test_two_in_flight_by_hand() -> None:
    """Preparing 1 ms, a step 2 ms + 1 ms a request, 3 tokens, 4 ms of prefill: weights 1, 13, 13 x 10."""
    terms = service(prepare=1.0, prefill=4.0, step_base=2.0, step_row=1.0)
    made = closed_loop.solve_loop(terms, 3, 2, 2)
    # One in the engine is done after 3 x 3 + 4 = 13 ms, of two one after (3 x 4 + 2 x 4) / 2 = 10 ms.
    rate = (13 / 13 + 130 / 10) / (1 + 13 + 130)
    assert made.rate == pytest.approx(rate)
    assert made.engine == pytest.approx((13 + 2 * 130) / 144 / rate)
    one = closed_loop.solve_loop(terms, 3, 2, 1)
    assert one.rate == pytest.approx((13 / 13 + 169 / 13) / (1 + 13 + 169))
    assert one.engine == pytest.approx(13.0)
    assert one.waiting == pytest.approx(2 / one.rate - 13.0)


def test_a_single_request_passes_both_stations() -> None:
    """No queue: the rate is one over the sum of both."""
    made = closed_loop.solve_loop(service(prepare=7.0, prefill=11.0, step_base=0.5, step_row=0.5), 12, 1, 64)
    assert made.rate == pytest.approx(1 / (7 + 11 + 12))
    assert (made.waiting, made.engine) == pytest.approx((7.0, 23.0))


@pytest.mark.parametrize("concurrency", [150, 1000, 4096])
def test_many_in_flight_do_not_overflow(concurrency: int) -> None:
    """Where the engine is the limit by far: the rate is its own, and all but those in it wait."""
    made = closed_loop.solve_loop(service(prepare=1e-3, step_base=100.0, prefill=1.0), 10, concurrency, 8)
    assert made.rate == pytest.approx(8 / (1000 + 8), rel=1e-3)
    assert made.engine == pytest.approx(1008, rel=1e-3)
    assert made.rate * (made.waiting + made.engine) == pytest.approx(concurrency)


@pytest.mark.parametrize("concurrency", [700, 4096])
def test_many_in_flight_do_not_vanish(concurrency: int) -> None:
    """Where preparing is the limit by far: one over its time."""
    made = closed_loop.solve_loop(service(prepare=100.0, step_base=1e-3), 1, concurrency, 8)
    assert made.rate == pytest.approx(0.01)
    assert made.engine == pytest.approx(1e-3, rel=0.01)


def test_nothing_to_prepare_is_the_limit_of_little_to_prepare() -> None:
    """No division by zero: the engine alone decides."""
    none, little = (
        closed_loop.solve_loop(service(prepare=prepare, step_base=5.0), 4, 6, 2).rate for prepare in (0.0, 1e-6)
    )
    assert none == little == pytest.approx(2 / 20, rel=1e-6)


# --- servers that share a card


def fixed_point(terms: closed_loop.ServiceTimes, tokens: int, concurrency: int, batch: int, slowed: float) -> float:
    """How busy the other of two servers is: the share of time it prefills, found by a hundred halvings."""
    low, high = 0.0, 1.0
    for _ in range(100):
        busy = (low + high) / 2
        longer = terms._replace(prefill=terms.prefill * (1 + busy), step_base=terms.step_base * (1 + slowed * busy))
        rate = closed_loop.solve_loop(longer, tokens, concurrency, batch).rate
        low, high = (busy, high) if rate * longer.prefill > busy else (low, busy)
    return low


@pytest.mark.parametrize("concurrency", range(1, 33, 3))
@pytest.mark.parametrize("prepare", [2.0, 9.0, 40.0])
def test_the_other_servers_are_as_busy_as_this_one(concurrency: int, prepare: float) -> None:
    """What each has in prefill makes the other's prefill longer by that share, to one part in 4096."""
    terms = service(prepare=prepare, prefill=6.0, step_base=8.0, full_pass=20.0, step_row=0.0)
    made = closed_loop.share_gpu(terms, 16, concurrency, 16, 1, 0.5)
    busy = made.prefill / 6.0 - 1
    assert busy == pytest.approx(fixed_point(terms, 16, concurrency, 16, 0.5), abs=1 / 4096)
    assert made.full_pass == pytest.approx(20 * (1 + busy))
    assert made.step_base == pytest.approx(8 * (1 + 0.5 * busy))
    assert made.prepare == prepare


def test_all_parts_of_a_step_but_its_requests_are_slowed() -> None:
    """Experts like weights; with two others twice as much."""
    terms = service(
        prepare=5.0, prefill=6.0, step_base=8.0, step_row=0.25, expert_most=3.0, expert_missed=0.5, expert_pass=2.0,
        expert_launches=1.0,
    )  # fmt: skip
    one, two = (closed_loop.share_gpu(terms, 16, 8, 16, others, 0.5) for others in (1, 2))
    for made, others in ((one, 1), (two, 2)):
        busy = (made.prefill / 6.0 - 1) / others
        assert 0 < busy < 1
        factor = 1 + 0.5 * others * busy
        assert made.step_base == pytest.approx(8 * factor)
        assert (made.expert_most, made.expert_missed) == pytest.approx((3 * factor, 0.5))
        assert made.expert_launches == pytest.approx(factor)
        assert made.expert_pass == pytest.approx(made.prefill / 3)  # a part of the prefill
        assert made.step_row == 0.25
        rate = closed_loop.solve_loop(made, 16, 8, 16).rate
        assert rate * made.prefill == pytest.approx(busy, abs=2e-3)
    assert two.prefill > one.prefill


def test_beside_servers_that_only_decode_nothing_is_slower() -> None:
    """Without prefill nobody takes the whole card."""
    terms = service(prepare=5.0, step_base=8.0)
    assert closed_loop.share_gpu(terms, 16, 8, 16, 1, 1.0).step_base == pytest.approx(8.0, rel=1e-3)
