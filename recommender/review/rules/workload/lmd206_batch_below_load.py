"""A batch smaller than the load

## What it does
Reports a `--max-batch-size` below the expected concurrency.

## Why
The batch size is the number of requests that the engine processes at once. Further requests queue, so their TTFT
grows by whole answers.

## Bad
For 32 concurrent requests:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-batch-size 1

## Good
Set it to the concurrency of this server:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-batch-size 32
"""

from recommender.review import checks
from recommender.review.rules.constraint_rule import constraint_rule

rule = constraint_rule(
    __name__,
    "warning",
    ("batch-holds-concurrency",),
    sources=("claims/batch-one-serves-one-at-a-time",),
    needs=("model", "load"),
    # On a command line, 0 means LMDeploy's own default.
    when=lambda case: checks.alone(case) and not (checks.server(case) and case.number("max-batch-size") == 0),
)
