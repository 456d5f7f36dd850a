"""Which configurations are considered: what is given up in which order, over which cards, with which sizes."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from variants import IMAGES, STORE, TEXT, resolve, store_with, variant

from recommender import Request, estimate, recommend
from recommender.choose import candidates, prefill_budget
from recommender.common.errors import RequestError
from recommender.estimate import cache_sizing, memory
from recommender.estimate.configuration import Configuration


def first(**asked: Any) -> Configuration:
    """The first configuration of the first tier."""
    return next(candidates.tiers(resolve(**asked)))[0]


def concessions(**asked: Any) -> list[tuple[bool, int, int]]:
    """Schema, tiles and bits of each tier; all configurations of one are alike in them."""
    tiers = []
    for tier in candidates.tiers(resolve(**asked)):
        kinds = {(each.structured_output, each.max_tiles, each.kv_bits) for each in tier}
        assert len(kinds) == 1
        tiers += kinds
    return tiers


# --- what is given up


def test_texts_give_up_bits_of_the_cache() -> None:
    """16, then 8, then 4; a precision that was asked for alone."""
    assert concessions(model=TEXT, goal="memory") == [(False, 0, 16), (False, 0, 8), (False, 0, 4)]
    for kv, bits in (("fp16", 16), ("int8", 8), ("int4", 4)):
        assert concessions(model=TEXT, kv=kv, goal="memory") == [(False, 0, bits)]


def test_of_texts_other_budgets_come_after_lmdeploys_own() -> None:
    """With the same bits; together with it where memory is the goal, or a time."""

    def budgets(**asked: Any) -> list[tuple[int, list[int]]]:
        tiers = candidates.tiers(resolve(gpu="l4", concurrency=7, model=TEXT, prompt_tokens=1500, **asked))
        return [(tier[0].kv_bits, [each.prefill_tokens for each in tier]) for tier in tiers]

    assert budgets()[:3] == [(16, [8192]), (16, [2048, 4096]), (8, [8192])]
    for asked in ({"goal": "memory"}, {"ttft_ms": 500.0}, {"tpot_ms": 50.0}, {"latency_ms": 5e3}, {"p99_ms": 9e3}):
        assert budgets(**asked)[:2] == [(16, [2048, 4096, 8192]), (8, [2048, 4096, 8192])]


@pytest.mark.parametrize(
    ("model", "workload", "clients", "budget"),
    [
        *(("gpt-oss-20b", "code", 256, 16_384), ("gpt-oss-20b", "code", 64, 8192), ("gpt-oss-20b", "chat", 256, 8192)),
        *(("llama-3.1-8b-instruct", "code", 256, 8192), ("qwen3-30b-a3b", "code", 256, 16_384)),
    ],
)
def test_experts_are_read_seldom_for_many_long_prompts(model: str, workload: str, clients: int, budget: int) -> None:
    """Mixtures that do little but prefill get passes of 16,384 tokens (32.0 and 30.4 requests/s on one H100)."""
    resolved = resolve(gpu="H100-80G", model=model, workload=workload, concurrency=clients)
    assert prefill_budget.usual_budget(resolved) == budget
    assert {config.prefill_tokens for config in next(candidates.tiers(resolved))} == {budget}


LONG_CONTEXTS = ("phi-4", "qwen2.5-7b-instruct-awq", "llama-3.1-8b-instruct")


@pytest.mark.parametrize(
    ("model", "workload"),
    [
        *(("gemma-2-9b-it", "rag"), ("gemma-2-9b-it", "code")),  # the prefix of agent is longer than its context
        *((model, workload) for model in LONG_CONTEXTS for workload in ("agent", "rag", "code")),
    ],
)
def test_a_session_ends_where_the_model_does(model: str, workload: str) -> None:
    """Requests that are cut to the context get no session beyond it, and every answer still fits."""
    resolved = resolve(gpu="H100-80G", model=model, workload=workload, concurrency=4)
    limit = resolved.model.text.max_positions
    for config in next(candidates.tiers(resolved)):
        assert config.session_len <= limit
        assert resolved.longest().input_tokens() + config.max_tokens <= limit
        assert config.max_tokens >= resolved.outputs[-1]


def test_images_give_up_bits_before_detail_and_detail_before_the_schema() -> None:
    """Of a photo of nine tiles six at most, then one; every bit width before each."""
    order = [(tiles, bits) for tiles in (0, 6, 1) for bits in (16, 8, 4)]
    asked = {"images": 1, "image_width": 1280, "image_height": 720}
    assert concessions(**asked) == [(schema, *kind) for schema in (True, False) for kind in order]
    few = [(schema, tiles, 8) for schema in (True, False) for tiles in (0, 6, 1)]
    assert concessions(kv="int8", **asked) == few


def test_no_detail_is_given_up_where_there_is_none() -> None:
    """An image of one tile, an image of two that six leave as they are, a model without tiles, a request of text."""

    def tiles(**asked: Any) -> set[int]:
        return {kind[1] for kind in concessions(**asked)}

    assert tiles(images=1, image_width=448, image_height=448) == {0}
    assert tiles(images=1, image_width=896, image_height=448) == {0, 1}
    assert tiles(images=1, image_width=1280, image_height=720, model="qwen2.5-vl-7b-instruct") == {0}
    assert tiles(images=0) == {0}


@pytest.mark.parametrize(
    ("size", "most", "limits"),
    [
        ((1280, 720), 0, [6, 1]),
        ((1280, 720), 6, [1]),  # three tiles with six at most
        ((1280, 720), 1, []),
        ((448, 448), 0, []),
        ((896, 448), 0, [1]),  # two tiles and the small copy, with six at most too
    ],
)
def test_fewer_tiles_are_those_that_make_fewer(size: tuple[int, int], most: int, limits: list[int]) -> None:
    """Each limit makes fewer tiles than the one before it."""
    resolved = resolve(images=1, image_width=size[0], image_height=size[1])
    assert candidates.fewer_tiles(resolved, most) == limits
    if not most:
        assert candidates.fewer_tiles(resolved) == limits


# --- over which cards


@pytest.mark.parametrize(
    ("cards", "concurrency", "splits"),
    [
        (1, 1, [(1, 1)]),
        (1, 16, [(1, 1)]),
        (2, 1, [(1, 1), (2, 1)]),
        (2, 2, [(1, 1), (1, 2), (2, 1)]),
        (3, 8, [(1, 1), (1, 3), (2, 1)]),
        (4, 3, [(1, 1), (1, 3), (2, 1), (2, 2), (4, 1)]),
        (7, 8, [(1, 1), (1, 7), (2, 1), (2, 3), (4, 1)]),
        (8, 15, [(1, 1), (1, 8), (2, 1), (2, 4), (4, 1), (4, 2), (8, 1)]),
    ],
)
def test_cards_are_split_into_servers_of_powers_of_two(
    cards: int, concurrency: int, splits: list[tuple[int, int]]
) -> None:
    """One server of each size, and as many as cards and requests are there for."""
    resolved = resolve(gpu="l4", gpu_count=cards, concurrency=concurrency)
    assert candidates.splits(resolved) == [(tp, servers, 1) for tp, servers in splits]


def test_a_number_of_cards_that_was_asked_for_is_the_only_one() -> None:
    """Servers of two of eight cards: one, and four."""
    assert candidates.splits(resolve(gpu_count=8, tp=2, concurrency=64)) == [(2, 1, 1), (2, 4, 1)]


def run_on(gpu: str, mps: bool) -> Any:
    """The knowledge with one run, of servers under CUDA MPS or not."""
    return store_with(evidence={"a": SimpleNamespace(id="a", gpu=gpu, engine="turbomind", mps=mps, loads=())})


@pytest.mark.parametrize(("cards", "least"), [(1, 16), (2, 32)])
@pytest.mark.parametrize("tp", [0, 1])
def test_two_servers_share_a_card_from_eight_requests_each_on(cards: int, least: int, tp: int) -> None:
    """On every card two, where runs of that were made on such a GPU."""
    store = run_on("l4", True)

    def shared(concurrency: int, known: Any = store, asked: int = tp) -> list[tuple[int, int, int]]:
        resolved = resolve(known, gpu="l4", gpu_count=cards, concurrency=concurrency, tp=asked)
        return [split for split in candidates.splits(resolved) if split[2] > 1]

    assert shared(least) == [(1, 2 * cards, 2)]
    assert candidates.splits(resolve(store, gpu="l4", gpu_count=cards, concurrency=least, tp=tp))[-1][2] == 2
    assert shared(least - 1) == []
    assert shared(least, run_on("l4", False)) == []
    assert shared(least, run_on("t4", True)) == []
    if cards > 1:
        assert shared(64, asked=2) == []
    else:
        with pytest.raises(RequestError, match="up to the host's 1"):
            shared(64, asked=2)


@pytest.mark.parametrize(
    ("concurrency", "cpus", "most"), [(15, 16, 1), (16, 16, 2), (31, 64, 2), (32, 16, 4), (64, 15, 2), (64, 7, 1)]
)
def test_servers_of_the_pytorch_engine_share_a_card_where_there_are_cores(
    concurrency: int, cpus: int, most: int
) -> None:
    """Two or four, with eight requests and four CPU cores each; never for text."""
    asked: Any = {"gpu": "h200-sxm", "model": "qwen3-vl-4b-instruct", "concurrency": concurrency, "cpus": cpus}
    shares = [split[2] for split in candidates.splits(resolve(workload="vision-json", **asked))]
    assert shares == [share for share in (1, 2, 4) if share <= most]
    assert [split[2] for split in candidates.splits(resolve(workload="chat", **asked))] == [1]


# --- with which sizes


def test_a_batch_is_what_reaches_a_server() -> None:
    """Seven over three servers: three at the fullest."""
    every = next(candidates.tiers(resolve(gpu="l4", gpu_count=3, concurrency=7, model=TEXT, prompt_tokens=1500)))
    assert {(each.tp, each.servers, each.max_batch_size) for each in every} == {(1, 1, 7), (1, 3, 3), (2, 1, 7)}


@pytest.mark.parametrize(("output", "most"), [(1, 16), (7, 16), (8, 16), (9, 18), (500, 1000)])
def test_answers_may_be_twice_as_long_as_expected(output: int, most: int) -> None:
    """And 16 tokens in any case; a session has room for that."""
    config = first(model=TEXT, prompt_tokens=9000, output_tokens=output)
    assert config.max_tokens == most
    assert config.session_len == -(-(9029 + most + 1) // 256) * 256


@pytest.mark.parametrize("left", [100, 150, 200])
def test_an_answer_ends_before_the_models_context_does(left: int) -> None:
    """Qwen2.5-7B's 32,768 tokens hold the prompt, the template's 29, the answer and one more."""
    config = first(model=TEXT, prompt_tokens=32_768 - 29 - 1 - left, output_tokens=100)
    assert (config.max_tokens, config.session_len) == (left, 32_768)


@pytest.mark.parametrize(
    ("repeats", "cached"),
    [
        ({}, False),
        ({"prefix_tokens": 63}, False),
        ({"prefix_tokens": 64}, True),  # a block
        ({"turns": 2}, True),
        ({"repeated_share": 0.0499}, False),
        ({"repeated_share": 0.05}, True),
    ],
)
def test_what_requests_repeat_is_cached(repeats: dict[str, Any], cached: bool) -> None:
    """A block of a prefix, a conversation's history, or a twentieth of a trace's input."""
    assert first(model=TEXT, prompt_tokens=1000, **repeats).prefix_caching is cached


@pytest.mark.parametrize(
    ("model", "backend", "release", "cached"),
    [
        ("gemma-2-9b-it", "pytorch", "0.18.0", False),  # pytorch/engine/executor/base.py:67
        ("internvl3-8b", "turbomind", "0.12.0", False),  # serve/vl_async_engine.py:32
        ("internvl3-8b", "turbomind", "0.15.0", False),  # serve/core/vl_async_engine.py:36
        ("internvl3-8b", "turbomind", "0.16.0", True),
        ("internvl3-8b", "turbomind", "0.10.0", True),  # only prompts with images pass by the cache
        ("qwen2.5-vl-7b-instruct", "pytorch", "0.18.0", False),
        ("llama-3.1-8b-instruct", "pytorch", "0.18.0", True),
    ],
)
def test_a_prefix_cache_that_the_engine_drops_is_neither_set_nor_predicted(
    model: str, backend: str, release: str, cached: bool
) -> None:
    """Texts that repeat 900 of 1,000 tokens: set by hand, such a cache changes no figure."""
    asked: dict[str, Any] = {"gpu": "h100-sxm-80g", "model": model, "lmdeploy": release, "backend": backend}
    request = Request(**asked, images=0, prompt_tokens=1000, prefix_tokens=900, output_tokens=50, concurrency=8)
    assert recommend(request).config.prefix_caching is cached
    plain = {"--backend": backend}
    with_cache, without = estimate(request, plain | {"--enable-prefix-caching": "true"}), estimate(request, plain)
    assert (with_cache.speed.ttft_ms.value < without.speed.ttft_ms.value) is cached
    if not cached:
        assert (with_cache.speed, with_cache.memory) == (without.speed, without.memory)


@pytest.mark.parametrize(
    ("cpus", "cards", "threads"),
    [(1, 1, 1), (3, 1, 1), (4, 1, 2), (6, 1, 3), (8, 1, 4), (64, 1, 4), (16, 4, 2), (4, 4, 1)],
)
def test_threads_take_half_of_the_cores_and_four_at_most(cpus: int, cards: int, threads: int) -> None:
    """Over all servers; one in any case."""
    every = next(candidates.tiers(resolve(gpu="l4", gpu_count=cards, concurrency=64, cpus=cpus)))
    assert {each.omp_threads for each in every if each.servers == cards} == {threads}


@pytest.mark.parametrize(
    ("model", "workload", "clients", "threads"),
    [
        ("qwen3-vl-4b-instruct", "vision-json", 1, 12), ("qwen3-vl-4b-instruct", "caption", 1, 12),
        ("qwen3-vl-4b-instruct", "vision-json", 2, 4), ("qwen3-vl-4b-instruct", "chat", 1, 4),
        ("internvl3-8b", "vision-json", 1, 4), ("qwen2.5-vl-7b-instruct-awq", "vision-json", 1, 4),
    ],
)  # fmt: skip
def test_one_image_at_a_time_has_all_cores_on_the_pytorch_engine(
    model: str, workload: str, clients: int, threads: int
) -> None:
    """Where images are not cut into tiles: nothing competes with the one that is prepared."""
    every = next(candidates.tiers(resolve(model=model, workload=workload, concurrency=clients, cpus=12)))
    assert {each.omp_threads for each in every} == {threads}


def test_several_servers_stand_behind_the_proxy() -> None:
    """At LMDeploy's own port of a proxy, 8000; servers take LMDeploy's port and this host only."""
    every = next(candidates.tiers(resolve(gpu="l4", gpu_count=2, concurrency=2)))
    assert {each.servers: each.proxy_url for each in every} == {1: "", 2: "http://127.0.0.1:8000"}
    assert {(each.server_name, each.port) for each in every} == {("127.0.0.1", 23333)}


@pytest.mark.parametrize(
    ("release", "model", "values"),
    [
        # Code of the checkpoint: asked for from 0.13.0 on where the checkpoint brings some.
        ("0.12.3", IMAGES, {"trust_remote_code": False}),
        ("0.13.0", IMAGES, {"trust_remote_code": True}),
        ("0.18.0", TEXT, {"trust_remote_code": False}),
        ("0.18.0", IMAGES, {"disable_docs": True, "dtype": "auto", "communicator": "nccl", "model_format": ""}),
        ("0.18.0", IMAGES, {"log_level": "WARNING", "prefix_caching": False, "temperature": 0.0, "revision": ""}),
        ("0.9.2", IMAGES, {"log_level": "ERROR", "backend": "turbomind"}),
        ("0.10.0", IMAGES, {"log_level": "WARNING"}),
    ],
)
def test_what_is_not_sized_is_the_releases_default(release: str, model: str, values: dict[str, Any]) -> None:
    """The log level was ERROR up to 0.9.2 and is WARNING since (lmdeploy/cli/utils.py)."""
    config = first(model=model, lmdeploy=release)
    assert {name: getattr(config, name) for name in values} == values


def test_a_release_without_an_option_leaves_it_alone() -> None:
    """Where a release has no such option the plain value stands, and a switch is off."""
    gone = {"dtype", "log-level", "communicator", "model-format", "disable-fastapi-docs", "trust-remote-code"}
    flags = {name: flag for name, flag in STORE.flags.items() if name not in gone}
    config = next(candidates.tiers(resolve(store_with(flags=flags))))[0]
    assert (config.dtype, config.log_level, config.communicator, config.model_format) == ("auto", "ERROR", "nccl", "")
    assert (config.disable_docs, config.trust_remote_code) == (False, False)
    flags = dict(STORE.flags)
    for name in ("dtype", "log-level", "communicator", "model-format"):
        other = variant(flags[name].eras[-1], default=f"other {name}", since="0.7.0", until="")
        flags[name] = variant(flags[name], eras=(other,))
    config = next(candidates.tiers(resolve(store_with(flags=flags))))[0]
    values = [config.dtype, config.log_level, config.communicator, config.model_format]
    assert values == ["other dtype", "other log-level", "other communicator", "other model-format"]


@pytest.mark.parametrize("release", ["0.11.1", "0.15.0"])
def test_each_share_is_for_the_need_of_its_own_configuration(release: str) -> None:
    """With its bits, its tiles, its batch, its session and the warm-up of its budget."""
    asked = {"images": 1, "image_width": 1280, "image_height": 720, "gpu_count": 4, "goal": "memory"}
    resolved = resolve(concurrency=40, lmdeploy=release, **asked)
    for tier in candidates.tiers(resolved):
        for config in (each for each in tier if each.share == 1):
            needed = memory.estimate(resolved, config).kv_needed_tokens
            assert config.cache_ratio == cache_sizing.size_cache(resolved, config, needed)[0]


@pytest.mark.parametrize("bits", ["fp16", "int8", "int4"])
@pytest.mark.parametrize("concurrency", [1, 16, 64])
@pytest.mark.parametrize("release", ["0.11.1", "0.18.0"])
def test_the_cache_is_sized_for_load_session_and_warm_up(bits: str, concurrency: int, release: str) -> None:
    """Every configuration of a card that is large enough holds what it needs, with a tenth of room at least."""
    resolved = resolve(model=TEXT, concurrency=concurrency, kv=bits, lmdeploy=release, goal="memory")
    for config in (each for each in next(candidates.tiers(resolved)) if each.share == 1):
        made = memory.estimate(resolved, config)
        one = -(-resolved.total_tokens() // 64) * 64
        assert made.kv_needed_tokens >= concurrency * one
        assert made.kv_needed_tokens >= made.warmup_tokens
        assert made.kv_needed_tokens <= made.kv_tokens
        region = made.item("kv cache").bytes
        assert region >= 1.1 * made.kv_needed_tokens * made.kv_token_bytes
        # Not much more than that: two pages, the spread of what stands before, and two digits.
        assert region <= 1.1 * (1.1 * made.kv_needed_tokens * made.kv_token_bytes + 3 * 32 * 2**20 + 800 * 2**20)


def test_the_last_server_of_a_shared_card_still_finds_its_cache() -> None:
    """Its share is larger than that of one alone, so that what is left holds the same load."""
    asked = {"images": 1, "image_width": 448, "image_height": 448, "goal": "memory"}
    resolved = resolve(run_on("h100-sxm-80g", True), concurrency=64, **asked)
    shared = [each for each in next(candidates.tiers(resolved)) if each.share == 2]
    assert shared
    for config in shared:
        assert (config.tp, config.servers, config.max_batch_size) == (1, 2, 32)
        made = memory.estimate(resolved, config)
        assert made.kv_tokens >= made.kv_needed_tokens
        half = resolve(concurrency=32, **asked)
        alone = [each for each in next(candidates.tiers(half)) if each.prefill_tokens == config.prefill_tokens]
        assert config.cache_ratio > alone[0].cache_ratio
        # All that the first may take, with the cache it would have alone, is not free for the second.
        needed = made.kv_needed_tokens
        single = replace(config, share=1, cache_ratio=cache_sizing.size_cache(resolved, config, needed)[0])
        taken = memory.estimate(resolved, single).high
        assert config.cache_ratio == cache_sizing.size_cache(resolved, config, needed, taken)[0]


def test_the_cards_of_all_servers() -> None:
    """Each server's cards; two servers of a card take one."""
    every = next(candidates.tiers(resolve(run_on("h100-sxm-80g", True), gpu_count=4, concurrency=128)))
    cards = {(each.tp, each.servers, each.share): each.cards for each in every}
    assert cards == {
        (1, 1, 1): 1,
        (1, 4, 1): 4,
        (2, 1, 1): 2,
        (2, 2, 1): 4,
        (4, 1, 1): 4,
        (1, 8, 2): 4,
    }
