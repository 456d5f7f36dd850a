"""The speed model: its two stations against a linear-algebra solution, its limits, and what must never go down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender import memory, ranges, shapes, speed, stations
from recommender.candidates import tiers
from recommender.choose import Candidate, measure, pick
from recommender.facts import gather
from recommender.request import Request
from recommender.store import Plain, load

STORE = load()
TERMS = st.builds(
    stations.Terms,
    prepare=st.floats(0.1, 300),
    prefill=st.floats(0.5, 300),
    step_base=st.floats(0.5, 30),
    step_row=st.floats(0, 0.4),
    full_pass=st.sampled_from([5.0, 60.0, 400.0]),
    expert_row=st.sampled_from([0.0, 0.5]),
    expert_most=st.sampled_from([2.0, 20.0]),
    expert_hidden=st.sampled_from([0.0, 1.5]),
)


def asked(**changed: Any) -> speed.Speed:
    """The speed of one fixed configuration under a request."""
    fields = {"gpu": "h100-sxm-80g", "concurrency": 1, **changed}
    batch, threads, budget = fields.pop("batch", 16), fields.pop("threads", 4), fields.pop("budget", 8192)
    facts = gather(Request(**fields), STORE)
    config = replace(next(tiers(facts))[0], max_batch_size=batch, prefill_tokens=budget, session_len=16384)
    return speed.estimate(facts, replace(config, omp_threads=threads))


@given(TERMS, st.integers(1, 64), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=150, deadline=None)
def test_the_two_stations_are_solved_exactly(terms: stations.Terms, out: int, flight: int, batch: int) -> None:
    """Rate and times are those of the chain's stationary distribution, found as a null space."""
    feed = 1 / terms.prepare
    done = [0.0] + [
        min(n, batch) / (out * terms.step(min(n, batch)) + min(n, batch) * terms.prefill) for n in range(1, flight + 1)
    ]
    moves = np.zeros((flight + 1, flight + 1))
    for n in range(flight):
        moves[n, n + 1], moves[n + 1, n] = feed, done[n + 1]
    moves -= np.diag(moves.sum(axis=1))
    balance = np.vstack([moves.T, np.ones(flight + 1)])
    share = np.linalg.lstsq(balance, np.array([0.0] * (flight + 1) + [1.0]), rcond=None)[0]
    rate = float(share @ np.array(done))
    inside = float(share @ np.minimum(np.arange(flight + 1), batch))
    got = stations.stations(terms, out, flight, batch)
    assert got.rate == pytest.approx(rate, rel=1e-6)
    assert got.engine == pytest.approx(inside / rate, rel=1e-6)
    # Little's law: all that are in flight are either in the engine or before it.
    assert got.rate * (got.waiting + got.engine) == pytest.approx(flight, rel=1e-9)


@given(TERMS, st.integers(1, 64), st.integers(1, 500), st.integers(1, 128))
@settings(max_examples=150, deadline=None)
def test_no_station_is_passed_faster_than_it_serves(terms: stations.Terms, out: int, flight: int, batch: int) -> None:
    """The rate stays under what the preparing thread and a full engine can do, and rises with the load."""
    got = stations.stations(terms, out, flight, batch).rate
    assert got <= 1 / terms.prepare * (1 + 1e-9)
    assert got <= batch / (out * terms.step(batch) + batch * terms.prefill) * (1 + 1e-9)
    assert got <= stations.stations(terms, out, flight + 1, batch).rate * (1 + 1e-9)


def test_one_request_takes_the_sum_of_its_parts() -> None:
    """Alone: overhead, preparing, prefill with the first token, then a step for each further token."""
    one, two = asked(output_tokens=16), asked(output_tokens=17)
    assert one.alone_ms.value == one.latency_ms.value
    assert one.rps.value == pytest.approx(1000 / one.alone_ms.value)
    assert one.alone_ms.value == pytest.approx(one.ttft_ms.value + 15 * one.token_ms.value, rel=1e-6)
    assert two.alone_ms.value - one.alone_ms.value == pytest.approx(one.token_ms.value, rel=0.01)


MODELS = ("internvl3-8b-awq", "internvl3-8b", "internvl3-2b", "qwen2.5-7b-instruct")
MIXTURES = ("qwen3-30b-a3b", "gpt-oss-20b", "internvl3.5-30b-a3b")
BUDGETS = (256, 512, 1024, 8192)


@given(
    st.sampled_from([*MODELS, *MIXTURES]),
    st.integers(1, 120),
    st.integers(1, 8),
    st.sampled_from([1, 4, 16, 64]),
    st.sampled_from([1, 4, 16]),
    st.sampled_from([1, 8, 16, 200]),
    st.sampled_from(BUDGETS),
)
@settings(max_examples=300, deadline=None)
def test_more_load_never_speeds_up(
    model: str, flight: int, more: int, batch: int, threads: int, out: int, budget: int
) -> None:
    """With more in flight no request gets faster and no fewer are answered."""
    common: dict[str, Any] = {"model": model, "batch": batch, "threads": threads, "output_tokens": out}
    less = asked(concurrency=flight, budget=budget, **common)
    most = asked(concurrency=flight + more, budget=budget, **common)
    assert most.rps.value >= less.rps.value * (1 - 1e-9)
    for name in ("latency_ms", "p99_ms", "ttft_ms", "token_ms"):
        assert getattr(most, name).value >= getattr(less, name).value * (1 - 1e-9), name


@given(st.integers(0, 11), st.integers(1, 12), st.sampled_from([1, 2, 16, 64]), st.sampled_from([1, 16, 64]))
@settings(max_examples=100, deadline=None)
def test_more_tiles_never_speed_up(tiles: int, more: int, flight: int, batch: int) -> None:
    """An image of more pixels and tiles takes longer, and fewer requests are answered."""

    def wide(count: int) -> speed.Speed:
        return asked(images=1, image_width=448 * count, image_height=448, concurrency=flight, batch=batch)

    few, many = wide(tiles + 1), wide(min(tiles + 1 + more, 12))
    assert many.rps.value <= few.rps.value * (1 + 1e-9)
    for name in ("alone_ms", "latency_ms", "p99_ms", "ttft_ms"):
        assert getattr(many, name).value >= getattr(few, name).value * (1 - 1e-9), name


@given(
    st.sampled_from([("qwen2.5-7b-instruct", 0), ("internvl3-8b-awq", 1), ("internvl3-1b", 1), ("qwen3-30b-a3b", 0)]),
    st.integers(1, 3000),
    st.integers(1, 3000),
    st.integers(1, 500),
    st.integers(0, 500),
    st.sampled_from([1, 2, 16, 64]),
    st.sampled_from([4, 64]),
    st.sampled_from(BUDGETS),
)
@settings(max_examples=200, deadline=None)
def test_more_tokens_never_speed_up(
    of: tuple[str, int], taken: int, further: int, given_: int, longer: int, flight: int, batch: int, budget: int
) -> None:
    """Longer prompts and longer answers take longer, and the first token of a longer prompt comes no earlier."""
    common: dict[str, Any] = {"model": of[0], "images": of[1], "concurrency": flight, "batch": batch, "budget": budget}
    common |= {"image_width": 448, "image_height": 448} if of[1] else {}
    base = asked(prompt_tokens=taken, output_tokens=given_, **common)
    prompt = asked(prompt_tokens=taken + further, output_tokens=given_, **common)
    for other in (prompt, asked(prompt_tokens=taken, output_tokens=given_ + longer, **common)):
        for name in ("alone_ms", "latency_ms", "p99_ms"):
            assert getattr(other, name).value >= getattr(base, name).value * (1 - 1e-9), name
        assert other.rps.value <= base.rps.value * (1 + 1e-9)
    assert prompt.token_ms.value >= base.token_ms.value * (1 - 1e-9)
    assert prompt.ttft_ms.value >= base.ttft_ms.value * (1 - 1e-4)  # see ``figures``: nearly so


@given(st.sampled_from(MIXTURES), st.sampled_from([1, 2]), st.integers(1, 300))
@settings(max_examples=60, deadline=None)
def test_a_step_reads_the_experts_of_its_requests(model: str, tp: int, running: int) -> None:
    """A step with m requests takes what the bytes of m tokens' experts take at the card's bandwidth, and no more."""
    facts = gather(Request(gpu="h100-sxm-80g", gpu_count=tp, model=model, concurrency=1), STORE)
    config = replace(next(tiers(facts))[0], tp=tp)
    c = speed.values(STORE)
    terms = speed._terms(facts, config, False, c)._replace(expert_hidden=0.0)
    read = [shapes.decode_bytes(facts.model, tp, tokens) for tokens in (1, running)]
    bandwidth = facts.gpu.bandwidth_gb_s * 1e6 * c["bandwidth-efficiency"]
    grown = terms.step(running) - terms.step(1) - (running - 1) * terms.step_row
    assert grown == pytest.approx((read[1] - read[0]) / bandwidth, rel=1e-6, abs=1e-9)


@given(st.integers(1, 8), st.integers(1, 70), st.integers(1, 16))
@settings(max_examples=60, deadline=None)
def test_uneven_servers_keep_littles_law(servers: int, flight: int, batch: int) -> None:
    """However the requests in flight divide by the servers: their number is the rate times the mean time."""
    facts = gather(Request(gpu="h100-sxm-80g", gpu_count=8, concurrency=flight), STORE)
    config = replace(next(tiers(facts))[0], servers=servers, tp=1, share=1, max_batch_size=batch)
    found = speed.estimate(facts, config)
    assert found.rps.value * found.latency_ms.value / 1000 == pytest.approx(flight)
    whole = found.ttft_ms.value + (facts.output_tokens - 1) * found.token_ms.value
    assert whole == pytest.approx(found.latency_ms.value)
    one = speed.estimate(replace(facts, request=replace(facts.request, concurrency=flight + 1)), config)
    assert one.rps.value >= found.rps.value * (1 - 1e-9)


def test_one_at_a_time_is_as_sure_of_its_rate_as_of_its_time() -> None:
    """The ends of the one follow from those of the other."""
    found = asked()
    assert found.rps.high * found.latency_ms.low == pytest.approx(1000)
    assert found.rps.low * found.latency_ms.high == pytest.approx(1000)


def test_one_core_is_no_faster_than_two() -> None:
    """A single core has no thread to spare for the tiles either."""
    one, two = (asked(concurrency=16, cpus=cpus, threads=1).rps.value for cpus in (1, 2))
    assert one < two


def test_a_range_is_what_unseen_runs_were_off_by() -> None:
    """The ends are the held-out errors of the figure; on a card never measured they are wider, and it says so."""
    got, known = asked(concurrency=16), STORE.residuals["rps-load"]
    assert got.basis == "modelled from measurements on the same GPU"
    assert got.rps.low == pytest.approx(got.rps.value * min(known.low, 1))
    assert got.rps.high == pytest.approx(got.rps.value * max(known.high, 1))
    other = asked(gpu="l4", concurrency=16)
    assert other.basis == "extrapolated from datasheets"
    assert other.rps.high / other.rps.low > 1.5 * got.rps.high / got.rps.low


def test_scales_of_host_and_card() -> None:
    """What a user's own runs say of host and card moves what rests on it, and nothing where both are 1."""
    base = asked(concurrency=1)
    host = asked(concurrency=1, host_scale=2.0)
    card = asked(concurrency=1, card_scale=2.0)
    assert asked(concurrency=1, host_scale=1.0, card_scale=1.0) == base
    assert host.token_ms.value == base.token_ms.value  # of this model the card's kernels take longest
    assert host.ttft_ms.value > base.ttft_ms.value
    assert card.token_ms.value == pytest.approx(2 * base.token_ms.value)


# --- prefill budgets


@pytest.mark.parametrize("release", ["0.15.0", "0.16.0", "0.18.0"])
@pytest.mark.parametrize("image", [(448, 448), (640, 480), (1280, 720)])
@pytest.mark.parametrize("flight", [2, 16, 33, 47, 48, 49, 64, 100, 128, 192, 256])
@pytest.mark.parametrize("out", [1, 4, 16, 100])
def test_no_budget_for_many_more_images_than_end_in_a_pass(
    release: str, image: tuple[int, int], flight: int, out: int
) -> None:
    """Where the default holds twice what ends in a pass or more: two whole prompts or more, none above what ends."""
    width, height = image
    request = Request(gpu="A100-80G", concurrency=flight, images=1, image_width=width, image_height=height)
    facts = gather(replace(request, output_tokens=out, lmdeploy=release), STORE)
    largest = max(each.prefill_tokens for each in next(tiers(facts)))
    prompt, ends = facts.input_tokens(), flight / out
    if release >= "0.16.0" and ends >= 3 and 2 * ends * prompt < 8192:
        assert 2 * prompt <= largest <= ends * prompt
    else:
        assert largest >= min(facts.largest_tokens() - out, 8192)


def test_no_budget_is_held_back_where_no_image_is_asked_about() -> None:
    """Texts wait for no thread that prepares them."""
    request = Request(gpu="A100-80G", model="qwen2.5-7b-instruct", concurrency=64, prompt_tokens=330, output_tokens=16)
    assert max(each.prefill_tokens for each in next(tiers(gather(request, STORE)))) == 4096


# --- servers that share a card


def sharing() -> list[Candidate]:
    """All candidates of 64 in flight on a card where runs of two servers under CUDA MPS were made."""
    facts = gather(Request(gpu="h100-sxm-80g", concurrency=64), STORE)
    return [measure(facts, each) for each in next(tiers(facts))]


def test_servers_share_a_card_only_where_a_tenth_more_is_answered() -> None:
    """A daemon and a proxy more to run must be worth it."""
    every = sharing()
    two, one = ([each for each in every if (each.config.share == 2) == shared] for shared in (True, False))
    assert two
    best = max(each.speed.rps.value for each in one)

    def at(factor: float) -> list[Candidate]:
        rps = ranges.Range(best * factor, best, best)
        return [*one, *(replace(each, speed=replace(each.speed, rps=rps)) for each in two)]

    assert pick(at(1.09), "throughput").config.share == 1
    assert pick(at(1.11), "throughput").config.share == 2
    assert pick(at(5.0), "memory").config.share == 1


def test_no_server_shares_a_card_that_was_never_measured_so() -> None:
    """On other cards what sharing gives is not known."""
    facts = gather(Request(gpu="l40s", concurrency=64), STORE)
    assert {each.share for each in next(tiers(facts))} == {1}


def test_memory_of_a_shared_card_is_that_of_both() -> None:
    """The second takes its cache from what the first leaves, and the least of both is what is promised."""
    for each in (each for each in sharing() if each.config.share == 2):
        facts = gather(Request(gpu="h100-sxm-80g", concurrency=64), STORE)
        alone = memory.estimate(facts, replace(each.config, share=1, servers=1))
        free = alone.free - alone.total
        region = int(free * each.config.cache_ratio)
        assert each.memory.free == free
        assert each.memory.item("weights").bytes == 2 * alone.item("weights").bytes
        assert each.memory.item("kv cache").bytes == alone.item("kv cache").bytes + region
        assert each.memory.kv_tokens <= alone.kv_tokens
        assert each.memory.kv_tokens >= each.memory.kv_needed_tokens


@given(st.integers(2, 100), st.integers(1, 8))
@settings(max_examples=60, deadline=None)
def test_sharing_never_beats_two_cards(flight: int, more: int) -> None:
    """Two servers of one card are no faster than two with a card each, and more load does not slow them."""
    facts = gather(Request(gpu="h100-sxm-80g", concurrency=flight), STORE)
    base = replace(next(tiers(facts))[0], max_batch_size=64, servers=2)
    own, shared = (speed.estimate(facts, replace(base, share=share)) for share in (1, 2))
    assert shared.rps.value <= own.rps.value * (1 + 1e-6)
    later = speed.estimate(replace(facts, concurrency=flight + more), replace(base, share=2))
    assert later.rps.value >= shared.rps.value * (1 - 2e-3)  # how busy the card is, is found by halving


@given(
    st.sampled_from(["h100-sxm-80g", "h200-sxm", "l4"]),
    st.sampled_from([*MODELS, "internvl3-14b-awq"]),
    st.sampled_from([1, 16, 64]),
    st.sampled_from([0.02, 0.2, 0.8]),
    st.sampled_from([512, 8192]),
)
@settings(max_examples=60, deadline=None)
def test_memory_is_told_in_order(gpu: str, model: str, flight: int, ratio: float, budget: int) -> None:
    """The likely range holds the middle and stays under what it is at most."""
    facts = gather(Request(gpu=gpu, model=model, concurrency=flight), STORE)
    config = replace(next(tiers(facts))[0], cache_ratio=ratio, prefill_tokens=budget, max_batch_size=flight)
    made = memory.estimate(facts, config)
    low, high = memory.likely(facts, made, config.tp)
    assert low <= made.total <= high <= made.high


def test_the_likely_memory_is_what_unseen_starts_took() -> None:
    """On a measured card the ends are held-out errors, narrow; elsewhere, and over several cards, all parts' ends."""
    facts = gather(Request(gpu="h100-sxm-80g", concurrency=16), STORE)
    made = memory.estimate(facts, next(tiers(facts))[0])
    known, vision = STORE.residuals["memory"], made.item("vision").bytes
    low, high = memory.likely(facts, made, 1)
    assert low == pytest.approx((made.total - vision) * min(known.low, 1), rel=1e-6)
    assert high == pytest.approx((made.total - vision) * max(known.high, 1) + vision, rel=1e-6)
    parts = (made.low, sum(each.high for each in made.items))
    assert memory.likely(facts, made, 2) == parts
    assert parts[0] < low <= made.total <= high < parts[1]
    other = gather(Request(gpu="l4", concurrency=16), STORE)
    assert memory.likely(other, made, 1) == parts


@pytest.mark.parametrize("model", ["qwen3-30b-a3b", "qwen2.5-vl-7b-instruct", "gpt-oss-20b"])
def test_a_kind_of_model_that_never_ran_says_so(model: str) -> None:
    """Experts, other weight formats, encoders without tiles: wider, in speed and in memory, on a measured card too."""
    facts = gather(Request(gpu="h100-sxm-80g", model=model, concurrency=16), STORE)
    config = next(tiers(facts))[0]
    got, made = speed.estimate(facts, config), memory.estimate(facts, config)
    assert got.basis == "modelled from measurements of other kinds of models"
    usual = STORE.residuals["rps-load"]
    assert got.rps.high / got.rps.low > 1.5 * usual.high / usual.low
    assert memory.likely(facts, made, 1) == (made.low, sum(each.high for each in made.items))


def test_what_more_cards_than_measured_add_is_a_guess_and_says_so() -> None:
    """Two and four H200s with NVLink were run; eight, or H100s, or cards without it: the range is wider."""
    facts = gather(Request(gpu="h200-sxm", gpu_count=8, concurrency=16), STORE)
    config = replace(next(tiers(facts))[0], servers=1)
    one, two, four, eight = (speed.estimate(facts, replace(config, tp=tp)) for tp in (1, 2, 4, 8))
    assert one.basis == two.basis == four.basis == "modelled from measurements on the same GPU"
    assert eight.basis == "modelled from measurements of fewer cards a server"
    assert eight.rps.high / eight.rps.low > 2 * two.rps.high / two.rps.low
    apart = replace(facts, gpu=Plain(vars(facts.gpu) | {"nvlink_gb_s": 0.0}))
    assert speed.estimate(apart, replace(config, tp=2)).basis == eight.basis
    other = gather(Request(gpu="h100-sxm-80g", gpu_count=8, concurrency=16), STORE)
    assert [speed.estimate(other, replace(config, tp=tp)).basis for tp in (1, 2)] == [one.basis, eight.basis]


def test_a_card_half_as_fast_takes_twice_as_long() -> None:
    """All of the card's work follows its factor, each part of it once; the host's does not."""
    facts = gather(Request(gpu="h200-sxm", concurrency=16), STORE)
    config = replace(next(tiers(facts))[0], servers=1)
    one, half = (speed._terms(facts, config, True, speed.scaled(STORE, 1.0, card)) for card in (1.0, 2.0))
    assert half.prefill == pytest.approx(2 * one.prefill)
    assert half.step_base == pytest.approx(2 * one.step_base)
    assert half.prepare == one.prepare


def test_cards_meet_sooner_over_nvlink() -> None:
    """The bytes of an all-reduce take longer over PCIe, and a single card has none."""
    facts = gather(Request(gpu="h100-sxm-80g", gpu_count=2, concurrency=1), STORE)
    apart = replace(facts, gpu=Plain(vars(facts.gpu) | {"nvlink_gb_s": 0.0}))
    config = replace(next(tiers(facts))[0], servers=1)
    first = {tp: speed.estimate(facts, replace(config, tp=tp)).ttft_ms.value for tp in (1, 2)}
    without = {tp: speed.estimate(apart, replace(config, tp=tp)).ttft_ms.value for tp in (1, 2)}
    assert without[1] == first[1]
    assert without[2] > first[2]
