"""A KV cache that does not hold the load

Finds launches whose KV cache holds fewer tokens than one request of the workload has, or than all requests at once.

A request that the cache can never hold fails. Where it holds one but not all, requests are put off or pushed out and
computed again: the server answers, slower than it could. The cache is the share of the memory that the weights leave
free, divided by the bytes of a token.

Raise the cache share, quantise the cache, or plan for fewer requests at once.

Bad, for 64 requests of 1,000 tokens:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-max-entry-count 0.02

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --cache-max-entry-count 0.5
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import case as k
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

REQUEST, LOAD = "kv-holds-request", "kv-holds-concurrency"


def _check(case: Case) -> Iterator[Said]:
    if s.wanted(case) != s.engine(case) or not s.alone(case):
        return
    share = case.settings.get("cache-max-entry-count")
    place = s.at(share) if share else case.launch.place
    for each in s.broken(case, REQUEST):
        yield Said(place, each.message, each.record.remedy, severity="error")
        return
    made = k.estimate(case)
    for _ in s.broken(case, LOAD):
        if made is None:
            return
        needed = int(made.config.max_batch_size and case.facts.concurrency * case.facts.total_tokens())
        if needed <= made.memory.kv_tokens:
            continue  # a full session or the warm-up is what does not fit; other rules say that
        yield Said(
            place,
            f"{case.facts.concurrency} requests at once need {needed:,} tokens of KV cache; it would hold"
            f" {made.memory.kv_tokens:,}.",
            "Requests for which there is no room wait, or are pushed out and computed again.",
        )


RULE = Rule(
    id="LMD207",
    name="cache-below-load",
    family="answers",
    severity="warning",
    sources=(f"constraints/{REQUEST}", f"constraints/{LOAD}", "flags/cache-max-entry-count"),
    check=_check,
    needs=("gpu", "model", "load"),
)
