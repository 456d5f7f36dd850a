"""A model that this release cannot load

Finds models that TurboMind of the release has no kernels or no loader for: head sizes other than those that its
attention was built for, InternVL3 in the transformers layout before 0.9.0.

The attention kernels exist for heads of 64, 128 and 192, from 0.12.2 on for 256 too. The transformers layout of
InternVL3 is another architecture, which 0.9.0 was the first to know; the layout without -hf runs from 0.8.0 on.

Use a release or an engine that serves the model.

Bad, with 0.8.0:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf

Good, with 0.9.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

LOADS = ("head-dim", "head-dim-before-0-12-2", "internvl-hf-release")


def _check(case: Case) -> Iterator[Said]:
    word = case.launch.model
    if s.wanted(case) != s.TURBOMIND:
        return
    for each in s.broken(case, *LOADS, extra={"config.backend": s.TURBOMIND}):
        yield Said(word.place if word else case.launch.place, each.message, each.record.remedy)


RULE = Rule(
    id="LMD121",
    name="model-not-served",
    family="starts",
    severity="error",
    sources=tuple(f"constraints/{each}" for each in LOADS),
    check=_check,
    needs=("model",),
)
