"""A text that could not be read

Finds a place that the reader could not make sense of: a command that bash would refuse, Python or YAML that does not
parse.

What stands there was not reviewed, so the other rules' silence about it means nothing.

Bad:

    lmdeploy serve api_server "internlm/internlm2_5-7b-chat

Good:

    lmdeploy serve api_server "internlm/internlm2_5-7b-chat"
"""

from __future__ import annotations

from collections.abc import Iterator

from recommender.review.rule import Rule, Said
from recommender.review.script import Script


def _check(script: Script) -> Iterator[Said]:
    if "lmdeploy" not in script.text.casefold() or not (script.launches or "." in script.path):
        return  # no script of ours to judge: a help text or a log, pasted
    for trouble in script.troubles:
        yield Said(
            trouble.place,
            f"{trouble.message[:1].upper()}{trouble.message[1:].rstrip('.')}.",
            "What stands here was not reviewed; silence about it means nothing.",
        )


RULE = Rule(
    id="LMD002",
    name="unread-text",
    family="starts",
    severity="warning",
    sources=(),
    whole=_check,
)
