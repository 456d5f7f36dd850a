"""A server without a model

Finds `lmdeploy serve api_server` with no model after it.

The model is the one argument that must be there: a repository's name or a folder. There is no option for it;
`--model-name` only says what clients call it.

Write the model right after `api_server`.

Bad:

    lmdeploy serve api_server --model-name chat

Good:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --model-name chat
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review import support as s
from recommender.review.rule import Case, Rule, Said


def _check(case: Case) -> Iterator[Said]:
    launch = case.launch
    if not s.server(case) or launch.model is not None or launch.unsure or launch.extra or case.script.troubles:
        return  # it may stand in what could not be read
    if any(option.name in ("-h", "--help") for option in launch.options):
        return
    yield Said(
        launch.place,
        "The api_server is given no model.",
        "A repository's name or a folder must stand after api_server; the parser stops without.",
    )


RULE = Rule(
    id="LMD107",
    name="no-model",
    family="starts",
    severity="error",
    sources=("flags/model-name", "https://github.com/InternLM/lmdeploy/blob/v0.16.0/lmdeploy/cli/serve.py"),
    check=_check,
)
