"""Memory of one card, itemised: a configuration's bytes before anything is launched.

Follows TurboMind from 0.15.0 on (src/turbomind/turbomind.cc and
src/turbomind/memory at v0.16.0): the KV region is a share of what is free after
the weights, cut into 32 MiB pages, and the workspaces come after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from packaging.version import Version

from recommender import records as r
from recommender import shapes
from recommender.configuration import Configuration
from recommender.facts import MIB, Facts

PAGE = 32 * MIB
MAX_SLAB = 1024 * MIB
SLAB_FILL = 0.95
SLAB_ALLOCATOR = Version("0.15.0")
POOLED_WARM_UP = Version("0.12.0")
# Lengths that the warm-up tries, 0.16.0 src/turbomind/kernels/gemm/tuner/params.cc:66-101
WARM_UP_STEPS = (8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768) + tuple(
    step * 2**power for power in range(8) for step in (1024, 1536)
)


@dataclass(frozen=True, slots=True)
class Item:
    """One part of the memory of a card, in bytes, as the middle and ends of a range."""

    name: str
    bytes: int
    low: int
    high: int
    basis: Literal["measured", "modelled", "vendor", "assumed"]
    coefficients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one card under a configuration. Bytes, tokens and blocks."""

    items: tuple[Item, ...]
    free: int
    forward_tokens: int
    warmup_tokens: int
    kv_token_bytes: int
    kv_blocks: int
    kv_tokens: int
    kv_requests: int
    kv_needed_tokens: int

    @property
    def total(self) -> int:
        """Bytes of the card that the server takes."""
        return sum(item.bytes for item in self.items)

    @property
    def high(self) -> int:
        """The upper end of the range of the total."""
        return sum(item.high for item in self.items)

    @property
    def low(self) -> int:
        """The lower end of the range of the total."""
        return sum(item.low for item in self.items)

    def item(self, name: str) -> Item:
        """One part by its name."""
        return next(item for item in self.items if item.name == name)


def forward_tokens(prefill_tokens: int, max_batch_size: int, tp: int) -> int:
    """Tokens of one forward pass, rounded up to the ranks (0.16.0 turbomind.cc:173-179)."""
    return -(-(prefill_tokens + max_batch_size) // tp) * tp


def warmup_tokens(version: Version, forward: int, session_len: int) -> int:
    """Tokens the longest warm-up request keeps in the KV cache; 0 where the warm-up needs none."""
    if version < POOLED_WARM_UP:
        return 0
    if forward <= session_len:
        return forward
    return max((step for step in WARM_UP_STEPS if step <= session_len), default=0)


@lru_cache(maxsize=4096)
def kv_blocks(region: int, block: int, slabs: bool) -> int:
    """Blocks of ``block`` bytes that a KV region of ``region`` bytes holds."""
    if not slabs:
        return region // block
    slab = PAGE
    while slab < block:
        slab *= 2
    while (slab // block) * block / slab < SLAB_FILL and slab < MAX_SLAB:
        slab *= 2
    pages = max(region - PAGE // 2, 0) // PAGE  # the base is aligned up to a page: half of one is lost on average
    return (pages // (slab // PAGE)) * (slab // block)


@lru_cache(maxsize=4096)
def region_for(blocks: int, block: int, slabs: bool) -> int:
    """The smallest KV region in bytes that surely holds so many blocks, the alignment's worst loss included."""
    if not slabs:
        return blocks * block
    slab = PAGE
    while slab < block:
        slab *= 2
    while (slab // block) * block / slab < SLAB_FILL and slab < MAX_SLAB:
        slab *= 2
    return -(-blocks // (slab // block)) * slab + PAGE


def weights(facts: Facts, tp: int) -> int:
    """Bytes of weights on one card; from the checkpoint's own headers where they were read."""
    computed = _weights(facts.model, tp)
    if not facts.weight_bytes:
        return computed
    return int(facts.weight_bytes * computed / _weights(facts.model, 1))


@lru_cache(maxsize=1024)
def _weights(model: r.Model, tp: int) -> int:
    return shapes.weight_bytes_per_rank(model, tp)


@lru_cache(maxsize=1024)
def kv_token_bytes(model: r.Model, kv_bits: int, tp: int) -> int:
    """KV cache bytes of one token on one card."""
    return shapes.kv_bytes_per_token(model, kv_bits, tp)


def needed(facts: Facts, max_tiles: int, block: int, batch: int, session_len: int, warmup: int) -> int:
    """KV tokens, whole blocks, that the operating point, one full session and the warm-up need."""
    each = _up(facts.total_tokens(max_tiles), block)
    session = _up(min(session_len, facts.largest_tokens(max_tiles)), block)
    return max(each * batch, session, _up(warmup, block))


def _up(tokens: int, block: int) -> int:
    return -(-tokens // block) * block


def before_cache(facts: Facts, tp: int) -> tuple[Item, Item]:
    """What stands on the card when the KV region is sized: CUDA context and libraries, weights."""
    coefficient = facts.store.coefficients
    base, spread = coefficient["context-mib"], coefficient["weights-overhead"]
    peer = coefficient["peer-context-mib"]
    several = (tp - 1) * peer.value if tp > 1 else 0.0
    bytes_ = weights(facts, tp)
    context = Item(
        "context",
        int((base.value + several) * MIB),
        int((base.low + several * peer.low / max(peer.value, 1)) * MIB),
        int((base.high + several * peer.high / max(peer.value, 1)) * MIB),
        base.basis,
        (base.id, peer.id) if tp > 1 else (base.id,),
    )
    loaded = Item(
        "weights",
        int(bytes_ * spread.value),
        int(bytes_ * spread.low),
        int(bytes_ * spread.high),
        "modelled",
        (spread.id,),
    )
    return context, loaded


def estimate(facts: Facts, config: Configuration) -> Memory:
    """The memory of one card of one server under this configuration."""
    forward = forward_tokens(config.prefill_tokens, config.max_batch_size, config.tp)
    warmup = warmup_tokens(facts.version, forward, config.session_len)
    context, loaded = before_cache(facts, config.tp)
    free = max(usable(facts) - context.bytes - loaded.bytes, 0)
    token = kv_token_bytes(facts.model, config.kv_bits, config.tp)
    region = int(free * config.cache_ratio)
    # Memory that is free when the region is sized carries the spread of what was taken before.
    spread = int(((context.high + loaded.high) - (context.low + loaded.low)) / 2 * config.cache_ratio)
    cache = Item("kv cache", region, max(region - spread, 0), region + spread, "modelled", ())
    blocks = kv_blocks(region, token * config.block_len, facts.version >= SLAB_ALLOCATOR)
    tokens = blocks * config.block_len
    each = _up(facts.total_tokens(config.max_tiles), config.block_len)
    return Memory(
        items=(context, loaded, cache, workspace(facts, config, forward), vision_workspace(facts, config)),
        free=free,
        forward_tokens=forward,
        warmup_tokens=warmup,
        kv_token_bytes=token,
        kv_blocks=blocks,
        kv_tokens=tokens,
        kv_requests=tokens // each,
        kv_needed_tokens=needed(
            facts, config.max_tiles, config.block_len, config.max_batch_size, config.session_len, warmup
        ),
    )


def usable(facts: Facts) -> int:
    """Bytes a process can get of the card, or of the share asked for with --vram."""
    reserve = int(facts.store.coefficients["driver-reserve-mib"].value * MIB)
    return min(facts.available_bytes, facts.gpu.memory_mib * MIB - reserve)


def workspace(facts: Facts, config: Configuration, forward: int) -> Item:
    """Buffers of the forward pass and of sampling, grown with tokens, batch and session length."""
    text = facts.model.text
    per_token = facts.store.coefficients["workspace-token"]
    width = (2 * text.hidden + (text.heads + 2 * text.kv_heads) * text.head_dim / config.tp) + (
        text.intermediate / config.tp
    )
    tokens = forward * width * 2
    # One logit row of 16-bit values and one row of token ids a batch slot (generation.cc:100).
    slots = config.max_batch_size * (text.vocab * 2 + config.session_len * 4)
    low, middle, high = (int(tokens * factor + slots) for factor in (per_token.low, per_token.value, per_token.high))
    return Item("workspace", middle, low, high, per_token.basis, (per_token.id,))


def vision_workspace(facts: Facts, config: Configuration) -> Item:
    """Activations of the image encoder; they grow with the tiles of one pass and are not warmed up."""
    vision = facts.vision
    if vision is None or not facts.images:
        return Item("vision", 0, 0, 0, "modelled", ())
    factor = facts.store.coefficients["vision-tile"]
    tiles = facts.tiles(config.max_tiles) * facts.images
    patches = (vision.image // vision.patch) ** 2 + 1
    each = patches * (4 * vision.hidden + vision.intermediate) * 2
    low, middle, high = (int(each * tiles * x) for x in (factor.low, factor.value, factor.high))
    return Item("vision", middle, low, high, factor.basis, (factor.id,))
