"""Prefill tokens far below the prompt

## What it does
Reports a `--max-prefill-token-num` so small that one prompt of the load takes three passes or more, unless memory is
the goal. A pass of TurboMind takes that number and the batch size together. If GPU, model and load are known, it is
reported only if `recommend` would choose more.

## Why
The engine reads a longer prompt in chunks, one pass each. This works, but takes longer. On an H100 a 1280 x 720 image
(2,378 tokens) took 400 ms with 512. With 4,096 it took 263 to 329 ms. In TurboMind from 0.16.0 each pass encodes the
images again. At 64 concurrent requests of InternVL3-2B (random weights), an H200 answered 8 requests per second with
512. With 4,096 it answered 21. For a single request, a smaller value saves memory, not time.

## Bad
For 1280 x 720 images:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --max-batch-size 8 --max-prefill-token-num 512

## Good
Set a value that holds one whole prompt:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --max-batch-size 8 --max-prefill-token-num 4096
"""

from recommender.estimate.engines.engine import engine_of
from recommender.estimate.speed import read_coefficients
from recommender.knowledge.eras import within
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule
from recommender.review.rules import surroundings

MANY_PASSES = 3
COSTS = "Each further pass costs time; a value that holds the whole prompt lowers TTFT."
COSTS_ENCODING = "Each further pass costs time and encodes the images again; a value that holds the prompt lowers TTFT."
BUFFERS = "host-memory-of-image-buffers"
"""In the releases of this known issue, more prefill tokens cost more than they gain."""


@option_rule(
    "max-prefill-token-num",
    "warning",
    needs=("model", "load"),
    sources=("flags/max-prefill-token-num", "claims/small-prefill-lowers-latency"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    prefill_tokens = case.number("max-prefill-token-num")
    usual = int(surroundings.default("max-prefill-token-num"))
    era = case.resolved.options[setting.id]
    least = int(era.minimum) if checks.engine(case) == checks.TURBOMIND else 1  # what is less LMD105 reports
    if prefill_tokens is None or not least <= prefill_tokens < usual:
        return
    if case.resolved.request.goal == "memory":
        return
    prompt = case.resolved.input_tokens()
    passes = -(-prompt // _pass_tokens(case, int(prefill_tokens)))
    if passes >= MANY_PASSES and _better(case, prefill_tokens):
        yield Diagnostic(
            checks.at(setting),
            f"A prompt of {prompt:,} tokens takes {passes} prefill passes.",
            COSTS_ENCODING if _encodes_again(case) else COSTS,
        )


def _pass_tokens(case: Case, prefill_tokens: int) -> int:
    """Return the prompt tokens that a pass takes of one request alone, as far as is known."""
    config = case.configuration
    if config is None:
        return max(prefill_tokens + max(int(case.number("max-batch-size") or 0), 0), 1)
    return engine_of(config).prompt_tokens(case.resolved, config) + engine_of(config).spare_tokens(config, 0)


def _encodes_again(case: Case) -> bool:
    """Return whether the engine encodes images again in each further pass."""
    config, resolved = case.configuration, case.resolved
    if config is None or not resolved.images:
        return False
    return engine_of(config).encoded_again(resolved.version, read_coefficients(resolved.store)) > 0


def _better(case: Case, prefill_tokens: float) -> bool:
    """Return whether ``recommend`` would choose more prefill tokens; without its answer, whether nothing opposes it."""
    if surroundings.all_known(case):
        chosen = surroundings.recommended_config(case)
        return chosen is not None and chosen.prefill_tokens > prefill_tokens
    thread = case.resolved.store.threads[BUFFERS]
    return case.resolved.vision is None or not within(thread.since, thread.until, case.resolved.version)
