"""What the prefix cache holds of a request, and the time of a step for a prefix that all requests share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from recommender.common.units import MIB
from recommender.estimate import model_shape
from recommender.estimate.linear_attention import attention_layers
from recommender.knowledge.names import PART

if TYPE_CHECKING:
    from recommender.estimate.closed_loop import ServiceTimes
    from recommender.estimate.configuration import Configuration
    from recommender.request.resolved_request import ResolvedRequest

DIGITS = 9
"""Times are rounded to so many decimals of a ms, so that no machine's last digit decides which event comes first."""
TimesByLength = Callable[[int, int], "ServiceTimes"]
"""What gives the times of requests that are alike but for the tokens of their text and their answer."""
TimesOf = Callable[["ResolvedRequest", "Configuration"], TimesByLength]


def round_ms(value: float) -> float:
    """Return a time with the digits that a simulation keeps."""
    return round(value, DIGITS)


L2_MIB = 24
"""The smallest L2 cache of the cards of ``LARGE_L2``: an A30's; A100 40, H100 50, L4 48, RTX 5090 96 MiB (NVIDIA)."""
LARGE_L2 = ("8.0", "8.9", "9.0", "10.0", "10.3", "12.0")
"""Compute capabilities; cards of others have 6 MiB or less."""


def shared_row_ms(resolved: ResolvedRequest, config: Configuration, times_by_length: TimesByLength) -> float:
    """Return the ms in which a step reads the KV cache of a prefix that all requests share.

    With prefix caching all requests have the same blocks. One reads them from memory, the others find them in the L2
    cache: with 64 in flight and half the prompt shared, a step took 17.7 instead of 20.6 ms (Llama-3.1-8B, one H200).
    0 where a layer's blocks do not fit there.
    """
    mean = resolved.prompt_tokens, resolved.output_tokens, 0
    shared = cached_tokens(resolved, config, mean, resolved.input_tokens(), 0)
    read = model_shape.kv_read_bytes(resolved.model, config.kv_bits, shared, config.tp)
    layer = read / attention_layers(resolved.model.text)
    large = resolved.gpu.compute_capability in LARGE_L2 and PART not in resolved.gpu.id
    if not shared or not large or layer > L2_MIB * MIB:
        return 0.0
    less = times_by_length(max(resolved.prompt_tokens - shared, 1), resolved.output_tokens)
    return round_ms(times_by_length(resolved.prompt_tokens, resolved.output_tokens).step_row - less.step_row)


def cached_tokens(
    resolved: ResolvedRequest, config: Configuration, lengths: tuple[int, int, int], context: int, kept_share: float
) -> int:
    """Return the tokens of a prompt that the prefix cache holds: whole blocks, and never the last token.

    ``lengths`` are prompt, answer and turn. A prefix that all requests share is always in use, so it stays; of a
    conversation's history a share stays where the cache does not hold all conversations in flight.
    """
    if not config.prefix_caching:
        return 0
    prompt, output, turn = lengths
    history = resolved.prompt_in_turn(prompt, output, turn - 1) + output if turn else 0
    history = max(history, int(resolved.request.repeated_share * context))
    if resolved.max_context and history + prompt - resolved.prefix_tokens + output > resolved.max_context:
        history = 0  # a prompt that was cut at its beginning has another text there
    shared = resolved.prefix_tokens + kept_share * max(history - resolved.prefix_tokens, 0)
    return int(max(min(shared, context - 1), 0)) // config.block_len * config.block_len
