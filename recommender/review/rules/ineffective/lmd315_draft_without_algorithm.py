"""Draft options without an algorithm

## What it does
Reports `--speculative-draft-model` and `--speculative-num-draft-tokens` without `--speculative-algorithm`.

## Why
LMDeploy uses speculative decoding only if an algorithm is set. Otherwise it drops both options silently.

## Bad

    lmdeploy serve api_server MODEL --backend pytorch --speculative-draft-model DRAFT

## Good
Set the algorithm, or remove the options:

    lmdeploy serve api_server MODEL --backend pytorch --speculative-algorithm eagle3 --speculative-draft-model DRAFT
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

DRAFT = ("speculative-draft-model", "speculative-num-draft-tokens")


@launch_rule("warning", sources=("flags/speculative-draft-model", "flags/speculative-num-draft-tokens"))
def rule(case: Case) -> Diagnostics:
    if not checks.server(case) or case.launch.unsure or checks.engine(case) != checks.PYTORCH:
        return  # on TurboMind they do nothing with an algorithm either
    if "speculative-algorithm" in case.settings:
        return
    for name in DRAFT:
        setting = case.settings.get(name)
        if setting is not None and name in case.resolved.options:
            yield Diagnostic(
                setting.option.place,
                f"{setting.option.name} has no effect without --speculative-algorithm.",
                "LMDeploy uses speculative decoding only if an algorithm is set.",
                sources=(f"flags/{name}",),
            )
