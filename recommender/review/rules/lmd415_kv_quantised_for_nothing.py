"""A quantised KV cache that the load does not need

Finds `--quant-policy` 8 or 4 where the cache would hold the load, a full session and the warm-up at 16 bits too.

Quantising the cache does not lower the memory taken: the pool is a share of what is free, and more tokens fit into it.
It pays where the cache is what limits the load. Elsewhere it changes nothing but the answers: hardly at 8 bits, by
points of a benchmark at 4.

Leave it out; lower `--cache-max-entry-count` to take less memory.

Bad, for one request at a time on an 80 GB card:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 8192 --quant-policy 4

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 8192
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from recommender.review import case as k
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("quant-policy")
    if setting is None or "kv" in k.told(case) or s.engine(case) != s.TURBOMIND or not s.alone(case):
        return
    made = k.estimate(case)
    if made is None or made.config.kv_bits not in (4, 8):
        return
    from recommender.choose import measure

    plain = measure(case.facts, replace(made.config, kv_bits=16)).memory
    if plain.kv_tokens >= plain.kv_needed_tokens and plain.kv_tokens >= made.config.session_len:
        yield Said(
            s.at(setting),
            f"At 16 bits the cache would hold {plain.kv_tokens:,} tokens; {plain.kv_needed_tokens:,} are needed.",
            "Quantising it takes no memory off the card, only accuracy off the answers: the pool is a fixed share.",
        )


RULE = Rule(
    id="LMD415",
    name="kv-quantised-for-nothing",
    family="costs",
    severity="info",
    sources=("claims/kv-quantisation-lowers-memory-taken", "threads/kv-quantisation-frees-no-memory"),
    check=_check,
    needs=("gpu", "model", "load"),
)
