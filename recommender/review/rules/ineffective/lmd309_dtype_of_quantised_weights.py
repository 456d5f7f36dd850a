"""A data type that 4-bit weights ignore

## What it does
Reports `--dtype` for AWQ and GPTQ models in releases that always run them in float16.

## Why
Up to 0.10.0 TurboMind ignores the option for such weights and logs a warning. From 0.10.1 to 0.17.0 it silently runs
float16. 0.18.0 is the first release that honours it. The PyTorch engine always uses float16 for AWQ.

## Bad
With 0.16.0:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct-AWQ --dtype bfloat16

## Good
Remove the option; the default `auto` does the same:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct-AWQ
"""

from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule

FORCED = ("awq-dtype-forced", "awq-dtype-ignored", "awq-dtype-pytorch")


@option_rule(
    "dtype",
    "warning",
    needs=("model",),
    sources=(*(f"constraints/{constraint}" for constraint in FORCED), "claims/float16-for-awq-forced", "flags/dtype"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if setting.text not in ("bfloat16", "float16"):
        return
    fix = edits.remove(case.script, setting.option) if checks.server(case) else None
    if setting.text == "float16":
        # If the constraints reject bfloat16, the release ignores the option.
        for _ in checks.broken(case, *FORCED, extra={"config.dtype": "bfloat16"}):
            yield Diagnostic(
                checks.at(setting),
                f"{setting.option.name} float16 has no effect: {checks.release(case)} always uses it here.",
                "Before 0.18.0 LMDeploy ignores the option for AWQ and GPTQ weights.",
                fix,
                severity="info",
            )
        return
    for violation in checks.broken(case, *FORCED):
        yield Diagnostic(checks.at(setting), violation.message, violation.record.remedy, fix)
