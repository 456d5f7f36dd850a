"""Eager mode on TurboMind

## What it does
Reports `--eager-mode` on a server that runs TurboMind.

## Why
The option tells the PyTorch engine not to use CUDA graphs. TurboMind never receives it, in any release, and runs the
same kernels with and without it. Any advice about it for TurboMind's speed or memory is wrong.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend turbomind --eager-mode

## Good
Remove the option; `--fix` does:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --backend turbomind
"""

from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule


@option_rule("eager-mode", "warning", sources=("flags/eager-mode", "claims/eager-mode-steers-turbomind"))
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if setting.text != "true" or not checks.server(case) or checks.engine(case) != checks.TURBOMIND:
        return
    yield Diagnostic(
        setting.option.place,
        f"{setting.option.name} has no effect on TurboMind.",
        "Only the PyTorch engine reads it; TurboMind runs the same with and without it.",
        edits.remove(case.script, setting.option),
    )
