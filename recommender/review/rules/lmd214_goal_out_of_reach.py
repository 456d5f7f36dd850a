"""A goal that the configuration is not expected to reach

Finds goals of the review (`--p99`, `--ttft`, `--rps`) that the predicted figures of the launch miss.

The prediction is of the same kind as that of `recommend` itself; its range and how far it was off at measured runs
stand in the report of `recommend --explain`.

Ask `recommend` for the goal, or use fewer tiles an image, more servers or a faster card.

Bad, for 40 requests a second on one card:

    recommend review serve.sh --gpu L4 --rps 40

Good:

    recommend --gpu L4 --rps 40
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

GOALS = ("goal-p99", "goal-rps", "goal-ttft")


def _check(case: Case) -> Iterator[Said]:
    if s.alone(case) and s.wanted(case) == s.engine(case):
        for each in s.broken(case, *GOALS):
            yield Said(case.launch.place, each.message, each.record.remedy)


RULE = Rule(
    id="LMD214",
    name="goal-out-of-reach",
    family="answers",
    severity="warning",
    sources=tuple(f"constraints/{each}" for each in GOALS),
    check=_check,
    needs=("gpu", "model", "load"),
)
