"""bfloat16 on a card that has none

Finds `--dtype bfloat16` on a GPU below compute capability 8.0: V100, T4, RTX 20 and the like.

These cards have no bfloat16 arithmetic. LMDeploy runs float16 instead, which has a smaller range: what a model trained
in bfloat16 computes may overflow.

Write float16, and test the answers.

Bad, on a T4:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --dtype bfloat16

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --dtype float16
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import mend
from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

AMPERE = "bf16-needs-ampere"


def _check(case: Case) -> Iterator[Said]:
    for each in s.broken(case, AMPERE):
        for setting in each.settings[:1]:
            yield Said(
                s.at(setting),
                each.message,
                "float16 has a smaller range than the model may have been trained for.",
                mend.give_setting(setting, "float16"),
            )


RULE = Rule(
    id="LMD118",
    name="bfloat16-on-older-card",
    family="starts",
    severity="warning",
    sources=(f"constraints/{AMPERE}", "flags/dtype"),
    check=_check,
    needs=("gpu",),
)
