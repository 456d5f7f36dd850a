"""Let a server run more text requests at once than planned, where the KV cache already holds them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.estimate.cache_need import count_needed_tokens
from recommender.request.resolved_request import ResolvedRequest

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.estimate.memory_items import Memory

ROOM = (2.0, 1.5, 1.25)
"""Batches to try, as multiples of the load without headroom, largest first."""

LARGER_BATCHES = Version("0.10.0")


def larger_batches(resolved: ResolvedRequest, config: Configuration) -> Iterable[Configuration]:
    """Return a configuration with larger batches, largest first; none where the batch is to equal the load.

    They end at LMDeploy's own batch. Room costs no cache: that is sized for twice the load anyway. The batch equals
    the load for the goal memory, for a rate, which plans for more itself, and for images: no gain was measured beyond
    the load (claim larger-batch-raises-throughput).
    """
    request = resolved.request
    if request.goal == "memory" or resolved.rps or resolved.images or config.share > 1:
        return ()
    most = default_batch(resolved)
    sizes = dict.fromkeys(min(math.ceil(factor / request.headroom * config.max_batch_size), most) for factor in ROOM)
    return [replace(config, max_batch_size=size) for size in sizes if size > config.max_batch_size]


def holds_batch(resolved: ResolvedRequest, config: Configuration, memory_use: Memory) -> bool:
    """Return whether the KV cache holds a full batch of the request's load."""
    needed = count_needed_tokens(
        resolved,
        config.max_tiles,
        config.block_len,
        config.max_batch_size,
        config.session_len,
        memory_use.warmup_tokens,
    )
    return needed <= memory_use.kv_tokens


def room_bytes(resolved: ResolvedRequest, config: Configuration) -> float:
    """Return the bytes of the buffers that the requests beyond the planned load take on a GPU."""
    slot = resolved.model.text.vocab * resolved.store.coefficients["workspace-slot"].value + config.session_len * 4
    return max(config.max_batch_size - -(-resolved.concurrency // config.servers), 0) * slot


def default_batch(resolved: ResolvedRequest) -> int:
    """Return the batch size that LMDeploy uses by default on this GPU in this release.

    LMDeploy looks for a key anywhere in the driver's name of GPU 0, so a GH200 counts as an H200.
    Source: 0.9.2 lmdeploy/utils.py:344, 0.10.0 lmdeploy/utils.py:340.
    """
    sizes = {"a100": 384, "a800": 384, "h100": 1024, "h800": 1024, "l20y": 1024, "h200": 1024}
    if resolved.version < LARGER_BATCHES:
        sizes = {"a100": 256, "a800": 256, "h100": 512, "h800": 512}
    name = resolved.gpu.name.casefold()
    return next((size for key, size in sizes.items() if key in name), 128)
