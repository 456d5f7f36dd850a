"""Figures under load: arrivals against queueing theory, clients, servers, prefixes and turns of a request."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from dataclasses import astuple, replace
from itertools import islice, pairwise, repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from variants import IMAGES, STORE, TEXT, configuration, resolve

from recommender import Request, recommend
from recommender.estimate import given_requests, load_profile, sampling
from recommender.estimate.arrivals import open_server
from recommender.estimate.closed_loop import ServiceTimes
from recommender.estimate.configuration import Configuration
from recommender.estimate.scheduler import simulation
from recommender.estimate.scheduler.passes import SimulatedRequest, SimulatedServer
from recommender.estimate.scheduler.simulation import LoadFigures, Quantiles, simulate_closed_loop
from recommender.estimate.terms.cached_prefix import TimesByLength
from recommender.request.resolved_request import ResolvedRequest

TEMPLATE = 29
"""Tokens that the model's chat template adds to a prompt."""
COEFFICIENTS = {"request-overhead-ms": 2.0, "token-host-ms": 0.0}
Look = Callable[..., list[list[tuple[int, int]]]]


def times_of(resolved: ResolvedRequest, config: Configuration) -> TimesByLength:
    """Times by a simple rule: 1 ms to prepare, 0.05 ms a token to prefill, a step of 8 ms and 0.05 a request."""

    def times(text: int, output: int) -> ServiceTimes:
        inputs = replace(resolved, prompt_tokens=text).input_tokens()
        return ServiceTimes(1.0, 0.05 * inputs, 8.0, 0.05, 0.0, step_hidable=7.0)

    return times


def asked(**fields: Any) -> ResolvedRequest:
    """A text request of 300 and 20 tokens, with the changes."""
    return resolve(STORE, **({"model": TEXT, "prompt_tokens": 300, "output_tokens": 20} | fields))


def configure(**fields: Any) -> Configuration:
    """A server for eight requests at once, with the changes."""
    return configuration(**{"max_batch_size": 8, "session_len": 32768, "prefill_tokens": 2048} | fields)


def predict(resolved: ResolvedRequest, clients: int, config: Configuration, kv_tokens: int = 0) -> LoadFigures:
    return load_profile.simulate_servers(resolved, config, clients, COEFFICIENTS, times_of, kv_tokens)


def server(step: float = 10.0, batch: int = 64) -> SimulatedServer:
    """A server that hides all reading of weights and has no overhead."""
    return SimulatedServer(0.0, 0.0, 8192, batch, 0, ServiceTimes(0.0, 0.0, step, 0.0, 0.0, step_hidable=step))


def one(output: int, prefill: float = 1.0, prepare: float = 0.0) -> list[list[SimulatedRequest]]:
    """Turns of conversations of a single request, all alike."""
    return [[SimulatedRequest(prepare, prefill, 16, 16, output, 0.0)]]


def test_only_streamed_text_is_written() -> None:
    """A quarter of the answers streamed: a quarter of 0.4 ms; that of images is in their preparation."""
    for fields, expected in (({}, 0.4), ({"streamed_share": 0.25}, 0.1), ({"images": 1}, 0.0)):
        resolved = replace(asked(), **fields)
        values = COEFFICIENTS | {"token-host-ms": 0.4}
        server, _ = load_profile.describe_server(resolved, configure(), 4, values, times_of)
        assert server.chunk == expected


def test_prefill_of_texts_hides_the_reading_of_weights() -> None:
    """7 of a step's 8 ms; the prefill of an image was measured with it."""
    for images, base in ((0, 1.0), (1, 8.0)):
        server, _ = load_profile.describe_server(
            replace(asked(), images=images), configure(), 4, COEFFICIENTS, times_of
        )
        assert server.pass_base == base


def test_experts_are_read_once_for_all_prompts_of_a_pass() -> None:
    """So no request bears them: 329 tokens at 0.05 ms, whatever the experts add to a pass."""

    def with_experts(resolved: ResolvedRequest, config: Configuration) -> TimesByLength:
        def times(text: int, output: int) -> ServiceTimes:
            plain = times_of(resolved, config)(text, output)
            return plain._replace(prefill=plain.prefill + 5.0, expert_pass=5.0)

        return times

    server, ((request,),) = load_profile.describe_server(asked(), configure(), 4, COEFFICIENTS, with_experts)
    assert request.prefill == pytest.approx(0.05 * (300 + TEMPLATE))
    assert server.times.expert_pass == 5.0


# --- arrivals ----------------------------------------------------------------------------


def test_steady_arrivals_below_capacity_do_not_wait() -> None:
    """5 ms to prepare, two passes of 1 ms, and the next comes after 10."""
    found = simulation.simulate_arrivals(server(1.0), one(2, prepare=5.0), repeat(10.0), 100.0)
    assert found.keeps_up
    assert astuple(found.latency) == pytest.approx((7, 7, 7, 7))
    assert (found.rps, found.tokens) == (100, 200)


@pytest.mark.parametrize("gap", [2.0, 10.0, 15.0])
def test_above_capacity_the_rate_is_the_capacity(gap: float) -> None:
    """The preparing thread takes 20 ms for each: 50 a second, however many come. 1 % is for the window's ends."""
    found = simulation.simulate_arrivals(server(1.0), one(2, prepare=20.0), repeat(gap), 1e3 / gap)
    assert not found.keeps_up
    assert found.rps == pytest.approx(50, rel=0.01)
    assert found.tokens == pytest.approx(2 * found.rps)


@pytest.mark.parametrize(
    ("batch", "offered", "keeps_up"), [(1, 20.0, False), (1, 100.0, False), (4, 20.0, True), (1, 5.0, True)]
)
def test_a_slot_serves_ten_a_second(batch: int, offered: float, keeps_up: bool) -> None:
    """Answers of ten passes of 10 ms. An idle engine takes the next at once, so a batch of one loses no pass."""
    found = simulation.simulate_arrivals(server(10.0, batch), one(10), sampling.gaps_of(offered), offered)
    assert found.keeps_up is keeps_up
    assert found.rps == offered if keeps_up else found.rps == pytest.approx(10, rel=0.01)


@pytest.mark.parametrize(("offered", "keeps_up"), [(20.0, True), (45.0, True), (57.0, False), (100.0, False)])
def test_answers_of_very_different_lengths_are_no_overload(offered: float, keeps_up: bool) -> None:
    """Of 100 answers 99 take 10 steps of 10 ms and one 400, so the last to end may be 4 s late.

    They hold their slots for 15.9 steps on average, two of them after the last token: eight slots serve 50 a second.
    """
    asked = [*[SimulatedRequest(0.0, 1e-6, 1, 1, 10, 0.0)] * 99, SimulatedRequest(0.0, 1e-6, 1, 1, 400, 0.0)]
    found = simulation.simulate_arrivals(server(10.0, 8), [asked], sampling.gaps_of(offered), offered)
    assert found.keeps_up is keeps_up


@pytest.mark.parametrize("workload", ["chat", "rag", "code", "agent"])
@pytest.mark.parametrize("share", [0.9, 1.12])
def test_overload_begins_at_what_is_answered_while_others_always_wait(workload: str, share: float) -> None:
    """Answers may take longer than all counted requests arrive; the few seconds from the start must tell even so."""
    made = recommend(Request(gpu="h100-sxm-80g", model="llama-3.1-8b-instruct", workload=workload, concurrency=32))
    one = open_server(made.resolved, made.config, 0)
    rate = share * one.capacity
    found = simulation.simulate_arrivals(one.server, one.turns, sampling.gaps_of(rate), rate)
    assert found.keeps_up is (share < 1)


def test_long_answers_are_no_overload() -> None:
    """Eight seconds of arrivals whose answers take twenty: none waits for another."""
    found = simulation.simulate_arrivals(server(10.0, 4096), one(2000), sampling.gaps_of(100.0), 100.0)
    assert found.keeps_up
    assert found.rps == 100


def test_who_usually_runs_by_hand() -> None:
    """Ten a second with 20 ms of prefill leave 80 % of the time for steps of 10 ms: 80 of these take a second."""
    assert simulation.usually_running(server(10.0), one(80, prefill=20.0), 10.0) == pytest.approx((10, 12.5))


def test_the_preparing_thread_is_an_m_d_1_queue() -> None:
    """By Pollaczek and Khinchine the mean wait is rho / 2 (1 - rho) services: 10 ms of 20 at half the capacity.

    Means of so many waits differ by 2.2 % (standard deviation over ten other seeds); five times that is allowed.
    """
    found = simulation.simulate_arrivals(server(1e-6), one(1, 1e-6, 20.0), sampling.gaps_of(25.0), 25.0, 40_000)
    assert found.ttft.mean - 20 == pytest.approx(10, rel=5 * 0.022)


@pytest.mark.parametrize("rate", [0.2, 30.0])
@pytest.mark.parametrize("burstiness", [0.25, 1.0, 2.5])
def test_gaps_have_their_rate_and_variation(rate: float, burstiness: float) -> None:
    """Gamma distributed, by the test of Kolmogorov and Smirnov; mean and variation within five standard errors."""
    gaps = list(islice(sampling.gaps_of(rate, burstiness), 20_000))
    mean, shape = 1e3 / rate, 1 / burstiness**2
    assert statistics.fmean(gaps) == pytest.approx(mean, rel=5 * burstiness / math.sqrt(len(gaps)))
    # By the delta method, with a gamma distribution's skewness of 2 c and kurtosis of 3 + 6 c^2.
    error = burstiness * math.sqrt((1 / 2 + burstiness**2 / 2) / len(gaps))
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(burstiness, abs=5 * error)
    assert stats.kstest(gaps, stats.gamma(shape, scale=mean / shape).cdf).pvalue > 1e-3


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=300))
def test_quantiles_are_nearest_ranks(values: list[float]) -> None:
    """As NumPy has them."""
    found = Quantiles.of(values)
    ranks = np.quantile(values, [0.5, 0.9, 0.99], method="inverted_cdf")
    assert [found.p50, found.p90, found.p99] == [float(rank) for rank in ranks]
    assert found.mean == pytest.approx(float(np.mean(values)), rel=1e-12)


def test_a_longer_tail_is_what_others_add() -> None:
    """Half as much again of the 20 ms beyond a request alone; nothing where that takes longer than the p99."""
    times = Quantiles(20.0, 25.0, 40.0, 50.0)
    assert times.lengthen_tail(30.0, 1.5) == replace(times, p99=60.0)
    assert times.lengthen_tail(70.0, 1.5) == times


def test_no_more_is_answered_than_at_most() -> None:
    """And so many tokens fewer."""
    times = Quantiles(20.0, 25.0, 40.0, 50.0)
    figures = LoadFigures(times, times, times, rps=10.0, tokens=200.0)
    assert figures.answer_at_most(4.0) == replace(figures, rps=4.0, tokens=80.0)
    assert figures.answer_at_most(40.0) == figures


# --- clients and servers -----------------------------------------------------------------


IMAGE = {"model": IMAGES, "images": 1, "image_width": 448, "image_height": 448}


@pytest.mark.parametrize(
    ("fields", "config", "clients", "simulated"),
    [
        ({}, {"servers": 2}, 2, False),  # a request alone
        ({}, {"servers": 2}, 3, True),
        ({"prompt_p99": 900}, {}, 1, True),
        ({**IMAGE}, {}, 8, False),  # all alike: solved
        ({**IMAGE, "output_p99": 90}, {}, 8, True),
        ({**IMAGE}, {"backend": "pytorch"}, 8, True),
    ],
)
def test_what_is_not_alike_or_waits_is_simulated(
    fields: dict[str, Any], config: dict[str, Any], clients: int, simulated: bool
) -> None:
    """Images of a closed loop only where prompts and decoding take turns; with arrivals everything."""
    resolved = asked(**fields)
    assert load_profile.is_simulated(resolved, configure(**config), clients) is simulated
    assert load_profile.is_simulated(replace(resolved, rps=1.0), configure(**config), clients)


@pytest.mark.parametrize("servers", [1, 3])
@given(
    clients=st.lists(st.integers(1, 90), min_size=2, max_size=6, unique=True).map(sorted),
    batch=st.sampled_from([1, 6, 16, 40]),
    caching=st.booleans(),
    kv_tokens=st.sampled_from([0, 4000]),
    fields=st.sampled_from(
        [{}, {"prompt_p99": 1500, "output_p99": 60}, {"prefix_tokens": 200}, {"turns": 3, "output_tokens": 5}]
    ),
)
@settings(max_examples=25)
def test_more_clients_wait_longer_and_are_served_no_slower(
    servers: int, clients: list[int], batch: int, caching: bool, kv_tokens: int, fields: dict[str, Any]
) -> None:
    """No time falls and no rate. Only where more conversations push histories out of the prefix cache the rate may:
    then prompts take the engine's time, fewer requests decode at once, and the gaps between their tokens shrink.
    """
    config = configure(servers=servers, max_batch_size=batch, prefix_caching=caching)
    found = [predict(asked(**fields), number, config, kv_tokens) for number in clients]
    pushed = caching and bool(kv_tokens) and "turns" in fields
    for fewer, more in pairwise(found):
        for name in ("ttft", "latency") if pushed else ("ttft", "tpot", "latency"):
            pairs = zip(astuple(getattr(fewer, name)), astuple(getattr(more, name)), strict=True)
            assert all(less <= later * (1 + 1e-9) for less, later in pairs), name
        assert pushed or fewer.rps <= more.rps * (1 + 1e-9)


@given(st.integers(1, 200), st.sampled_from([1, 2, 3, 7]), st.sampled_from([4, 10, 64]))
@settings(max_examples=40)
def test_littles_law_holds_at_every_number_of_clients(clients: int, servers: int, batch: int) -> None:
    """Also between those that are simulated, and where some servers have one client more."""
    found = predict(asked(), clients, configure(servers=servers, max_batch_size=batch))
    assert found.rps * found.latency.mean == pytest.approx(1e3 * clients, rel=1e-9)
    assert found.tokens == pytest.approx(20 * found.rps, rel=1e-9)


def test_numbers_between_are_between() -> None:
    """Of 9 to 15 clients all figures are between those of 8 and 16, and near what a simulation of so many finds.

    5 %: a simulation of few hundred requests is off by one or two, and the curve bends between two rungs.
    """
    config = configure(max_batch_size=64)
    low, high = predict(asked(), 8, config), predict(asked(), 16, config)
    times, resolved = times_of(asked(), config)(300, 20), asked()
    place = SimulatedServer(2.0, 1.0, 2048, 64, 0, times._replace(step_row=0.0))
    (turn,) = [[SimulatedRequest(1.0, times.prefill, 329, 329, 20, 0.05)]]
    for clients in range(9, 16):
        found = predict(resolved, clients, config)
        for name in ("ttft", "tpot", "latency"):
            rows = zip(*(astuple(getattr(each, name)) for each in (low, found, high)), strict=True)
            assert all(less * (1 - 1e-9) <= between <= more * (1 + 1e-9) for less, between, more in rows), name
        assert found.latency.mean == pytest.approx(
            simulation.simulate_closed_loop(place, [turn], clients).latency.mean, rel=0.05
        )


@pytest.mark.parametrize(("clients", "servers"), [(8, 4), (3, 4), (1, 2), (64, 2)])
def test_servers_alike_add_up(clients: int, servers: int) -> None:
    """Times are those of one server; one without a client adds nothing."""
    busy = min(clients, servers)
    single = predict(asked(), clients // busy, configure())
    found = predict(asked(), clients, configure(servers=servers))
    assert (found.ttft, found.tpot, found.latency) == (single.ttft, single.tpot, single.latency)
    assert (found.rps, found.tokens) == pytest.approx((busy * single.rps, busy * single.tokens))


def test_servers_that_differ_add_up() -> None:
    """Eleven clients on four servers: three each on three of them, two on the last. Means are over all requests."""
    few, many = (predict(asked(), number, configure()) for number in (2, 3))
    found = predict(asked(), 11, configure(servers=4))
    assert found.rps == pytest.approx(3 * many.rps + few.rps)
    assert found.tokens == pytest.approx(3 * many.tokens + few.tokens)
    for name in ("ttft", "tpot", "latency"):
        less, more, both = (getattr(each, name) for each in (few, many, found))
        assert both.mean == pytest.approx((3 * many.rps * more.mean + few.rps * less.mean) / found.rps)
        assert astuple(both)[1:] == astuple(more)[1:]


def test_arrivals_are_split_between_servers() -> None:
    """Each server has its share of them, and what they cannot serve is said."""
    four = predict(replace(asked(), rps=40.0), 1, configure(servers=4))
    single = predict(replace(asked(), rps=10.0), 1, configure())
    assert four.latency == single.latency
    assert (four.rps, four.tokens, four.keeps_up) == pytest.approx((40, 800, True))
    over = predict(replace(asked(), rps=4000.0), 1, configure(servers=4))
    assert not over.keeps_up
    assert over.rps < 400


def test_bursts_wait_longer() -> None:
    """At the same rate, in the tail and in the mean."""
    found = [predict(replace(asked(), rps=15.0, burstiness=each), 1, configure()) for each in (0.1, 1.0, 3.0)]
    for name in ("ttft", "latency"):
        calm, usual, bursts = (getattr(each, name) for each in found)
        assert calm.mean < usual.mean < bursts.mean
        assert calm.p99 < usual.p99 < bursts.p99


# --- prefixes and turns ------------------------------------------------------------------


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Look:
    """Of a prediction, for each turn the tokens that its requests find in the cache, and those of their prompts."""
    seen: list[tuple[tuple[SimulatedRequest, ...], ...]] = []
    simulate = load_profile._simulate

    def watched(server: SimulatedServer, turns: Any, *rest: Any) -> LoadFigures:
        seen.append(turns)
        return simulate(server, turns, *rest)

    def found(resolved: ResolvedRequest, config: Configuration, clients: int = 1, kv: int = 0) -> Any:
        predict(resolved, clients, config, kv)
        return [[(each.context - each.new_tokens, each.context) for each in turn] for turn in seen.pop()]

    monkeypatch.setattr(load_profile, "_simulate", watched)
    return found


CACHING = {"prefix_caching": True, "block_len": 64}


def test_a_history_is_found_in_whole_blocks(look: Look) -> None:
    """Prompts of 300, 700 and 1,100 tokens after 0, 400 and 800 that were said: 6 and 12 blocks of 64."""
    talk = asked(output_tokens=100, turns=3)
    assert look(talk, configure(**CACHING)) == [[(0, 329)], [(384, 729)], [(768, 1129)]]
    assert look(talk, configure()) == [[(0, 329)], [(0, 729)], [(0, 1129)]]


def test_a_small_cache_keeps_less_of_it(look: Look) -> None:
    """Room for half of what is in flight keeps half of each history, and all of the prefix that every request has."""
    talk = asked(output_tokens=100, turns=2, prefix_tokens=128)
    mean = talk.total_tokens()
    histories = [look(talk, configure(**CACHING), 4, share * mean)[1][0][0] for share in (400, 4, 2, 1)]
    # Of 400 tokens said 272 are no prefix: 400, 400, 128 + 136 and 128 + 68 in whole blocks.
    assert histories == [384, 384, 256, 192]


def test_the_prefix_takes_the_cache_once() -> None:
    """Of 384 tokens found in the second turn 128 are the prefix of all; the other 256 are the request's own.

    The second prompt has 128 + 172 tokens, an answer of 100 and 172 more, and the template's 29.
    """
    talk = asked(output_tokens=100, turns=2, prefix_tokens=128)
    _, turns = load_profile.describe_server(talk, configure(**CACHING), 1, COEFFICIENTS, times_of)
    assert [each.reused for (each,) in turns] == [0, 256]
    assert [each.blocks for (each,) in turns] == [329 - 128 + 100, 601 - 128 + 100]


def test_a_cache_that_the_prefix_fills_limits_most_of_all() -> None:
    """One token more never lets fewer requests run, and a cache without a limit lets all run."""
    talk, clients = asked(prefix_tokens=128), 8
    rates = [predict(talk, clients, configure(**CACHING), cache).rps for cache in (128, 129, 600, 10_000, 0)]
    assert rates == sorted(rates)
    assert rates[0] < rates[-1]


def test_given_requests_are_cut_to_the_session() -> None:
    """It holds prompt, answer and one more; a shorter prompt stays as it is, with the template's tokens."""
    config = configure(session_len=1000)
    lengths = [(5000, 100), (50, 100)]
    _, requests = given_requests._describe_given(asked(), config, COEFFICIENTS, times_of, 0, lengths)
    assert [each.context for each in requests] == [1000 - 100 - 1, 50 + TEMPLATE]


@pytest.mark.parametrize("prefix", [0, 256])
@pytest.mark.parametrize(("hit", "found"), [(319, 256), (320, 320), (0, 0)])
def test_a_hit_is_found_in_whole_blocks(hit: int, found: int, prefix: int) -> None:
    """Of 64 tokens, and no more, whatever the requests share: the first of them finds nothing."""
    place, load = configure(**CACHING), asked(prefix_tokens=prefix)
    _, (one,) = given_requests._describe_given(load, place, COEFFICIENTS, times_of, 0, [(500, 10)], [hit])
    assert one.context - one.new_tokens == found


def test_a_cut_prompt_finds_only_the_prefix(look: Look) -> None:
    """Cut at its beginning after the template and the prefix, it has another text there."""
    talk = asked(output_tokens=100, turns=3, prefix_tokens=128, max_context=800)
    assert look(talk, configure(**CACHING)) == [[(128, 329)], [(384, 601)], [(128, 729)]]


@given(
    prompt=st.integers(2, 3000),
    p99=st.sampled_from([1.0, 2.5]),
    prefix=st.floats(0, 0.999),
    turns=st.integers(1, 4),
    block=st.sampled_from([16, 64, 128]),
    kv=st.sampled_from([0, 500, 5000]),
)
@settings(max_examples=60)
def test_what_is_cached_is_whole_blocks_and_never_a_whole_prompt(
    look: Look, prompt: int, p99: float, prefix: float, turns: int, block: int, kv: int
) -> None:
    """Something is left to prefill, and it takes time. A longer prefix is never found in fewer blocks."""
    fields = {"prompt_tokens": prompt, "prompt_p99": int(p99 * prompt) if p99 > 1 else 0, "turns": turns}
    config = configure(prefix_caching=True, block_len=block)
    own = int(prefix * asked(**fields).prompts[0])  # a prefix of every prompt
    less, more = (look(asked(**fields, prefix_tokens=each), config, 3, kv) for each in (own // 2, own))
    for turn in (*less, *more):
        for cached, whole in turn:
            assert cached % block == 0
            assert 0 <= cached < whole
    assert all(one[0] <= other[0] for one, other in zip(less[0], more[0], strict=True))
    assert all(cached == own // block * block for cached, _ in more[0])


def test_a_shared_prefix_raises_the_rate() -> None:
    """Only with prefix caching; without it the same prompt takes as long whatever it shares."""
    plain, shared = asked(prompt_tokens=2000), asked(prompt_tokens=2000, prefix_tokens=1900)
    without = [predict(each, 8, configure()) for each in (plain, shared)]
    assert without[0] == without[1]
    caching = [predict(each, 8, configure(**CACHING)) for each in (plain, shared)]
    assert caching[0] == without[0]
    # A prompt of 100 ms without its 1,856 cached tokens takes 9; 20 steps of eight requests take as long for both.
    assert caching[1].rps > 1.5 * without[1].rps
    assert caching[1].ttft.mean < without[1].ttft.mean


def test_a_cached_prompt_takes_the_rest_of_its_prefill(look: Look) -> None:
    """One client: 2 ms of overhead and 1 of preparing in the mean, prefill of what is not found, 19 further tokens."""
    found = predict(asked(prompt_tokens=2000, prefix_tokens=1900), 1, configure(**CACHING))
    prefill = 0.05 * (2029 - 1856)
    # Overheads vary by half about 2 ms: of 60 requests the mean has a standard error of 0.075 ms.
    assert found.ttft.mean == pytest.approx(2 + 1 + prefill, abs=5 * 0.075)
    assert found.tpot.mean == pytest.approx(8.05)
    assert look(asked(prompt_tokens=2000, prefix_tokens=1900), configure(**CACHING)) == [[(1856, 2029)]]


def test_the_same_request_has_the_same_figures() -> None:
    """Also where nothing of an earlier prediction is remembered, and whatever chance was drawn meanwhile."""
    talk, config = asked(prompt_p99=900, output_p99=90, turns=2, prefix_tokens=50), configure(**CACHING)
    before = [predict(talk, clients, config, 9000) for clients in (3, 20)]
    random.seed(1)
    load_profile._simulate.cache_clear()
    load_profile._climb.cache_clear()
    assert [predict(talk, clients, config, 9000) for clients in (3, 20)] == before


@pytest.mark.parametrize(("gpu", "once"), [("h200-sxm", True), ("l4", True), ("a10", False), ("t4", False)])
def test_a_shared_prefix_is_read_once_a_step_where_the_cache_of_the_gpu_is_large(gpu: str, once: bool) -> None:
    """Llama-3.1-8B has 131,072 bytes of KV cache a token; a prefix of 2,048 tokens takes 8 MiB a layer."""
    resolved = asked(gpu=gpu, model="llama-3.1-8b-instruct", prompt_tokens=4096, prefix_tokens=2048)

    def timed(resolved: ResolvedRequest, config: Configuration) -> TimesByLength:
        def times(text: int, output: int) -> ServiceTimes:
            context = replace(resolved, prompt_tokens=text).input_tokens() + output // 2
            return ServiceTimes(1.0, 1.0, 8.0, context * 131_072 / 1e9, 0.0, step_hidable=7.0)

        return times

    cached, plain = (
        load_profile.describe_server(resolved, configure(prefix_caching=on), 16, COEFFICIENTS, timed)
        for on in (True, False)
    )
    moved = 2048 * 131_072 / 1e9 if once else 0.0
    assert cached[0].times.step_base - plain[0].times.step_base == pytest.approx(moved)
    assert plain[1][0][0].row - cached[1][0][0].row == pytest.approx(moved)
    assert plain[0].times.step_base == 8.0


def test_a_prefix_that_no_cache_of_a_gpu_holds_is_read_by_each() -> None:
    """One of 16,384 tokens takes 64 MiB a layer."""
    resolved = asked(gpu="h200-sxm", model="llama-3.1-8b-instruct", prompt_tokens=20_000, prefix_tokens=16_384)
    server, _ = load_profile.describe_server(resolved, configure(prefix_caching=True), 16, COEFFICIENTS, times_of)
    assert server.times.step_base == 8.0


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 900), st.integers(1, 40)), min_size=1, max_size=6),
    st.sampled_from([1, 2, 8, 16]),
    st.sampled_from([512, 2048, 8192]),
    st.sampled_from([0.25, 1, 2, 3, 64]),
    st.sampled_from([0, 20_000]),
    st.sampled_from([0.0, 0.12]),
)
def test_limits_that_few_clients_do_not_feel_change_no_figure(
    lengths: list[tuple[int, int]], clients: int, budget: int, times: float, kv_tokens: int, chunk: float
) -> None:
    """A server's figures are those of one with less budget and batch, to the last digit."""
    service = ServiceTimes(1.0, 9.0, 6.0, 0.1, 50.0, 2.0)
    turns = (tuple(SimulatedRequest(1.0, new / 20, new, 1000, out, 0.1) for new, out in lengths),)
    made = SimulatedServer(2.0, 1.0, budget, max(int(clients * times), 1), kv_tokens, service, chunk)
    less = load_profile._without_slack(made, turns, clients)
    assert simulate_closed_loop(less, turns, clients) == simulate_closed_loop(made, turns, clients)
