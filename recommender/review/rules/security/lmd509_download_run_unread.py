"""A download that is executed unchecked

## What it does
Reports a curl or wget download that is piped straight into a shell or Python.

## Why
It runs whatever the address serves at that moment, with the script's privileges. If the connection breaks halfway,
half of a program runs. On an unattended server, nobody notices.

## Bad

    curl -fsSL https://acme.org/setup.sh | bash

## Good
Download to a file, verify its checksum, then run it. Or install a package.

    curl -fsSLo setup.sh https://acme.org/setup.sh
    echo "$SETUP_SHA256  setup.sh" | sha256sum --check && bash setup.sh
"""

import re
from itertools import pairwise

from recommender.common.pattern import pattern
from recommender.review.rule import Diagnostic, Diagnostics, script_rule
from recommender.review.rules import surroundings
from recommender.review.script.model import Call, Script

LOADERS = frozenset({"curl", "wget"})
SHELLS = pattern(r"(?:/\S*/)?(?:ba|z|da|k)?sh|(?:/\S*/)?python[0-9.]*")
SUBSTITUTED = pattern(
    r"^[ \t]*((?:sudo\s+(?:-\S+\s+)*)?(?:/\S*/)?(?:ba|z|da|k)?sh\s+"
    r"(?:<\(\s*|-c\s+\"?\$\(\s*)(?:curl|wget)\b[^\n)]*\)\"?)",
    re.MULTILINE,
)
HANDED = pattern(r"\s*\|\s*(?:sudo\s+(?:-\S+\s+)*)?")


@script_rule("warning", sources=("https://spin.atomicobject.com/2016/12/12/security-spectrum-curl-sh/",))
def rule(script: Script) -> Diagnostics:
    for match in SUBSTITUTED.finditer(surroundings.code(script, 0, len(script.text)) if script.kind == "bash" else ""):
        yield _finding(script, *match.span(1))
    calls = sorted(script.calls, key=lambda call: call.place.start)
    for first, second in pairwise(calls):
        piped = HANDED.fullmatch(script.text[first.place.end : second.place.start])
        if piped and LOADERS.intersection(_words(first)[:1]) and _runs_input(second):
            yield _finding(script, first.place.start, second.place.end)


def _finding(script: Script, start: int, end: int) -> Diagnostic:
    return Diagnostic(
        script.place(start, end),
        "A download is executed unchecked.",
        "It runs whatever the address serves at that moment; download it, verify a checksum, then run it.",
    )


def _words(call: Call) -> list[str]:
    words = [word.value or "" for word in call.words]
    while words[:1] == ["sudo"] or (len(words) > 1 and words[0].startswith("-")):
        words = words[1:]
    return words


def _runs_input(call: Call) -> bool:
    """Return whether a shell or Python executes its input: ``python -m json.tool`` reads it as data."""
    words = _words(call)
    if not words or not SHELLS.fullmatch(words[0]):
        return False
    return not any(word in ("-c", "-m") or (word and not word.startswith("-")) for word in words[1:]) or "-s" in words
