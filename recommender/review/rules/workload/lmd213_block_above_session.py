"""A KV block longer than the session

## What it does
Reports a `--cache-block-seq-len` above `--session-len`.

## Why
LMDeploy allocates the KV cache in whole blocks. If a block is longer than the longest request, every request wastes
part of its block. The cache then holds far fewer requests, and no prefix is ever shared.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 4096 --cache-block-seq-len 8192

## Good
Use 64:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len 4096 --cache-block-seq-len 64
"""

from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule


@option_rule("cache-block-seq-len", "warning", sources=("claims/big-blocks-waste-cache", "flags/cache-block-seq-len"))
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    block, session = checks.number(case, "cache-block-seq-len"), checks.number(case, "session-len")
    if block is None or session is None or not 0 < session < block:
        return
    yield Diagnostic(
        checks.at(setting),
        f"A block of {block:,} tokens is longer than a session of {session:,}: the rest of every block is unused.",
        "LMDeploy allocates the cache in whole blocks, so it holds fewer requests and shares no prefix.",
        edits.give_setting(setting, "64"),
    )
