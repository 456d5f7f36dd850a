"""Sizes of the cache: lengths of sessions by hand, and shares that hold what is needed with room to spare."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from variants import GIB, IMAGES, MIB, STORE, TEXT, coefficients, configuration, resolve, variant

from recommender.choose.candidates import tiers
from recommender.estimate import cache_sizing, memory, memory_items, model_shape
from recommender.estimate.engines import kv_region, turbomind

SURE = coefficients(
    context_mib=1000.0, quantised_load_share=1.0, load_peak_share=1.0, workspace_mib=100.0, driver_reserve_mib=500.0
)
"""Coefficients without a spread: what is free is one number."""
PAGE_BLOCKS = 9
"""Blocks of 64 tokens of 57,344 bytes that a page of 32 MiB holds."""


def text(free_mib: int = 0, **asked: Any) -> Any:
    """A text request on a card with so many MiB free after context and weights, or on an H100."""
    resolved = resolve(SURE, **{"model": TEXT, "prompt_tokens": 71, "output_tokens": 28, **asked})
    if not free_mib:
        return resolved
    # The driver's 500, the context's 1000 and the weights, of which the last fills a MiB.
    whole = free_mib + 1500 + -(-memory_items.weights(resolved, 1) // MIB)
    return replace(resolved, gpu=variant(resolved.gpu, memory_mib=whole), available_bytes=whole * MIB)


def region(tokens: int) -> int:
    """Bytes that surely hold so many tokens of 57,344 bytes: whole pages, and one for the alignment."""
    return (-(-tokens // (64 * PAGE_BLOCKS)) + 1) * 32 * MIB


# --- length of a session


@pytest.mark.parametrize(
    ("prompt", "output", "prefill", "length"),
    [
        (71, 28, 512, 512),  # 100 + 56 + 1 tokens are less than a pass
        (71, 28, 513, 768),
        (71, 28, 8192, 8192),
        (882, 56, 512, 1024),  # 911 + 112 + 1
        (883, 56, 512, 1280),  # one more
    ],
)
def test_a_session_holds_prompt_longest_answer_and_a_full_pass(
    prompt: int, output: int, prefill: int, length: int
) -> None:
    """Rounded up to 256 tokens; prompts are prefilled together up to a session's length (0.16.0 engine.cc:464)."""
    resolved = text(prompt_tokens=prompt, output_tokens=output)
    assert cache_sizing.session_length(resolved, 0, 2 * output, prefill) == length


def test_a_session_holds_the_largest_image() -> None:
    """Twelve tiles and the thumbnail even where a small image is asked about; one tile where that is the limit."""
    resolved = resolve(images=1, image_width=448, image_height=448, prompt_tokens=24, output_tokens=16)
    most = 13 * 256 + 50 + 24
    assert cache_sizing.session_length(resolved, 0, 32, 512) == -(-(most + 32 + 1) // 256) * 256 == 3584
    assert cache_sizing.session_length(resolved, 1, 32, 300) == 512  # 256 + 74 + 32 + 1


@pytest.mark.parametrize(
    ("prompt", "length"),
    [
        (32_768 - 29 - 56 - 1, 32_768),
        # One more, and the positions do not hold the request: it is served all the same.
        (32_768 - 29 - 56, 33_024),
        (33_000, 33_280),
    ],
)
def test_a_session_ends_with_the_models_positions(prompt: int, length: int) -> None:
    """Qwen2.5-7B has 32,768; only a request that needs more goes beyond."""
    assert cache_sizing.session_length(text(prompt_tokens=prompt), 0, 56, 512) == length


def test_a_large_image_is_not_held_beyond_the_positions() -> None:
    """Where the request itself fits, the largest image that might come does not lengthen the session."""
    resolved = resolve(images=1, image_width=448, image_height=448, prompt_tokens=24, output_tokens=16)
    few = replace(resolved, model=variant(resolved.model, text=variant(resolved.model.text, max_positions=1000)))
    assert cache_sizing.session_length(few, 0, 32, 512) == 1000
    exact = 256 + 50 + 24 + 32 + 1
    for positions, length in ((exact, exact), (exact - 1, 512)):
        shape = variant(resolved.model.text, max_positions=positions)
        asked = replace(resolved, model=variant(resolved.model, text=shape))
        assert cache_sizing.session_length(asked, 0, 32, 512) == length
    # Of a photo of nine tiles three are asked for: 768 + 50 + 24 + 32 + 1.
    photo = resolve(images=1, image_width=1280, image_height=720, prompt_tokens=24, output_tokens=16)
    short = replace(photo, model=variant(photo.model, text=variant(photo.model.text, max_positions=900)))
    assert cache_sizing.session_length(short, 6, 32, 512) == 900
    assert cache_sizing.session_length(short, 0, 32, 512) == 2560


# --- share of the cache


def share(resolved: Any, tokens: int, others: int = 0, **given: Any) -> float:
    """The share of the cache that holds these tokens, under a configuration with the given settings."""
    return cache_sizing.size_cache(resolved, configuration(**given), tokens, others)[0]


def least(need: float) -> float:
    """The smallest number of two significant digits that is no less, by trying all."""
    below_one = [round(digits * 10**-power, 6) for power in (2, 3, 4) for digits in range(10, 100)]
    return min(ratio for ratio in below_one if ratio >= need - 1e-12)


@pytest.mark.parametrize("free", [6_000, 20_000, 50_000])
@pytest.mark.parametrize("tokens", [64, 576, 5000, 20_000])
def test_where_memory_is_the_goal_a_tenth_more_than_needed_is_taken(free: int, tokens: int) -> None:
    """The least share of two digits whose part of the free memory is 1.1 times the pages needed."""
    resolved = text(free, goal="memory")
    exact = memory_items.usable_bytes(resolved) - sum(item.high for item in turbomind.items_before_cache(resolved, 1))
    ratio = share(resolved, tokens)
    assert ratio == pytest.approx(least(1.1 * region(tokens) / exact), rel=1e-9)


@pytest.mark.parametrize("goal", ["latency", "throughput", "balanced"])
@pytest.mark.parametrize(
    ("free", "tokens"),
    [
        (50_000, 5000),  # twice the need
        (49_269, 5000),  # 0.01299 of what is free: 0.013
        (49_193, 5000),  # 0.01301: 0.014
        (3_000, 20_000),  # just half: 1.1 times the need is 0.42, twice is 0.77
        (6_000, 20_000),  # half of what is free, more than 1.1 and less than 2 times the need
        (2_500, 20_000),  # 1.1 times the need is more than half of what is free
    ],
)
def test_elsewhere_up_to_half_of_the_free_memory_is_taken(goal: str, free: int, tokens: int) -> None:
    """Twice the need, under half of what is free; 1.1 times the need in any case."""
    resolved = text(free, goal=goal)
    exact = memory_items.usable_bytes(resolved) - sum(item.high for item in turbomind.items_before_cache(resolved, 1))
    need = region(tokens) / exact
    wanted = max(1.1 * need, min(2 * need, 0.5))
    assert share(resolved, tokens) == pytest.approx(least(wanted), rel=1e-9)


@pytest.mark.parametrize(
    ("free", "session", "times", "held"),
    [
        (50_000, 16_384, 1.1, 16_384),  # more than twice the 5,000 tokens that are needed
        (50_000, 4096, 2.0, 5000),  # less than that
        (3_000, 32_768, 2.0, 5000),  # more than half of what is free
    ],
)
def test_a_session_fits_with_a_tenth_to_spare(free: int, session: int, times: float, held: int) -> None:
    """A single request of the whole length; only where half of the free memory holds it."""
    resolved = text(free)
    exact = memory_items.usable_bytes(resolved) - sum(item.high for item in turbomind.items_before_cache(resolved, 1))
    ratio = share(resolved, 5000, session_len=session)
    assert ratio == pytest.approx(least(times * region(held) / exact), rel=1e-9)


@pytest.mark.parametrize("goal", ["memory", "balanced"])
def test_no_share_above_95_percent(goal: str) -> None:
    """Where the need fills the card, where it is beyond it, and where nothing is free."""
    for free, tokens in ((1_300, 20_000), (1_000, 20_000), (200, 20_000)):
        assert share(text(free, goal=goal), tokens) == 0.95
    full = text(5_000, goal=goal)
    assert share(replace(full, available_bytes=GIB), 64) == 0.95
    free = memory_items.usable_bytes(full) - sum(item.high for item in turbomind.items_before_cache(full, 1))
    assert share(full, 64, free) == 0.95


def test_other_servers_of_the_card_leave_less_and_need_a_larger_share() -> None:
    """What they take is not free."""
    resolved = text(20_000, goal="memory")
    exact = memory_items.usable_bytes(resolved) - sum(item.high for item in turbomind.items_before_cache(resolved, 1))
    ratio = share(resolved, 5000, 10_000 * MIB)
    assert ratio == pytest.approx(least(1.1 * region(5000) / (exact - 10_000 * MIB)), rel=1e-9)


@pytest.mark.parametrize(("release", "pages"), [("0.14.0", False), ("0.15.0", True)])
def test_before_slabs_no_page_is_lost(release: str, pages: bool) -> None:
    """5050 tokens are 79 blocks: up to 0.14 just these."""
    resolved = text(20_000, goal="memory", lmdeploy=release)
    exact = memory_items.usable_bytes(resolved) - sum(item.high for item in turbomind.items_before_cache(resolved, 1))
    need = region(5056) if pages else 79 * 64 * 57_344
    assert turbomind.region_for(resolved, configuration(), 5050) == need
    assert share(resolved, 5050) == pytest.approx(least(1.1 * need / exact), rel=1e-9)


@given(
    st.integers(1, 60_000),
    st.sampled_from([16, 8, 4]),
    st.sampled_from([1, 2]),
    st.sampled_from(["l4", "a100-sxm-80g", "h100-sxm-80g"]),
    st.sampled_from([TEXT, IMAGES]),
    st.sampled_from(["memory", "balanced"]),
)
@settings(max_examples=150)
def test_the_share_holds_the_need_even_if_less_is_free(
    tokens: int, bits: int, tp: int, gpu: str, model: str, goal: str
) -> None:
    """With all that stands before the cache at its most, the tokens are there: else the start would hang."""
    resolved = resolve(gpu=gpu, model=model, gpu_count=2, goal=goal)
    ratio = share(resolved, tokens, tp=tp, kv_bits=bits)
    free = memory_items.usable_bytes(resolved) - sum(item.high for item in turbomind.items_before_cache(resolved, tp))
    block = 64 * model_shape.kv_bytes_per_token(resolved.model, bits, tp)
    if ratio < 0.95:
        assert kv_region.kv_blocks(int(free * ratio / 1.1), block, True) * 64 >= tokens
    made = memory.estimate(resolved, configuration(cache_ratio=ratio, kv_bits=bits, tp=tp))
    assert ratio == 0.95 or made.kv_tokens >= tokens


def test_blocks_are_lmdeploys_own() -> None:
    """64 tokens, the option's default in every release: the command line leaves it out."""
    for release in ("0.7.0", "0.18.0"):
        resolved = resolve(lmdeploy=release)
        default = resolved.options["cache-block-seq-len"].default
        assert {str(each.block_len) for tier in tiers(resolved) for each in tier} == {default} == {"64"}
    assert {str(era.default) for era in STORE.flags["cache-block-seq-len"].eras} == {"64"}
