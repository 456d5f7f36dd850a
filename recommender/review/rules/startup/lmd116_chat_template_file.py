"""A chat template file for a model that has its own

## What it does
Reports a `--chat-template` file for a model whose tokenizer has a template, in 0.10.0 or newer. If the script is on
this machine, the rule also says when the file is missing.

## Why
If the file is missing at startup, LMDeploy takes the value for a name and stops. If it exists, it replaces the
template that the model was trained with. A template for another model or an older release silently makes the output
worse.

## Bad

    lmdeploy serve api_server OpenGVLab/InternVL3-2B-hf --chat-template my_template.json

## Good
Remove the option in 0.10.0 or newer, unless you want to change the template:

    lmdeploy serve api_server OpenGVLab/InternVL3-2B-hf
"""

from pathlib import Path

from packaging.version import Version

from recommender.common.text import shorten
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, LaunchSetting, option_rule


@option_rule(
    "chat-template", "info", needs=("model",), sources=("flags/chat-template", "claims/chat-template-file-needed")
)
def rule(case: Case, setting: LaunchSetting) -> Diagnostics:
    if not setting.text or not checks.server(case) or not checks.is_file(setting.text):
        return
    if case.resolved.version >= Version("0.10.0"):
        # The server may run in another folder, or on another machine: so no warning, and no repair.
        where = "is not in the script's folder" if _missing(case.script.path, setting.text) else "replaces it"
        yield Diagnostic(
            checks.at(setting),
            f"{case.resolved.model.hub} has its own chat template; {shorten(setting.text)} {where}.",
            "Since 0.10.0 LMDeploy uses the tokenizer's template without the option; a missing file stops startup.",
        )


def _missing(script: str, name: str) -> bool:
    """Return whether a relative path exists neither in the script's folder nor in the current one."""
    template, home = Path(name), Path(script)
    if template.is_absolute() or not home.is_file():
        return False
    return not any((folder / template).exists() for folder in (home.parent, Path.cwd()))
