"""A weight format that contradicts the checkpoint

## What it does
Reports a `--model-format` that differs from the checkpoint: awq for GPTQ weights, hf for AWQ weights, or awq for
unquantised weights. With the PyTorch engine, also any format but fp8 for unquantised weights, hf too.

## Why
LMDeploy reads the quantisation from the checkpoint's config.json. A format that contradicts it stops startup. The
option describes the weights; it does not quantise them.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --model-format awq

## Good
Remove the option. For 4-bit weights, use a quantised checkpoint.

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct-AWQ
"""

import re

from recommender.common.pattern import pattern
from recommender.common.text import shorten
from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule

MATCHES, PYTORCH = "model-format-matches", "model-format-pytorch"
QUANTISED = frozenset({"awq", "gptq", "mxfp4", "compressed-tensors"})


BY_NAME = {"awq": "gptq", "gptq": "awq"}
MARK = pattern(r"awq|gptq|int[48]|[48]-?bit|w[48]a|quant|mxfp|fp8|compressed", re.IGNORECASE)
QWEN_INT = pattern(r"Qwen/Qwen[^/]*-Int[48]$")


@option_rule(
    "model-format", "error", sources=(f"constraints/{MATCHES}", f"constraints/{PYTORCH}", "flags/model-format")
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if setting.text is None:
        return
    fix = edits.remove(case.script, setting.option)
    if not case.model_known:
        yield from _by_name(case, setting)
        return
    for violation in checks.broken(case, MATCHES):
        yield Diagnostic(checks.at(setting), violation.message, violation.record.remedy, fix)
    if checks.local(case):  # its weights may differ
        return
    for violation in checks.broken(case, PYTORCH) if checks.runs_for_certain(case) else ():
        source = (f"constraints/{PYTORCH}",)
        yield Diagnostic(checks.at(setting), violation.message, violation.record.remedy, fix, sources=source)
        return
    if setting.text in QUANTISED and not case.resolved.model.quantization:
        yield Diagnostic(
            checks.at(setting),
            f"The weights of {case.resolved.model.hub} are not quantised, but the option says {setting.text}.",
            "The option describes the checkpoint; it does not quantise it.",
            severity="warning",
        )


def _by_name(case: Case, setting: LaunchSetting) -> Diagnostics:
    """Report a model without a record whose name says another format. Qwen's Int4 and Int8 checkpoints are GPTQ."""
    name = checks.literal(case.launch)
    given = BY_NAME.get(setting.text or "", "")
    if given and (given in name.casefold() or (given == "gptq" and QWEN_INT.search(name))):
        yield Diagnostic(
            checks.at(setting),
            f"{setting.option.name} says {setting.text}, but by its name the checkpoint is {given.upper()}.",
            "A format that contradicts the checkpoint stops startup; leave the option out.",
        )
    elif setting.text in QUANTISED and name.partition("/")[0] in _owners(case) and not MARK.search(name):
        yield Diagnostic(
            checks.at(setting),
            f"By its name {shorten(name)} is not quantised, but the option says {setting.text}.",
            "The option describes the checkpoint; it does not quantise it.",
            severity="warning",
        )


def _owners(case: Case) -> frozenset[str]:
    """Return the organisations whose naming is known."""
    return frozenset(model.hub.partition("/")[0] for model in case.resolved.store.models.values() if "/" in model.hub)
