"""Cut TurboMind's KV region into blocks of keys and values, and states of linear attention."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.common.units import MIB
from recommender.estimate.linear_attention import state_bytes, state_parts

if TYPE_CHECKING:
    from recommender.knowledge import records

PAGE = 32 * MIB
MAX_SLAB = 1024 * MIB
SLAB_FILL = 0.95
SLAB_ALLOCATOR = Version("0.15.0")
STATE_POOL = Version("0.12.3")


def _slab(block: int) -> int:
    """Return the bytes of the slabs that blocks of this size are cut from.

    Source: 0.16.0 src/turbomind/memory/slab.h:122-133.
    """
    slab = PAGE
    while slab < block or ((slab // block) * block / slab < SLAB_FILL and slab < MAX_SLAB):
        slab *= 2
    return slab


@lru_cache(maxsize=4096)
def kv_blocks(region: int, block: int, slabs: bool) -> int:
    """Return how many blocks of ``block`` bytes fit into ``region`` bytes.

    ``slabs``: the release cuts blocks from slabs (0.15.0 and later).
    """
    if not slabs:
        return region // block
    slab = _slab(block)
    pages = max(region - PAGE // 2, 0) // PAGE  # aligning the base loses half a page on average
    return (pages // (slab // PAGE)) * (slab // block)


@lru_cache(maxsize=4096)
def region_bytes(blocks: int, block: int, slabs: bool) -> int:
    """Return the smallest KV region, in bytes, that holds ``blocks`` for certain.

    The worst loss by alignment is included.
    """
    if not slabs:
        return blocks * block
    slab = _slab(block)
    return -(-blocks // (slab // block)) * slab + PAGE


@lru_cache(maxsize=4096)
def state_region(model: records.Model, tp: int, version: Version, batch: int, running: int) -> int:
    """Return the bytes of the KV region that hold states of linear attention while ``running`` sequences run.

    Since 0.15.0 each running sequence has its own objects, in whole slabs. Before, the region begins with a pool for
    ``batch`` sequences (0.14.0 src/turbomind/models/llama/SequenceManager.cc:121-137); 0.12.2 had none in the region.
    """
    if version < SLAB_ALLOCATOR:
        return batch * state_bytes(model, tp) if version >= STATE_POOL else 0
    return sum(region_bytes(running * count, size, slabs=True) - PAGE for size, count in state_parts(model, tp))
