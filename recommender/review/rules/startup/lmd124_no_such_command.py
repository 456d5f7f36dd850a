"""A command that LMDeploy does not have

## What it does
Reports `lmdeploy serve` followed by anything but `api_server` or `proxy`, the Python function `lmdeploy.serve`,
imports of modules that the release does not have, and `python -m` with a server module that no release has.

## Why
The word after `serve` says what to start, so `lmdeploy serve MODEL` never worked. `serve gradio` and `lmdeploy
convert` were removed in 0.10.0, and later `serve api_client`. The function `lmdeploy.serve` only raises
NotImplementedError since 0.12.0. `lmdeploy.serve.async_engine` moved in 0.12.0, the parsers in 0.13.0;
`lmdeploy.serve.openai.api_client` is gone since 0.18.0.

## Bad

    lmdeploy serve internlm/internlm2_5-7b-chat --tp 1

## Good
Write `lmdeploy serve api_server MODEL`:

    lmdeploy serve api_server internlm/internlm2_5-7b-chat --tp 1
"""

from packaging.version import Version

from recommender.common.text import shorten
from recommender.review import accepted_options, checks, edits
from recommender.review.rule import Case, Diagnostic, Diagnostics, Fix, declare
from recommender.review.script.launches import NO_MODULE
from recommender.review.script.model import Span, Word

WITHOUT_FUNCTION = Version("0.12.0")
MOVED = {
    "lmdeploy.serve.gradio": ("0.10.0", "a web interface of its own can use the server's API"),
    "lmdeploy.serve.turbomind": ("0.10.0", "start lmdeploy serve api_server"),
    "lmdeploy.serve.async_engine": ("0.12.0", "it is lmdeploy.serve.core"),
    "lmdeploy.serve.vl_async_engine": ("0.12.0", "it is lmdeploy.serve.core"),
    "lmdeploy.serve.openai.tool_parser": ("0.13.0", "it is lmdeploy.serve.parsers.tool_parser"),
    "lmdeploy.serve.openai.reasoning_parser": ("0.13.0", "it is lmdeploy.serve.parsers.reasoning_parser"),
    "lmdeploy.serve.openai.api_client": ("0.18.0", "the openai package is a client too"),
}
"""The first release without a module, and what to use."""
IMPORT = "import "
"""How the reader of Python writes an import as a command."""
OTHERS = frozenset({"api_client", "gradio", "triton_client"})


def _module(case: Case, word: Word) -> Diagnostics:
    name = next((name for name in MOVED if f"{word.value}.".startswith(f"{name}.")), None)
    if name is not None and case.resolved.version >= Version(MOVED[name][0]):
        since, remedy = MOVED[name]
        yield Diagnostic(
            word.place,
            f"{checks.release(case)} has no module {name}: it left in {since}.",
            f"The import ends with ModuleNotFoundError; {remedy}.",
        )


def _absent(place: Span, name: str) -> Diagnostic:
    return Diagnostic(
        place,
        f"No release of LMDeploy has a module {shorten(name)}.",
        "Python ends with ModuleNotFoundError; write lmdeploy serve api_server.",
    )


def _check(case: Case) -> Diagnostics:
    word = case.launch.instead
    if case.launch.command.startswith(IMPORT) and word is not None:
        yield from _module(case, word)
    if case.launch.starts == "tool":
        return
    if word is None or word.value is None or word.value.startswith("-"):
        return
    if NO_MODULE.fullmatch(word.value):
        yield _absent(word.place, word.value)
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


rule = declare(
    __name__,
    "error",
    check=_check,
    tools=True,
    sources=(
        "claims/serve-without-api-server",
        "claims/gradio-built-in",
        "https://github.com/InternLM/lmdeploy/blob/v0.12.0/lmdeploy/api.py",
    ),
)
