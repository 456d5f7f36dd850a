"""A weight format that contradicts the checkpoint

## What it does
Reports a `--model-format` that differs from the checkpoint: awq for GPTQ weights, hf for AWQ weights, or awq for
unquantised weights.

## Why
LMDeploy reads the quantisation from the checkpoint's config.json. A format that contradicts it stops startup. The
option describes the weights; it does not quantise them.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --model-format awq

## Good
Remove the option. For 4-bit weights, use a quantised checkpoint.

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct-AWQ
"""

from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule

MATCHES = "model-format-matches"
QUANTISED = frozenset({"awq", "gptq", "mxfp4", "compressed-tensors"})


@option_rule("model-format", "error", needs=("model",), sources=(f"constraints/{MATCHES}", "flags/model-format"))
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if setting.text is None:
        return
    fix = edits.remove(case.script, setting.option)
    for violation in checks.broken(case, MATCHES):
        yield Diagnostic(checks.at(setting), violation.message, violation.record.remedy, fix)
    if setting.text in QUANTISED and not case.resolved.model.quantization and not checks.local(case):
        yield Diagnostic(
            checks.at(setting),
            f"The weights of {case.resolved.model.hub} are not quantised, but the option says {setting.text}.",
            "The option describes the checkpoint; it does not quantise it.",
            severity="warning",
        )
