"""A hub option for a local model

## What it does
Reports `--revision` and `--download-dir` if the model is a local path.

## Why
LMDeploy reads both only when it downloads a repository by name. It uses a folder unchanged, so a revision pins
nothing.

## Bad

    lmdeploy serve api_server /models/InternVL3-2B --trust-remote-code --revision 1234567

## Good
Name the repository. Or remove the option and keep the folder at the revision you want.

    lmdeploy serve api_server OpenGVLab/InternVL3-2B --trust-remote-code --revision 1234567
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

FETCHING = ("revision", "download-dir")


@launch_rule("warning", sources=("flags/revision", "flags/download-dir"))
def rule(case: Case) -> Diagnostics:
    if not checks.server(case) or not checks.literal(case.launch).startswith(("/", "./", "../", "~")):
        return
    for name in FETCHING:
        setting = case.settings.get(name)
        if setting is not None:
            yield Diagnostic(
                setting.option.place,
                f"{setting.option.name} has no effect for a local model.",
                "LMDeploy reads it only to download a repository by name; it uses a folder unchanged.",
                sources=(f"flags/{name}",),
            )
