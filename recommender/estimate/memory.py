"""Itemise the memory of one GPU before anything is launched, with the terms of the engine that runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import replace

from recommender.estimate import coverage
from recommender.estimate.cache_need import count_needed_tokens, count_running_requests, round_up, shared_tokens
from recommender.estimate.configuration import Configuration
from recommender.estimate.dropped_prefix_cache import as_run
from recommender.estimate.engines.engine import engine_of
from recommender.estimate.memory_items import (
    Memory,
    MemoryItem,
    add_items,
    embedding_bytes,
    usable_bytes,
    vision_workspace,
)
from recommender.estimate.model_shape import kv_bytes_per_token
from recommender.request.resolved_request import ResolvedRequest


def estimate(resolved: ResolvedRequest, config: Configuration) -> Memory:
    """Return the memory of one GPU under this configuration.

    Servers that share a GPU start one after the other. Each finds less free memory than
    the one before, so its cache is smaller: blocks, tokens and free memory are those of
    the last one, the items are sums.
    """
    config = as_run(resolved, config)
    memory = _estimate_server(resolved, config, 0)
    for _ in range(config.share - 1):
        server = _estimate_server(resolved, config, memory.total)
        items = tuple(map(add_items, memory.items, server.items))
        memory = replace(server, items=items, loading=memory.total + server.loading)
    return memory


def likely_range(resolved: ResolvedRequest, memory: Memory, tp: int) -> tuple[int, int]:
    """Return the low and high bytes between which 80 % of held-out starts lie.

    Without a busy image encoder at the low end, with one at the high end. If the GPU or
    the kind of model was never measured with this engine, or ``tp`` > 1: the sums of the items' ends.
    """
    store, engine = resolved.store, resolved.engine
    residual = store.residuals.get(coverage.name_residual(engine, "memory"))
    alike = resolved.gpu.id in coverage.list_measured_gpus(store, engine)
    alike = alike and coverage.classify_model(resolved.model) in coverage.list_measured_kinds(store, engine)
    if residual is None or tp > 1 or not alike:
        return memory.low, sum(item.high for item in memory.items)
    vision = memory.item("vision").bytes
    ready = memory.total - vision
    high = int(ready * max(residual.high, 1.0)) + vision
    return max(int(ready * min(residual.low, 1.0)), memory.low), min(high, memory.high)


def _estimate_server(resolved: ResolvedRequest, config: Configuration, used_bytes: int) -> Memory:
    """Return the memory of one server on a GPU of which ``used_bytes`` are in use."""
    engine = engine_of(config)
    forward = engine.forward_tokens(config.prefill_tokens, config.max_batch_size, config.tp)
    warmup = engine.warmup_tokens(resolved.version, forward, config.session_len)
    before = engine.items_before_cache(resolved, config.tp)
    free = max(usable_bytes(resolved) - used_bytes - sum(item.bytes for item in before), 0)
    ratio = min(config.cache_ratio, 1.0)  # a given ratio may be larger: no cache is larger than the free memory
    region = int(max(free - engine.reserved_bytes(resolved, config), 0) * ratio)
    # The region is a share of free memory, so it inherits the uncertainty of what was allocated before.
    spread = int(sum(item.high - item.low for item in before) / 2 * ratio)
    cache = MemoryItem("kv cache", region, max(region - spread, 0), region + spread)
    block, tiles = config.block_len, config.max_tiles
    running = count_running_requests(resolved, config)
    shared = shared_tokens(resolved, config.prefix_caching, block)
    request = round_up(resolved.total_tokens(tiles), block) - shared

    def blocks_beside(sequences: int) -> int:
        return engine.count_blocks(resolved, config, region, sequences)

    blocks = blocks_beside(running)
    held = max(blocks_beside(0) * block - shared, 0) // request
    if resolved.model.text.linear:  # the more requests run, the fewer blocks their states leave
        held = bisect_right(range(1, held + 1), 0, key=lambda n: blocks_beside(n) * block < n * request + shared)
    return Memory(
        items=(*before, cache, engine.workspace(resolved, config, forward), vision_workspace(resolved, config)),
        loading=_loading(resolved, config.tp, before),
        free=free,
        forward_tokens=forward,
        warmup_tokens=warmup,
        kv_token_bytes=kv_bytes_per_token(resolved.model, config.kv_bits, config.tp),
        kv_blocks=blocks,
        kv_tokens=blocks * block,
        kv_requests=held,
        kv_needed_tokens=count_needed_tokens(resolved, tiles, block, running, config.session_len, warmup, shared),
        kv_prefix_tokens=shared,
    )


def _loading(resolved: ResolvedRequest, tp: int, before: Iterable[MemoryItem]) -> int:
    """Return the peak bytes while the weights load, before there is a KV region."""
    extra = resolved.store.coefficients["load-peak-share"].high * embedding_bytes(resolved.model, tp)
    return int(sum(item.bytes for item in before) + extra)
