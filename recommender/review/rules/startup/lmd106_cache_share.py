"""An invalid KV cache share

## What it does
Reports `--cache-max-entry-count` values of 0 or less, and of 1 or more.

## Why
The value is the share of the memory that is free after the weights are loaded; the default is 0.8. Every release
rejects 0, because a server needs a KV cache.

Values of 1 or more are rejected before 0.10.0, always by the PyTorch engine, and since 0.15.0 by TurboMind at
startup. In between, TurboMind reads the value as a number of blocks: 1 means a cache of 64 tokens.

## Bad

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --cache-max-entry-count 0

## Good
Use a share between 0 and 1, such as 0.2:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --cache-max-entry-count 0.2
"""

from recommender.knowledge import option_values
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule

REFUSED = ("cache-ratio-below-one-early", "cache-ratio-below-one", "cache-ratio-pytorch")
BLOCKS = "cache-ratio-block-count"


@option_rule(
    "cache-max-entry-count",
    "error",
    sources=(
        *(f"constraints/{constraint}" for constraint in (*REFUSED, BLOCKS)),
        "claims/cache-ratio-zero-disables-cache",
        "flags/cache-max-entry-count",
    ),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if setting.text is None:
        return
    era = case.resolved.options[setting.id]
    refusal = option_values.refuse(era, setting.text)
    if refusal and refusal.by == "range":
        yield Diagnostic(
            checks.at(setting),
            f"{setting.option.name} {setting.text} leaves no KV cache, so the server does not start.",
            "A server needs a cache: a share of the memory that is free after the weights are loaded.",
            sources=("claims/cache-ratio-zero-disables-cache",),
        )
        return
    for violation in checks.broken(case, *REFUSED, BLOCKS, lean=True):
        source = (f"constraints/{violation.record.id}",)
        if violation.record.id == BLOCKS:
            yield Diagnostic(
                checks.at(setting),
                f"{checks.release(case)} reads {setting.text} as a number of cache blocks, not as a share.",
                "From 0.10.0 to 0.14.0 TurboMind reads 1 or more as a count; other releases reject it.",
                severity="warning",
                sources=source,
            )
        else:
            yield Diagnostic(
                checks.at(setting),
                f"{setting.option.name} must be below 1; with {setting.text} the server does not start.",
                "It is a share of the memory that is free after the weights are loaded; work buffers need the rest.",
                sources=source,
            )
