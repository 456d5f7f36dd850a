"""Choose prefill budgets: how many prompt tokens one forward pass takes."""

from __future__ import annotations

import math

from recommender.estimate.cache_sizing import BLOCK
from recommender.estimate.engines.engine import ENGINES
from recommender.estimate.engines.turbomind import ENCODES
from recommender.knowledge.eras import default_values
from recommender.request.resolved_request import ResolvedRequest

LARGEST_BUDGET = 8192
SMALLEST_BUDGET = 512
MANY = 3
"""Requests ending per pass from which larger budgets make image requests move in waves."""
EXPERTS_BUDGET = 16_384
PROMPTS_PER_ANSWER = 32
"""Prompt tokens per output token from which a server mostly prefills."""
FULL_PASSES = 16
"""Full passes of concurrent prompts from which the larger budget pays."""


def list_budgets(resolved: ResolvedRequest, tiles: int, batch: int) -> list[int]:
    """Return the prefill budgets to try, in tokens, ascending.

    An engine that gains from no other budget takes the release's. For text, the usual one is among them, and budgets
    below the mean text are left out, if any holds it: cutting texts lost 18 % (2,048 on code with 64 in flight, one
    H100).
    """
    sizes = budgets(resolved, tiles, batch) if ENGINES[resolved.engine].OTHER_BUDGETS else [default_budget(resolved)]
    if resolved.images:
        return sizes
    sizes = sorted({*sizes, default_budget(resolved), usual_budget(resolved)})
    return [size for size in sizes if size >= resolved.input_tokens()] or sizes


def budgets(resolved: ResolvedRequest, tiles: int, batch: int) -> list[int]:
    """Return budgets that the load suggests, in tokens, ascending.

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


def default_budget(resolved: ResolvedRequest) -> int:
    """Return the prefill budget in tokens that the release uses without an option."""
    return int(default_values(resolved.store, resolved.version)["prefill_tokens"])


def usual_budget(resolved: ResolvedRequest) -> int:
    """Return the prefill budget in tokens that wins ties: that of the release; 0 for images: theirs were measured.

    Twice that for many long prompts with short answers on a mixture of experts, which reads all its experts in each
    pass: 4 to 5 % more requests/s, and first tokens after 3.2 instead of 5.3 s (gpt-oss-20b, ``code`` with 256 in
    flight, one H100; h100-sweep-gpt-oss-code-2026-11-26-budget-16384). With 64 in flight it gained nothing clear.
    """
    if resolved.images:
        return 0
    prompt, usual = resolved.input_tokens(), default_budget(resolved)
    many = resolved.concurrency * prompt >= FULL_PASSES * EXPERTS_BUDGET and not resolved.rps
    prefills = prompt >= PROMPTS_PER_ANSWER * resolved.output_tokens
    mixture = resolved.engine == "turbomind" and resolved.model.text.mixture
    return max(usual, EXPERTS_BUDGET) if mixture and many and prefills else usual


def _power(number: int) -> int:
    """Return the smallest power of two that is at least ``number``."""
    return 1 << max(number - 1, 0).bit_length()
