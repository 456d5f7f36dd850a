"""A vision batch size without effect

## What it does
Reports `--vision-max-batch-size` since 0.16.0, where nothing reads it. Before, reports a value above 1 if requests
have one image.

## Why
Before 0.16.0 the option is the number of images of one request that the vision encoder processes at once. No covered
release combines images of different clients. Since 0.16.0 TurboMind encodes images inside the engine, and nothing
reads the option.

## Bad
With 0.16.0 or newer:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --vision-max-batch-size 8

## Good
Remove the option:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf
"""

from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule


@option_rule(
    "vision-max-batch-size",
    "warning",
    sources=("flags/vision-max-batch-size", "claims/vision-batch-native", "claims/vision-batch-across-requests"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    flag = case.resolved.store.flags["vision-max-batch-size"]
    era = checks.era(case, flag)
    if era is None:
        return
    fix = edits.remove(case.script, setting.option) if checks.server(case) else None
    if "nobody" in era.read_by:
        yield Diagnostic(
            setting.option.place,
            f"{setting.option.name} has no effect in {checks.release(case)}.",
            "Since 0.16.0 TurboMind encodes images inside the engine and does not read it.",
            fix,
        )
        return
    size = checks.number(case, "vision-max-batch-size")
    if size is not None and size > 1 and case.load_known and checks.expects_images(case) and case.resolved.images == 1:
        yield Diagnostic(
            setting.option.place,
            f"{setting.option.name} {size} has no effect for requests with one image.",
            "It counts images of one request; images of different clients are never combined.",
            severity="info",
        )
