"""List the configurations worth considering; constraints and goal decide later."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

from recommender.choose.needs import apply_needs
from recommender.choose.prefill_budget import list_budgets, usual_budget
from recommender.common.fast_replace import fast_replace
from recommender.estimate import memory
from recommender.estimate.cache_need import count_needed_tokens, shared_tokens
from recommender.estimate.cache_sizing import BLOCK, session_length, size_cache
from recommender.estimate.configuration import Configuration
from recommender.estimate.dropped_prefix_cache import is_dropped
from recommender.estimate.engines.engine import ENGINES
from recommender.knowledge.eras import default_values
from recommender.knowledge.store import Store
from recommender.request.resolved_request import ResolvedRequest

HOST = "127.0.0.1"
PORT = 23333
PROXY_PORT = 8000
SHARED_FROM = 8
"""Requests in flight from which a server may share its GPU."""

FEWER_TILES = (6, 1)
"""Tile limits of an image that trade detail for memory or speed."""
# What a configuration gives up, smallest loss first: (KV bits, tile limit of an image; 0: the model's own).
CONCESSIONS = tuple((bits, tiles) for tiles in (0, *FEWER_TILES) for bits in (16, 8, 4))
KV_BITS = {"fp16": 16, "int8": 8, "int4": 4}


def tiers(resolved: ResolvedRequest) -> Iterator[list[Configuration]]:
    """Yield groups of configurations; each group gives up more accuracy."""
    kv_bits = KV_BITS.get(resolved.request.kv)
    # A schema that the workload brings may be left out where a release refuses it; one that was asked for may not.
    structured_choices = (True,) if resolved.request.response_schema else (True, False)
    for structured in structured_choices if resolved.response_schema else (False,):
        for bits, tiles in CONCESSIONS:
            fewer = resolved.images and resolved.tiles(tiles) != resolved.tiles()
            if kv_bits in (None, bits) and (fewer or not tiles):
                yield from _usual_first(resolved, list(_group(resolved, bits, tiles, structured)))


def _usual_first(resolved: ResolvedRequest, group: list[Configuration]) -> Iterator[list[Configuration]]:
    """Yield a group. For text without a goal for times or memory, yield the usual prefill budget first.

    Others gained at most 3 % in runs (16,384 on chat with 256 in flight, one H100), so they are tried only if the
    usual one does not fit.
    """
    request, usual = resolved.request, usual_budget(resolved)
    first = [config for config in group if config.prefill_tokens == usual]
    timed = request.p99_ms or request.ttft_ms or request.tpot_ms or request.latency_ms
    if resolved.images or timed or request.goal == "memory" or not first:
        yield group
        return
    yield first
    if len(first) < len(group):
        yield [config for config in group if config.prefill_tokens != usual]


def fewer_tiles(resolved: ResolvedRequest, most: int = 0) -> list[int]:
    """Return tile limits, descending, that each reduce the tile count further.

    ``most`` is the limit to start from; 0 is the model's own.
    """
    limits: list[int] = []
    for limit in FEWER_TILES:
        if resolved.tiles(limit) < resolved.tiles(limits[-1] if limits else most):
            limits.append(limit)
    return limits


def at_bits(resolved: ResolvedRequest, config: Configuration, kv_bits: int) -> Configuration:
    """Return a candidate with a KV cache of other bits, and a share of memory that suits it."""
    split = (config.tp, config.servers, config.share)
    tiles, structured = config.max_tiles, config.structured_output
    return _complete(resolved, kv_bits, tiles, structured, split, config.max_batch_size, config.prefill_tokens)


def _group(resolved: ResolvedRequest, kv_bits: int, tiles: int, structured: bool) -> Iterator[Configuration]:
    for tp, servers, share in splits(resolved):
        least = math.ceil(resolved.concurrency / servers)
        for batch in _batches(resolved, least):
            for prefill_tokens in list_budgets(resolved, tiles, batch):
                yield _complete(resolved, kv_bits, tiles, structured, (tp, servers, share), batch, prefill_tokens)


def _batches(resolved: ResolvedRequest, least: int) -> tuple[int, ...]:
    """Return the batches to try; also twice the load if waiting prompts then run at once, at a cost in rate.

    See ``scheduler.alternating``: half of such a batch never runs. Chat with 16 in flight: TTFT 80 instead of 197 ms
    (h100-sweep-pytorch-llama-2026-11-26-batch-64, h100-sweep-pytorch-llama-2026-11-26-pick-16).
    """
    quick = ENGINES[resolved.engine].DECODE_ROUNDS and resolved.request.ttft_ms
    return (least, 2 * least) if quick else (least,)


def splits(resolved: ResolvedRequest) -> list[tuple[int, int, int]]:
    """Return how servers can share the GPUs: (``tp``, servers, servers per GPU).

    ``tp`` is each power of two, or what the request says. For each there is one server,
    which may leave GPUs free, and as many as there are GPUs and requests. Servers share a
    GPU only for requests with images, on GPUs where that was measured, and if each has enough load and CPU cores. The
    gain there is a second thread that prepares images; no run shows a gain for text (with the PyTorch engine:
    h200-pytorch-copies-2026-11-29-text-copies-2).
    """
    request, count, engine = resolved.request, resolved.request.gpu_count, ENGINES[resolved.engine]
    sizes = []
    for tp in [request.tp] if request.tp else [2**power for power in range(count.bit_length())]:
        most = min(count // tp, resolved.concurrency)
        sizes += [(tp, servers, 1) for servers in sorted({1, most})]
    if resolved.images and request.tp < 2 and resolved.gpu.id in _shared_on(resolved.store):
        most = min(resolved.concurrency // SHARED_FROM, request.cpus // max(engine.CORES_A_SERVER, 1))
        sizes += [(1, share * count, share) for share in engine.SERVERS_A_GPU if share * count <= most]
    return sizes


@lru_cache(maxsize=8)
def _shared_on(store: Store) -> frozenset[str]:
    """Return the ids of the GPUs on which several servers were measured under CUDA MPS, whatever their engine.

    With the PyTorch engine that was an H200 only; what limits its servers there is the host.
    """
    return frozenset(run.gpu for run in store.evidence.values() if run.mps)


def _complete(
    resolved: ResolvedRequest,
    kv_bits: int,
    tiles: int,
    structured: bool,
    split: tuple[int, int, int],
    batch: int,
    prefill_tokens: int,
) -> Configuration:
    tp, servers, share = split
    defaults = default_values(resolved.store, resolved.version)
    room = resolved.model.text.max_positions - resolved.longest().input_tokens(tiles) - 1
    max_tokens = max(min(max(2 * resolved.output_tokens, 16), room), resolved.outputs[-1])
    session = session_length(resolved, tiles, max_tokens, prefill_tokens)
    engine = ENGINES[resolved.engine]
    forward = engine.forward_tokens(prefill_tokens, batch, tp)
    warmup = engine.warmup_tokens(resolved.version, forward, session)
    shared = shared_tokens(resolved, _repeats(resolved), BLOCK)
    needed = count_needed_tokens(resolved, tiles, BLOCK, batch, session, warmup, shared)
    config = Configuration(
        backend=resolved.engine,
        session_len=session,
        max_batch_size=batch,
        prefill_tokens=prefill_tokens,
        cache_ratio=0.0,
        kv_bits=kv_bits,
        block_len=BLOCK,
        tp=tp,
        servers=servers,
        share=share,
        omp_threads=_count_threads(resolved, servers),
        prefix_caching=_repeats(resolved),
        trust_remote_code=resolved.model.remote_code and "trust_remote_code" in defaults,
        disable_docs="disable_docs" in defaults,
        structured_output=structured,
        dtype=defaults.get("dtype", "auto"),
        log_level=defaults.get("log_level", "ERROR"),
        communicator=defaults.get("communicator", "nccl"),
        model_format=defaults.get("model_format", ""),
        chat_template="",
        server_name=HOST,
        port=PORT,
        proxy_url=f"http://{HOST}:{PROXY_PORT}" if servers > 1 else "",
        revision="",
        max_tiles=tiles,
        max_tokens=max_tokens,
        temperature=0.0,
    )
    config = _with_cache(resolved, apply_needs(resolved, config), needed)
    if share == 1:
        return config
    # Sized so that the last server still fits if the earlier ones take the high end of their range.
    others = (share - 1) * memory.estimate(resolved, fast_replace(config, share=1)).high
    return _with_cache(resolved, config, needed, others)


def _count_threads(resolved: ResolvedRequest, servers: int) -> int:
    """Return OMP_NUM_THREADS: up to four, for half of the host's cores; all cores where nothing competes for them.

    One image at a time on the PyTorch engine took 127 ms with all 16 cores, 145 and 136 with four
    (h200-pytorch-copies-2026-11-29-vision-omp-unset, -vision-omp-4 and -vision-copies-1-mps).
    """
    cpus = resolved.request.cpus
    alone = resolved.concurrency == 1 and not resolved.rps and ENGINES[resolved.engine].SHARES_LOCK
    if alone and resolved.images and resolved.vision and resolved.vision.pixels:
        return cpus
    return max(1, min(4, cpus // (2 * servers)))


def _with_cache(resolved: ResolvedRequest, config: Configuration, needed_tokens: int, others: int = 0) -> Configuration:
    ratio, sized_by = size_cache(resolved, config, needed_tokens, others)
    return fast_replace(config, cache_ratio=ratio, cache_sized_by=sized_by)


REPEATED = 0.05
"""Share of repeated input from which a prefix cache is worth its work."""


def _repeats(resolved: ResolvedRequest) -> bool:
    """Return whether requests repeat at least a block of what earlier ones had, and the engine can cache it."""
    if resolved.images or is_dropped(resolved):
        return False
    return resolved.prefix_tokens >= BLOCK or resolved.turns > 1 or resolved.request.repeated_share >= REPEATED
