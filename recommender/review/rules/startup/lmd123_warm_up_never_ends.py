"""A warm-up prompt larger than the KV cache

## What it does
Reports TurboMind servers since 0.15.0 whose `--max-prefill-token-num` exceeds the tokens that the KV cache holds.

## Why
At startup TurboMind sends itself a prompt of up to `--max-prefill-token-num` tokens. Since 0.15.0 it no longer
rejects a prompt that the cache can never hold: startup hangs silently. This happens with a very small cache share.

## Bad
On a small GPU:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --cache-max-entry-count 0.01

## Good
Raise `--cache-max-entry-count`, or lower `--max-prefill-token-num`:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --cache-max-entry-count 0.2
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

SURE = 2
"""If the cache is too small by this factor, the estimate's error does not matter."""
HOLDS = "kv-holds-warmup"


@launch_rule("error", needs=("gpu", "model"), sources=(f"constraints/{HOLDS}", "flags/max-prefill-token-num"))
def rule(case: Case) -> Diagnostics:
    candidate = case.candidate
    for violation in checks.broken(case, HOLDS):
        sure = candidate is not None and candidate.memory.kv_tokens < candidate.memory.warmup_tokens / SURE
        place = checks.place(case, "cache-max-entry-count")
        yield Diagnostic(place, violation.message, violation.record.remedy, severity=None if sure else "warning")
