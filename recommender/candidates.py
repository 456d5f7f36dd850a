"""Facts to configurations worth considering. No judgement: constraints and the goal decide."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from packaging.version import Version

from recommender import memory
from recommender.configuration import Configuration
from recommender.facts import Facts, options_of
from recommender.store import Store

HOST = "127.0.0.1"
PORT = 23333
PROXY_PORT = 8000
BLOCK = 64
LARGEST_BUDGET = 8192
SMALLEST_BUDGET = 512
SESSION_STEP = 256
# From so many requests on that end in a pass, and the release from which the engine encodes images itself.
MANY = 3
ENCODES = Version("0.16.0")
# Sized for the least memory that may be free, a KV region still gets this much room beyond its need:
# too small a region hangs the start without a word. Where memory is no goal, twice the need is
# taken as long as that is under half of what is free.
KV_HEADROOM = 1.1
KV_AMPLE = 2.0
KV_AMPLE_UP_TO = 0.5
LARGEST_RATIO = 0.95
# Two servers on a card fill each other's gaps; four were slower than two (16 and 64 in flight, one H100).
SHARED = 2
SHARED_FROM = 8

FEWER_TILES = (6, 1)
"""The most tiles an image that less detail means, where it is given up or offered."""
# What a configuration gives up, least first: (KV bits, most tiles an image; 0 leaves the model's default).
CONCESSIONS = tuple((bits, tiles) for tiles in (0, *FEWER_TILES) for bits in (16, 8, 4))
KV_BITS = {"fp16": 16, "int8": 8, "int4": 4}


def tiers(facts: Facts) -> Iterator[list[Configuration]]:
    """Groups of configurations; each group gives up more accuracy than the one before."""
    asked = facts.request.kv
    for structured in (True, False) if facts.response_schema else (False,):
        for bits, tiles in CONCESSIONS:
            if asked != "auto" and bits != KV_BITS[asked]:
                continue
            if tiles and (not facts.images or facts.tiles(tiles) == facts.tiles()):
                continue
            yield list(_group(facts, bits, tiles, structured))


def fewer_tiles(facts: Facts, most: int = 0) -> list[int]:
    """The limits under which an image makes fewer tiles than with at most so many, and than under the limit before."""
    found, made = [], facts.tiles(most)
    for limit in FEWER_TILES:
        if facts.tiles(limit) < made:
            found.append(limit)
            made = facts.tiles(limit)
    return found


def _group(facts: Facts, kv_bits: int, tiles: int, structured: bool) -> Iterator[Configuration]:
    for tp, servers, share in splits(facts):
        batch = math.ceil(facts.concurrency / servers)
        for budget in budgets(facts, tiles, batch):
            yield _complete(facts, kv_bits, tiles, structured, (tp, servers, share), batch, budget)


def splits(facts: Facts) -> list[tuple[int, int, int]]:
    """(cards of one server, servers, servers of one card): powers of two, as many servers as have cards and requests.

    Where the request names the cards of a server, only that.

    One server of each size is there too: cards may stay free. Servers share a card only on GPUs where runs
    were made of that, and where each has enough to do.
    """
    count, found = facts.request.gpu_count, []
    for tp in [facts.request.tp] if facts.request.tp else [2**power for power in range(count.bit_length())]:
        most = min(count // tp, facts.concurrency)
        found += [(tp, servers, 1) for servers in sorted({1, most})]
    busy = facts.concurrency >= SHARED_FROM * SHARED * count
    if busy and facts.request.tp < 2 and facts.gpu.id in _shared_on(facts.store):
        found.append((1, SHARED * count, SHARED))
    return found


@lru_cache(maxsize=8)
def _shared_on(store: Store) -> frozenset[str]:
    """The GPUs on which runs were made of servers under CUDA MPS."""
    return frozenset(each.gpu for each in store.evidence.values() if each.mps)


def budgets(facts: Facts, tiles: int, batch: int) -> list[int]:
    """Prefill budgets to try: the smallest, one prompt, and one for what arrives together.

    A prompt longer than the budget takes several passes, each a few decoding steps long. So the last holds the
    largest image that the model cuts, or what joins a full batch in two passes; but see ``steady_budget``.
    """
    prompt, largest = facts.input_tokens(tiles), facts.largest_tokens(tiles) - facts.output_tokens
    joining = max(1 if batch == 1 else 2, math.ceil(2 * batch / facts.output_tokens))
    steady = steady_budget(facts, tiles, batch)
    wanted = {SMALLEST_BUDGET, _power(prompt)}
    wanted |= {steady} if steady else {_power(largest), _power(prompt * joining)}
    return sorted({min(max(each, SMALLEST_BUDGET), LARGEST_BUDGET) for each in wanted})


def steady_budget(facts: Facts, tiles: int, batch: int) -> int:
    """Prefill tokens a pass with which images in flight move steadily; 0 where larger budgets do no harm.

    As many requests end in a pass as are in flight by the tokens of an answer. Those with images come one by one
    from the thread that prepares them; a budget for many more than end empties that queue at once, then thread and
    engine wait for each other, and requests move in waves. InternVL3-8B-AWQ on one H100, 64 in flight of 330 tokens
    in and 16 out, so that four end: 88 requests/s with room for three prompts, 73 with room for twelve, else alike
    but for the session's length (medians of 4 and 7 starts); with room for 1, 1.5 and 2 of them 60, 67 and 80. With
    128 in flight it made 11 %, with 48 nothing (a start each). With 16 it made about 5 %, less than larger images
    then lose (7.5 instead of 9.7 at 1280x720), and where the largest budget holds few more than end, as with 64 of
    1280x720, it is the best. Before 0.16.0 images are encoded elsewhere.
    """
    ending = batch / facts.output_tokens
    prompt = facts.input_tokens(tiles)
    if not facts.images or facts.version < ENCODES or ending < MANY or 2 * ending * prompt >= LARGEST_BUDGET:
        return 0
    return math.ceil(max(2, round(0.75 * ending)) * prompt / BLOCK) * BLOCK


def _power(number: int) -> int:
    """The power of two that is no less."""
    return 1 << max(number - 1, 0).bit_length()


def session_length(facts: Facts, tiles: int, max_tokens: int, budget: int) -> int:
    """Tokens of a session: the largest image the model cuts, room to answer, and a full prefill pass.

    The engine prefills together only prompts whose lengths sum to the session
    length (0.16.0 src/turbomind/engine/engine.cc:464): a shorter one would waste the budget.
    """
    most = facts.largest_tokens(tiles) - facts.output_tokens + max_tokens
    asked = facts.input_tokens(tiles) + max_tokens + 1
    wanted = max(most + 1, budget)
    rounded = math.ceil(wanted / SESSION_STEP) * SESSION_STEP
    limit = facts.model.text.max_positions
    if rounded <= limit:
        return rounded
    return limit if asked <= limit else math.ceil(asked / SESSION_STEP) * SESSION_STEP


def cache_ratio(facts: Facts, config_tp: int, kv_bits: int, needed: int, others: int = 0) -> float:
    """The least share, to two digits, that holds the needed tokens even if less memory is free than expected.

    ``others`` are bytes that servers before this one take of the card. Where the card is too small it is the
    largest sensible share; constraints then say what does not fit.
    """
    free = memory.usable(facts) - others - sum(item.high for item in memory.before_cache(facts, config_tp))
    token = memory.kv_token_bytes(facts.model, kv_bits, config_tp)
    region = memory.region_for(-(-needed // BLOCK), token * BLOCK, facts.version >= memory.SLAB_ALLOCATOR)
    if free <= 0:
        return LARGEST_RATIO
    share = region * KV_HEADROOM / free
    if facts.request.goal != "memory":
        share = max(share, min(region * KV_AMPLE / free, KV_AMPLE_UP_TO))
    digits = 10 ** (1 - math.floor(math.log10(share))) if share < 1 else 100
    return min(math.ceil(share * digits - 1e-9) / digits, LARGEST_RATIO)


def _complete(
    facts: Facts, kv_bits: int, tiles: int, structured: bool, split: tuple[int, int, int], batch: int, budget: int
) -> Configuration:
    tp, servers, share = split
    max_tokens = max(2 * facts.output_tokens, 16)
    session = session_length(facts, tiles, max_tokens, budget)
    forward = memory.forward_tokens(budget, batch, tp)
    warmup = memory.warmup_tokens(facts.version, forward, session)
    needed = memory.needed(facts, tiles, BLOCK, batch, session, warmup)
    made = Configuration(
        backend="turbomind",
        session_len=session,
        max_batch_size=batch,
        prefill_tokens=budget,
        cache_ratio=cache_ratio(facts, tp, kv_bits, needed),
        kv_bits=kv_bits,
        block_len=BLOCK,
        tp=tp,
        servers=servers,
        share=share,
        omp_threads=max(1, min(4, facts.request.cpus // (2 * servers))),
        prefix_caching=False,
        trust_remote_code=facts.model.remote_code and _has(facts, "trust_remote_code"),
        disable_docs=_has(facts, "disable_docs"),
        structured_output=structured,
        dtype=_default(facts, "dtype", "auto"),
        log_level=_default(facts, "log_level", "ERROR"),
        communicator=_default(facts, "communicator", "nccl"),
        model_format=_default(facts, "model_format", ""),
        server_name=HOST,
        port=PORT,
        proxy_url=f"http://{HOST}:{PROXY_PORT}" if servers > 1 else "",
        revision="",
        max_tiles=tiles,
        max_tokens=max_tokens,
        temperature=0.0,
    )
    if share == 1:
        return made
    # With as much taken before as servers with that cache may take, the last still finds what it needs.
    others = (share - 1) * memory.estimate(facts, replace(made, share=1)).high
    return replace(made, cache_ratio=cache_ratio(facts, tp, kv_bits, needed, others))


def _has(facts: Facts, setting: str) -> bool:
    """Whether the release has an option that carries this setting."""
    return setting in _defaults(facts.store, facts.version)


def _default(facts: Facts, setting: str, otherwise: str) -> str:
    """The release's own default of the option that carries this setting."""
    return _defaults(facts.store, facts.version).get(setting, otherwise)


@lru_cache(maxsize=128)
def _defaults(store: Store, version: Version) -> dict[str, str]:
    """The default of each option of a release that carries a setting, by setting."""
    eras = options_of(store, version)
    return {store.flags[name].setting: era.default for name, era in eras.items() if store.flags[name].setting}
