"""A warm-up prompt longer than the KV cache

Finds TurboMind servers from 0.15.0 on whose prefill budget is larger than what the KV cache holds.

At its start TurboMind sends itself a prompt as long as the prefill budget allows. Since 0.15.0 a prompt that the cache
can never hold is not turned away: the server waits for ever and logs nothing. It happens with a tiny cache share.

Raise `--cache-max-entry-count`, or lower `--max-prefill-token-num`.

Bad, on a small card:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --cache-max-entry-count 0.01

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --cache-max-entry-count 0.2
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import case as k
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

SURE = 2
"""Of a cache so much too small the estimate need not be exact."""
HOLDS = "kv-holds-warmup"


def _check(case: Case) -> Iterator[Said]:
    made = k.estimate(case)
    share = case.settings.get("cache-max-entry-count")
    for each in s.broken(case, HOLDS):
        sure = made is not None and made.memory.kv_tokens < made.memory.warmup_tokens / SURE
        place = s.at(share) if share else case.launch.place
        yield Said(place, each.message, each.record.remedy, severity=None if sure else "warning")


RULE = Rule(
    id="LMD123",
    name="warm-up-never-ends",
    family="starts",
    severity="error",
    sources=(f"constraints/{HOLDS}", "flags/max-prefill-token-num"),
    check=_check,
    needs=("gpu", "model"),
)
