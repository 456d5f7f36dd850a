"""Test the speed model: exact solution, limits, and what must never go down."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recommender.choose.candidates import tiers
from recommender.choose.select import Candidate, pick, predict
from recommender.common.plain import Plain
from recommender.estimate import closed_loop, memory, request_times, speed, uncertainty
from recommender.estimate.closed_loop import ServiceTimes
from recommender.estimate.configuration import Configuration
from recommender.knowledge.load import load
from recommender.request.request import Request
from recommender.request.resolved_request import ResolvedRequest, resolve_request

STORE = load()
SERVICE_TIMES = st.builds(
    ServiceTimes,
    prepare=st.floats(0.1, 300),
    prefill=st.floats(0.5, 300),
    step_base=st.floats(1.6, 30),
    step_row=st.floats(0, 0.4),
    full_pass=st.sampled_from([5.0, 60.0, 400.0]),
    expert_most=st.sampled_from([0.0, 2.0, 20.0]),
    expert_missed=st.sampled_from([0.5, 0.95]),
    expert_spread=st.sampled_from([0.0, 0.1, 1.0]),
    step_hidable=st.just(0.0),
    expert_pass=st.just(0.0),
    expert_launches=st.sampled_from([0.0, 3.0]),
    prompt_floor=st.just(0.0),
    encoded_again=st.just(0.0),
    delay=st.just(0.0),
)


def resolve(**fields: Any) -> ResolvedRequest:
    """Return a resolved request, on an H100 unless ``fields`` name a GPU."""
    return resolve_request(Request(**{"gpu": "h100-sxm-80g"} | fields), STORE)


def configure(resolved: ResolvedRequest, **changes: Any) -> Configuration:
    return replace(next(tiers(resolved))[0], **changes)


def predict_speed(batch: int = 16, threads: int = 4, prefill: int = 8192, **fields: Any) -> speed.Speed:
    """Return the speed of one fixed configuration under a request."""
    resolved = resolve(**{"concurrency": 1} | fields)
    fixed = {"max_batch_size": batch, "prefill_tokens": prefill, "session_len": 16384, "omp_threads": threads}
    return speed.estimate(resolved, configure(resolved, **fixed))


def assert_no_faster(slow: speed.Speed, fast: speed.Speed, *times: str, near: float = 1e-9) -> None:
    """Assert that none of these times is shorter by more than a share of ``near``."""
    for name in times:
        assert getattr(slow, name).value >= getattr(fast, name).value * (1 - near), name


@given(SERVICE_TIMES, st.integers(1, 64), st.integers(1, 40), st.integers(1, 40))
@settings(max_examples=150)
def test_the_two_stations_are_solved_exactly(
    times: ServiceTimes, output_tokens: int, concurrency: int, batch: int
) -> None:
    """Rate and times match the chain's stationary distribution, found as a null space."""
    running = np.minimum(np.arange(concurrency + 1), batch)
    done = [0.0] + [m / (output_tokens * times.step(m) + m * times.prefill) for m in map(int, running[1:])]
    moves = np.diag([1 / times.prepare] * concurrency, 1) + np.diag(done[1:], -1)
    moves -= np.diag(moves.sum(axis=1))
    balance = np.vstack([moves.T, np.ones(concurrency + 1)])
    share = np.linalg.lstsq(balance, np.array([0.0] * (concurrency + 1) + [1.0]), rcond=None)[0]
    rate = float(share @ np.array(done))
    loop = closed_loop.solve_loop(times, output_tokens, concurrency, batch)
    assert loop.rate == pytest.approx(rate, rel=1e-6)
    assert loop.engine == pytest.approx(float(share @ running) / rate, rel=1e-6)
    # Little's law: all that are in flight are either in the engine or before it.
    assert loop.rate * (loop.waiting + loop.engine) == pytest.approx(concurrency, rel=1e-9)


@given(SERVICE_TIMES, st.sampled_from([0.5, 8.0, 200.0]), st.integers(1, 64), st.integers(1, 8), st.integers(1, 8))
@settings(max_examples=100)
def test_the_way_to_the_stations_is_solved_exactly(
    times: ServiceTimes, delay: float, output_tokens: int, concurrency: int, batch: int
) -> None:
    """Rate and those in the engine match the chain of how many are on their way, wait, and run."""
    states = [(way, wait) for way in range(concurrency + 1) for wait in range(concurrency + 1 - way)]
    place = {state: number for number, state in enumerate(states)}
    running = [min(concurrency - way - wait, batch) for way, wait in states]
    done = [m / (output_tokens * times.step(m) + m * times.prefill) for m in running]
    moves = np.zeros((len(states), len(states)))
    for (way, wait), number in place.items():
        if way:
            moves[number, place[way - 1, wait + 1]] += way / delay
        if wait:
            moves[number, place[way, wait - 1]] += 1 / times.prepare
        if running[number]:
            moves[number, place[way + 1, wait]] += done[number]
    moves -= np.diag(moves.sum(axis=1))
    balance = np.vstack([moves.T, np.ones(len(states))])
    share = np.linalg.lstsq(balance, np.array([0.0] * len(states) + [1.0]), rcond=None)[0]
    rate = float(share @ np.array(done))
    loop = closed_loop.solve_loop(times._replace(delay=delay), output_tokens, concurrency, batch)
    assert loop.rate == pytest.approx(rate, rel=1e-6)
    assert loop.engine == pytest.approx(float(share @ np.array(running)) / rate, rel=1e-6)


@given(SERVICE_TIMES, st.sampled_from([0.0, 8.0, 200.0]), st.integers(1, 64), st.integers(1, 500), st.integers(1, 128))
@settings(max_examples=150)
def test_no_station_is_passed_faster_than_it_serves(
    times: ServiceTimes, delay: float, output_tokens: int, concurrency: int, batch: int
) -> None:
    """The rate stays below what each station can serve, and rises with the load."""
    times = times._replace(delay=delay)
    rate = closed_loop.solve_loop(times, output_tokens, concurrency, batch).rate
    assert rate <= 1 / times.prepare * (1 + 1e-9)
    assert rate <= batch / (output_tokens * times.step(batch) + batch * times.prefill) * (1 + 1e-9)
    assert rate <= closed_loop.solve_loop(times, output_tokens, concurrency + 1, batch).rate * (1 + 1e-9)


def test_one_request_takes_the_sum_of_its_parts() -> None:
    """Alone: overhead, preprocessing, prefill with the first token, a step a token."""
    one, two = predict_speed(output_tokens=16), predict_speed(output_tokens=17)
    assert one.alone_ms.value == one.latency_ms.value
    assert one.rps.value == pytest.approx(1000 / one.alone_ms.value)
    assert one.alone_ms.value == pytest.approx(one.ttft_ms.value + 15 * one.token_ms.value, rel=1e-6)
    assert two.alone_ms.value - one.alone_ms.value == pytest.approx(one.token_ms.value, rel=0.01)


MODELS = ("internvl3-8b-awq", "internvl3-8b", "internvl3-2b", "qwen2.5-7b-instruct")
MIXTURES = ("qwen3-30b-a3b", "gpt-oss-20b", "internvl3.5-30b-a3b")
PREFILL_TOKENS = (256, 512, 1024, 8192)


@given(
    st.sampled_from([*MODELS, *MIXTURES]),
    st.integers(1, 120),
    st.integers(1, 8),
    st.sampled_from([1, 4, 16, 64]),
    st.sampled_from([1, 4, 16]),
    st.sampled_from([1, 8, 16, 200]),
    st.sampled_from(PREFILL_TOKENS),
)
@settings(max_examples=300)
def test_more_load_never_speeds_up(
    model: str, concurrency: int, more: int, batch: int, threads: int, output_tokens: int, prefill: int
) -> None:
    """At higher concurrency no request is faster and throughput does not fall."""
    common: dict[str, Any] = {"model": model, "output_tokens": output_tokens}
    less, most = (
        predict_speed(batch, threads, prefill, concurrency=each, **common) for each in (concurrency, concurrency + more)
    )
    assert most.rps.value >= less.rps.value * (1 - 1e-9)
    assert_no_faster(most, less, "latency_ms", "p99_ms", "ttft_ms", "token_ms")


@given(st.integers(0, 11), st.integers(1, 12), st.sampled_from([1, 2, 16, 64]), st.sampled_from([1, 16, 64]))
@settings(max_examples=100)
def test_more_tiles_never_speed_up(tiles: int, more: int, concurrency: int, batch: int) -> None:
    """A larger image takes longer, and throughput does not rise."""
    few, many = (
        predict_speed(batch, images=1, image_width=448 * count, image_height=448, concurrency=concurrency)
        for count in (tiles + 1, min(tiles + 1 + more, 12))
    )
    assert many.rps.value <= few.rps.value * (1 + 1e-9)
    assert_no_faster(many, few, "alone_ms", "latency_ms", "p99_ms", "ttft_ms")


@given(
    st.sampled_from([("qwen2.5-7b-instruct", 0), ("internvl3-8b-awq", 1), ("internvl3-1b", 1), ("qwen3-30b-a3b", 0)]),
    st.integers(1, 3000),
    st.integers(1, 3000),
    st.integers(1, 500),
    st.integers(0, 500),
    st.sampled_from([1, 2, 16, 64]),
    st.sampled_from([4, 64]),
    st.sampled_from(PREFILL_TOKENS),
)
@settings(max_examples=200)
def test_more_tokens_never_speed_up(
    model: tuple[str, int],
    prompt: int,
    further: int,
    answer: int,
    longer: int,
    concurrency: int,
    batch: int,
    prefill: int,
) -> None:
    """Longer prompts and answers take longer; TTFT does not fall.

    Of simulated loads (text under load) only where lengths double, and nearly: one token more can part requests that
    would have shared a pass. Answers shorter than 32 tokens do that in earnest: clients fall into step or out of it.
    """
    simulated = not model[1] and concurrency > 1
    if simulated:
        prompt, answer = prompt + 15, answer + 31
        further, longer = prompt, answer
    near = 0.01 if simulated else 1e-9
    common: dict[str, Any] = {"model": model[0], "images": model[1], "concurrency": concurrency}
    common |= {"image_width": 448, "image_height": 448} if model[1] else {}
    base, long_prompt, long_answer = (
        predict_speed(batch, prefill=prefill, prompt_tokens=inputs, output_tokens=outputs, **common)
        for inputs, outputs in ((prompt, answer), (prompt + further, answer), (prompt, answer + longer))
    )
    for slower in (long_prompt, long_answer):
        assert_no_faster(slower, base, "alone_ms", "latency_ms", "p99_ms", near=near)
        assert slower.rps.value <= base.rps.value * (1 + near)
    if not simulated:  # longer prompts leave fewer requests to decode beside each other
        assert_no_faster(long_prompt, base, "token_ms")
    assert long_prompt.ttft_ms.value >= base.ttft_ms.value * (1 - max(near, 1e-4))  # see ``estimate_server``: nearly so


@given(st.sampled_from(MIXTURES), st.sampled_from([1, 2]), st.integers(1, 300))
@settings(max_examples=60)
def test_a_step_reads_the_experts_of_its_requests(model: str, tp: int, running: int) -> None:
    """Routed by chance, m tokens leave the share (1 - k/E)^m of the experts unread."""
    resolved = resolve(gpu_count=tp, model=model, concurrency=1)
    free = {"expert-spread": 1.0, "expert-layer-ms": 0.0, "expert-tile-tokens": 0.0}
    coefficients = {**speed.read_coefficients(STORE), **free}
    times = request_times.estimate_times(resolved, configure(resolved, tp=tp), False, coefficients)
    (mixture,) = resolved.model.text.mixture
    bits = {"mxfp4": 4.25, "": 16}[resolved.model.quantization[0].method if resolved.model.quantization else ""]
    expert = 3 * resolved.model.text.hidden * mixture.intermediate * bits / 8
    bandwidth = resolved.gpu.bandwidth_gb_s * 1e6 * coefficients["bandwidth-efficiency"]
    unread = [math.pow(1 - mixture.per_token / mixture.experts, tokens) for tokens in (1, running)]
    read = resolved.model.text.layers * mixture.experts * expert / tp * (unread[0] - unread[1])
    grown = times.step(running) - times.step(1) - (running - 1) * times.step_row
    assert grown == pytest.approx(read / bandwidth, rel=1e-6, abs=1e-9)


@given(st.integers(1, 8), st.integers(1, 70), st.integers(1, 16))
@settings(max_examples=60)
def test_uneven_servers_keep_littles_law(servers: int, concurrency: int, batch: int) -> None:
    """Concurrency equals rate times mean latency, even if servers have unequal load."""
    resolved = resolve(gpu_count=8, concurrency=concurrency)
    config = configure(resolved, servers=servers, tp=1, share=1, max_batch_size=batch)
    predicted = speed.estimate(resolved, config)
    assert predicted.rps.value * predicted.latency_ms.value / 1000 == pytest.approx(concurrency)
    whole = predicted.ttft_ms.value + (resolved.output_tokens - 1) * predicted.token_ms.value
    assert whole == pytest.approx(predicted.latency_ms.value)
    more = speed.estimate(replace(resolved, concurrency=concurrency + 1), config)
    assert more.rps.value >= predicted.rps.value * (1 - 1e-9)


def test_one_at_a_time_is_as_sure_of_its_rate_as_of_its_time() -> None:
    """At concurrency 1 per server, the rate's range follows from the latency's."""
    predicted = predict_speed()
    assert predicted.rps.high * predicted.latency_ms.low == pytest.approx(1000)
    assert predicted.rps.low * predicted.latency_ms.high == pytest.approx(1000)


def test_one_core_is_no_faster_than_two() -> None:
    """A single core has no spare thread for the tiles."""
    one, two = (predict_speed(concurrency=16, cpus=cpus, threads=1).rps.value for cpus in (1, 2))
    assert one < two


def test_a_range_is_what_unseen_runs_were_off_by() -> None:
    """A range is the held-out error; on an unmeasured GPU it is wider and says so."""
    measured, residual = predict_speed(concurrency=16), STORE.residuals["rps-load"]
    assert measured.basis == "modelled from measurements on the same GPU"
    assert measured.rps.low == pytest.approx(measured.rps.value * min(residual.low, 1))
    littles = 1e3 * 16 / measured.latency_ms.low
    assert measured.rps.high == pytest.approx(min(measured.rps.value * max(residual.high, 1), littles))
    unmeasured = predict_speed(gpu="l4", concurrency=16)
    assert unmeasured.basis == "extrapolated from datasheets"
    assert unmeasured.rps.high / unmeasured.rps.low > 1.5 * measured.rps.high / measured.rps.low


def test_without_a_prefill_budget_a_pass_has_the_batchs_places() -> None:
    """LMDeploy accepts a budget of 0 from 0.12.0: the free places are left, one token less than with a budget of 1."""
    for batch in (1, 16):
        assert predict_speed(batch, prefill=0) == predict_speed(batch, prefill=1)
    assert predict_speed(16, prefill=0).latency_ms.value > predict_speed(16, prefill=16).latency_ms.value


def test_a_mix_of_images_is_prepared_as_its_sizes_are_on_average() -> None:
    """Also beside other requests, which delay the preparation on a host with few cores."""
    sizes = {(448, 448): 0.25, (1280, 720): 0.75}
    values = {name: coefficient.value for name, coefficient in STORE.coefficients.items()}

    def prepare(width: int, height: int, mix: str = "") -> float:
        asked = {"image_width": width, "image_height": height, "image_mix": mix}
        resolved = resolve(model="internvl3-8b", images=1, concurrency=16, cpus=4, **asked)
        alone = request_times.estimate_times(resolved, configure(resolved), False, values)
        return request_times.add_load(alone, resolved, configure(resolved), values).prepare

    mix = ",".join(f"{width}x{height}:{share}" for (width, height), share in sizes.items())
    mean = math.fsum(share * prepare(*size) for size, share in sizes.items())
    assert prepare(1280, 720, mix) == pytest.approx(mean)
    assert mean < 0.95 * prepare(1280, 720)


def test_an_overloaded_server_answers_what_a_full_batch_does() -> None:
    """Arrivals beyond it answer no more than a closed loop of as many clients as places; uncapped, they seem to."""
    closed = resolve(model="qwen2.5-7b-instruct", images=0, concurrency=128)
    config = configure(closed, max_batch_size=128, prefill_tokens=8192, session_len=16384)
    full = speed.estimate(closed, config).rps.value
    overloaded = replace(closed, rps=20 * full)
    values = {name: coefficient.value for name, coefficient in STORE.coefficients.items()}
    assert speed.predict_load(overloaded, config, 128, values)[0].rps == pytest.approx(full)
    assert speed.estimate(overloaded, config, ranged=False).rps.value == pytest.approx(full)
    assert predict(overloaded, config, ranged=False).speed.rps.value == pytest.approx(full, rel=0.01)  # fewer KV tokens
    assert speed.estimate(overloaded, config, ranged=False, capped=False).rps.value > 1.01 * full


def test_scales_of_host_and_card() -> None:
    """Calibration factors move only what depends on them; factors of 1 change nothing."""
    base, host, card = predict_speed(), predict_speed(host_scale=2.0), predict_speed(card_scale=2.0)
    assert predict_speed(host_scale=1.0, card_scale=1.0) == base
    assert host.token_ms.value == base.token_ms.value  # of this model the card's kernels take longest
    assert host.ttft_ms.value > base.ttft_ms.value
    assert card.token_ms.value == pytest.approx(2 * base.token_ms.value)


# --- prefill budgets


@pytest.mark.parametrize("release", ["0.15.0", "0.16.0", "0.18.0"])
@pytest.mark.parametrize("image", [(448, 448), (640, 480), (1280, 720)])
@pytest.mark.parametrize("concurrency", [2, 16, 33, 47, 48, 49, 64, 100, 128, 192, 256])
@pytest.mark.parametrize("output_tokens", [1, 4, 16, 100])
def test_no_budget_for_many_more_images_than_end_in_a_pass(
    release: str, image: tuple[int, int], concurrency: int, output_tokens: int
) -> None:
    """If many image requests end per pass, the budget holds two to that many prompts."""
    asked = {"lmdeploy": release, "concurrency": concurrency, "output_tokens": output_tokens}
    resolved = resolve(gpu="A100-80G", images=1, image_width=image[0], image_height=image[1], **asked)
    largest = max(config.prefill_tokens for config in next(tiers(resolved)))
    prompt, ends = resolved.input_tokens(), concurrency / output_tokens
    if release >= "0.16.0" and ends >= 3 and 2 * ends * prompt < 8192:
        assert 2 * prompt <= largest <= ends * prompt
    else:
        assert largest >= min(resolved.largest_tokens() - output_tokens, 8192)


def test_no_budget_is_held_back_where_no_image_is_asked_about() -> None:
    """Text requests do not wait for preprocessing, so their budget is not limited."""
    resolved = resolve(gpu="A100-80G", model="qwen2.5-7b-instruct", concurrency=64, prompt_tokens=330, output_tokens=16)
    assert {config.prefill_tokens for tier in tiers(resolved) for config in tier} >= {4096, 8192}


# --- servers that share a card


def list_sharing_candidates() -> list[Candidate]:
    """Return all candidates of concurrency 64 on a GPU measured with CUDA MPS."""
    resolved = resolve(concurrency=64)
    return [predict(resolved, config) for config in next(tiers(resolved))]


def test_servers_share_a_card_only_where_a_tenth_more_is_answered() -> None:
    """Sharing must gain a tenth: it needs a daemon and a proxy."""
    candidates = list_sharing_candidates()
    shared, single = ([each for each in candidates if (each.config.share == 2) == two] for two in (True, False))
    assert shared
    best = max(candidate.speed.rps.value for candidate in single)

    def pick_share(factor: float, goal: str) -> int:
        rps = uncertainty.Range(best * factor, best, best)
        faster = [replace(candidate, speed=replace(candidate.speed, rps=rps)) for candidate in shared]
        return pick([*single, *faster], goal).config.share

    assert pick_share(1.09, "throughput") == 1
    assert pick_share(1.11, "throughput") == 2
    assert pick_share(5.0, "memory") == 1


def test_no_server_shares_a_card_that_was_never_measured_so() -> None:
    """Servers do not share a GPU on which that was never measured."""
    assert {config.share for config in next(tiers(resolve(gpu="l40s", concurrency=64)))} == {1}


def test_memory_of_a_shared_card_is_that_of_both() -> None:
    """Items are sums; free memory and cache tokens are those of the last server."""
    for candidate in (each for each in list_sharing_candidates() if each.config.share == 2):
        alone = memory.estimate(resolve(concurrency=64), replace(candidate.config, share=1, servers=1))
        free = alone.free - alone.total
        region = int(free * candidate.config.cache_ratio)
        assert candidate.memory.free == free
        assert candidate.memory.item("weights").bytes == 2 * alone.item("weights").bytes
        assert candidate.memory.item("kv cache").bytes == alone.item("kv cache").bytes + region
        assert candidate.memory.kv_needed_tokens <= candidate.memory.kv_tokens <= alone.kv_tokens


@given(st.integers(2, 100), st.integers(1, 8))
@settings(max_examples=60)
def test_sharing_never_beats_two_cards(concurrency: int, more: int) -> None:
    """Two servers on one GPU are no faster than on two, and more load does not slow them."""
    resolved = resolve(concurrency=concurrency)
    base = configure(resolved, max_batch_size=64, servers=2)
    own, shared = (speed.estimate(resolved, replace(base, share=share)) for share in (1, 2))
    assert shared.rps.value <= own.rps.value * (1 + 1e-6)
    later = speed.estimate(replace(resolved, concurrency=concurrency + more), replace(base, share=2))
    assert later.rps.value >= shared.rps.value * (1 - 2e-3)  # how busy the card is, is found by halving


@given(
    st.sampled_from(["h100-sxm-80g", "h200-sxm", "l4"]),
    st.sampled_from([*MODELS, "internvl3-14b-awq"]),
    st.sampled_from([1, 16, 64]),
    st.sampled_from([0.02, 0.2, 0.8]),
    st.sampled_from([512, 8192]),
)
@settings(max_examples=60)
def test_the_likely_memory_lies_within_its_parts_ends(
    gpu: str, model: str, concurrency: int, ratio: float, prefill: int
) -> None:
    """The likely range holds the total and stays below the maximum."""
    resolved = resolve(gpu=gpu, model=model, concurrency=concurrency)
    config = configure(resolved, cache_ratio=ratio, prefill_tokens=prefill, max_batch_size=concurrency)
    used = memory.estimate(resolved, config)
    low, high = memory.likely_range(resolved, used, config.tp)
    assert low <= used.total <= high <= used.high


def test_the_likely_memory_is_what_unseen_starts_took() -> None:
    """The likely range is the held-out error; unmeasured or over several GPUs, all ends."""
    resolved = resolve(concurrency=16)
    used = memory.estimate(resolved, configure(resolved))
    residual, vision = STORE.residuals["memory"], used.item("vision").bytes
    low, high = memory.likely_range(resolved, used, 1)
    assert low == pytest.approx((used.total - vision) * min(residual.low, 1), rel=1e-6)
    assert high == pytest.approx((used.total - vision) * max(residual.high, 1) + vision, rel=1e-6)
    parts = (used.low, sum(item.high for item in used.items))
    assert memory.likely_range(resolved, used, 2) == parts
    assert parts[0] < low <= used.total <= high < parts[1]
    assert memory.likely_range(resolve(gpu="l4", concurrency=16), used, 1) == parts


@pytest.mark.parametrize("model", ["qwen3.5-35b-a3b", "qwen2.5-vl-7b-instruct", "qwen2.5-7b-instruct-gptq-int4"])
def test_a_kind_of_model_that_never_ran_says_so(model: str) -> None:
    """An unmeasured kind of model has wider ranges of speed and memory, and says so."""
    resolved = resolve(model=model, concurrency=16)
    config = configure(resolved)
    predicted, used = speed.estimate(resolved, config), memory.estimate(resolved, config)
    assert predicted.basis == "modelled from measurements of other kinds of models"
    residual = STORE.residuals["rps-load"]
    assert predicted.rps.high / predicted.rps.low > 1.5 * residual.high / residual.low
    assert memory.likely_range(resolved, used, 1) == (used.low, sum(item.high for item in used.items))


def without_nvlink(resolved: ResolvedRequest) -> ResolvedRequest:
    """Return the same case on GPUs connected by PCIe only."""
    return replace(resolved, gpu=Plain(vars(resolved.gpu) | {"nvlink_gb_s": 0.0}))


def test_what_more_cards_than_measured_add_is_a_guess_and_says_so() -> None:
    """GPU groups that were never measured have a wider range, and say so."""
    resolved = resolve(gpu="h200-sxm", gpu_count=8, concurrency=16)
    config = configure(resolved, servers=1)
    one, two, four, eight = (speed.estimate(resolved, replace(config, tp=tp)) for tp in (1, 2, 4, 8))
    assert one.basis == two.basis == four.basis == "modelled from measurements on the same GPU"
    assert eight.basis == "modelled from measurements of fewer cards a server"
    assert eight.rps.high / eight.rps.low > 2 * two.rps.high / two.rps.low
    assert speed.estimate(without_nvlink(resolved), replace(config, tp=2)).basis == eight.basis
    h100 = resolve(gpu_count=8, concurrency=16)
    found = [speed.estimate(h100, replace(config, tp=tp)).basis for tp in (1, 2, 4, 8)]
    assert found == [one.basis, one.basis, one.basis, eight.basis]


def test_a_card_half_as_fast_takes_twice_as_long() -> None:
    """The GPU's factor scales all GPU work once, and no host work."""
    resolved = resolve(gpu="h200-sxm", concurrency=16)
    scaled = (speed.scale_coefficients(STORE, 1.0, card) for card in (1.0, 2.0))
    one, half = (request_times.estimate_times(resolved, configure(resolved, servers=1), True, each) for each in scaled)
    assert half.prefill == pytest.approx(2 * one.prefill)
    assert half.step_base == pytest.approx(2 * one.step_base)
    assert half.prepare == one.prepare


def host_ms(cpus: int, threads: int, loaded: bool, **request: Any) -> float:
    """The host's ms for one request."""
    resolved = resolve(cpus=cpus, concurrency=1, **request)
    config = configure(resolved, omp_threads=threads)
    return request_times.estimate_times(resolved, config, loaded, speed.read_coefficients(STORE)).prepare


def test_a_thread_for_each_core_delays_one_request_a_little_and_more_on_a_larger_host() -> None:
    """Measured with InternVL3-8B-AWQ: 5 to 13 ms on 16 cores; with few threads nothing; tiles do not count."""
    wide: dict[str, Any] = {"images": 1, "image_width": 1280, "image_height": 720}
    small, large = (host_ms(cpus, cpus, False) - host_ms(cpus, 8, False) for cpus in (16, 64))
    assert 5 < small < 13
    assert large > 4 * small
    assert host_ms(64, 8, False) == host_ms(16, 8, False)
    assert host_ms(16, 16, False, **wide) - host_ms(16, 8, False, **wide) == pytest.approx(small, rel=0.5)


@pytest.mark.parametrize(
    ("model", "measured"),
    [("internvl3-2b", 8), ("internvl3-8b", 18), ("internvl3-8b-awq", 20), ("internvl3-14b-awq", 40)],
)
def test_under_load_each_tile_waits_for_decoding_steps(model: str, measured: float) -> None:
    """Measured with sixteen images of 1280x720, a thread for each of 16 cores of an H200: nine tiles a request."""
    wide: dict[str, Any] = {"gpu": "h200-sxm", "model": model, "images": 1, "image_width": 1280, "image_height": 720}
    tile = (host_ms(16, 16, True, **wide) - host_ms(16, 8, True, **wide)) / 9
    assert measured / 1.4 < tile < measured * 1.4


@pytest.mark.parametrize("loaded", [False, True])
def test_images_that_keep_their_shape_are_not_delayed(loaded: bool) -> None:
    """Qwen2.5-VL answered as many requests with 16 threads as with 2; threads only share a tile's work."""
    name = "qwen2.5-vl-7b-instruct-awq"
    assert host_ms(16, 16, loaded, model=name) <= host_ms(16, 8, loaded, model=name)


def test_a_step_of_many_requests_exchanges_more() -> None:
    """On four cards a row of 8,192 hidden numbers adds 2 x 1.5 x 16 KiB a layer to what travels, and no transfer."""
    resolved = resolve(gpu="h200-sxm", gpu_count=4, model="llama-3.1-70b-instruct", concurrency=16)
    known = speed.read_coefficients(STORE)
    config = replace(configure(resolved, servers=1), tp=4)
    slow = {**known, "link-efficiency": known["link-efficiency"] / 2}
    rows = [request_times.estimate_times(resolved, config, True, each).step_row for each in (known, slow)]
    link = resolved.gpu.nvlink_gb_s / 2 * known["link-efficiency"] * 1e6  # bytes a ms
    assert rows[1] - rows[0] == pytest.approx(80 * 2 * 1.5 * 8192 * 2 / link, rel=1e-6)


def test_cards_meet_sooner_over_nvlink() -> None:
    """An all-reduce takes longer over PCIe; a single GPU has none."""
    resolved = resolve(gpu_count=2, concurrency=1)
    config = configure(resolved, servers=1)
    nvlink, pcie = (
        [speed.estimate(case, replace(config, tp=tp)).ttft_ms.value for tp in (1, 2)]
        for case in (resolved, without_nvlink(resolved))
    )
    assert pcie[0] == nvlink[0]
    assert pcie[1] > nvlink[1]
