"""The parts of a GPU's memory, and what every engine has of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from recommender.common.units import MIB
from recommender.estimate.model_shape import weight_bytes, weight_bytes_per_rank
from recommender.estimate.vision_shape import BYTES_16_BIT, patches

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.knowledge import records
    from recommender.request.resolved_request import ResolvedRequest

Basis: TypeAlias = Literal["measured", "modelled", "vendor", "assumed"]


@dataclass(frozen=True, slots=True)
class MemoryItem:
    """One part of a GPU's memory, in bytes: middle, low and high of its range."""

    name: str
    """Name of the part, such as weights."""
    bytes: int
    """Predicted bytes."""
    low: int
    """Low end of the range, in bytes."""
    high: int
    """High end of the range, in bytes."""
    basis: Basis = "modelled"
    """Where the figure comes from."""
    coefficients: tuple[str, ...] = ()
    """Ids of the coefficients it uses."""


@dataclass(frozen=True, slots=True)
class Memory:
    """The memory of one GPU under a configuration, in bytes, tokens and blocks.

    ``loading`` is the peak while weights load, ``free`` what is free when the KV region
    is sized. ``kv_blocks`` and ``kv_tokens`` leave out the states of linear attention. ``kv_requests`` is how many
    full-length requests fit, ``kv_needed_tokens`` what the load needs at least, and ``kv_prefix_tokens`` the shared
    prefix, which is stored once (0 without prefix caching).
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
    kv_prefix_tokens: int

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


def make_item(name: str, *parts: tuple[float, records.Coefficient], exact: int = 0) -> MemoryItem:
    """Return an item: the sum of factor x coefficient over its parts, plus ``exact`` bytes."""
    value = low = high = 0.0
    for factor, coefficient in parts:
        value += factor * coefficient.value
        low += factor * coefficient.low
        high += factor * coefficient.high
    ids = tuple(coefficient.id for _, coefficient in parts)
    basis: Basis = "assumed" if any(coefficient.basis == "assumed" for _, coefficient in parts) else "modelled"
    return MemoryItem(name, int(value) + exact, int(low) + exact, int(high) + exact, basis, ids)


def add_items(first: MemoryItem, second: MemoryItem) -> MemoryItem:
    """Add two items that have the same name."""
    return replace(first, bytes=first.bytes + second.bytes, low=first.low + second.low, high=first.high + second.high)


def weights(resolved: ResolvedRequest, tp: int) -> int:
    """Return the bytes of weights on one GPU.

    Exact where the headers of the checkpoint were read.
    """
    computed = weight_bytes_per_rank(resolved.model, tp)
    if not resolved.weight_bytes:
        return computed
    return int(resolved.weight_bytes * computed / weight_bytes(resolved.model))


def embedding_bytes(model: records.Model, tp: int) -> int:
    """Return the bytes of one GPU's part of the 16-bit embedding table."""
    return model.text.vocab * model.text.hidden * BYTES_16_BIT // tp


def usable_bytes(resolved: ResolvedRequest) -> int:
    """Return the bytes that a process can use on the GPU or its requested share."""
    reserve = int(resolved.store.coefficients["driver-reserve-mib"].value * MIB)
    return min(resolved.available_bytes, resolved.gpu.memory_mib * MIB - reserve)


def vision_workspace(resolved: ResolvedRequest, config: Configuration) -> MemoryItem:
    """Return the activations of the image encoder.

    They grow with the tiles of one pass, and the warm-up does not allocate them.
    """
    vision = resolved.vision
    if vision is None or not resolved.images:
        return MemoryItem("vision", 0, 0, 0)
    joining = -(-2 * config.max_batch_size // max(resolved.output_tokens, 2))
    tiles = resolved.tiles(config.max_tiles) * resolved.images * joining
    tile = (patches(vision) + 1) * (4 * vision.hidden + vision.intermediate) * BYTES_16_BIT
    return make_item("vision", (tile * tiles, resolved.store.coefficients["vision-tile"]))
