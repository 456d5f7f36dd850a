"""Memory of a card: every part by hand arithmetic on known shapes, and what must hold of the whole."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from artefacts import found
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.version import Version
from variants import GIB, IMAGES, MIB, STORE, TEXT, coefficients, configuration, resolve, store_with, variant

from recommender.estimate import cache_need, memory, memory_items, model_shape
from recommender.estimate.engines import kv_region, pytorch, turbomind
from recommender.render import report

PLAIN = {
    "context_mib": (900.0, 1000.0, 1200.0), "peer_context_mib": (100.0, 200.0, 400.0),
    "quantised_load_mib": (100.0, 300.0, 600.0), "quantised_load_share": (1.0, 1.5, 2.0),
    "load_peak_share": (1.0, 2.0, 3.0),
    "workspace_mib": (50.0, 100.0, 300.0), "workspace_token": (0.5, 1.0, 2.0), "workspace_slot": (0.5, 1.0, 2.0),
    "vision_tile": (0.25, 0.5, 1.0), "driver_reserve_mib": (100.0, 500.0, 700.0),
}  # fmt: skip
"""Round coefficients, so that every expectation is a product written out."""
ROUND = coefficients(**PLAIN)
TEXT_BLOCK = 64 * 57_344
SMALL_GPU = variant(STORE.gpus["h100-sxm-80g"], id="tested", memory_mib=40_000)


def text(store: Any = ROUND, **asked: Any) -> Any:
    """A text request: 100 tokens in with the template, 28 out."""
    return resolve(store, **{"model": TEXT, "prompt_tokens": 71, "output_tokens": 28, **asked})


# --- what a pass and the warm-up take


@pytest.mark.parametrize(
    ("prefill", "batch", "tp", "tokens"),
    [(512, 1, 1, 513), (512, 16, 1, 528), (512, 16, 4, 528), (512, 1, 2, 514), (512, 1, 4, 516), (8192, 7, 8, 8200)],
)
def test_a_pass_is_prompts_and_one_token_a_request(prefill: int, batch: int, tp: int, tokens: int) -> None:
    """The budget and the batch together, rounded up to whole tokens on every rank (0.16.0 turbomind.cc:173-179)."""
    assert turbomind.forward_tokens(prefill, batch, tp) == tokens


@pytest.mark.parametrize(
    ("release", "forward", "session", "tokens"),
    [
        # Up to 0.11 the warm-up has tokens of its own; from 0.12 on it sends requests through the pool.
        ("0.11.1", 513, 4096, 0),
        ("0.12.0", 513, 4096, 513),
        ("0.18.0", 513, 4096, 513),
        # A pass as long as a session is still tried whole, one token more is not.
        ("0.18.0", 1000, 1000, 1000),
        ("0.18.0", 1001, 1000, 768),
        ("0.18.0", 8208, 4096, 4096),
        ("0.18.0", 8208, 4095, 3072),
        ("0.18.0", 8208, 8, 8),
        ("0.18.0", 8208, 7, 0),
    ],
)
def test_the_warm_up_keeps_the_longest_length_that_a_session_holds(
    release: str, forward: int, session: int, tokens: int
) -> None:
    """The whole pass where it fits a session, else the longest shorter length that is tried."""
    assert turbomind.warmup_tokens(Version(release), forward, session) == tokens


def test_every_length_of_the_warm_up_is_tried() -> None:
    """8, 16, 32, then powers of two and the halves between them, to 196,608 (0.16.0 gemm/tuner/params.cc:66-101)."""
    lengths = [8, 16, *sorted([2**power for power in range(5, 18)] + [3 * 2**power for power in range(4, 17)])]
    for length, following in zip(lengths, [*lengths[1:], 10**6], strict=True):
        for session in (length, following - 1):
            assert turbomind.warmup_tokens(Version("0.18.0"), 2 * 10**6, session) == length


# --- the cache's blocks


def test_a_cached_token_by_hand() -> None:
    """Qwen2.5-7B: 28 layers x 2 x 4 heads x 256 bytes; 8 bits are 51.6 % of that and 4 bits 26.6 %."""
    model = STORE.models[TEXT]
    full, eight, four = (model_shape.kv_bytes_per_token(model, bits, 1) for bits in (16, 8, 4))
    assert full == 57_344
    assert (eight, four) == (29_568, 15_232)
    assert eight / full == pytest.approx(0.516, abs=5e-4)
    assert four / full == pytest.approx(0.266, abs=5e-4)
    assert model_shape.kv_bytes_per_token(model, 16, 4) == full / 4
    assert model_shape.kv_bytes_per_token(model, 16, 8) == full / 4


@pytest.mark.parametrize(
    ("region", "block", "blocks"),
    [
        # 9 blocks of 3.5 MiB fill 32 MiB; half a page goes to the alignment.
        (320 * MIB + 16 * MIB, TEXT_BLOCK, 90),
        (320 * MIB + 16 * MIB - 1, TEXT_BLOCK, 81),
        (48 * MIB, TEXT_BLOCK, 9),
        (48 * MIB - 1, TEXT_BLOCK, 0),
        (0, TEXT_BLOCK, 0),
        # 20 MiB: 25 of them fill 512 MiB to 97.7 %, no smaller slab to 95 %.
        (512 * MIB + 16 * MIB, 20 * MIB, 25),
        (512 * MIB + 15 * MIB, 20 * MIB, 0),
        # 700 MiB never fill a slab so far: 1 GiB is the largest.
        (3 * GIB + 16 * MIB, 700 * MIB, 3),
        # 1.5 GiB need a slab of 2.
        (4 * GIB + 16 * MIB, 1536 * MIB, 2),
        # Just over 95 % of a page: a slab each; just under: 33 of a slab of 32 pages.
        (1040 * MIB, int(32 * MIB * 0.951), 32),
        (1040 * MIB, int(32 * MIB * 0.949), 33),
        (1072 * MIB, 32 * MIB, 33),
        # A block as large as a page.
        (1040 * MIB, 32 * MIB, 32),
    ],
)
def test_blocks_of_a_region(region: int, block: int, blocks: int) -> None:
    """Slabs of whole 32 MiB pages, the smallest filled to 95 % (0.16.0 src/turbomind/memory/slab.h:122-133)."""
    assert kv_region.kv_blocks(region, block, True) == blocks


def test_before_slabs_a_region_is_divided_by_its_blocks() -> None:
    """Up to 0.14 nothing is lost but the remainder."""
    assert kv_region.kv_blocks(1000, 300, False) == 3
    assert kv_region.kv_blocks(900, 300, False) == 3
    assert kv_region.region_bytes(3, 300, False) == 900


@given(st.integers(1, 3000), st.integers(10_000, 200 * MIB))
@settings(max_examples=200)
def test_a_region_holds_its_blocks_wherever_it_begins(blocks: int, block: int) -> None:
    """Worst case: nearly a page is lost before the first one. One page less would not do."""
    region = kv_region.region_bytes(blocks, block, True)
    slab = 32 * MIB
    while slab < block or (slab // block * block < 0.95 * slab and slab < GIB):
        slab *= 2
    each = slab // block

    def held(size: int, lost: int) -> int:
        return (size - lost) // (32 * MIB) // (slab // (32 * MIB)) * each

    assert held(region, 32 * MIB - 1) >= blocks
    assert held(region - 32 * MIB, 32 * MIB - 1) < blocks
    assert kv_region.kv_blocks(region, block, True) >= blocks


# --- what stands on the card


def test_weights_are_those_of_the_files_where_they_were_read() -> None:
    """A checkpoint's own bytes count; over two cards they are split as the computed ones are."""
    resolved = text()
    one, two = memory_items.weights(resolved, 1), memory_items.weights(resolved, 2)
    assert one == pytest.approx(15.23e9, rel=0.01)
    assert one / 2 < two < one / 2 * 1.01
    read = replace(resolved, weight_bytes=2 * one)
    assert memory_items.weights(read, 1) == 2 * one
    assert memory_items.weights(read, 2) == pytest.approx(2 * two, abs=2)


def test_a_tied_head_is_a_table_of_its_own() -> None:
    """TurboMind loads it beside the embeddings; the PyTorch engine reads them twice. Qwen3-4B: 151,936 x 2560."""
    resolved = resolve(model="qwen3-4b", images=0)
    stored = memory_items.weights(resolved, 1)
    assert turbomind.items_before_cache(resolved, 1)[1].bytes == stored + 151_936 * 2560 * 2
    assert turbomind.items_before_cache(resolved, 2)[1].bytes == memory_items.weights(resolved, 2) + 151_936 * 2560
    assert pytorch.items_before_cache(resolved, 1)[1].bytes == stored


def test_before_the_cache_stand_context_weights_and_leavings() -> None:
    """The context with its range; 16-bit weights leave nothing, 4-bit ones a matrix of each MLP and more."""
    context, weights, loading = turbomind.items_before_cache(text(), 1)
    assert [item.name for item in (context, weights, loading)] == ["context", "weights", "loading"]
    assert (context.low, context.bytes, context.high) == (900 * MIB, 1000 * MIB, 1200 * MIB)
    assert context.coefficients == ("context-mib",)
    assert weights.low == weights.bytes == weights.high == memory_items.weights(text(), 1)
    assert (loading.low, loading.bytes, loading.high) == (0, 0, 0)
    _, _, leavings = turbomind.items_before_cache(resolve(ROUND, model=IMAGES), 1)
    matrix = 28 * 3584 * 18_944 // 2  # 28 layers, two numbers a byte
    ends = 100 * MIB + matrix, 300 * MIB + matrix * 3 // 2, 600 * MIB + 2 * matrix
    assert (leavings.low, leavings.bytes, leavings.high) == ends
    assert turbomind.items_before_cache(resolve(ROUND, model=IMAGES), 2)[2].bytes == 300 * MIB + matrix * 3 // 4


def test_more_cards_of_a_server_have_a_larger_context() -> None:
    """Peers are mapped into each other from two cards on."""
    context = turbomind.items_before_cache(text(), 2)[0]
    assert (context.low, context.bytes, context.high) == (1000 * MIB, 1200 * MIB, 1600 * MIB)
    assert context.coefficients == ("context-mib", "peer-context-mib")


def test_usable_is_the_card_without_the_drivers_part_or_what_was_asked() -> None:
    """81,559 MiB less 500; of --vram 10 all ten GiB."""
    assert memory_items.usable_bytes(text()) == (81_559 - 500) * MIB
    assert memory_items.usable_bytes(text(vram_gib=10.0)) == 10 * GIB


def test_the_peak_of_loading_is_before_the_cache() -> None:
    """Context and weights, and at most three embedding tables of 152064 x 3584 16-bit numbers."""
    made = memory.estimate(text(), configuration())
    table = 152_064 * 3584 * 2
    assert made.loading == 1000 * MIB + memory_items.weights(text(), 1) + 3 * table
    two = memory.estimate(text(gpu_count=2), configuration(tp=2))
    assert two.loading == 1200 * MIB + memory_items.weights(text(), 2) + 3 * table // 2


@pytest.mark.parametrize(("tp", "wide"), [(1, 36 * 128 + 18_944), (2, 18 * 128 + 9472)])
@pytest.mark.parametrize(("session", "tokens"), [(4096, 514), (514, 514), (300, 300)])
def test_work_buffers_by_hand(tp: int, wide: int, session: int, tokens: int) -> None:
    """Per token of a pass two hidden rows, 28 + 2 x 4 heads and the MLP; logits of the batch; two bytes a number.

    A pass has no more tokens than a session. Token ids are 4 bytes of every position of every request.
    """
    item = turbomind.workspace(text(), configuration(session_len=session, tp=tp, max_batch_size=2), 514)
    rows, logits, ids = tokens * (2 * 3584 + wide) * 2, 2 * 152_064, 2 * session * 4
    assert item.bytes == 100 * MIB + rows + logits + ids
    assert item.low == 50 * MIB + rows // 2 + logits // 2 + ids
    assert item.high == 300 * MIB + 2 * rows + 2 * logits + ids
    assert item.name == "workspace"


def test_work_buffers_of_a_mixture_hold_the_experts_of_a_token() -> None:
    """Qwen3-30B-A3B: eight experts of 768 a token instead of one MLP; a shared one is added."""
    resolved = resolve(ROUND, model="qwen3-30b-a3b", images=0)
    item = turbomind.workspace(resolved, configuration(max_batch_size=1, session_len=4096), 512)
    row = 2 * 2048 + (32 + 2 * 4) * 128 + 8 * 768
    assert item.bytes == 100 * MIB + 512 * row * 2 + 151_936 + 4096 * 4
    text = resolved.model.text
    shared = variant(text, mixture=(variant(text.mixture[0], shared=512),))
    with_shared = replace(resolved, model=variant(resolved.model, text=shared))
    more = turbomind.workspace(with_shared, configuration(max_batch_size=1, session_len=4096), 512)
    assert more.bytes - item.bytes == 512 * 512 * 2


@pytest.mark.parametrize(
    ("batch", "output", "images", "size", "tiles"),
    [
        (1, 16, 1, (448, 448), 1),
        (8, 16, 1, (448, 448), 1),
        (9, 16, 1, (448, 448), 2),  # 2 x 9 / 16 end in a pass and are followed
        (16, 16, 1, (448, 448), 2),
        (1, 1, 1, (448, 448), 1),
        (4, 1, 1, (448, 448), 4),
        (1, 16, 1, (1280, 720), 9),
        (1, 16, 2, (1280, 720), 18),
    ],
)
def test_the_image_encoder_holds_the_tiles_that_join_a_pass(
    batch: int, output: int, images: int, size: tuple[int, int], tiles: int
) -> None:
    """Of InternViT's 1025 patches a tile four rows of 1024 and one of 4096 numbers of two bytes, times the share."""
    width, height = size
    asked = {"images": images, "image_width": width, "image_height": height, "output_tokens": output}
    item = memory_items.vision_workspace(resolve(ROUND, **asked), configuration(max_batch_size=batch))
    whole = tiles * 1025 * (4 * 1024 + 4096) * 2
    assert (item.low, item.bytes, item.high) == (whole // 4, whole // 2, whole)
    assert item.name == "vision"


def test_less_detail_takes_less_of_the_encoder() -> None:
    """Of 1280x720 three tiles with at most six, instead of nine."""
    resolved = resolve(ROUND, images=1, image_width=1280, image_height=720)
    nine, three = (memory_items.vision_workspace(resolved, configuration(max_tiles=most)).bytes for most in (0, 6))
    assert nine == 3 * three


def test_only_whole_patches_are_seen() -> None:
    """Of a tile of 460 pixels 32 of 14 a side, as of 448."""
    resolved = resolve(ROUND, images=1, image_width=448, image_height=448)
    odd = variant(resolved.model, vision=(variant(resolved.model.vision[0], image=460),))
    cases = (resolved, replace(resolved, model=odd))
    whole, cut = (memory_items.vision_workspace(each, configuration()) for each in cases)
    assert whole.bytes == cut.bytes


def test_without_images_the_encoder_takes_nothing() -> None:
    """No image, or a model that sees none."""
    for resolved in (text(), resolve(ROUND, images=0)):
        item = memory_items.vision_workspace(resolved, configuration())
        assert (item.bytes, item.low, item.high) == (0, 0, 0)


# --- the whole


def test_the_cache_is_a_share_of_what_is_free_after_the_weights() -> None:
    """On a card of 40,000 MiB of which the driver keeps 500; the spread of what stands before goes into its ends."""
    resolved = replace(text(), gpu=SMALL_GPU, available_bytes=40_000 * MIB)
    made = memory.estimate(resolved, configuration(cache_ratio=0.5, max_batch_size=4))
    free = (39_500 - 1000) * MIB - memory_items.weights(resolved, 1)
    assert made.free == free
    cache = made.item("kv cache")
    assert cache.bytes == free // 2
    assert cache.bytes - cache.low == cache.high - cache.bytes == 75 * MIB  # half of half of 1200 - 900
    blocks = (free // 2 - 16 * MIB) // (32 * MIB) * 9
    assert made.kv_blocks == blocks
    assert made.kv_tokens == 64 * blocks
    assert made.kv_requests == made.kv_tokens // 128  # 128 tokens are two whole blocks
    assert (made.forward_tokens, made.warmup_tokens, made.kv_token_bytes) == (516, 516, 57_344)
    assert made.kv_needed_tokens == 576  # the warm-up's 516 in whole blocks: more than one request's 128
    assert made.total == sum(item.bytes for item in made.items)
    assert made.low == sum(item.low for item in made.items)
    assert [item.name for item in made.items] == ["context", "weights", "loading", "kv cache", "workspace", "vision"]
    assert {item.basis for item in made.items} == {"modelled"}


@pytest.mark.parametrize("model", [TEXT, "qwen3.5-9b"])
def test_a_region_for_tokens_holds_them_beside_a_full_batch(model: str) -> None:
    """States of linear attention take room of their own: 24 layers of 1 MiB for each of eight requests."""
    resolved, config = resolve(model=model, lmdeploy="0.18.0"), configuration(max_batch_size=8)
    for tokens in (64, 65, 40_000):
        region = turbomind.region_for(resolved, config, tokens)
        assert turbomind.count_blocks(resolved, config, region, 8) * 64 >= tokens


def test_no_cache_is_larger_than_what_is_free() -> None:
    """A share of 1 takes all of it; a larger one takes no more."""
    for ratio in (1.0, 3.0):
        made = memory.estimate(text(), configuration(cache_ratio=ratio))
        assert made.item("kv cache").bytes == made.free > 0


def test_every_part_names_the_coefficients_it_rests_on() -> None:
    """None where bytes are counted."""
    resolved = resolve(images=1, image_width=448, image_height=448)
    made = memory.estimate(resolved, configuration())
    assert {item.name: item.coefficients for item in made.items} == {
        "context": ("context-mib",),
        "weights": (),
        "loading": ("quantised-load-mib", "quantised-load-share"),
        "kv cache": (),
        "workspace": ("workspace-mib", "workspace-token", "workspace-slot"),
        "vision": ("vision-tile",),
    }
    assert {item.basis for item in made.items} == {"modelled"}
    for imageless in (text(), resolve(model=IMAGES, images=0)):  # an encoder without images encodes nothing
        none = memory.estimate(imageless, configuration()).item("vision")
        assert (none.bytes, none.high, none.basis, none.coefficients) == (0, 0, "modelled", ())


@pytest.mark.parametrize(("release", "blocks"), [("0.14.0", 73), ("0.15.0", 63)])
def test_slabs_came_with_0_15(release: str, blocks: int) -> None:
    """256 MiB hold 73 blocks of 3.5 MiB; from 0.15.0 on seven pages with nine each."""
    resolved = replace(text(lmdeploy=release), gpu=SMALL_GPU, available_bytes=40_000 * MIB)
    free = (39_500 - 1000) * MIB - memory_items.weights(resolved, 1)
    assert memory.estimate(resolved, configuration(cache_ratio=256 * MIB / free + 1e-9)).kv_blocks == blocks


def test_where_the_weights_are_too_large_nothing_is_free() -> None:
    """No negative cache and no blocks."""
    resolved = replace(text(), gpu=variant(SMALL_GPU, memory_mib=15_000), available_bytes=15_000 * MIB)
    made = memory.estimate(resolved, configuration())
    assert (made.free, made.kv_blocks, made.kv_requests, made.item("kv cache").low) == (0, 0, 0, 0)


def test_while_loading_a_small_server_takes_more_than_when_it_is_ready() -> None:
    """The upper end is the peak of loading where that is more than all parts' upper ends."""
    store = coefficients(**PLAIN | {"load_peak_share": 30.0})
    small = memory.estimate(text(store), configuration(cache_ratio=0.01))
    assert small.high == small.loading > sum(item.high for item in small.items)
    large = memory.estimate(text(store), configuration(cache_ratio=0.9))
    assert large.high == sum(item.high for item in large.items) > large.loading


@pytest.mark.parametrize(
    ("batch", "session", "warmup", "tokens"),
    [
        (1, 4096, 0, 128),  # 100 in and 28 out are two blocks
        (7, 4096, 0, 7 * 128),
        (1, 4096, 513, 576),  # the warm-up, in whole blocks
        (4, 4096, 512, 512),
        (1, 64, 0, 128),
    ],
)
def test_the_cache_needs_the_load_a_session_or_the_warm_up(batch: int, session: int, warmup: int, tokens: int) -> None:
    """Whichever is the most, each in whole blocks."""
    assert cache_need.count_needed_tokens(text(), 0, 64, batch, session, warmup) == tokens


def test_a_shared_prefix_is_held_once() -> None:
    """By hand, Llama-3.1-8B, 16 requests of 3,000 tokens in and 100 out, of which 2,048 are everybody's.

    3,000, the template's 35 and 100 are 49 blocks of 64; 32 of them are the prefix. 32 + 16 x 17 blocks are needed, of
    2 (keys and values) x 32 layers x 8 heads x 128 numbers x 2 bytes a token.
    """
    asked = {"model": "llama-3.1-8b-instruct", "prompt_tokens": 3000, "output_tokens": 100, "concurrency": 16}
    made, plain = (found(gpu="h200-141g", load="", **asked, **more) for more in ({"prefix_tokens": 2048}, {}))
    assert (made.config.prefix_caching, plain.config.prefix_caching) == (True, False)
    assert made.memory.kv_prefix_tokens == 2048
    assert made.memory.kv_needed_tokens == (32 + 16 * 17) * 64 == 19_456
    assert (plain.memory.kv_prefix_tokens, plain.memory.kv_needed_tokens) == (0, 16 * 49 * 64)
    assert made.memory.kv_requests == (made.memory.kv_tokens // 64 - 32) // 17
    # Ample: twice the need of the free memory at its low end, rounded up to two digits.
    token = 2 * 32 * 8 * 128 * 2
    high = sum(item.high for item in made.memory.items if item.name in ("context", "weights", "loading"))
    share = 2 * 19_456 * token / (memory_items.usable_bytes(made.resolved) - high)
    assert share <= made.config.cache_ratio <= 1.1 * share + 0.001
    assert made.config.cache_ratio < plain.config.cache_ratio / 2
    for prefix, whole in ((2047, 31), (63, 0)):  # the last block of a prefix holds what follows, too
        resolved = resolve(STORE, **asked, prefix_tokens=prefix)
        assert cache_need.shared_tokens(resolved, True, 64) == whole * 64
        assert cache_need.shared_tokens(resolved, False, 64) == 0
    shown = " ".join(report.report(made).split())
    assert "2,048 of these tokens are the prefix that all requests share" in shown


def test_a_shared_prefix_of_lengths_that_vary() -> None:
    """Only what is beside the prefix varies and grows with the batch."""
    resolved = resolve(STORE, model="llama-3.1-8b-instruct", input_lengths="1200,1400", output_lengths="60,100")
    own = -(-(1300 + 35 + 80) // 64) * 64 - 1024
    deviation = math.sqrt(100 * (100**2 + 20**2))
    wanted = 1024 + -(-math.ceil(100 * own + 2.326 * deviation) // 64) * 64
    assert cache_need.count_needed_tokens(resolved, 0, 64, 100, 4096, 0, 1024) == wanted


def test_a_larger_image_than_asked_for_still_fits_once() -> None:
    """One request whose image has all twelve tiles and the thumbnail, or what a session holds of it."""
    resolved = resolve(images=1, image_width=448, image_height=448, prompt_tokens=24, output_tokens=16)
    largest = 13 * 256 + 50 + 24 + 16
    assert cache_need.count_needed_tokens(resolved, 0, 64, 1, 4096, 0) == -(-largest // 64) * 64
    assert cache_need.count_needed_tokens(resolved, 0, 64, 1, 1024, 0) == 1024
    assert cache_need.count_needed_tokens(resolved, 1, 64, 1, 4096, 0) == 384  # 256 + 50 + 24 + 16 = 346
    photo = resolve(images=1, image_width=1280, image_height=720, prompt_tokens=24, output_tokens=16)
    assert cache_need.count_needed_tokens(photo, 1, 64, 10, 64, 0) == 3840
    config = configuration(max_tiles=1, cache_ratio=0.05)
    made = memory.estimate(photo, config)
    assert made.kv_requests == made.kv_tokens // 384
    assert made.kv_tokens % 384
    assert made.kv_needed_tokens == 384 + 192  # the warm-up's 513 tokens in blocks


@pytest.mark.parametrize(
    ("concurrency", "batch", "servers", "running"), [(16, 32, 1, 16), (16, 8, 1, 8), (16, 32, 3, 6), (3, 8, 4, 1)]
)
def test_as_many_run_as_come_and_the_batch_admits(concurrency: int, batch: int, servers: int, running: int) -> None:
    """The load over the servers, the fullest one, up to its batch."""
    resolved = text(concurrency=concurrency)
    assert cache_need.count_running_requests(resolved, configuration(max_batch_size=batch, servers=servers)) == running


def test_a_second_server_of_a_card_starts_in_what_the_first_left() -> None:
    """Each part is both servers'; free memory and the peak while loading are the second's."""
    alone = memory.estimate(text(), configuration(cache_ratio=0.2))
    both = memory.estimate(text(), configuration(cache_ratio=0.2, share=2, servers=2))
    assert both.free == alone.free - alone.total
    for name in ("context", "weights", "workspace"):
        one, two = alone.item(name), both.item(name)
        assert (two.low, two.bytes, two.high) == (2 * one.low, 2 * one.bytes, 2 * one.high)
    assert both.item("kv cache").bytes == alone.item("kv cache").bytes + int(both.free * 0.2)
    assert both.loading == alone.total + alone.loading
    three = memory.estimate(text(), configuration(cache_ratio=0.2, share=3, servers=3))
    assert three.free == alone.free - both.total
    assert three.item("weights").bytes == 3 * alone.item("weights").bytes


# --- the likely range


def likely(low: float, high: float, **asked: Any) -> tuple[int, int, memory_items.Memory]:
    """The likely ends with such errors of unseen starts, and the estimate."""
    known = variant(STORE.residuals["memory"], low=low, high=high)
    store = store_with(residuals={**STORE.residuals, "memory": known})
    resolved = resolve(store, images=1, image_width=448, image_height=448, **asked)
    made = memory.estimate(resolved, configuration(session_len=8192, prefill_tokens=8192, max_batch_size=16))
    return *memory.likely_range(resolved, made, 1), made


def test_likely_memory_holds_its_middle_whatever_the_errors() -> None:
    """Errors all to one side leave the middle as an end; the busy encoder stands on the upper one only."""
    low, high, made = likely(1.001, 1.005)
    vision = made.item("vision").bytes
    assert vision > 0
    assert low == made.total - vision
    assert high == pytest.approx((made.total - vision) * 1.005 + vision, abs=2)
    low, high, made = likely(0.98, 0.99)
    assert low == pytest.approx((made.total - vision) * 0.98, abs=2)
    assert high == made.total


def test_likely_memory_is_within_the_parts_at_their_ends() -> None:
    """Errors as large as can be."""
    low, high, made = likely(0.5, 3.0)
    assert (low, high) == (made.low, made.high)


def test_without_errors_of_unseen_starts_the_parts_ends_are_told() -> None:
    """As for a card or a kind of model that never ran."""
    residuals = {name: known for name, known in STORE.residuals.items() if name != "memory"}
    resolved = resolve(store_with(residuals=residuals), concurrency=16)
    made = memory.estimate(resolved, configuration())
    assert memory.likely_range(resolved, made, 1) == (made.low, sum(item.high for item in made.items))


@pytest.mark.parametrize(
    ("asked", "tp"),
    [({"gpu": "l4"}, 1), ({"model": "qwen3.5-35b-a3b", "images": 0}, 1), ({"gpu": "h200-sxm", "gpu_count": 2}, 2)],
)
def test_what_never_started_may_take_anything_its_parts_allow(asked: dict[str, Any], tp: int) -> None:
    """A card or a kind of model that was not measured, or several cards: each part's own ends."""
    resolved = resolve(concurrency=16, **asked)
    made = memory.estimate(resolved, configuration(tp=tp))
    assert memory.likely_range(resolved, made, tp) == (made.low, sum(item.high for item in made.items))


@given(st.integers(1, 128), st.sampled_from([512, 2048, 8192]), st.sampled_from([1, 2, 4]), st.floats(0.01, 0.9))
@settings(max_examples=60)
def test_memory_grows_with_what_it_is_for(batch: int, prefill: int, tp: int, ratio: float) -> None:
    """Larger batches, budgets and shares take no less, and the ends enclose the middle."""
    resolved = resolve(model=TEXT, gpu_count=4)
    base = configuration(max_batch_size=batch, prefill_tokens=prefill, tp=tp, cache_ratio=ratio, session_len=8192)
    made = memory.estimate(resolved, base)
    assert made.low <= made.total <= made.high
    for change in ({"max_batch_size": batch + 1}, {"prefill_tokens": prefill + 512}, {"cache_ratio": ratio + 0.05}):
        assert memory.estimate(resolved, replace(base, **change)).total >= made.total
    assert made.free == memory_items.usable_bytes(resolved) - sum(item.bytes for item in made.items[:3])


@pytest.mark.parametrize(("heads", "size"), [(20, 64), (16, 128), (10, 128)])
def test_heads_of_an_encoder_without_tiles_are_held_as_64_or_128(heads: int, size: int) -> None:
    """1280 wide: heads of 64 and of 128 as they are, of 80 padded (0.18.0 lmdeploy/turbomind/models/qwen2_vl.py:39)."""
    model = STORE.models["qwen2.5-vl-7b-instruct"]
    shape = variant(model, vision=(variant(model.vision[0], heads=heads),))
    more = model_shape.weight_bytes_per_rank(shape, 1) - model_shape.weight_bytes(shape)
    # Of each of 32 layers query, key, value and output, and three biases.
    assert more == pytest.approx(32 * (heads * size - 1280) * (4 * 1280 + 3) * 2, abs=2)


# --- linear attention


def qwen35(release: str = "0.18.0", **asked: Any) -> Any:
    """Qwen3.5-9B: 24 states of 1 MiB and one of 1.5 MiB a sequence, 32 KiB of keys and values a token."""
    return resolve(ROUND, model="qwen3.5-9b", lmdeploy=release, images=0, prompt_tokens=71, output_tokens=28, **asked)


@pytest.mark.parametrize(
    ("release", "running", "mib"),
    [
        # Slabs of 32 MiB hold 32 objects of 1 MiB or 21 of 1.5 MiB: 24 and 1, 72 and 3, 1536 and 64 objects.
        ("0.18.0", 1, 32 + 32),
        ("0.18.0", 3, 96 + 32),
        ("0.15.0", 64, 1536 + 128),
        # Before, a pool for the whole batch; at first nothing inside the region.
        ("0.14.0", 3, 64 * 25.5),
        ("0.12.3", 64, 64 * 25.5),
        ("0.12.2", 64, 0),
    ],
)
def test_states_lie_in_the_region(release: str, running: int, mib: float) -> None:
    """One object a layer and one more for each running sequence (0.16.0 GatedDeltaNetLayer.cc:149-157)."""
    model = STORE.models["qwen3.5-9b"]
    assert kv_region.state_region(model, 1, Version(release), 64, running) == mib * MIB
    assert kv_region.state_region(STORE.models[TEXT], 1, Version(release), 64, running) == 0


def test_the_projections_of_linear_attention_are_buffered_as_one() -> None:
    """Queries and keys of 2,048, values and gate of 4,096, two numbers for each of 32 heads: wider than attention's
    6,144.
    """
    short, long = (turbomind.workspace(qwen35(), configuration(), tokens).bytes for tokens in (100, 200))
    assert long - short == 100 * 2 * (2 * 4096 + 2 * 2048 + 2 * 4096 + 2 * 32 + 12_288)


def test_states_leave_fewer_tokens() -> None:
    """A region of 1 GiB: without its states it has 31 slabs of 16 blocks, two megabytes each; four take 128 MiB."""
    resolved = qwen35(concurrency=4)
    config = configuration(max_batch_size=4, session_len=1024, cache_ratio=1.0)
    free = memory.estimate(resolved, config).free
    held = memory.estimate(resolved, replace(config, cache_ratio=1024 * MIB / free))
    blocks = kv_region.kv_blocks(held.item("kv cache").bytes - (96 + 32) * MIB, 64 * 32768, True)
    assert (held.kv_blocks, held.kv_tokens) == (blocks, blocks * 64)
    # 128 tokens are two blocks, 4 MiB; a sequence more takes 24 MiB and 1.5 MiB, in slabs of 32 MiB.
    most = max(
        n
        for n in range(1, 200)
        if (1024 - 32) // 32 * 32 - -(-24 * n // 32) * 32 - -(-n // 21) * 32 >= -(-4 * n // 32) * 32
    )
    assert abs(held.kv_requests - most) <= 1, "aligning the region costs half a page on average"
    early = qwen35("0.12.2", concurrency=4)
    later = turbomind.workspace(qwen35("0.12.3", concurrency=4), config, 512).bytes
    assert turbomind.workspace(early, config, 512).bytes - later == 4 * 25.5 * MIB
