"""A KV block far longer than a request

Finds ``--cache-block-seq-len`` so large that one block holds at least four times the prompt and the answer of the
load that was told.

The cache is handed out in whole blocks: every request in flight keeps one to itself, filled or not, so the same
memory holds fewer requests at once. Nothing is gained by it.

Mend it with 64, LMDeploy's own value.

Bad, for a prompt of 300 tokens:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --cache-block-seq-len 8192

Good:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --cache-block-seq-len 64
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

TIMES = 4


def _check(case: Case) -> Iterator[Said]:
    setting, block = case.settings.get("cache-block-seq-len"), s.number(case, "cache-block-seq-len")
    session = s.number(case, "session-len")
    if setting is None or block is None or s.engine(case) != s.TURBOMIND or (session is not None and session < block):
        return  # longer than a session: LMD213
    need = case.facts.total_tokens()
    if block >= TIMES * need:
        yield Said(
            s.at(setting),
            f"One block of {block:,.0f} tokens is {block / need:.0f} times what a request needs ({need:,}).",
            "The cache is handed out in whole blocks, so the same memory holds fewer requests at once.",
            mend.give_setting(setting, "64"),
        )


RULE = Rule(
    id="LMD416",
    name="block-above-need",
    family="costs",
    severity="info",
    sources=("claims/big-blocks-waste-cache", "flags/cache-block-seq-len"),
    check=_check,
    needs=("model", "load"),
)
