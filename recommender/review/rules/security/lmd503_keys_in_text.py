"""A key or token in the text

## What it does
Reports API keys that are literal values of `--api-keys`, and likely tokens of Hugging Face, OpenAI, GitHub or AWS
anywhere in the text, comments included. Placeholders are not reported.

## Why
Scripts get copied, committed and pasted into issues; everyone who reads one has the key. Deleting it later leaves it
in the history.

## Bad

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --api-keys Tr0ub4dor-production-7

## Good
Read the key from a file or the environment at startup, and revoke the old one:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --api-keys "$(cat /run/secrets/lmdeploy)"
"""

import re

from recommender.common.pattern import pattern
from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Script, Span

TOKENS = pattern(
    r"(?<![\w-])(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{30,}|AKIA[A-Z0-9]{16})(?![\w-])"
)
PLACEHOLDER = pattern(
    r"[<$%{]|\.\.\.|\*\*|xx|your|change|example|placeholder|replace|dummy|fake|todo|none|empty|test|demo"
    r"|token|api[-_]?key|^(?:sk-)?(?:abc|123|key)[\w-]{0,8}$|^[a-z]{1,24}$",
    re.IGNORECASE,
)
SHORTEST = 6
VARIED = 6
"""A real token has more distinct characters than this; aaaa and 0000 do not."""


@script_rule("warning", sources=("flags/api-keys",))
def rule(script: Script) -> Diagnostics:
    seen: set[int] = set()
    for match in TOKENS.finditer(script.text):
        if not PLACEHOLDER.search(match[0]) and len(set(match[0])) > VARIED:
            seen.update(range(match.start(), match.end()))
            yield _finding(script.place(*match.span()), "A token")
    for launch in script.launches:
        option = surroundings.option(launch, "--api-keys")
        for word in option.values if option else ():
            where = word.literal
            if where is None or word.value is None or where.start in seen:
                continue
            if len(word.value) >= SHORTEST and not PLACEHOLDER.search(word.value):
                yield _finding(where, "An API key")


def _finding(place: Span, secret: str) -> Diagnostic:
    return Diagnostic(
        place,
        f"{secret} is written in the text.",
        "Everyone who reads the text or its history has it; use a file or the environment, and revoke this one.",
    )
