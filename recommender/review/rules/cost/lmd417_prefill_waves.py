"""Prefill tokens that make requests move in waves

## What it does
Reports a `--max-prefill-token-num`, set or default, that fits at least twice as many prompts as complete per pass. It
is reported for requests with images, and only if `recommend` would choose less for the same number of servers.

## Why
One thread prepares images one by one. The prompts that complete per pass are about the concurrency divided by the
output tokens. With more room the engine takes all prepared requests at once. Then the thread and the engine wait for
each other, and requests move in waves.

Measured with 64 concurrent 448 x 448 images and 16 output tokens on one H100, in requests per second. 1,024 tokens: 77
to 89 (nine starts). 4,096 tokens: 66 to 85 (seven starts). 8,192 tokens, the default: 74 to 85 (six starts).

## Bad
For 64 concurrent 448 x 448 images with 16 output tokens each:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --max-batch-size 64

## Good
Set a value that holds most of the prompts that complete per pass. Larger images then take several passes, so size it
for the images you expect.

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --max-batch-size 64 \\
        --max-prefill-token-num 1024
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules import surroundings

FAR = 2
"""Report a pass that holds this many times the prompts that complete in it."""


@launch_rule(
    "info", needs=("gpu", "model", "load"), sources=("flags/max-prefill-token-num", "claims/prefill-budget-waves")
)
def rule(case: Case) -> Diagnostics:
    candidate = surroundings.sized_launch(case)
    if candidate is None or not case.resolved.images or checks.engine(case) != checks.TURBOMIND:
        return
    config, prompt = candidate.config, case.resolved.input_tokens(candidate.config.max_tiles)
    running = min(config.max_batch_size, -(-case.loaded.concurrency // config.servers))
    ends = running / case.resolved.output_tokens
    prefill_tokens = min(config.prefill_tokens, config.session_len)
    if prefill_tokens < FAR * ends * prompt or case.resolved.request.goal == "memory":
        return
    chosen = surroundings.recommended_config(case)
    if not chosen or chosen.servers != config.servers or not prompt <= chosen.prefill_tokens <= ends * prompt:
        return
    yield Diagnostic(
        checks.place(case, "max-prefill-token-num"),
        f"A pass of {prefill_tokens:,} tokens{' (session length)' * (prefill_tokens < config.prefill_tokens)} holds"
        f" {prefill_tokens // prompt} prompts of {prompt:,}, but about {ends:.0f} complete per pass.",
        "Requests move in waves: preprocessing and the engine wait for each other;"
        f" --max-prefill-token-num {chosen.prefill_tokens} keeps both busy.",
    )
