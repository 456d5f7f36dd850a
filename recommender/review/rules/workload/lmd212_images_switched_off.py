"""Images for a server without a vision encoder

## What it does
Reports `--language-model-only` (up to 0.14.0 `--disable-vision-encoder`) if the workload has images.

## Why
The option skips the vision encoder to save memory. From 0.18.0, LMDeploy refuses requests with images. Earlier
releases ignore the images, and the model guesses.

## Bad
For a workload with images:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --language-model-only

## Good
Remove the option:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf
"""

from packaging.version import Version

from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

SWITCHES = ("language-model-only", "disable-vision-encoder")
REFUSES = Version("0.18.0")


def _consequence(case: Case) -> str:
    if not case.release_known:
        return "LMDeploy ignores the images, so the model guesses; from 0.18.0 it refuses the requests."
    if case.resolved.version >= REFUSES:
        return "LMDeploy refuses requests with images."
    return "LMDeploy ignores the images, so the model guesses."


@launch_rule("error", needs=("model", "load"), sources=("flags/language-model-only", "flags/disable-vision-encoder"))
def rule(case: Case) -> Diagnostics:
    if not case.resolved.images or not checks.expects_images(case):
        return
    for name in SWITCHES:
        setting = case.settings.get(name)
        if setting is not None and setting.text == "true" and name in case.resolved.options:
            yield Diagnostic(
                setting.option.place,
                f"{setting.option.name} skips the vision encoder, but the requests have images.",
                _consequence(case),
                edits.remove(case.script, setting.option),
                sources=(f"flags/{name}",),
            )
