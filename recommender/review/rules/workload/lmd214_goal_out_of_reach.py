"""A goal that the launch is not expected to reach

## What it does
Reports goals (`--ttft`, `--tpot`, `--latency`, `--p99`, `--rps`) that the predicted figures of the launch miss.

## Why
The prediction is the one that `recommend` uses. `recommend --explain` shows its range and its error on measured runs.

## Bad
For 40 requests per second on one GPU:

    recommend review serve.sh --gpu L4 --rps 40

## Good
Ask `recommend` for the goal, or use fewer tiles per image, more servers or a faster GPU:

    recommend --gpu L4 --rps 40
"""

from recommender.review import checks
from recommender.review.rules.constraint_rule import LAUNCH, constraint_rule

rule = constraint_rule(
    __name__,
    "warning",
    ("goal-latency", "goal-p99", "goal-rps", "goal-tpot", "goal-ttft"),
    needs=("gpu", "model", "load"),
    at=LAUNCH,
    when=lambda case: checks.alone(case) and checks.runs_for_certain(case),
)
