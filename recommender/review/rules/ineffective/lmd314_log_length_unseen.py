"""A log length for lines that are not logged

## What it does
Reports `--max-log-len` if the log level hides the lines that it shortens.

## Why
The option shortens prompts in the log. LMDeploy logs them at INFO up to 0.13.0, and at REQUEST, below INFO, since
0.14.0. The default level, WARNING (ERROR before 0.10.0), shows none.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --max-log-len 100

## Good
Remove the option. To log prompts, set a log level that shows them.

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
"""

from packaging.version import Version

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule

QUIET = frozenset({"WARN", "WARNING", "ERROR", "CRITICAL", "FATAL"})
REQUEST_LEVEL = Version("0.14.0")


@option_rule("max-log-len", "info", sources=("flags/max-log-len", "flags/log-level"))
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    level = case.effective("log-level") if checks.server(case) else None
    if level is None:
        return
    hidden = level in QUIET or (level == "INFO" and case.resolved.version >= REQUEST_LEVEL)
    if hidden:
        shown = "REQUEST" if case.resolved.version >= REQUEST_LEVEL else "INFO"
        yield Diagnostic(
            setting.option.place,
            f"{setting.option.name} has no effect at log level {level}.",
            f"The lines that it shortens are logged at {shown} in {checks.release(case)}.",
        )
