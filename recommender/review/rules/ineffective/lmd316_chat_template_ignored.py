"""A chat template without effect

## What it does
Reports `--chat-template` and `ChatTemplateConfig(model_name=...)` with a name that 0.10.0 to 0.11.1 accept only for
old scripts.

## Why
These releases log a warning and use the template of the model's own tokenizer. Since 0.12.0 the name stops startup.

## Bad
With 0.10.0:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --chat-template internvl2_5

## Good
Remove the option:

    lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf
"""

from packaging.version import Version

from recommender.common.text import shorten
from recommender.review import checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule
from recommender.review.rules.startup.lmd115_chat_template_gone import KEPT

NAMES = frozenset({"--chat-template", "--chat_template", "ChatTemplateConfig.model_name"})


@launch_rule("warning", sources=("flags/chat-template", "https://github.com/InternLM/lmdeploy/pull/4252"))
def rule(case: Case) -> Diagnostics:
    if not Version("0.10.0") <= case.resolved.version < Version("0.12.0"):
        return
    for option in case.launch.options:
        word = option.values[0] if len(option.values) == 1 else None
        if option.name in NAMES and word is not None and word.value in KEPT:
            yield Diagnostic(
                word.place,
                f"{option.name} {shorten(word.value)} has no effect in {checks.release(case)}.",
                "LMDeploy accepts the name with a warning, but uses the tokenizer's own template.",
                edits.remove(case.script, option) if checks.server(case) else None,
            )
