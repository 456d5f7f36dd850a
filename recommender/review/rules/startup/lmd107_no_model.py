"""A server without a model

## What it does
Reports `lmdeploy serve api_server` without a model. Also reports a model that is a variable where no shell expands it:
in the JSON form of CMD in a Dockerfile, or in the arguments of a pod.

## Why
The model is the only required argument: a repository name or a folder. No option sets it; `--model-name` only sets
the name that clients use.

## Bad

    lmdeploy serve api_server --model-name chat

## Good
Put the model right after `api_server`:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --model-name chat
"""

from recommender.common.pattern import pattern
from recommender.review import checks
from recommender.review.rule import Case, Diagnostic, Diagnostics, launch_rule

LITERAL = pattern(r"\$(?:[A-Za-z_]\w*|\{[A-Za-z_]\w*\})(?:/.*)?")
EXPANDED = frozenset({"steps", "hcl"})
"""Kinds whose tools may expand the variables of a list."""


@launch_rule(
    "error", sources=("flags/model-name", "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/cli/serve.py")
)
def rule(case: Case) -> Diagnostics:
    launch, model = case.launch, case.launch.model
    literal = model is not None and LITERAL.fullmatch(model.value or "")
    if model is not None and literal and checks.server(case) and case.script.kind not in EXPANDED:
        yield Diagnostic(
            model.place,
            f"No shell expands {model.value} here, so the model has that name.",
            "Run the command through a shell, as with sh -c; in a pod write $(NAME).",
        )
    if not checks.server(case) or launch.model is not None or launch.unsure or launch.extra or case.script.problems:
        return  # an unread part may contain it
    if any(option.name in ("-h", "--help") for option in launch.options):
        return
    yield Diagnostic(
        launch.place,
        "api_server has no model.",
        "api_server requires a repository name or a folder; the parser stops without it.",
    )
