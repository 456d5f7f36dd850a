"""A limit of requests below the load

Finds `--max-concurrent-requests` below the requests that are to be in flight at once.

It is a semaphore before the engine, over every route: the requests above it wait outside, /health among them, while
the engine has places left. It frees no memory; the batch size and the cache do that.

Raise it above the load, or leave it out.

Bad, for 32 requests at once:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-concurrent-requests 8

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-concurrent-requests 64
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("max-concurrent-requests")
    limit, load = s.number(case, "max-concurrent-requests"), case.facts.concurrency
    if setting is None or limit is None or not s.server(case) or not s.alone(case):
        return
    if setting.id in case.facts.options and 0 < limit < load:
        yield Said(
            s.at(setting),
            f"{load} requests are to be in flight, {limit} are let in: the others wait outside the engine.",
            "The limit is a semaphore over every route, /health too; it saves no memory.",
        )


RULE = Rule(
    id="LMD209",
    name="limit-below-load",
    family="answers",
    severity="warning",
    sources=("flags/max-concurrent-requests", "claims/concurrent-requests-limits-handling"),
    check=_check,
    needs=("load",),
)
