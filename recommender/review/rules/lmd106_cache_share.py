"""A share of memory for the KV cache that is no share

Finds `--cache-max-entry-count` of 0 or less, and of 1 or more.

There is no way to serve without a KV cache: 0 is refused in every release. 1 or more is refused before 0.10.0, on the
PyTorch engine always, and by TurboMind from 0.15.0 on while it starts; in between TurboMind reads it as a number of
blocks, so that 1 is a cache of 64 tokens. The share is of the memory that is free once the weights are in, by default
0.8.

Write a share between the two, such as 0.2.

Bad:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --cache-max-entry-count 0

Good:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --cache-max-entry-count 0.2
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

ZERO = "cache-ratio-positive"
REFUSED = ("cache-ratio-below-one-early", "cache-ratio-below-one", "cache-ratio-pytorch")
BLOCKS = "cache-ratio-block-count"


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("cache-max-entry-count")
    if setting is None or setting.text is None:
        return
    for each in s.broken(case, ZERO, *REFUSED, BLOCKS, lean=True):
        if each.record.id == ZERO:
            yield Said(
                s.at(setting),
                f"{setting.option.name} {setting.text} leaves no KV cache, and the start is refused.",
                "There is no way to serve without one; it takes a share of the memory that the weights leave free.",
            )
        elif each.record.id == BLOCKS:
            yield Said(
                s.at(setting),
                f"{s.release(case)} reads {setting.text} as a number of cache blocks, not as a share.",
                "From 0.10.0 to 0.14.0 TurboMind takes 1 or more for a count; releases before and after refuse it.",
                severity="warning",
            )
        else:
            yield Said(
                s.at(setting),
                f"{setting.option.name} must be below 1; {setting.text} stops the start.",
                "It is the share of the memory that the weights leave free, and some must be left to compute with.",
            )


RULE = Rule(
    id="LMD106",
    name="cache-share",
    family="starts",
    severity="error",
    sources=(
        *(f"constraints/{each}" for each in (ZERO, *REFUSED, BLOCKS)),
        "claims/cache-ratio-zero-disables-cache",
        "flags/cache-max-entry-count",
    ),
    check=_check,
)
