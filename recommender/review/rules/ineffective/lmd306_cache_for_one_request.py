"""A cache share beyond what one request needs

## What it does
Reports a `--cache-max-entry-count` for one request at a time whose cache holds at least eight times the tokens that
the request needs and takes at least 10 % of the GPU's memory. LMD406 reports larger shares.

## Why
A request uses only its own tokens. More cache does not make it faster: with shares from 6 to 80 %, one image at a
time took 146 to 151 ms on an H100. The rest of the memory is only reserved.

## Bad
For one request at a time on an 80 GB GPU:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 4096 --cache-max-entry-count 0.4

## Good
Set the share that the request needs; `recommend` computes it. Keep the number if nothing else needs the memory.

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 4096 --cache-max-entry-count 0.02
"""

from recommender.common.units import MIB
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule

TIMES = 8
SMALL_PART, LARGE_PART = 0.1, 0.5


@option_rule(
    "cache-max-entry-count",
    "info",
    needs=("gpu", "model", "load"),
    sources=("claims/more-cache-is-faster", "flags/cache-max-entry-count"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if case.loaded.concurrency != 1 or checks.engine(case) != checks.TURBOMIND or not checks.alone(case):
        return
    candidate = case.candidate
    if candidate is None or candidate.config.prefix_caching or candidate.memory.kv_needed_tokens <= 0:
        return
    part = candidate.memory.item("kv cache").bytes / (case.resolved.gpu.memory_mib * MIB)
    if not SMALL_PART <= part < LARGE_PART:
        return  # too little to matter; LMD406 reports more
    if candidate.memory.kv_tokens >= TIMES * candidate.memory.kv_needed_tokens:
        yield Diagnostic(
            checks.at(setting),
            f"One request at a time needs {candidate.memory.kv_needed_tokens:,} tokens of KV cache; this share holds"
            f" {candidate.memory.kv_tokens:,}.",
            "Cache that the request does not use makes it no faster.",
        )
