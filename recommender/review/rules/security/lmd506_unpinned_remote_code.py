"""Remote code from an unpinned repository

## What it does
Reports `--trust-remote-code` for a hub repository without `--revision`, or with a branch as revision.

## Why
The option runs Python files of the repository at every start. Without a commit that is whatever the repository
contains then, not what you reviewed. Local folders are not affected.

## Bad

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code

## Good
Add `--revision` with the full hash of the commit that you reviewed:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B --trust-remote-code --revision "$COMMIT"
"""

import re

from recommender.common.pattern import pattern
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule
from recommender.review.rules import surroundings

HUB = pattern(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
FOLDERS = pattern(r"(?:models?|checkpoints?|ckpts?|weights|data|output|workspace|tmp|work_dirs?)/", re.IGNORECASE)
BRANCHES = ("main", "master")


@option_rule(
    "trust-remote-code",
    "warning",
    sources=("flags/trust-remote-code", "flags/revision", "threads/remote-code-off-by-default"),
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    revision = case.settings.get("revision")
    if setting.text != "true" or not _on_hub(case) or "trust-remote-code" not in case.resolved.options:
        return
    if revision is None:
        # A script that mentions a revision anywhere may set it in a way that the reader cannot follow.
        if not case.launch.unsure and not surroundings.mentions(case.script, "revision"):
            yield Diagnostic(
                setting.option.place,
                "The server runs code of the model's repository without a pinned revision.",
                "Each start runs whatever the repository contains then; set --revision to a commit hash.",
            )
    elif revision.text in BRANCHES:
        yield Diagnostic(
            checks.at(revision),
            f"{revision.text} is a branch, so the code that runs is not pinned.",
            "Use the full hash of a commit that you reviewed.",
        )


def _on_hub(case: Case) -> bool:
    name = checks.literal(case.launch)
    if case.model_known and name == case.resolved.model.hub:
        return True
    return bool(HUB.fullmatch(name)) and not FOLDERS.match(name)
