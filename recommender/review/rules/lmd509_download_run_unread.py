"""A download that is run unread

Finds a download by curl or wget that is handed straight to a shell or to Python.

What runs is whatever the address serves at that moment, with the rights of the script. A connection that breaks
halfway leaves half of a program that was run. On a server that starts unattended nobody sees either.

Mend it by downloading to a file, comparing its checksum with one that you keep, and running that; or install from
a package.

Bad:

    curl -fsSL https://acme.org/setup.sh | bash

Good:

    curl -fsSLo setup.sh https://acme.org/setup.sh
    echo "$SETUP_SHA256  setup.sh" | sha256sum --check && bash setup.sh
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from recommender.review.rule import Rule, Said
from recommender.review.rules import circumstances as around
from recommender.review.script import Call, Script

LOADERS = ("curl", "wget")
SHELLS = re.compile(r"(?:/\S*/)?(?:ba|z|da|k)?sh|(?:/\S*/)?python[0-9.]*")
SUBSTITUTED = re.compile(
    r"^[ \t]*((?:sudo\s+(?:-\S+\s+)*)?(?:/\S*/)?(?:ba|z|da|k)?sh\s+"
    r"(?:<\(\s*|-c\s+\"?\$\(\s*)(?:curl|wget)\b[^\n)]*\)\"?)",
    re.MULTILINE,
)
HANDED = re.compile(r"\s*\|\s*(?:sudo\s+(?:-\S+\s+)*)?")


def check(script: Script) -> Iterator[Said]:
    """A loader whose output is piped to the next command, which is a shell, or stands in a shell's arguments."""
    for match in SUBSTITUTED.finditer(around.code(script, 0, len(script.text)) if script.kind == "bash" else ""):
        yield _said(script, *match.span(1))
    calls = sorted(script.calls, key=lambda call: call.place.start)
    for first, second in pairwise(calls):
        if _name(first) not in LOADERS or not HANDED.fullmatch(script.text[first.place.end : second.place.start]):
            continue
        if _runs_input(second):
            yield _said(script, first.place.start, second.place.end)


def _said(script: Script, start: int, end: int) -> Said:
    return Said(
        script.place(start, end),
        "A download is run unread.",
        "It runs whatever the address serves at that moment; download, compare a checksum, then run.",
    )


def _words(call: Call) -> list[str]:
    words = [word.value or "" for word in call.words]
    while words[:1] == ["sudo"] or (len(words) > 1 and words[0].startswith("-")):
        words = words[1:]
    return words


def _name(call: Call) -> str:
    return next(iter(_words(call)), "")


def _runs_input(call: Call) -> bool:
    """Whether it is a shell without a program of its own: ``python -m json.tool`` reads its input as data."""
    words = _words(call)
    if not words or not SHELLS.fullmatch(words[0]):
        return False
    return not any(word in ("-c", "-m") or (word and not word.startswith("-")) for word in words[1:]) or "-s" in words


RULE = Rule(
    id="LMD509",
    name="download-run-unread",
    family="safety",
    severity="warning",
    sources=("https://spin.atomicobject.com/2016/12/12/security-spectrum-curl-sh/",),
    whole=check,
)
