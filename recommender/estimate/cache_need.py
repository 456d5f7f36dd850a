"""Count the tokens that a KV cache must hold for a load, whatever the engine."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.request.resolved_request import ResolvedRequest

P99 = 2.326
"""Standard deviations from the mean of a normal distribution to its 99th percentile."""


def count_needed_tokens(
    resolved: ResolvedRequest, max_tiles: int, block: int, batch: int, session_len: int, warmup: int, shared: int = 0
) -> int:
    """Return the KV tokens, in whole blocks, that a server needs.

    The largest of: ``batch`` requests of the load with the ``shared`` tokens of their prefix once (``shared_tokens``),
    one full session, the warm-up. A session begins with the prefix, and the warm-up comes before it.
    """
    longest = resolved.longest()
    session = round_up(min(session_len, longest.largest_tokens(max_tiles)), block)
    return max(shared + _load_tokens(resolved, max_tiles, block, batch, shared), session, round_up(warmup, block))


def shared_tokens(resolved: ResolvedRequest, prefix_caching: bool, block: int) -> int:
    """Return the tokens of the whole blocks that a prefix cache holds once for all requests."""
    return resolved.prefix_tokens // block * block if prefix_caching and not resolved.images else 0


def _load_tokens(resolved: ResolvedRequest, max_tiles: int, block: int, batch: int, shared: int) -> int:
    """Return the KV tokens of ``batch`` requests, without those that they share.

    Where lengths vary, they are enough for 99 of 100 such batches.
    """
    request = round_up(resolved.total_tokens(max_tiles), block) - shared
    longest = round_up(resolved.longest().total_tokens(max_tiles), block) - shared
    spread = P99 * math.sqrt(batch * resolved.total_variance())
    return min(longest * batch, round_up(math.ceil(request * batch + spread), block))


def count_running_requests(resolved: ResolvedRequest, config: Configuration) -> int:
    """Return how many requests one server runs at once under the load."""
    return min(config.max_batch_size, -(-resolved.concurrency // config.servers))


def round_up(tokens: int, block: int) -> int:
    """Return the tokens in the whole blocks that hold ``tokens``."""
    return -(-tokens // block) * block
