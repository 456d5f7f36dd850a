"""Each part of a predicted time by hand: what the host, the card, its links and a full batch add."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from variants import IMAGES, STORE, TEXT, configuration, resolve, variant

from recommender.estimate import closed_loop, model_shape, speed
from recommender.estimate.terms import all_reduce

ACTIVE = 28 * (2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18_944)
"""Weights of Qwen2.5-7B's linear layers: query and output, key and value, three of the MLP."""
NONE = dict.fromkeys(speed.COEFFICIENTS, 0.0) | {
    "prefill-efficiency": 1.0, "prefill-efficiency-quantised": 1.0, "expert-efficiency-quantised": 1.0,
    "expert-spread": 1.0, "bandwidth-efficiency": 1.0, "tail-alone": 1.0, "tail-queue": 1.0,
    "link-efficiency": 1.0, "pcie-link-gb-s": 10.0,
}  # fmt: skip
"""Nothing but what bytes and arithmetic take on a perfect card."""
CARD = variant(
    STORE.gpus["h100-sxm-80g"],
    id="tested",
    bandwidth_gb_s=1000.0,
    nvlink_gb_s=400.0,
    rates=(variant(STORE.gpus["h100-sxm-80g"].rates[0], precision="fp16", tera=100.0),),
)
"""1 GB a ms and 100 billion operations a ms, whatever the type."""
INSTANT = variant(CARD, bandwidth_gb_s=1e12, rates=(variant(CARD.rates[0], tera=1e12),))
"""A card that takes no time."""


def case(gpu: Any = CARD, **asked: Any) -> Any:
    return replace(resolve(**{"model": TEXT, "prompt_tokens": 71, "output_tokens": 28, **asked}), gpu=gpu)


def long_case(gpu: Any = CARD, **asked: Any) -> Any:
    """The same with 300 tokens in, whose arithmetic takes longer than reading the weights."""
    return case(gpu, **{"prompt_tokens": 271, **asked})


def image(gpu: Any = CARD, **asked: Any) -> Any:
    """One 448x448 image asked about: 330 tokens in, 16 out."""
    asked = {"images": 1, "image_width": 448, "image_height": 448, **asked}
    return replace(resolve(**{"model": IMAGES, "prompt_tokens": 24, "output_tokens": 16, **asked}), gpu=gpu)


def attention(tokens: int) -> int:
    """Multiplications and additions of scores and values over 28 layers of 28 heads of 128, causal."""
    return sum(4 * 28 * 28 * 128 * turn for turn in range(1, tokens + 1))


def flops(tokens: int, vocab: int = 152_064) -> int:
    """Of a prompt, the last token's logits included."""
    return 2 * ACTIVE * tokens + attention(tokens) + 2 * vocab * 3584


def step(context: int, kv: int = 57_344, vocab: int = 152_064) -> float:
    """ms of a decoding step of one request of the 16-bit model: weights, head and cache at 1 GB/ms, one row of work."""
    return (2 * ACTIVE + 2 * vocab * 3584 + context * kv) / 1e9 + flops(1, vocab) / 1e11


def figures(resolved: Any, concurrency: int = 1, config: Any = None, **changed: float) -> speed.PointEstimate:
    """The figures with such coefficients by name; those not named add nothing."""
    named = {name.replace("_", "-"): value for name, value in changed.items()}
    assert named.keys() <= NONE.keys()
    return speed.estimate_server(resolved, config or configuration(), concurrency, NONE | named)


# --- one request alone


def test_bytes_and_arithmetic_of_one_request() -> None:
    """The first token after the prompt's arithmetic, each further one after a step at half the answer's length."""
    made = figures(long_case())
    assert made.ttft == pytest.approx(flops(300) / 1e11)
    assert made.token == pytest.approx(step(314))
    assert made.latency == made.alone == pytest.approx(made.ttft + 27 * made.token)
    assert made.rps == pytest.approx(1000 / made.latency)


def test_a_short_text_waits_for_the_weights() -> None:
    """A pass reads them all, as a step does; an image's prefill was measured with that."""
    assert flops(100) / 1e11 < figures(case()).ttft == pytest.approx(step(114))
    picture = figures(image(INSTANT), step_ms=10.0)
    assert picture.ttft < picture.token == pytest.approx(10.0, rel=1e-6)


@pytest.mark.parametrize(("bits", "kv"), [(16, 57_344), (8, 29_568), (4, 15_232)])
def test_a_step_reads_the_cache_as_it_is_stored(bits: int, kv: int) -> None:
    """Fewer bits, fewer bytes."""
    assert figures(case(), config=configuration(kv_bits=bits)).token == pytest.approx(step(114, kv))


def test_a_step_reads_and_writes_the_states_of_linear_attention() -> None:
    """Qwen3.5-9B: 24 layers of 32 heads of 128 x 128, and four tokens of 8,192 numbers each."""
    resolved = case(variant(CARD, rates=INSTANT.rates), model="qwen3.5-9b")
    model, context = resolved.model, resolved.input_tokens() + 14
    state = 24 * (32 * 128 * 128 + 4 * 8192) * 2
    read = model_shape.decode_bytes(model) + model_shape.kv_read_bytes(model, 16, context)
    assert figures(resolved).token == pytest.approx((read + 2 * state) / 1e9, rel=1e-6)


def test_fixed_times_of_card_and_host_are_added() -> None:
    """A time a step and one a layer; a time a request before and beside preparing it."""
    plain = figures(long_case())
    made = figures(long_case(), step_ms=2.0, step_layer_ms=0.1, request_overhead_ms=5.0, request_host_ms=3.0)
    assert made.token - plain.token == pytest.approx(2.0 + 28 * 0.1)
    assert made.ttft - plain.ttft == pytest.approx(8.0)
    assert made.latency == pytest.approx(made.ttft + 27 * made.token)


def test_efficiencies_divide() -> None:
    """Half the rate, twice the time; of 16-bit weights the one, of 4-bit weights the other."""
    plain, slow = figures(long_case()), figures(long_case(), prefill_efficiency=0.5)
    assert slow.ttft == pytest.approx(2 * plain.ttft)
    assert figures(long_case(), prefill_efficiency_quantised=0.5) == plain
    narrow = figures(long_case(), bandwidth_efficiency=0.5)
    assert narrow.ttft == plain.ttft
    row = flops(1) / 1e11
    assert narrow.token - row == pytest.approx(2 * (plain.token - row))


def test_the_tail_of_one_request_alone_is_longer_than_its_median() -> None:
    """By the factor of requests alone; under load by that of the queue, but by no less than alone."""
    made = figures(case(), tail_alone=1.25, tail_queue=3.0)
    assert made.p99 == pytest.approx(1.25 * made.latency)
    loaded = figures(case(), 8, configuration(max_batch_size=8), tail_alone=1.25, tail_queue=3.0)
    assert loaded.p99 == pytest.approx(3.0 * loaded.latency)
    little = figures(case(), 8, configuration(max_batch_size=8), tail_alone=1000.0, tail_queue=1.0)
    assert little.p99 == pytest.approx(1000.0 * little.alone)
    assert (
        speed.estimate(resolve(), configuration()).p99_ms.value
        > 1.01 * speed.estimate(resolve(), configuration()).latency_ms.value
    )


@pytest.mark.parametrize(
    ("prefill", "session", "batch", "passes"),
    [
        *((512, 4096, 1, 1), (329, 4096, 1, 1), (328, 4096, 1, 2), (109, 4096, 1, 3), (512, 110, 1, 3)),
        *((266, 4096, 64, 1), (265, 4096, 64, 2), (109, 4096, 56, 2), (512, 110, 64, 3)),
    ],
)
def test_each_pass_of_a_cut_prompt_encodes_its_images_again(
    prefill: int, session: int, batch: int, passes: int
) -> None:
    """Each further pass costs that and a step. A pass takes the budget and the batch, and no more than a session."""
    config = configuration(prefill_tokens=prefill, session_len=session, max_batch_size=batch)
    whole = configuration(prefill_tokens=4096)
    made = figures(image(), config=config, encoded_again=2.5)
    further = made.token + 2.5 * tile() / 1e11
    assert made.ttft == pytest.approx(figures(image(), config=whole).ttft + (passes - 1) * further)


@pytest.mark.parametrize(("clients", "prefill", "passes"), [(64, 329, 1), (64, 328, 2), (60, 325, 1), (60, 324, 2)])
def test_others_take_the_places_of_the_batch(clients: int, prefill: int, passes: int) -> None:
    """A pass takes the budget and a token for each free place of 64: one beside 63 others, five beside 59."""

    def prefill_ms(budget: int) -> float:
        config = configuration(prefill_tokens=budget, max_batch_size=64)
        resolved = image(concurrency=clients)
        times = speed.shared_times(resolved, config, concurrency=clients, coefficients=NONE)
        return times(resolved.prompt_tokens, resolved.output_tokens).prefill

    assert (prefill_ms(prefill) > prefill_ms(4096)) == (passes > 1)


@pytest.mark.parametrize(("prefill", "passes"), [(300, 1), (150, 2), (30, 10), (25, 12)])
def test_each_pass_of_a_cut_text_reads_the_weights(prefill: int, passes: int) -> None:
    """A pass takes its share of the arithmetic or, if longer, a step; what a pass of an image costs does not count."""
    made = figures(long_case(), config=configuration(prefill_tokens=prefill), encoded_again=2.5)
    share, head = flops(300) / 1e11 / passes, 2 * 152_064 * 3584 / 1e9
    assert made.ttft == pytest.approx(share + (passes - 1) * max(share + head, step(314)))


def test_the_rate_is_that_of_the_models_type() -> None:
    """bfloat16's where the model computes in it and the card has it, else float16's, else whatever is there."""
    rates = {
        name: variant(CARD.rates[0], precision=name, tera=tera) for name, tera in (("fp16", 50.0), ("bf16", 100.0))
    }
    int8 = variant(CARD.rates[0], precision="int8", tera=200.0)

    def ttft(model: str, *known: Any) -> float:
        gpu = variant(CARD, rates=known)
        return figures(long_case(gpu, model=model)).ttft

    expected = flops(300) / 1e11
    half = variant(STORE.models[TEXT], text=variant(STORE.models[TEXT].text, dtype="float16"))
    assert ttft(TEXT, int8, *rates.values()) == pytest.approx(expected)
    assert ttft(TEXT, int8, rates["fp16"]) == pytest.approx(2 * expected)
    assert ttft(TEXT, int8) == pytest.approx(expected / 2)
    in_fp16 = replace(long_case(variant(CARD, rates=(int8, *rates.values()))), model=half)
    assert figures(in_fp16).ttft == pytest.approx(2 * expected)


# --- four-bit weights


def test_four_bits_read_less_but_their_kernels_take_time_a_row() -> None:
    """4 bits, a 16-bit scale and a 4-bit zero for 128 weights; or the kernels' time, where that is more."""
    linear = ACTIVE * (4 + 20 / 128) / 8 / 1e9
    rest = (2 * 151_674 * 3584 + 338 * 57_344) / 1e9 + flops(1, 151_674) / 1e11
    assert figures(image()).token == pytest.approx(linear + rest)
    rows = 28 * (2 * 3584 + 28 * 128 + 18_944)
    for each in (1.0, 10.0):
        made = figures(image(), step_quantised_row_ns=each)
        assert made.token == pytest.approx(max(linear, rows * each / 1e6) + rest, rel=1e-9)
    assert rows * 1.0 / 1e6 < linear < rows * 10.0 / 1e6
    assert figures(case(), step_quantised_row_ns=100.0) == figures(case())


def test_four_bit_weights_have_an_efficiency_of_their_own_and_images_have_not() -> None:
    """The encoder is 16-bit."""
    plain = figures(image())
    text = flops(330, 151_674) / 1e11
    assert figures(image(), prefill_efficiency_quantised=0.5).ttft - plain.ttft == pytest.approx(text)
    assert figures(image(), prefill_efficiency=0.5).ttft - plain.ttft == pytest.approx(plain.ttft - text)


# --- images


def tile() -> float:
    """Operations of one tile through InternViT and its projector, counted layer by layer."""
    layer = 2 * 1025 * (4 * 1024 * 1024 + 2 * 1024 * 4096) + 4 * 1025 * 1025 * 1024
    embedding = 2 * 1024 * 3 * 14 * 14 * 1024
    projector = 2 * 256 * (4096 * 3584 + 3584 * 3584)
    return 24 * layer + embedding + projector


@pytest.mark.parametrize(
    ("asked", "tiles", "tokens"),
    [
        ({}, 1, 330),
        ({"image_width": 1280, "image_height": 720}, 9, 2378),
        ({"image_width": 1280, "image_height": 720, "images": 2}, 18, 2 * 2307 + 71),
    ],
)
def test_an_image_is_seen_before_its_text_is_read(asked: dict[str, int], tiles: int, tokens: int) -> None:
    """Each tile's arithmetic, and its patches read so many times from memory."""
    resolved, config = image(**asked), configuration(prefill_tokens=8192, session_len=8192)
    made = figures(resolved, config=config, vision_passes=10.0)
    patches = 24 * 1024 * 1024 * 2 * 10.0 / 1e9
    assert made.ttft == pytest.approx(flops(tokens, 151_674) / 1e11 + tiles * (tile() / 1e11 + patches))


def test_fewer_tiles_are_seen_and_read() -> None:
    """Three of 1280x720 with at most six."""
    resolved = image(image_width=1280, image_height=720)
    made = figures(resolved, config=configuration(max_tiles=6, prefill_tokens=8192))
    assert made.ttft == pytest.approx(flops(74 + 3 * 256, 151_674) / 1e11 + 3 * tile() / 1e11)


def test_the_host_prepares_pixels_and_tiles() -> None:
    """Of 1280x720 nine tiles and 0.9216 megapixels, twice for two images; threads share a part of a tile."""
    resolved = image(INSTANT, image_width=1280, image_height=720, images=2)
    known = {"request_host_ms": 1.0, "megapixel_host_ms": 7.0, "tile_host_ms": 5.0, "tile_host_parallel_ms": 2.0}
    for threads, tile_ms in ((1, 7.0), (4, 5.5)):
        made = figures(resolved, config=configuration(omp_threads=threads, prefill_tokens=8192), **known)
        assert made.ttft == pytest.approx(1.0 + 2 * (9 * tile_ms + 0.9216 * 7.0), rel=1e-6)
    pixels = figures(resolved, config=configuration(prefill_tokens=8192), megapixel_host_ms=1e6)
    assert pixels.ttft == pytest.approx(2 * 921_600, rel=1e-9)
    assert figures(case(INSTANT), **known).ttft == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize(
    ("threads", "cpus", "crowded", "growth"),
    [
        (4, 16, 0, 1), (12, 16, 0, 1), (14, 16, 0.5, 1), (16, 16, 1, 1), (24, 16, 1, 1.66), (7, 8, 0.5, 1),
        (64, 64, 1, 5.657),
    ],
)  # fmt: skip
def test_threads_on_more_than_three_quarters_of_the_cores_crowd(
    threads: int, cpus: int, crowded: float, growth: float
) -> None:
    """Requests wait for their threads, longer for more than 16 of them; under load tiles do, two steps of 10 ms."""
    resolved = image(INSTANT, cpus=cpus)
    config = configuration(omp_threads=threads, max_batch_size=64)
    known = {"request_host_ms": 1.0, "tile_host_ms": 5.0, "request_host_crowded_ms": 10.0, "step_ms": 10.0}
    known["tile_host_crowded_steps"] = 2.0
    delay = crowded * growth * 10.0
    assert figures(resolved, config=config, **known).ttft == pytest.approx(6.0 + delay, rel=1e-3)
    loaded = figures(resolved, 64, config, **known)
    assert 1000 / loaded.rps == pytest.approx(6.0 + delay + crowded * 20.0, rel=1e-3)
    assert loaded.limit == "preprocessing"


@pytest.mark.parametrize(
    ("backend", "images", "tile_ms", "least_ms"),
    [("pytorch", 1, 5, 40), ("pytorch", 2, 5, 80), ("pytorch", 1, 60, 61), ("turbomind", 1, 5, 6)],
)
def test_images_reach_an_engine_in_python_one_after_the_other(
    backend: str, images: int, tile_ms: int, least_ms: int
) -> None:
    """At least 40 ms apart, with 64 requests in flight; alone, a request waits for none before it."""
    resolved, config = image(INSTANT, images=images), configuration(backend=backend, max_batch_size=64)
    known = NONE | {"request-host-ms": 1.0, "tile-host-ms": tile_ms, "pytorch-image-host-ms": 40.0}
    loaded, _ = speed.predict_load(resolved, config, 64, known)
    assert 1000 / loaded.rps == pytest.approx(least_ms, rel=1e-2)
    alone, _ = speed.predict_load(resolved, config, 1, known)
    assert alone.latency == pytest.approx(1.0 + images * tile_ms, rel=1e-2)


# --- several cards


def test_two_cards_share_the_work_and_add_up() -> None:
    """Each has half of weights, head and cache; the second adds so much of its rate; all meet twice a layer."""
    known = {"parallel_efficiency": 0.5, "reduction_ms": 0.01}
    resolved, config = case(gpu_count=2), configuration(tp=2)
    made = figures(resolved, config=config, **known)
    c = NONE | {"reduction-ms": 0.01}
    assert made.ttft == pytest.approx(flops(100) / 1.5e11 + all_reduce.estimate_pass_ms(resolved, 2, 100, c))
    half = (2 * ACTIVE + 2 * 152_064 * 3584 + 114 * 57_344) / 2 / 1e9
    assert made.token == pytest.approx(half + flops(1) / 1.5e11 + all_reduce.estimate_pass_ms(resolved, 2, 1, c))


def test_images_on_two_cards_are_shared_and_added_up() -> None:
    """Encoder and text alike, for each image; four-bit rows are those of one card."""
    resolved = image(gpu_count=2, images=2, image_width=1280, image_height=720)
    config = configuration(tp=2, prefill_tokens=8192, session_len=8192)
    made = figures(resolved, config=config, parallel_efficiency=1.0, reduction_ms=0.01, vision_passes=10.0)
    c = NONE | {"reduction-ms": 0.01}
    tokens = 2 * 2307 + 71
    seen = 18 * (tile() / 2e11 + 24 * 1024 * 1024 * 2 * 10.0 / 2e9)
    added = all_reduce.estimate_pass_ms(resolved, 2, tokens, c) + 2 * all_reduce.estimate_image_ms(resolved, 2, 9, c)
    assert made.ttft == pytest.approx(flops(tokens, 151_674) / 2e11 + seen + added)
    rows = 28 * (2 * 3584 + 14 * 128 + 9472)
    slow, fast = (figures(resolved, config=config, step_quantised_row_ns=each).token for each in (200.0, 100.0))
    assert slow - fast == pytest.approx(rows * 100 / 1e6)


# --- mixtures of experts


def test_a_token_reads_its_experts() -> None:
    """Qwen3-30B-A3B: attention, routers and head, and 8 experts of 3 x 2048 x 768 in each of 48 layers."""
    resolved = case(model="qwen3-30b-a3b", images=0)
    context = resolved.input_tokens() + 14
    attention_weights = 48 * (2 * 2048 * 4096 + 2 * 2048 * 512)
    read = 2 * (attention_weights + 48 * 2048 * 128 + 151_936 * 2048 + 8 * 48 * 3 * 2048 * 768)
    active = attention_weights + 48 * 2048 * 128 + 8 * 48 * 3 * 2048 * 768
    row = 2 * active + 4 * 48 * 32 * 128 + 2 * 151_936 * 2048
    assert figures(resolved).token == pytest.approx((read + context * 48 * 2 * 4 * 256) / 1e9 + row / 1e11)


@pytest.mark.parametrize("concurrency", [4, 16, 64])
def test_a_batch_reads_each_ones_experts_and_no_more_than_all(concurrency: int) -> None:
    """Of Qwen3-30B-A3B 8 of 128 experts a request, routed by chance; a pass with prefill reads or computes all."""
    resolved = case(model="qwen3-30b-a3b", images=0)
    tokens = resolved.input_tokens()
    attention_weights = 48 * (2 * 2048 * 4096 + 2 * 2048 * 512) + 48 * 2048 * 128
    expert = 48 * 3 * 2048 * 768
    active, logits = attention_weights + 8 * expert, 2 * 151_936 * 2048
    pairs = 4 * 48 * 32 * 128
    whole = max(2 * 128 * expert / 1e9, 128 * 64 * 2 * expert / 1e11)
    terms = closed_loop.ServiceTimes(
        prepare=1.0,
        prefill=(2 * active * tokens + pairs * tokens * (tokens + 1) / 2 + logits) / 1e11 + whole,
        step_base=2 * (attention_weights + 151_936 * 2048) / 1e9,
        step_row=(tokens + 14) * 48 * 2 * 4 * 256 / 1e9 + (2 * active + pairs + logits) / 1e11,
        full_pass=0.0,
        expert_most=2 * 128 * expert / 1e9,
        expert_missed=120 / 128,
        expert_spread=1.0,
    )
    chain = closed_loop.solve_loop(terms, 28, concurrency, 64)
    made = figures(resolved, concurrency, configuration(max_batch_size=64), request_host_ms=1.0)
    assert made.rps == pytest.approx(1000 * chain.rate, rel=1e-6)


def test_rows_of_4_bit_experts_cost_nothing() -> None:
    """Of gpt-oss-20b the layers that all tokens pass are 16-bit; its grouped kernels are a term of experts."""
    resolved = case(model="gpt-oss-20b", images=0)
    assert figures(resolved, step_quantised_row_ns=50.0).token == figures(resolved).token


def test_each_layer_with_experts_adds_a_time() -> None:
    """Qwen1.5-MoE-A2.7B has 24, which read 4 experts of 3 x 2048 x 1408 meanwhile; a dense model none."""
    resolved = case(model="qwen1.5-moe-a2.7b-chat", images=0)
    read = 2 * 4 * 24 * 3 * 2048 * 1408 / 1e9
    assert figures(resolved, expert_layer_ms=0.5).token == pytest.approx(figures(resolved).token + 12.0 - read)
    assert figures(resolved, expert_layer_ms=read / 25) == figures(resolved)
    assert figures(case(), expert_layer_ms=0.5) == figures(case())


def test_a_step_computes_tiles_of_4_bit_experts() -> None:
    """Of gpt-oss-20b 4 experts of 3 x 2880 x 2880 in 24 layers, for so many tokens each; experts of 8 bits none."""
    known = {"expert_tile_tokens": 32.0, "expert_efficiency_quantised": 0.5}
    resolved, fp8 = (case(model=name, images=0) for name in ("gpt-oss-20b", "qwen3-30b-a3b-fp8"))
    added = 4 * 32 * 2 * 24 * 3 * 2880 * 2880 / 0.5e11
    assert figures(resolved, **known).token == pytest.approx(figures(resolved).token + added)
    assert figures(fp8, **known).token == figures(fp8).token


@pytest.mark.parametrize(("share", "name"), [(0.5, "gpt-oss-20b"), (1.0, "gpt-oss-20b"), (0.5, "qwen3-30b-a3b-fp8")])
def test_prefill_of_4_bit_experts_has_a_rate_of_its_own(share: float, name: str) -> None:
    """Of gpt-oss-20b: 4 experts a token, and 64 tokens more for each of 32; experts of 8 bits have that of layers."""
    resolved = long_case(model=name, images=0)
    tokens, mixture = resolved.input_tokens(), resolved.model.text.mixture[0]
    plain, made = figures(resolved), figures(resolved, expert_efficiency_quantised=share)
    slower = 0.0
    if name == "gpt-oss-20b":
        assert (mixture.experts, mixture.per_token) == (32, 4)
        slower = (4 * tokens + 32 * 64) * 2 * 24 * 3 * 2880 * 2880 / 1e11 * (1 / share - 1)
    assert made.ttft - plain.ttft == pytest.approx(slower, abs=1e-9)


# --- under load


def by_hand(prefill: int, c: dict[str, float]) -> closed_loop.ServiceTimes:
    """The demands of the text request on the perfect card."""
    longest = max(100, prefill)
    return closed_loop.ServiceTimes(
        prepare=c["request_host_ms"],
        prefill=flops(100) / 1e11,
        step_base=(2 * ACTIVE + 2 * 152_064 * 3584) / 1e9,
        step_row=114 * 57_344 / 1e9 + flops(1) / 1e11,
        full_pass=prefill * flops(longest) / longest / 1e11,
    )


@pytest.mark.parametrize(("concurrency", "batch"), [(2, 8), (8, 8), (20, 4), (56, 56)])
@pytest.mark.parametrize("prefill", [100, 512])
@pytest.mark.parametrize(("room", "host"), [(0.0, 0.0), (2.0, 0.0), (0.0, 0.5), (2.0, 0.5), (1e9, 0.0)])
def test_under_load_a_share_of_what_others_add_comes_before_the_first_token(
    concurrency: int, batch: int, prefill: int, room: float, host: float
) -> None:
    """Half a pass does, and all of the rest unless prompts come one by one: for want of room, or for the host.

    What is left is spread over the further ones; no iteration takes longer than a full pass besides its step.
    """
    known = {"request_host_ms": 3.0, "first_token_room": room, "first_token_host": host}
    made = figures(case(), concurrency, configuration(max_batch_size=batch, prefill_tokens=prefill), **known)
    terms = by_hand(prefill, known)
    chain = closed_loop.solve_loop(terms, 28, concurrency, batch)
    added = chain.engine - terms.prefill - 28 * terms.step(1)
    rest = max(added - chain.engine / 56, 0)
    ends = chain.rate * chain.engine / 28
    full = ends * 100 / prefill
    borne = 1 / (1 + host * 3 / terms.prefill * min(ends, 1 / ends) + room * full / (1 + full**2))
    slowest = terms.step(min(concurrency, batch)) + terms.full_pass
    assert made.token == pytest.approx(min(terms.step(1) + (1 - borne) * rest / 27, slowest))
    assert made.rps == pytest.approx(1000 * chain.rate)
    assert made.latency == pytest.approx(concurrency / chain.rate)
    assert made.ttft == pytest.approx(made.latency - 27 * made.token)
    assert made.latency > made.alone


@pytest.mark.parametrize("output", [1, 2, 3])
def test_of_short_answers_the_further_tokens_bear_all_the_rest(output: int) -> None:
    """A single one of two, two of three; of one none. A prompt takes as long to prepare as to prefill."""
    known = {"request_host_ms": flops(100) / 1e11, "first_token_host": 1.0}
    resolved, config = case(output_tokens=output), configuration(max_batch_size=8, prefill_tokens=8192)
    made = figures(resolved, 8, config, **known)
    alone = figures(resolved, 1, config, **known)
    context = 100 + output // 2
    terms = by_hand(8192, known)._replace(step_row=context * 57_344 / 1e9 + flops(1) / 1e11)
    chain = closed_loop.solve_loop(terms, output, 8, 8)
    added = chain.engine - terms.prefill - output * terms.step(1)
    rest = added - chain.engine / output / 2
    assert rest > 0
    ends = chain.rate * chain.engine / output
    later = 1 - 1 / (1 + min(ends, 1 / ends))
    assert 0.1 < later < 0.5
    assert made.token == pytest.approx(terms.step(1) + later * rest / max(output - 1, 1))
    assert made.ttft >= alone.ttft


def test_where_all_wait_to_be_prepared_nothing_is_added_in_the_engine() -> None:
    """Steps of a hundredth of a ms, seconds of preparing: tokens come as those of one request alone."""
    made = figures(case(INSTANT), 4, configuration(max_batch_size=4), step_ms=0.01, request_host_ms=5000.0)
    assert made.token == pytest.approx(0.01, rel=1e-2)


def test_an_iteration_takes_no_longer_than_a_full_pass_and_its_step() -> None:
    """A small budget bounds the time between two tokens; a session shorter than it does so as well."""

    # Nothing to prepare, short answers: all that is in flight is prefilled over and over.
    def token(prefill: int, session: int) -> float:
        config = configuration(max_batch_size=64, prefill_tokens=prefill, session_len=session)
        return figures(case(output_tokens=2), 64, config, first_token_room=1e9).token

    terms = by_hand(100, {"request_host_ms": 0.0})
    context = 101
    full_step = (2 * ACTIVE + 2 * 152_064 * 3584) / 1e9 + 64 * (context * 57_344 / 1e9 + flops(1) / 1e11)
    assert token(100, 4096) == token(8192, 100) == pytest.approx(full_step + terms.full_pass)
    assert token(50, 4096) < token(100, 4096) < token(8192, 4096)


def test_a_full_pass_of_images_is_seen_too() -> None:
    """By the tokens of images in it: three prompts' worth of pass are about as many tiles."""

    def token(prefill: int) -> float:
        config = configuration(max_batch_size=64, prefill_tokens=prefill, session_len=8192)
        return figures(image(output_tokens=2), 64, config, first_token_room=1e9).token

    # A photo cut to one tile is as a small one.
    config = configuration(max_batch_size=64, prefill_tokens=990, session_len=8192, max_tiles=1)
    photo = image(output_tokens=2, image_width=1280, image_height=720)
    assert figures(photo, 64, config, first_token_room=1e9).token == token(990)
    grown = token(990) - token(660)
    text = flops(990, 151_674) / 1e11 - flops(660, 151_674) / 1e11
    assert grown == pytest.approx(text + 330 / 256 * tile() / 1e11, rel=1e-6)


@pytest.mark.parametrize(
    ("changed", "limit"),
    [
        ({"request_host_ms": 1000.0}, "preprocessing"),
        ({"prefill_efficiency": 0.01}, "prefill on the card"),
        ({"step_ms": 500.0}, "decoding steps"),
    ],
)
@pytest.mark.parametrize("concurrency", [1, 8])
def test_what_limits_is_what_takes_most_of_a_request(changed: dict[str, float], limit: str, concurrency: int) -> None:
    """Alone and under load; a step is shared by those in the batch."""
    assert figures(case(), concurrency, configuration(max_batch_size=8), **changed).limit == limit


def test_a_step_shared_by_a_batch_limits_less() -> None:
    """28 steps of 20 ms, by eight 70 ms: less than 100 ms of preparing, which alone is less than the steps."""
    known = {"request_host_ms": 100.0, "step_ms": 20.0}
    resolved, config = case(INSTANT), configuration(max_batch_size=8)
    assert figures(resolved, 1, config, **known).limit == "decoding steps"
    assert figures(resolved, 2, config, **known).limit == "decoding steps"
    assert figures(resolved, 8, config, **known).limit == "preprocessing"
    assert figures(resolved, 64, configuration(max_batch_size=5), **known).limit == "decoding steps"
    assert figures(resolved, 64, configuration(max_batch_size=6), **known).limit == "preprocessing"


def test_nobody_waits_longer_than_all_one_after_the_other() -> None:
    """Two in flight wait at most two requests' times, however slow a shared step is predicted."""
    crowd = {"tile_host_crowded_steps": 10_000.0, "tile_host_ms": 1.0, "step_ms": 1.0}
    made = figures(image(INSTANT, cpus=4), 2, configuration(max_batch_size=2, omp_threads=4), **crowd)
    assert made.latency <= 2 * made.alone * (1 + 1e-9)


@pytest.mark.parametrize("model", [TEXT, "internvl3-2b"])
@pytest.mark.parametrize("concurrency", [2, 16, 64])
@pytest.mark.parametrize("output", [1, 16, 200])
def test_a_longer_prompt_brings_no_token_earlier(model: str, concurrency: int, output: int) -> None:
    """On a real card with the real coefficients, from no text at all on; text under load is simulated, so nearly."""
    near = 1e-4 if model != TEXT else 0.02
    config = configuration(max_batch_size=16, prefill_tokens=2048)
    times = []
    for prompt in (1, 50, 400, 1500, 3000):
        resolved = resolve(model=model, prompt_tokens=prompt, output_tokens=output, concurrency=concurrency)
        times.append(speed.estimate(resolved, config).ttft_ms.value)
    for sooner, later in pairwise(times):
        assert later >= sooner * (1 - near)


# --- several servers


def test_requests_are_spread_evenly_and_figures_are_means_over_them() -> None:
    """Seven over three servers: one has three, two have two; p99 and the limit are the fullest's."""
    resolved, config = case(), configuration(max_batch_size=8, servers=3)
    c = NONE | {"request-host-ms": 20.0}
    three, two = (speed.estimate_server(resolved, config, count, c) for count in (3, 2))
    made = speed.estimate_servers(resolved, config, 7, c)
    rps = three.rps + 2 * two.rps
    assert made.rps == pytest.approx(rps)
    for name in ("latency", "ttft", "token"):
        mean = (three.rps * getattr(three, name) + 2 * two.rps * getattr(two, name)) / rps
        assert getattr(made, name) == pytest.approx(mean)
    assert (made.p99, made.limit, made.alone) == (three.p99, three.limit, three.alone)
    # Eight: two servers have three, one has two.
    eight = speed.estimate_servers(resolved, config, 8, c)
    assert eight.rps == pytest.approx(2 * three.rps + two.rps)
    assert eight.latency == pytest.approx((2 * three.rps * three.latency + two.rps * two.latency) / eight.rps)


def test_alike_servers_answer_each_as_one() -> None:
    """Six over three: thrice the rate, the same times. Two over three: two servers work, one request each."""
    resolved, config = case(), configuration(max_batch_size=8, servers=3)
    one, two = (speed.estimate_server(resolved, config, count, NONE) for count in (1, 2))
    assert speed.estimate_servers(resolved, config, 6, NONE) == two._replace(rps=3 * two.rps)
    assert speed.estimate_servers(resolved, config, 2, NONE) == one._replace(rps=2 * one.rps)


def test_a_server_of_its_own_for_each_is_one_request_alone() -> None:
    """The range of a load is that of one at a time where each server has one."""
    many, one = (
        speed.estimate(resolve(concurrency=count), configuration(servers=count, max_batch_size=4)) for count in (4, 1)
    )
    assert many.latency_ms == one.latency_ms
    assert many.rps.value == pytest.approx(4 * one.rps.value)
    assert many.rps.high == pytest.approx(4 * one.rps.high)


def test_servers_of_one_card_slow_each_other() -> None:
    """One beside another by the share of a step, two others more than one; a server of its own not at all."""
    resolved = case()
    known = {"step_ms": 5.0, "request_host_ms": 10.0}

    def rate(share: int, slowed: float) -> float:
        return figures(resolved, 8, configuration(max_batch_size=8, share=share), shared_step_share=slowed, **known).rps

    assert rate(1, 0.0) == rate(1, 2.0) == figures(resolved, 8, configuration(max_batch_size=8), **known).rps
    assert rate(2, 2.0) < rate(2, 0.0) < rate(1, 0.0)
    assert rate(3, 1.0) < rate(2, 1.0)
    terms = by_hand(512, {"request_host_ms": 10.0})
    slowed = closed_loop.share_gpu(terms._replace(step_base=terms.step_base + 5.0), 28, 8, 8, 1, 1.0)
    assert rate(2, 1.0) == pytest.approx(1000 * closed_loop.solve_loop(slowed, 28, 8, 8).rate)


@pytest.mark.parametrize("images", [0, 1])
def test_servers_of_one_card_slow_each_other_under_arrivals_too(images: int) -> None:
    """Four a second at two servers: prefill that coincides with the other's is shared, so all wait longer."""
    asked = {"images": images, **({"image_width": 448, "image_height": 448} if images else {})}
    resolved = resolve(model=IMAGES, rps=4.0, concurrency=16, **asked)
    config = configuration(max_batch_size=16, servers=2)
    own, both = (speed.estimate(resolved, replace(config, share=share), ranged=False) for share in (1, 2))
    assert both.alone_ms == own.alone_ms
    assert both.ttft_ms.value > own.ttft_ms.value
    assert both.latency_ms.value > own.latency_ms.value


# --- runs of one's own


def test_scales_reach_each_coefficient_of_host_and_card() -> None:
    """Host times twice as long; of the card times three times as long, and a third of each share."""
    host = {"request-host-ms", "request-host-crowded-ms", "request-overhead-ms", "megapixel-host-ms", "tile-host-ms"}
    host |= {"tile-host-parallel-ms", "tile-host-crowded-steps", "token-host-ms", "pytorch-prompt-layer-ms"}
    host |= {"pytorch-prompt-latent-ms", "pytorch-request-overhead-ms", "pytorch-vision-layer-ms"}
    host |= {"pytorch-image-host-ms"}
    times = {"step-ms", "step-layer-ms", "step-quantised-row-ns", "reduction-ms", "expert-layer-ms"}
    shares = {
        "prefill-efficiency",
        "prefill-efficiency-quantised",
        "expert-efficiency-quantised",
        "bandwidth-efficiency",
    }
    known, made = speed.read_coefficients(STORE), speed.scale_coefficients(STORE, 2.0, 3.0)
    factors = {name: made[name] / known[name] for name in known if known[name]}
    expected = dict.fromkeys(known, 1.0) | dict.fromkeys(host, 2.0)
    expected |= dict.fromkeys(times, 3.0) | dict.fromkeys(shares, 1 / 3)
    assert factors == pytest.approx({name: expected[name] for name in factors})
    assert set(known) == set(NONE)
    for name, value in known.items():
        assert value == STORE.coefficients[name].value


def test_every_coefficient_of_an_estimate_is_named() -> None:
    """So that its sources can be looked up."""
    assert set(speed.estimate(resolve(concurrency=4), configuration()).coefficients) == set(NONE)


def test_an_estimate_tells_what_limits_it() -> None:
    """On an H100 a single token after an image needs the card's prefill; a long answer is all decoding."""
    for output, limit in ((1, "prefill on the card"), (500, "decoding steps")):
        resolved = resolve(concurrency=8, output_tokens=output)
        assert speed.estimate(resolved, configuration(max_batch_size=8)).limit == limit


def test_on_a_card_that_never_ran_every_end_is_wider() -> None:
    """By the factor of such cards, beside the errors of those that ran; the middle stays as it is."""
    factor = STORE.coefficients["unmeasured-gpu-spread-other"].value
    resolved = resolve(gpu="l4", concurrency=8)
    made = speed.estimate(resolved, configuration(max_batch_size=8))
    for name, record in (("latency_ms", "latency-load"), ("p99_ms", "p99-load"), ("rps", "rps-load")):
        known, figure = STORE.residuals[record], getattr(made, name)
        most = min(known.high * factor, 8e3 / made.latency_ms.low / figure.value if name == "rps" else math.inf)
        assert figure.high / figure.value == pytest.approx(most)  # Little's law cuts a rate
        assert figure.low / figure.value == pytest.approx(known.low / factor)


def test_without_ranges_the_ends_are_the_middle() -> None:
    """Enough to compare candidates, and the same middle."""
    for concurrency in (1, 16):
        resolved, config = resolve(concurrency=concurrency), configuration(max_batch_size=16)
        bare, whole = (speed.estimate(resolved, config, ranged) for ranged in (False, True))
        for name in ("alone_ms", "latency_ms", "p99_ms", "ttft_ms", "token_ms", "rps"):
            made = getattr(bare, name)
            assert made.low == pytest.approx(made.value)
            assert made.high == pytest.approx(made.value)
            assert made.value == getattr(whole, name).value
            assert getattr(whole, name).low < made.value < getattr(whole, name).high
