"""A KV block far longer than a request

## What it does
Reports a `--cache-block-seq-len` so large that one block holds at least four times the prompt and output of the given
load.

## Why
LMDeploy allocates the cache in whole blocks. Every running request occupies at least one, full or not, so the same
memory holds fewer requests. There is no benefit.

## Bad
For a prompt of 300 tokens:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --cache-block-seq-len 8192

## Good
Use 64, LMDeploy's default:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --cache-block-seq-len 64
"""

from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule

TIMES = 4


@option_rule(
    "cache-block-seq-len",
    "info",
    needs=("model", "load"),
    sources=("claims/big-blocks-waste-cache", "flags/cache-block-seq-len"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    block = checks.number(case, "cache-block-seq-len")
    session = checks.number(case, "session-len")
    if block is None or checks.engine(case) != checks.TURBOMIND or (session is not None and session < block):
        return  # longer than a session: LMD213
    need = case.resolved.total_tokens()
    if block >= TIMES * need:
        yield Diagnostic(
            checks.at(setting),
            f"One block of {block:,.0f} tokens is {block / need:.0f} times the size of a request ({need:,}).",
            "LMDeploy allocates the cache in whole blocks, so the same memory holds fewer requests.",
            edits.give_setting(setting, "64"),
        )
