"""Text that could not be read

## What it does
Reports a place that the reader cannot parse: a command that bash would refuse, or invalid Python or YAML.

## Why
The reader skips this place, so no other rule reviewed it. No findings there does not mean no problems.

## Bad

    lmdeploy serve api_server "internlm/internlm2_5-7b-chat

## Good
Fix the syntax:

    lmdeploy serve api_server "internlm/internlm2_5-7b-chat"
"""

from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.script.model import Script


@script_rule("warning", family="starts")
def rule(script: Script) -> Diagnostics:
    if "lmdeploy" not in script.text.casefold() or not (script.launches or "." in script.path):
        return  # no script of ours to judge: a help text or a log, pasted
    for trouble in script.problems:
        yield Diagnostic(
            trouble.place,
            f"{trouble.message[:1].upper()}{trouble.message[1:].rstrip('.')}.",
            "Nothing here was reviewed, so no findings does not mean no problems.",
        )
