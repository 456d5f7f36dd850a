"""A KV block longer than a session

Finds `--cache-block-seq-len` above `--session-len`.

The KV cache is handed out in whole blocks. Where a block is longer than the longest request each request takes a block
of which it can never use the rest, so the cache holds a fraction of the requests that it could, and no prefix is ever
shared.

Use 64.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 4096 --cache-block-seq-len 8192

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 4096 --cache-block-seq-len 64
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("cache-block-seq-len")
    block, session = s.number(case, "cache-block-seq-len"), s.number(case, "session-len")
    if setting is None or block is None or session is None or not 0 < session < block:
        return
    yield Said(
        s.at(setting),
        f"A block of {block:,} tokens is longer than a session of {session:,}: the rest of each is never used.",
        "The cache is handed out in whole blocks, so it holds fewer requests, and no prefix is shared.",
        mend.give_setting(setting, "64"),
    )


RULE = Rule(
    id="LMD213",
    name="block-above-session",
    family="answers",
    severity="warning",
    sources=("claims/big-blocks-waste-cache", "flags/cache-block-seq-len"),
    check=_check,
)
