"""A cache share tuned for one request at a time

Finds a `--cache-max-entry-count` that was set for a load of one request at a time and holds eight times what that
needs, or more, in a tenth of the card or more.

One request uses the tokens that it has; what the cache holds beside them is never touched, and no share makes it
faster: with shares from 6 to 80 % one image at a time took 146 to 151 ms on an H100. The memory is only taken. Shares
of half the card and more have a rule among the costs.

Set the share that the request needs, which `recommend` works out, or leave the number as it is where nothing else
wants the memory.

Bad, for one request at a time on an 80 GB card:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 4096 --cache-max-entry-count 0.4

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 4096 --cache-max-entry-count 0.02
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.facts import MIB
from recommender.review import case as k
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

TIMES = 8
SMALL_PART, LARGE_PART = 0.1, 0.5


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("cache-max-entry-count")
    if setting is None or case.facts.concurrency != 1 or s.engine(case) != s.TURBOMIND or not s.alone(case):
        return
    made = k.estimate(case)
    if made is None or made.config.prefix_caching or made.memory.kv_needed_tokens <= 0:
        return
    part = made.memory.item("kv cache").bytes / (case.facts.gpu.memory_mib * MIB)
    if not SMALL_PART <= part < LARGE_PART:
        return  # too little to matter; of more a rule of the costs says so
    if made.memory.kv_tokens >= TIMES * made.memory.kv_needed_tokens:
        yield Said(
            s.at(setting),
            f"One request at a time needs {made.memory.kv_needed_tokens:,} tokens of KV cache; this share holds"
            f" {made.memory.kv_tokens:,}.",
            "What the one request does not use makes it no faster.",
        )


RULE = Rule(
    id="LMD306",
    name="cache-for-one-request",
    family="nothing",
    severity="info",
    sources=("claims/more-cache-is-faster", "flags/cache-max-entry-count"),
    check=_check,
    needs=("gpu", "model", "load"),
)
