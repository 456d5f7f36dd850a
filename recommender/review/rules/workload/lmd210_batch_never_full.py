"""A batch that the request limit never fills

## What it does
Reports a `--max-concurrent-requests` below `--max-batch-size`.

## Why
LMDeploy admits fewer requests than the engine has slots. The other slots stay empty while requests wait outside,
unless they are streamed: streamed requests do not count. Slots cost memory even if unused, because LMDeploy allocates
buffers for all of them.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-batch-size 128 --max-concurrent-requests 16

## Good
Lower the batch size to the limit, or raise the limit to at least the batch size:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-batch-size 16 --max-concurrent-requests 64
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule


@option_rule(
    "max-concurrent-requests",
    "info",
    sources=("flags/max-concurrent-requests", "flags/max-batch-size", "claims/concurrent-requests-limits-handling"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    limit, batch = checks.number(case, "max-concurrent-requests"), checks.number(case, "max-batch-size")
    if limit is None or batch is None or not checks.server(case):
        return
    if setting.id in case.resolved.options and 0 < limit < batch:
        yield Diagnostic(
            checks.at(setting),
            f"{limit} requests are admitted, the batch has {batch} slots: only streamed requests fill the rest.",
            "Requests above the limit wait although the engine has room, and unused slots cost memory.",
        )
