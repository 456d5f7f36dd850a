"""A batch smaller than the load

Finds `--max-batch-size` below the requests that are to be in flight at once.

It is the number of requests that the engine works on at a time. The others wait for a place, so their time to the first
token grows by whole answers.

Raise it to the requests in flight at this server.

Bad, for 32 requests at once:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-batch-size 1

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-batch-size 32
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said

HOLDS = "batch-holds-concurrency"


def _check(case: Case) -> Iterator[Said]:
    if s.alone(case) and not (s.server(case) and case.number("max-batch-size") == 0):
        yield from s.say(case, HOLDS)


RULE = Rule(
    id="LMD206",
    name="batch-below-load",
    family="answers",
    severity="warning",
    sources=(f"constraints/{HOLDS}", "claims/batch-one-serves-one-at-a-time"),
    check=_check,
    needs=("model", "load"),
)
