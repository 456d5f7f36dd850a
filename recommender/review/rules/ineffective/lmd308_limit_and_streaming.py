"""A request limit that streamed requests bypass

## What it does
Reports `--max-concurrent-requests` without `--max-batch-size`.

## Why
The limit covers answers that are not streamed. A streamed answer releases the semaphore when its stream begins, so
any number of them can run. The batch size is the real limit: 128 by default, 384 on an A100, 1024 on an H100. The
request limit saves no memory, because LMDeploy allocates the cache and the buffers at startup.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-concurrent-requests 16

## Good
Set `--max-batch-size` to the concurrency you want:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-batch-size 16
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule


@option_rule(
    "max-concurrent-requests",
    "info",
    sources=(
        "flags/max-concurrent-requests",
        "claims/concurrent-requests-limits-handling",
        "claims/concurrent-requests-cap-memory",
    ),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if not checks.server(case) or case.launch.unsure or "max-batch-size" in case.settings:
        return
    limit = checks.number(case, "max-concurrent-requests")
    if setting.id in case.resolved.options and limit is not None and limit > 0:
        yield Diagnostic(
            checks.at(setting),
            f"{setting.option.name} {limit} does not limit streamed answers, and saves no memory.",
            "Streamed answers do not count; --max-batch-size limits what the engine runs at once.",
        )
