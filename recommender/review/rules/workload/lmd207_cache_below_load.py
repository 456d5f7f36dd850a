"""A KV cache smaller than the load

## What it does
Reports launches whose KV cache holds fewer tokens than one request of the workload, or than all concurrent requests.

## Why
A request that the cache can never hold fails. If the cache holds one request but not all, requests are delayed, or
evicted and recomputed: the server works, but below its speed. The number of tokens is the cache's share of the free
memory divided by the bytes per token.

## Bad
For 64 requests of 1,000 tokens:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-max-entry-count 0.02

## Good
Raise the cache share, quantise the cache, or plan for a lower concurrency:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-max-entry-count 0.5
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

REQUEST, LOAD = "kv-holds-request", "kv-holds-concurrency"


@launch_rule(
    "warning",
    needs=("gpu", "model", "load"),
    sources=(f"constraints/{REQUEST}", f"constraints/{LOAD}", "flags/cache-max-entry-count"),
)
def rule(case: Case) -> Diagnostics:
    if not checks.runs_for_certain(case) or not checks.alone(case):
        return
    place = checks.place(case, "cache-max-entry-count")
    for violation in checks.broken(case, REQUEST):
        yield Diagnostic(place, violation.message, violation.record.remedy, severity="error")
        return
    candidate = case.candidate
    for _ in checks.broken(case, LOAD):
        if candidate is None:
            return
        needed = int(candidate.config.max_batch_size and case.loaded.concurrency * case.resolved.total_tokens())
        if needed <= candidate.memory.kv_tokens:
            continue  # a full session or the warm-up does not fit, which LMD208 and LMD123 report
        yield Diagnostic(
            place,
            f"{case.loaded.concurrency} concurrent requests need {needed:,} tokens of KV cache; it holds"
            f" {candidate.memory.kv_tokens:,}.",
            "Requests without room queue, or are evicted and recomputed.",
        )
