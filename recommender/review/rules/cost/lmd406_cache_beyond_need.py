"""A KV cache far larger than the load

## What it does
Reports a KV cache that takes at least 40 % of the GPU's memory and holds at least eight times what the load, one full
session and the warm-up need, without prefix caching. Example: 0.8 of the memory for one request at a time.

## Why
LMDeploy reserves the share at startup. Beyond what the running requests use, it makes nothing faster: with shares
from 6 to 80 %, one image at a time took 146 to 151 ms. It only keeps the memory from other processes.

## Bad
For one request at a time on an 80 GB GPU:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 8192 --cache-max-entry-count 0.8

## Good
Set the share that the load needs; `recommend` computes it. Keep the number if the GPU has no other work.

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 8192 --cache-max-entry-count 0.05
"""

from recommender.common.units import GIB, MIB
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules import surroundings

MANY_TIMES = 8
LARGE_PART = 0.4


@launch_rule(
    "info",
    needs=("gpu", "model", "load"),
    sources=("flags/cache-max-entry-count", "claims/more-cache-is-faster", "threads/awq-vlm-takes-whole-card"),
)
def rule(case: Case) -> Diagnostics:
    candidate = surroundings.sized_launch(case)
    if candidate is None or candidate.config.prefix_caching or checks.engine(case) != checks.TURBOMIND:
        return
    cache, need = candidate.memory.item("kv cache").bytes, candidate.memory.kv_needed_tokens
    tokens = candidate.memory.kv_tokens
    if cache < LARGE_PART * case.resolved.gpu.memory_mib * MIB or tokens < MANY_TIMES * need:
        return
    yield Diagnostic(
        checks.place(case, "cache-max-entry-count"),
        f"The KV cache takes {cache / GIB:.0f} GiB and holds {tokens:,} tokens; {need:,} are needed.",
        "Unused cache makes nothing faster and keeps the memory from other processes on the GPU.",
    )
