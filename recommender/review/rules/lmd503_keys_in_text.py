"""A key or token written into the text

Finds API keys given literally to ``--api-keys``, and what looks like a real token of Hugging Face, OpenAI, GitHub or
AWS anywhere in the text, comments included. Placeholders are left alone.

A script is copied, committed and pasted into issues; whoever reads it has the key, and taking it out later leaves
it in the history.

Mend it by reading the key from a file or the environment at the start, and by having the old one revoked.

Bad:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --api-keys Tr0ub4dor-production-7

Good:

    lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --api-keys "$(cat /run/secrets/lmdeploy)"
"""

import re
from collections.abc import Iterator

from recommender.review.rule import Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Place, Script

TOKENS = re.compile(
    r"(?<![\w-])(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{30,}|AKIA[A-Z0-9]{16})(?![\w-])"
)
PLACEHOLDER = re.compile(
    r"[<$%{]|\.\.\.|\*\*|xx|your|change|example|placeholder|replace|dummy|fake|todo|none|empty|test|demo"
    r"|token|api[-_]?key|^(?:sk-)?(?:abc|123|key)[\w-]{0,8}$|^[a-z]+$",
    re.IGNORECASE,
)
SHORTEST = 6
VARIED = 6
"""A real token has many different characters; aaaa and 0000 are none."""


def check(script: Script) -> Iterator[Said]:
    """Tokens by their form, then keys by where they stand."""
    seen: set[int] = set()
    for match in TOKENS.finditer(script.text):
        if not PLACEHOLDER.search(match[0]) and len(set(match[0])) > VARIED:
            seen.update(range(match.start(), match.end()))
            yield _said(script.place(*match.span()), "A token")
    for launch in script.launches:
        option = around.option(launch, "--api-keys")
        for word in option.values if option else ():
            where = word.written
            if where is None or word.value is None or where.start in seen:
                continue
            if len(word.value) >= SHORTEST and not PLACEHOLDER.search(word.value):
                yield _said(where, "An API key")


def _said(place: Place, what: str) -> Said:
    return Said(
        place,
        f"{what} stands in the text.",
        "Whoever reads the file or its history has it; read it from a file or the environment, and revoke this one.",
    )


RULE = Rule(
    id="LMD503",
    name="keys-in-text",
    family="safety",
    severity="warning",
    sources=("flags/api-keys",),
    whole=check,
)
