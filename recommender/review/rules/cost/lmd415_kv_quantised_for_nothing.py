"""A quantised KV cache that the load does not need

## What it does
Reports `--quant-policy` 8 or 4 if a 16-bit cache would also hold the load, a full session and the warm-up.

## Why
Quantising the cache does not free memory: the pool is a share of the free memory, and more tokens fit into it. It
helps if the cache limits the load. Otherwise it only changes the output: barely at 8 bits, by benchmark points at 4.

## Bad
For one request at a time on an 80 GB GPU:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 8192 --quant-policy 4

## Good
Remove the option. To use less memory, lower `--cache-max-entry-count`.

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 8192
"""

from dataclasses import replace

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule


@option_rule(
    "quant-policy",
    "info",
    needs=("gpu", "model", "load"),
    sources=("claims/kv-quantisation-lowers-memory-taken", "threads/kv-quantisation-frees-no-memory"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if "kv" in case.answered or checks.engine(case) != checks.TURBOMIND or not checks.alone(case):
        return
    candidate = case.candidate
    if candidate is None or candidate.config.kv_bits not in (4, 8):
        return
    from recommender.choose.select import predict

    plain = predict(case.loaded, replace(candidate.config, kv_bits=16)).memory
    if plain.kv_tokens >= plain.kv_needed_tokens and plain.kv_tokens >= candidate.config.session_len:
        yield Diagnostic(
            checks.at(setting),
            f"A 16-bit cache would hold {plain.kv_tokens:,} tokens; {plain.kv_needed_tokens:,} are needed.",
            "Quantising it saves no memory, because the pool is a fixed share; it only costs accuracy.",
        )
