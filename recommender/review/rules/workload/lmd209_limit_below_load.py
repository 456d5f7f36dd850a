"""A request limit below the load

## What it does
Reports a `--max-concurrent-requests` below the expected concurrency, or of 0, which admits none.

## Why
The limit is a semaphore in front of the engine, for every route. Requests above it wait outside, /health included,
although the engine has free slots. It saves no memory; the batch size and the cache share do.

## Bad
For 32 concurrent requests:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-concurrent-requests 8

## Good
Raise it above the concurrency, or remove it:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-concurrent-requests 64
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule


@option_rule(
    "max-concurrent-requests",
    "warning",
    sources=("flags/max-concurrent-requests", "claims/concurrent-requests-limits-handling"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    limit, load = checks.number(case, "max-concurrent-requests"), case.loaded.concurrency
    if limit is None or not checks.server(case) or not checks.alone(case):
        return
    if setting.id in case.resolved.options and limit == 0:
        yield Diagnostic(
            checks.at(setting),
            "No request is admitted: every one waits for ever.",
            "The limit is a semaphore for every route, /health included.",
            severity="error",
        )
    if case.load_known and setting.id in case.resolved.options and 0 < limit < load:
        yield Diagnostic(
            checks.at(setting),
            f"The concurrency is {load}, but {limit} requests are admitted: the others wait outside the engine.",
            "The limit is a semaphore for every route, /health included; it saves no memory.",
        )
