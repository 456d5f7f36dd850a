"""Itemise the memory of one GPU before anything is launched.

Follows TurboMind from 0.15.0 on (src/turbomind/turbomind.cc and
src/turbomind/memory at v0.16.0): the KV region is a share of what is free after
loading the weights, cut into 32 MiB pages; the workspaces come after it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from packaging.version import Version

from recommender.common.units import MIB
from recommender.estimate import coverage
from recommender.estimate.configuration import Configuration
from recommender.estimate.kv_region import SLAB_ALLOCATOR, STATE_POOL, kv_blocks, state_region
from recommender.estimate.linear_attention import convolved_width, state_bytes, value_width
from recommender.estimate.model_shape import kv_bytes_per_token, weight_bytes, weight_bytes_per_rank
from recommender.estimate.vision_shape import patches
from recommender.request.resolved_request import ResolvedRequest

P99 = 2.326
"""Standard deviations from the mean of a normal distribution to its 99th percentile."""
POOLED_WARM_UP = Version("0.12.0")
# Prompt lengths that the warm-up tries: 0.16.0 src/turbomind/kernels/gemm/tuner/params.cc:66-101
WARM_UP_STEPS = (
    *(8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768),
    *(step * 2**power for power in range(8) for step in (1024, 1536)),
)

if TYPE_CHECKING:
    from recommender.knowledge import records


Basis: TypeAlias = Literal["measured", "modelled", "vendor", "assumed"]


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One part of a GPU's memory, in bytes: middle, low and high of its range."""

    name: str
    bytes: int
    low: int
    high: int
    basis: Basis = "modelled"
    coefficients: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one GPU under a configuration, in bytes, tokens and blocks.

    ``loading`` is the peak while weights load, ``free`` what is free when the KV region
    is sized. ``kv_blocks`` and ``kv_tokens`` are those beside the states of the running requests, for linear
    attention. ``kv_requests`` fit into the cache; ``kv_needed_tokens`` must, with ``kv_prefix_tokens`` of a prefix that
    all requests share and the cache holds once; 0 without prefix caching.
    """

    items: tuple[MemoryItem, ...]
    loading: int
    free: int
    forward_tokens: int
    warmup_tokens: int
    kv_token_bytes: int
    kv_blocks: int
    kv_tokens: int
    kv_requests: int
    kv_needed_tokens: int
    kv_prefix_tokens: int = 0

    @property
    def total(self) -> int:
        """Return the bytes that the server takes."""
        return sum(item.bytes for item in self.items)

    @property
    def high(self) -> int:
        """Return the high end of the total, or the peak while loading if larger."""
        return max(sum(item.high for item in self.items), self.loading)

    @property
    def low(self) -> int:
        """Return the low end of the total."""
        return sum(item.low for item in self.items)

    def item(self, name: str) -> MemoryItem:
        """Return one part by name. Raises StopIteration if there is none."""
        return next(item for item in self.items if item.name == name)


def forward_tokens(prefill_tokens: int, max_batch_size: int, tp: int) -> int:
    """Return the tokens of one forward pass, a multiple of ``tp``.

    Source: 0.16.0 src/turbomind/turbomind.cc:173-179.
    """
    return -(-(prefill_tokens + max_batch_size) // tp) * tp


def warmup_tokens(version: Version, forward: int, session_len: int) -> int:
    """Return the KV tokens of the longest warm-up request; 0 if it needs none."""
    if version < POOLED_WARM_UP:
        return 0
    if forward <= session_len:
        return forward
    return max((step for step in WARM_UP_STEPS if step <= session_len), default=0)


def weights(resolved: ResolvedRequest, tp: int) -> int:
    """Return the bytes of weights on one GPU.

    Exact where the headers of the checkpoint were read.
    """
    computed = weight_bytes_per_rank(resolved.model, tp)
    if not resolved.weight_bytes:
        return computed
    return int(resolved.weight_bytes * computed / weight_bytes(resolved.model))


def count_needed_tokens(
    resolved: ResolvedRequest, max_tiles: int, block: int, batch: int, session_len: int, warmup: int, shared: int = 0
) -> int:
    """Return the KV tokens, in whole blocks, that a server needs.

    The largest of: ``batch`` requests of the load with the ``shared`` tokens of their prefix once (``shared_tokens``),
    one full session, the warm-up. A session begins with the prefix, and the warm-up comes before it.
    """
    longest = resolved.longest()
    session = _round_up(min(session_len, longest.largest_tokens(max_tiles)), block)
    return max(shared + _load_tokens(resolved, max_tiles, block, batch, shared), session, _round_up(warmup, block))


def shared_tokens(resolved: ResolvedRequest, prefix_caching: bool, block: int) -> int:
    """Return the tokens of the whole blocks that a prefix cache holds once for all requests."""
    return resolved.prefix_tokens // block * block if prefix_caching and not resolved.images else 0


def _load_tokens(resolved: ResolvedRequest, max_tiles: int, block: int, batch: int, shared: int) -> int:
    """Return the KV tokens of ``batch`` requests beside what they share.

    Where lengths vary, they are enough for 99 of 100 such batches.
    """
    request = _round_up(resolved.total_tokens(max_tiles), block) - shared
    longest = _round_up(resolved.longest().total_tokens(max_tiles), block) - shared
    if longest == request or batch == 1:
        return longest * batch
    variance = resolved.total_variance()
    return min(longest * batch, _round_up(math.ceil(request * batch + P99 * math.sqrt(batch * variance)), block))


def count_running_requests(resolved: ResolvedRequest, config: Configuration) -> int:
    """Return how many requests one server runs at once under the load."""
    return min(config.max_batch_size, -(-resolved.concurrency // config.servers))


def _round_up(tokens: int, block: int) -> int:
    return -(-tokens // block) * block


def items_before_cache(resolved: ResolvedRequest, tp: int) -> tuple[MemoryItem, MemoryItem, MemoryItem]:
    """Return what is in memory when the KV region is sized.

    CUDA context with libraries, weights, and what loading leaves allocated.
    """
    coefficients = resolved.store.coefficients
    names = ("context-mib", "peer-context-mib") if tp > 1 else ("context-mib",)
    table = _embedding_bytes(resolved.model, tp) if resolved.model.quantization else 0
    return (
        _item("context", *((MIB, coefficients[name]) for name in names)),
        _item("weights", exact=weights(resolved, tp)),
        _item("loading", (table, coefficients["quantised-load-share"])),
    )


def _embedding_bytes(model: records.Model, tp: int) -> int:
    """Return the bytes of one GPU's part of the 16-bit embedding table."""
    return model.text.vocab * model.text.hidden * 2 // tp


def _item(name: str, *parts: tuple[float, records.Coefficient], exact: int = 0) -> MemoryItem:
    """Return an item: the sum of factor x coefficient over its parts, plus ``exact``."""
    value = low = high = 0.0
    for factor, coefficient in parts:
        value += factor * coefficient.value
        low += factor * coefficient.low
        high += factor * coefficient.high
    ids = tuple(coefficient.id for _, coefficient in parts)
    return MemoryItem(name, int(value) + exact, int(low) + exact, int(high) + exact, coefficients=ids)


def estimate(resolved: ResolvedRequest, config: Configuration) -> Memory:
    """Return the memory of one GPU under this configuration.

    Servers that share a GPU start one after the other. Each finds less free memory than
    the one before, so its cache is smaller: blocks, tokens and free memory are those of
    the last one, the items are sums.
    """
    memory = _estimate_server(resolved, config, 0)
    for _ in range(config.share - 1):
        server = _estimate_server(resolved, config, memory.total)
        items = tuple(map(_add, memory.items, server.items))
        memory = replace(server, items=items, loading=memory.total + server.loading)
    return memory


def likely_range(resolved: ResolvedRequest, memory: Memory, tp: int) -> tuple[int, int]:
    """Return the low and high bytes between which 80 % of held-out starts lie.

    Without a busy image encoder at the low end, with one at the high end. If the GPU or
    the kind of model was never measured, or ``tp`` > 1: the sums of the items' ends.
    """
    residual = resolved.store.residuals.get("memory")
    alike = resolved.gpu.id in coverage.list_measured_gpus(resolved.store)
    alike = alike and coverage.classify_model(resolved.model) in coverage.list_measured_kinds(resolved.store)
    if residual is None or tp > 1 or not alike:
        return memory.low, sum(item.high for item in memory.items)
    vision = memory.item("vision").bytes
    ready = memory.total - vision
    high = int(ready * max(residual.high, 1.0)) + vision
    return int(ready * min(residual.low, 1.0)), min(high, memory.high)


def _add(first: MemoryItem, second: MemoryItem) -> MemoryItem:
    return replace(first, bytes=first.bytes + second.bytes, low=first.low + second.low, high=first.high + second.high)


def _estimate_server(resolved: ResolvedRequest, config: Configuration, taken: int) -> Memory:
    """Return the memory of one server on a GPU of which ``taken`` bytes are in use."""
    forward = forward_tokens(config.prefill_tokens, config.max_batch_size, config.tp)
    warmup = warmup_tokens(resolved.version, forward, config.session_len)
    before = items_before_cache(resolved, config.tp)
    free = max(usable_bytes(resolved) - taken - sum(item.bytes for item in before), 0)
    token = kv_bytes_per_token(resolved.model, config.kv_bits, config.tp)
    ratio = min(config.cache_ratio, 1.0)  # a given ratio may be larger: no cache is larger than the free memory
    region = int(free * ratio)
    # The region is a share of free memory, so it inherits the uncertainty of what was allocated before.
    spread = int(sum(item.high - item.low for item in before) / 2 * ratio)
    cache = MemoryItem("kv cache", region, max(region - spread, 0), region + spread)
    block, tiles = config.block_len, config.max_tiles
    running = count_running_requests(resolved, config)
    shared = shared_tokens(resolved, config.prefix_caching, block)
    request = _round_up(resolved.total_tokens(tiles), block) - shared

    def blocks_beside(sequences: int) -> int:
        states = state_region(resolved.model, config.tp, resolved.version, config.max_batch_size, sequences)
        left = max(region - states, 0)
        return kv_blocks(left, token * block, resolved.version >= SLAB_ALLOCATOR)

    blocks = blocks_beside(running)
    held = max(blocks_beside(0) * block - shared, 0) // request
    if resolved.model.text.linear:  # the more requests run, the fewer blocks their states leave
        held = bisect_right(range(1, held + 1), 0, key=lambda n: blocks_beside(n) * block < n * request + shared)
    return Memory(
        items=(*before, cache, workspace(resolved, config, forward), vision_workspace(resolved, config)),
        loading=_loading(resolved, config.tp, before),
        free=free,
        forward_tokens=forward,
        warmup_tokens=warmup,
        kv_token_bytes=token,
        kv_blocks=blocks,
        kv_tokens=blocks * block,
        kv_requests=held,
        kv_needed_tokens=count_needed_tokens(resolved, tiles, block, running, config.session_len, warmup, shared),
        kv_prefix_tokens=shared,
    )


def usable_bytes(resolved: ResolvedRequest) -> int:
    """Return the bytes that a process can use on the GPU or its requested share."""
    reserve = int(resolved.store.coefficients["driver-reserve-mib"].value * MIB)
    return min(resolved.available_bytes, resolved.gpu.memory_mib * MIB - reserve)


def _loading(resolved: ResolvedRequest, tp: int, before: Iterable[MemoryItem]) -> int:
    """Return the peak bytes while the weights load, before there is a KV region."""
    extra = resolved.store.coefficients["load-peak-share"].high * _embedding_bytes(resolved.model, tp)
    return int(sum(item.bytes for item in before) + extra)


def workspace(resolved: ResolvedRequest, config: Configuration, forward: int) -> MemoryItem:
    """Return the buffers of forward pass and sampling.

    They grow with tokens, batch and session length.
    """
    text, coefficients = resolved.model.text, resolved.store.coefficients
    # The engine batches only prompts whose lengths sum to the session length, so a pass has no more tokens.
    tokens = min(forward, config.session_len)
    # 0.12.2 allocated a request's states when it began (its src/turbomind/models/llama/GatedDeltaNetLayer.cc:61-65).
    own = state_bytes(resolved.model, config.tp) if resolved.version < STATE_POOL else 0
    states = count_running_requests(resolved, config) * own
    wide = sum(mixture.per_token * mixture.intermediate + mixture.shared for mixture in text.mixture)
    attention = (text.heads + 2 * text.kv_heads) * text.head_dim
    for linear in text.linear:  # its projections are one matrix, as wide as queries, keys, values, gate and two numbers
        attention = max(attention, convolved_width(linear) + value_width(linear) + 2 * linear.value_heads)
    row = 2 * text.hidden + (attention + (wide or text.intermediate)) / config.tp
    return _item(
        "workspace",
        (MIB, coefficients["workspace-mib"]),
        (tokens * row * 2, coefficients["workspace-token"]),
        (config.max_batch_size * text.vocab, coefficients["workspace-slot"]),
        # The latter: 0.16.0 src/turbomind/generation/generation.cc:100
        exact=states + config.max_batch_size * config.session_len * 4,
    )


def vision_workspace(resolved: ResolvedRequest, config: Configuration) -> MemoryItem:
    """Return the activations of the image encoder.

    They grow with the tiles of one pass, and the warm-up does not allocate them.
    """
    vision = resolved.vision
    if vision is None or not resolved.images:
        return MemoryItem("vision", 0, 0, 0)
    joining = -(-2 * config.max_batch_size // max(resolved.output_tokens, 2))
    tiles = resolved.tiles(config.max_tiles) * resolved.images * joining
    tile = (patches(vision) + 1) * (4 * vision.hidden + vision.intermediate) * 2
    return _item("vision", (tile * tiles, resolved.store.coefficients["vision-tile"]))
