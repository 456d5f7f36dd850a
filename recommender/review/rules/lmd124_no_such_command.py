"""A command that LMDeploy does not have

Finds `lmdeploy serve` followed by something else than `api_server` or `proxy`.

`lmdeploy serve MODEL` has never been a command: the word after `serve` says what to start. `serve gradio` and
`lmdeploy convert` went with 0.10.0, `serve api_client` and `triton_client` are no servers.

Write `lmdeploy serve api_server MODEL`.

Bad:

    lmdeploy serve internlm/internlm2_5-7b-chat --tp 1

Good:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --tp 1
"""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from recommender.review import mend
from recommender.review.rule import Case, Fix, Rule, Said
from recommender.store import shorten

GONE = frozenset({"gradio", "triton_client"})
WITHOUT = Version("0.10.0")
OTHERS = frozenset({"api_client", "gradio", "triton_client"})


def _check(case: Case) -> Iterator[Said]:
    word = case.launch.instead
    if word is None or word.value is None or word.value.startswith("-"):
        return
    if word.value in GONE and case.facts.version >= WITHOUT:
        yield Said(
            word.place,
            f"lmdeploy serve {word.value} is gone from 0.10.0 on.",
            "Newer releases stop at it; a web page of its own can use the api_server instead.",
            severity="warning",
        )
        return
    if word.value in OTHERS:
        return
    fix: Fix | None = None
    if "/" in word.value:  # a model: what is meant is the api_server
        fix = Fix(((mend.before(word.place), "api_server "),), "write api_server before the model")
    yield Said(
        word.place,
        f"lmdeploy serve {shorten(word.value)}: what to start is missing; it is api_server or proxy.",
        "The parser takes the word after serve for the name of what to start, and stops.",
        fix,
    )


RULE = Rule(
    id="LMD124",
    name="no-such-command",
    family="starts",
    severity="error",
    sources=("claims/serve-without-api-server", "claims/gradio-built-in"),
    check=_check,
)
