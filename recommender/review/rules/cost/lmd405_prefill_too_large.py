"""Prefill tokens far above the need

## What it does
Reports a `--max-prefill-token-num` above LMDeploy's default and at least twice the tokens of all concurrent prompts,
if the estimated work buffers for it take a notable part of the GPU's memory.

## Why
LMDeploy allocates work buffers for a pass of that size at startup and keeps them. If no pass is ever that large, the
memory is lost to the KV cache and to other processes.

## Bad
For 4 concurrent requests of 1,000 tokens:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 32768 --max-prefill-token-num 32768

## Good
Set a value that holds the prompts that arrive together; the default is usually enough. With many concurrent images a
smaller value is faster (LMD417).

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 32768
"""

from dataclasses import replace

from recommender.common.units import GIB, MIB
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule
from recommender.review.rules import surroundings

NOTABLE = 0.02


@option_rule(
    "max-prefill-token-num",
    "info",
    needs=("gpu", "model", "load"),
    sources=("flags/max-prefill-token-num", "claims/smaller-prefill-saves-memory"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    prefill_tokens = case.number("max-prefill-token-num")
    candidate = surroundings.sized_launch(case)
    if prefill_tokens is None or candidate is None or checks.engine(case) != checks.TURBOMIND:
        return
    from recommender.estimate import memory

    enough = max(
        int(surroundings.default("max-prefill-token-num")), case.resolved.input_tokens() * case.loaded.concurrency
    )
    if prefill_tokens < 2 * enough:
        return
    smaller = replace(candidate.config, prefill_tokens=enough)
    saved = candidate.memory.total - memory.estimate(case.loaded, smaller).total
    if saved >= NOTABLE * case.resolved.gpu.memory_mib * MIB:
        chosen = surroundings.recommended_config(case)
        if chosen and case.resolved.images:
            enough = min(enough, chosen.prefill_tokens)
        yield Diagnostic(
            checks.at(setting),
            f"About {saved / GIB:.1f} GiB of work buffers are allocated for passes of {int(prefill_tokens):,} tokens;"
            f" {enough:,} is enough.",
            "Concurrent prompts never fill such a pass, but LMDeploy keeps its buffers from startup.",
        )
