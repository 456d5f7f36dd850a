"""A KV cache precision that the head size does not support

## What it does
Reports a 4-bit or 8-bit KV cache on TurboMind if there is no kernel for the model's head size. Warns of head sizes
that have kernels, but that LMDeploy's documentation excludes. Reports a 4-bit KV cache on the PyTorch engine in
releases that quantise odd head sizes badly.

## Why
TurboMind has these kernels for a few head sizes only; other models fail at the first request. LMDeploy's table of
supported models allows a quantised cache on TurboMind for heads of 128 only. In the PyTorch engine up to 0.15.0,
padding zeros of a head of size 96, for example, enter the quantisation range and cost extra accuracy.

## Bad
For a model with head size 96:

    lmdeploy serve api_server acme/heads-of-96 --quant-policy 4

## Good
Use 16 bits (remove the option). On the PyTorch engine, use 8 bits or 0.16.0.

    lmdeploy serve api_server acme/heads-of-96
"""

from recommender.knowledge.eras import within
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule

THREAD = "int4-kv-odd-head-size"
IMPOSSIBLE = ("kv-int4-head-dim", "kv-int8-head-dim")
UNLISTED = "kv-quantised-heads-not-128"


@option_rule(
    "quant-policy",
    "error",
    needs=("model",),
    sources=(*(f"constraints/{name}" for name in (*IMPOSSIBLE, UNLISTED)), f"threads/{THREAD}"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    impossible = list(checks.broken(case, *IMPOSSIBLE))
    for violation in impossible:
        yield Diagnostic(checks.at(setting), violation.message, violation.record.remedy)
    for violation in () if impossible else checks.broken(case, UNLISTED):
        yield Diagnostic(checks.at(setting), violation.message, violation.record.remedy, severity="warning")
    thread, head = case.resolved.store.threads[THREAD], case.resolved.model.text.head_dim
    odd = head & (head - 1) != 0
    if odd and checks.engine(case) == checks.PYTORCH and case.known.get("config.kv_bits") == 4:
        if not case.release_known or not within(thread.since, thread.until, case.resolved.version):
            return
        yield Diagnostic(
            checks.at(setting),
            f"Heads of size {head} lose more accuracy at 4 bits than necessary on the PyTorch engine of this release.",
            thread.remedy,
            severity="warning",
        )
