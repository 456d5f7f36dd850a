"""A command that LMDeploy does not have

## What it does
Reports `lmdeploy serve` followed by anything but `api_server` or `proxy`, and the Python function `lmdeploy.serve`.

## Why
The word after `serve` says what to start, so `lmdeploy serve MODEL` never worked. `serve gradio` and `lmdeploy
convert` were removed in 0.10.0, and later `serve api_client`. The function `lmdeploy.serve` only raises
NotImplementedError since 0.12.0.

## Bad

    lmdeploy serve internlm/internlm2_5-7b-chat --tp 1

## Good
Write `lmdeploy serve api_server MODEL`:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --tp 1
"""

from packaging.version import Version

from recommender.common.text import shorten
from recommender.review import accepted_options, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, Fix, launch_rule

WITHOUT_FUNCTION = Version("0.12.0")
OTHERS = frozenset({"api_client", "gradio", "triton_client"})


@launch_rule(
    "error",
    sources=(
        "claims/serve-without-api-server",
        "claims/gradio-built-in",
        "https://github.com/InternLM/lmdeploy/blob/v0.12.0/lmdeploy/api.py",
    ),
)
def rule(case: Case) -> Diagnostics:
    word = case.launch.instead
    if word is None or word.value is None or word.value.startswith("-"):
        return
    if without := accepted_options.removed_in(f"serve {word.value}", case.resolved.release.id):
        yield Diagnostic(
            word.place,
            f"lmdeploy serve {word.value} was removed in {without}.",
            "Newer releases stop at it; a separate client or web interface can use api_server instead.",
            severity="warning",
        )
        return
    if case.launch.starts == "pipeline":
        if case.resolved.version >= WITHOUT_FUNCTION:
            yield Diagnostic(
                word.place,
                "lmdeploy.serve() was removed in 0.12.0.",
                "It only raises NotImplementedError; start lmdeploy serve api_server as a process.",
            )
        return
    if word.value in OTHERS:
        return
    fix: Fix | None = None
    if "/" in word.value:  # a model: what is meant is the api_server
        fix = Fix(((edits.before(word.place), "api_server "),), "write api_server before the model")
    yield Diagnostic(
        word.place,
        f"lmdeploy serve {shorten(word.value)}: write api_server or proxy after serve.",
        "The parser reads the word after serve as what to start, and stops.",
        fix,
    )
