"""Quantised weights that TurboMind cannot run

Finds models whose AWQ, GPTQ or FP8 weights have a form that TurboMind does not read: AWQ not packed as gemm, groups
other than 128, bits other than 4, FP8 scaled in other blocks; and 4-bit weights on a card below compute capability 7.0.

The kernels exist for one layout each; anything else is refused while the weights are converted.

Use a checkpoint of that layout, or quantise the model again with `lmdeploy lite auto_awq`.

Bad (scaled by channel, not in blocks):

    lmdeploy serve api_server some-model-FP8-dynamic

Good:

    lmdeploy serve api_server Qwen/Qwen3-32B-FP8
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

LAYOUT = ("awq-bits", "awq-group-size", "awq-version-gemm", "awq-needs-volta", "fp8-group-size")


def _check(case: Case) -> Iterator[Said]:
    word = case.launch.model
    for each in s.broken(case, *LAYOUT):
        yield Said(word.place if word else case.launch.place, each.message, each.record.remedy)


RULE = Rule(
    id="LMD114",
    name="quantisation-not-served",
    family="starts",
    severity="error",
    sources=tuple(f"constraints/{each}" for each in LAYOUT),
    check=_check,
    needs=("model",),
)
