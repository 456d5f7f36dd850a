"""A batch that the request limit never lets fill

Finds `--max-concurrent-requests` below `--max-batch-size`.

Fewer requests are let in than the engine has places, so the places above stay empty while requests wait outside, unless
they are streamed: those are not counted. Places cost memory whether they are used or not: buffers of the work are made
for all of them.

Set the batch to what is let in, or let in at least a batch.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-batch-size 128 --max-concurrent-requests 16

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-batch-size 16 --max-concurrent-requests 64
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("max-concurrent-requests")
    limit, batch = s.number(case, "max-concurrent-requests"), s.number(case, "max-batch-size")
    if setting is None or limit is None or batch is None or not s.server(case):
        return
    if setting.id in case.facts.options and 0 < limit < batch:
        yield Said(
            s.at(setting),
            f"{limit} requests are let in at a time, the batch has {batch} places: only streamed ones fill the rest.",
            "What is above the limit waits outside although the engine has room, and unused places take memory.",
        )


RULE = Rule(
    id="LMD210",
    name="batch-never-full",
    family="answers",
    severity="info",
    sources=("flags/max-concurrent-requests", "flags/max-batch-size", "claims/concurrent-requests-limits-handling"),
    check=_check,
)
