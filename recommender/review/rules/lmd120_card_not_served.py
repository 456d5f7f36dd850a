"""A card that this release does not run on

Finds GPUs for which the release has no code: Blackwell before 0.13.0, anything below compute capability 7.0, chips that
the wheels were not built for, FP8 weights off Hopper before 0.10.1.

The wheels carry machine code for a fixed list of chips. Without it the server dies at its start or at the first request
with "no kernel image is available".

Install a release that has the code, build LMDeploy for the card, or use another card.

Bad, on an RTX 5090:

    pip install lmdeploy==0.9.2

Good:

    pip install lmdeploy==0.18.0
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

BUILT = (
    "blackwell-release",
    "compute-capability-floor",
    "compute-capability-in-wheel",
    "fp8-weights-hopper-first",
    "head-dim-192-needs-ampere",
)


def _check(case: Case) -> Iterator[Said]:
    for each in s.broken(case, *BUILT):
        yield Said(case.launch.place, each.message, each.record.remedy)


RULE = Rule(
    id="LMD120",
    name="card-not-served",
    family="starts",
    severity="error",
    sources=(*(f"constraints/{each}" for each in BUILT), "threads/rtx-5090-no-kernel-image"),
    check=_check,
    needs=("gpu",),
)
