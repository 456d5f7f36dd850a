"""A verbose log level

## What it does
Reports `--log-level` DEBUG, NOTSET, REQUEST and INFO on a server. It is a warning for levels that log every request
and step, and an info for INFO.

## Why
LMDeploy formats and writes text for each request, on the CPU that decoding waits for. The log also contains prompts,
at INFO up to 0.13 and at REQUEST since 0.14: check your privacy rules. The default (WARNING, ERROR before 0.10.0)
reports engine fallbacks and corrected settings.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --log-level DEBUG

## Good
Remove the option. Use INFO for a startup that you watch.

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule

LOUD = ("DEBUG", "NOTSET", "REQUEST")


@option_rule("log-level", "warning", sources=("flags/log-level", "claims/lower-log-level-saves-time"))
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    level = (setting.text if setting else None) or ""
    if not checks.server(case) or level not in (*LOUD, "INFO"):
        return
    loud = level in LOUD
    yield Diagnostic(
        checks.at(setting),
        f"Log level {level} formats text for every request{' and step' if loud else ''}.",
        "This costs CPU time under load and may log prompts; the default level reports problems.",
        severity="warning" if loud else "info",
    )
