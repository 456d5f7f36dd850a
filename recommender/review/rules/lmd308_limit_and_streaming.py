"""A limit of requests that streaming walks past

Finds `--max-concurrent-requests` without `--max-batch-size`.

The limit holds for answers that come in one piece. A streamed answer leaves the semaphore as soon as its stream begins,
so any number of them may run. What really limits the engine is the batch size, by default 128, on an A100 384, on an
H100 1024. Nor does the limit save memory: the cache and the buffers are made at the start.

Set `--max-batch-size` to what is to run at a time.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-concurrent-requests 16

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-batch-size 16
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said


def _check(case: Case) -> Iterator[Said]:
    setting = case.settings.get("max-concurrent-requests")
    if setting is None or not s.server(case) or case.launch.unsure or "max-batch-size" in case.settings:
        return
    limit = s.number(case, "max-concurrent-requests")
    if setting.id in case.facts.options and limit is not None and limit > 0:
        yield Said(
            s.at(setting),
            f"{setting.option.name} {limit} does not limit streamed answers, and saves no memory.",
            "A streamed answer is not counted; --max-batch-size is what the engine runs at a time.",
        )


RULE = Rule(
    id="LMD308",
    name="limit-and-streaming",
    family="nothing",
    severity="info",
    sources=(
        "flags/max-concurrent-requests",
        "claims/concurrent-requests-limits-handling",
        "claims/concurrent-requests-cap-memory",
    ),
    check=_check,
)
