"""A session that the KV cache cannot hold

Finds `--session-len` above the tokens that the KV cache holds.

Up to 0.14.0 TurboMind shortens the session to what fits and only logs it. From 0.15.0 on it keeps the number: a request
longer than the cache is accepted and then fails for lack of memory.

Raise the cache share, or lower the session length to what the requests need.

Bad, on a small card:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 32768 --cache-max-entry-count 0.05

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 8192 --cache-max-entry-count 0.5
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

HOLDS = ("kv-holds-session", "kv-holds-session-before-0-15")


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("session-len")
    if setting is None or s.wanted(case) != s.engine(case):
        return
    for each in s.broken(case, *HOLDS):
        yield Said(s.at(setting), each.message, each.record.remedy)


RULE = Rule(
    id="LMD208",
    name="cache-below-session",
    family="answers",
    severity="warning",
    sources=(*(f"constraints/{each}" for each in HOLDS), "flags/session-len"),
    check=_check,
    needs=("gpu", "model"),
)
