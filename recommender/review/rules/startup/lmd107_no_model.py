"""A server without a model

## What it does
Reports `lmdeploy serve api_server` without a model.

## Why
The model is the only required argument: a repository name or a folder. No option sets it; `--model-name` only sets
the name that clients use.

## Bad

    lmdeploy serve api_server --model-name chat

## Good
Put the model right after `api_server`:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --model-name chat
"""

from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule


@launch_rule(
    "error", sources=("flags/model-name", "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/cli/serve.py")
)
def rule(case: Case) -> Diagnostics:
    launch = case.launch
    if not checks.server(case) or launch.model is not None or launch.unsure or launch.extra or case.script.problems:
        return  # an unread part may contain it
    if any(option.name in ("-h", "--help") for option in launch.options):
        return
    yield Diagnostic(
        launch.place,
        "api_server has no model.",
        "api_server requires a repository name or a folder; the parser stops without it.",
    )
