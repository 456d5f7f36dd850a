"""Choose prefill budgets: how many prompt tokens one forward pass takes."""

from __future__ import annotations

import math

from recommender.estimate.cache_sizing import BLOCK
from recommender.estimate.engines.turbomind import ENCODES
from recommender.request.resolved_request import ResolvedRequest

LARGEST_BUDGET = 8192
SMALLEST_BUDGET = 512
MANY = 3
"""Requests ending per pass from which larger budgets make image requests move in waves."""


def budgets(resolved: ResolvedRequest, tiles: int, batch: int) -> list[int]:
    """Return the prefill budgets to try, in tokens, ascending.

    They are the smallest, one prompt, and one for requests that arrive together. A
    prompt longer than the budget takes several passes, each as long as a few decoding
    steps. The largest budget therefore holds the largest image that the model accepts,
    or what joins a full batch in two passes, unless ``steady_budget`` limits it.
    """
    prompt, largest = resolved.input_tokens(tiles), resolved.largest_tokens(tiles) - resolved.output_tokens
    joining = max(1 if batch == 1 else 2, math.ceil(2 * batch / resolved.output_tokens))
    steady = steady_budget(resolved, tiles, batch)
    wanted = {SMALLEST_BUDGET, _power(prompt)}
    wanted |= {steady} if steady else {_power(largest), _power(prompt * joining)}
    return sorted({min(max(tokens, SMALLEST_BUDGET), LARGEST_BUDGET) for tokens in wanted})


def steady_budget(resolved: ResolvedRequest, tiles: int, batch: int) -> int:
    """Return the budget that keeps image requests moving steadily; 0 for no limit.

    Per pass, ``batch / output_tokens`` requests end on average. Requests with images
    come one at a time from the preprocessing thread. A budget for many more than end
    empties that queue at once; then thread and engine wait for each other, and
    requests move in waves. Before 0.16.0 another process encodes images: no limit.

    Measured with InternVL3-8B-AWQ on one H100, 330 input and 16 output tokens,
    concurrency 64, so that four requests end per pass (medians of 13 and 8 starts at 3
    and 12 prompts):

    | room for | requests/s |
    |---|---|
    | 1 prompt | 60 |
    | 1.5 prompts | 67 |
    | 2 prompts | 80 |
    | 3 prompts | 87 |
    | 12 prompts | 72 |

    At concurrency 128 the limit gained 11 %, at 48 nothing (one start each). At 16 it
    gained 3 % (18 starts and 15), less than larger images then lose (7.5 instead of 9.7 requests/s
    at 1280x720). Where ``LARGEST_BUDGET`` holds few more prompts than end, as for
    1280x720 at 64, that is the best.
    """
    ending = batch / resolved.output_tokens
    prompt = resolved.input_tokens(tiles)
    if not resolved.images or resolved.version < ENCODES or ending < MANY or 2 * ending * prompt >= LARGEST_BUDGET:
        return 0
    return math.ceil(max(2, round(0.75 * ending)) * prompt / BLOCK) * BLOCK


def _power(number: int) -> int:
    """Return the smallest power of two that is at least ``number``."""
    return 1 << max(number - 1, 0).bit_length()
