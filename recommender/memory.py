"""Memory of one card, itemised: a configuration's bytes before anything is launched.

Follows TurboMind from 0.15.0 on (src/turbomind/turbomind.cc and
src/turbomind/memory at v0.16.0): the KV region is a share of what is free after
the weights, cut into 32 MiB pages, and the workspaces come after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from packaging.version import Version

from recommender import covered, shapes
from recommender.configuration import Configuration
from recommender.facts import MIB, Facts

PAGE = 32 * MIB
MAX_SLAB = 1024 * MIB
SLAB_FILL = 0.95
SLAB_ALLOCATOR = Version("0.15.0")
POOLED_WARM_UP = Version("0.12.0")
# Lengths that the warm-up tries, 0.16.0 src/turbomind/kernels/gemm/tuner/params.cc:66-101
WARM_UP_STEPS = (
    *(8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768),
    *(step * 2**power for power in range(8) for step in (1024, 1536)),
)

if TYPE_CHECKING:
    from recommender import records as r


Basis: TypeAlias = Literal["measured", "modelled", "vendor", "assumed"]


@dataclass(frozen=True, slots=True)
class Item:
    """One part of the memory of a card, in bytes, as the middle and ends of a range."""

    name: str
    bytes: int
    low: int
    high: int
    basis: Basis
    coefficients: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one card under a configuration. Bytes, tokens and blocks."""

    items: tuple[Item, ...]
    loading: int
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
        """The upper end of the range of the total; the peak while loading, where that is more."""
        return max(sum(item.high for item in self.items), self.loading)

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


def _slab(block: int) -> int:
    """Bytes of the slabs that blocks of this size are cut from (0.16.0 src/turbomind/memory/slab.h:122-133)."""
    slab = PAGE
    while slab < block or ((slab // block) * block / slab < SLAB_FILL and slab < MAX_SLAB):
        slab *= 2
    return slab


@lru_cache(maxsize=4096)
def kv_blocks(region: int, block: int, slabs: bool) -> int:
    """Blocks of ``block`` bytes that a KV region of ``region`` bytes holds."""
    if not slabs:
        return region // block
    slab = _slab(block)
    pages = max(region - PAGE // 2, 0) // PAGE  # the base is aligned up to a page: half of one is lost on average
    return (pages // (slab // PAGE)) * (slab // block)


@lru_cache(maxsize=4096)
def region_for(blocks: int, block: int, slabs: bool) -> int:
    """The smallest KV region in bytes that surely holds so many blocks, the alignment's worst loss included."""
    if not slabs:
        return blocks * block
    slab = _slab(block)
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


def running(facts: Facts, config: Configuration) -> int:
    """Requests that run at once at one server under the load: no more than its batch."""
    return min(config.max_batch_size, -(-facts.concurrency // config.servers))


def _up(tokens: int, block: int) -> int:
    return -(-tokens // block) * block


def before_cache(facts: Facts, tp: int) -> tuple[Item, Item, Item]:
    """What stands on a card when the KV region is sized: context and libraries, weights, leavings of loading."""
    known = facts.store.coefficients
    parts = [(1.0, known["context-mib"], MIB)]
    if tp > 1:
        parts.append((1.0, known["peer-context-mib"], MIB))
    context = _item("context", "modelled", *parts)
    bytes_ = weights(facts, tp)
    loaded = Item("weights", bytes_, bytes_, bytes_, "modelled", ())
    table = _table(facts.model, tp) if facts.model.quantization else 0
    return context, loaded, _item("loading", "modelled", (1.0, known["quantised-load-share"], table))


def _table(model: r.Model, tp: int) -> int:
    """Bytes of the 16-bit embedding table's part on one card."""
    return model.text.vocab * model.text.hidden * 2 // tp


def _item(name: str, basis: Basis, *parts: tuple[float, r.Coefficient, float]) -> Item:
    """An item that sums factor x coefficient x unit over its parts."""

    def total(end: str) -> int:
        return int(sum(factor * float(getattr(each, end)) * unit for factor, each, unit in parts))

    return Item(name, total("value"), total("low"), total("high"), basis, tuple(each.id for _, each, _ in parts))


def estimate(facts: Facts, config: Configuration) -> Memory:
    """The memory of one card under this configuration.

    Servers that share a card start one after the other: each finds less free than the one before, so its
    cache is smaller. Blocks, tokens and what is free are those of the last.
    """
    each = _server(facts, config, 0)
    items, taken = each.items, each.total
    for _ in range(config.share - 1):
        each = _server(facts, config, taken)
        items = tuple(_sum(one, other) for one, other in zip(items, each.items, strict=True))
        each = replace(each, items=items, loading=taken + each.loading)
        taken = each.total
    return each


def likely(facts: Facts, memory: Memory, tp: int) -> tuple[int, int]:
    """The bytes between which four fifths of the starts lie that the fit had not seen, image encoder busy or not.

    On a card that no run was made on, of a model of another kind, and over several cards: the parts' own ends.
    """
    known = facts.store.residuals.get("memory")
    alike = facts.gpu.id in covered.gpus(facts.store) and covered.kind(facts.model) in covered.kinds(facts.store)
    if known is None or tp > 1 or not alike:
        return memory.low, sum(item.high for item in memory.items)
    vision = memory.item("vision").bytes
    ready = memory.total - vision
    high = int(ready * max(known.high, 1.0)) + vision
    return int(ready * min(known.low, 1.0)), min(high, memory.high)


def _sum(one: Item, other: Item) -> Item:
    return replace(one, bytes=one.bytes + other.bytes, low=one.low + other.low, high=one.high + other.high)


def _server(facts: Facts, config: Configuration, taken: int) -> Memory:
    """The memory of one server on a card of which so many bytes are taken."""
    forward = forward_tokens(config.prefill_tokens, config.max_batch_size, config.tp)
    warmup = warmup_tokens(facts.version, forward, config.session_len)
    before = before_cache(facts, config.tp)
    free = max(usable(facts) - taken - sum(item.bytes for item in before), 0)
    token = kv_token_bytes(facts.model, config.kv_bits, config.tp)
    region = int(free * config.cache_ratio)
    # Memory that is free when the region is sized carries the spread of what was taken before.
    spread = int(sum(item.high - item.low for item in before) / 2 * config.cache_ratio)
    cache = Item("kv cache", region, max(region - spread, 0), region + spread, "modelled", ())
    blocks = kv_blocks(region, token * config.block_len, facts.version >= SLAB_ALLOCATOR)
    tokens = blocks * config.block_len
    each = _up(facts.total_tokens(config.max_tiles), config.block_len)
    return Memory(
        items=(*before, cache, workspace(facts, config, forward), vision_workspace(facts, config)),
        loading=_loading(facts, config.tp, before),
        free=free,
        forward_tokens=forward,
        warmup_tokens=warmup,
        kv_token_bytes=token,
        kv_blocks=blocks,
        kv_tokens=tokens,
        kv_requests=tokens // each,
        kv_needed_tokens=needed(
            facts, config.max_tiles, config.block_len, running(facts, config), config.session_len, warmup
        ),
    )


def usable(facts: Facts) -> int:
    """Bytes a process can get of the card, or of the share asked for with --vram."""
    reserve = int(facts.store.coefficients["driver-reserve-mib"].value * MIB)
    return min(facts.available_bytes, facts.gpu.memory_mib * MIB - reserve)


def _loading(facts: Facts, tp: int, before: Iterable[Item]) -> int:
    """The most bytes taken while the weights load, before there is a KV region."""
    extra = facts.store.coefficients["load-peak-share"].high * _table(facts.model, tp)
    return int(sum(item.bytes for item in before) + extra)


def workspace(facts: Facts, config: Configuration, forward: int) -> Item:
    """Buffers of the forward pass and of sampling, grown with tokens, batch and session length."""
    text, known = facts.model.text, facts.store.coefficients
    # Only prompts whose lengths sum to the session length are prefilled together, so a pass has no more tokens.
    tokens = min(forward, config.session_len)
    wide = sum(each.per_token * each.intermediate + each.shared for each in text.mixture) or text.intermediate
    row = 2 * text.hidden + ((text.heads + 2 * text.kv_heads) * text.head_dim + wide) / config.tp
    item = _item(
        "workspace",
        "modelled",
        (1.0, known["workspace-mib"], MIB),
        (tokens * row * 2, known["workspace-token"], 1),
        (config.max_batch_size * text.vocab, known["workspace-slot"], 1),
    )
    ids = config.max_batch_size * config.session_len * 4  # 0.16.0 src/turbomind/generation/generation.cc:100
    return replace(item, bytes=item.bytes + ids, low=item.low + ids, high=item.high + ids)


def vision_workspace(facts: Facts, config: Configuration) -> Item:
    """Activations of the image encoder; they grow with the tiles of one pass and are not warmed up."""
    vision = facts.vision
    if vision is None or not facts.images:
        return Item("vision", 0, 0, 0, "modelled", ())
    joining = -(-2 * config.max_batch_size // max(facts.output_tokens, 2))
    tiles = facts.tiles(config.max_tiles) * facts.images * joining
    patches = (vision.image // vision.patch) ** 2 + 1
    each = patches * (4 * vision.hidden + vision.intermediate) * 2
    return _item("vision", "modelled", (each * tiles, facts.store.coefficients["vision-tile"], 1))
