"""Size the KV cache: session length, block size and cache ratio."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

from recommender.estimate.configuration import Configuration
from recommender.estimate.engines.engine import ENGINES, engine_of
from recommender.estimate.memory_items import usable_bytes
from recommender.request.resolved_request import ResolvedRequest

BLOCK = 64
SESSION_STEP = 256

# Margin over the need even at the low end of free memory: if the cache is smaller than the warm-up needs, startup
# hangs silently. Unless the goal is memory, the cache is twice the need and holds a session, up to half of what is
# free.
KV_HEADROOM = 1.1
KV_AMPLE = 2.0
KV_AMPLE_UP_TO = 0.5
LARGEST_RATIO = 0.95


def session_length(resolved: ResolvedRequest, tiles: int, max_tokens: int, prefill_tokens: int) -> int:
    """Return the session length in tokens.

    It holds the largest image that the model accepts, ``max_tokens`` of answer, and a
    full prefill pass of ``prefill_tokens``. TurboMind batches only prompts whose
    lengths sum to the session length, so a shorter session would waste the budget
    (0.16.0 src/turbomind/engine/engine.cc:464). Concurrent texts get room for one more prompt, because a pass can
    take a part of it. Without that room, gpt-oss-20b on code answered 2 to 3 % less (one H100, concurrency 64 and 256).
    """
    longest = resolved.longest()
    largest = longest.largest_tokens(tiles) - longest.output_tokens + max_tokens
    asked = longest.input_tokens(tiles) + max_tokens + 1
    limited = ENGINES[resolved.engine].contexts_limit(prefill_tokens, 1) and not resolved.images
    pass_tokens = prefill_tokens + (longest.input_tokens(tiles) if limited and resolved.concurrency > 1 else 0)
    rounded = math.ceil(max(largest + 1, pass_tokens) / SESSION_STEP) * SESSION_STEP
    limit = resolved.model.text.max_positions
    if rounded <= limit:
        return rounded
    return limit if asked <= limit else math.ceil(asked / SESSION_STEP) * SESSION_STEP


SizedBy: TypeAlias = Literal["twice", "half", "need", "most"]
"""What decides the cache ratio: twice the need, half of the free memory, the need with its margin, or the largest."""


def size_cache(
    resolved: ResolvedRequest, config: Configuration, needed_tokens: int, others: int = 0
) -> tuple[float, SizedBy]:
    """Return the smallest cache ratio, to two digits, and what decided it.

    It holds ``needed`` tokens and, for linear attention, the states of a full batch.
    It assumes the lower end of predicted free memory. ``others`` are bytes that earlier
    servers occupy on the same GPU. If the GPU is too small the result is
    ``LARGEST_RATIO``; the constraints then report what does not fit.
    """
    engine = engine_of(config)
    before = sum(item.high for item in engine.items_before_cache(resolved, config.tp))
    free = usable_bytes(resolved) - others - before - engine.reserved_bytes(resolved, config)
    region = engine.region_for(resolved, config, needed_tokens)
    if free <= 0:
        return LARGEST_RATIO, "most"
    share = region * KV_HEADROOM / free
    sized_by: SizedBy = "need"
    session = engine.region_for(resolved, config, config.session_len) * KV_HEADROOM / free
    wanted = max(region * KV_AMPLE / free, session if session <= KV_AMPLE_UP_TO else 0.0)
    ample = min(wanted, KV_AMPLE_UP_TO)
    if resolved.request.goal != "memory" and ample > share:
        share, sized_by = ample, "half" if ample == KV_AMPLE_UP_TO else "twice"
    digits = 10 ** (1 - math.floor(math.log10(share))) if share < 1 else 100
    ratio = math.ceil(share * digits - 1e-9) / digits
    return (LARGEST_RATIO, "most") if ratio > LARGEST_RATIO else (ratio, sized_by)
