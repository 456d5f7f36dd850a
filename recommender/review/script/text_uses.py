"""Find where a file's text reads a variable, without running it: shells, make, units, YAML, Dockerfiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from recommender.common.pattern import pattern
from recommender.review.script.model import Script

SHELL_NAME = pattern(r"[A-Za-z_]\w*|[1-9]")
EXPANDED = (
    r"(?<![\w$])(?:\${1,2}(?:env:)?(?:\{[#!]?|\(\(?)?|\{\{-?[ ]*|%|!"
    r"|\$\{\{[^{}\n]*?(?:env|vars|inputs|matrix)\.|(?:var|local|env|vars|self|params)\.)(?P<name>"
)
PASSED = r"(?:-e|--env)[ =][\"']?(?P<passed>"
ENDS = pattern(r"[;&|\n(){`]|\b(?:then|do|else)\b")
"""What ends a simple command before a word."""
SHOWING = pattern(r"[\s\"'@:-]*(?:-[ ]+|run:[ ]*)?(?:echo|printf|log\w*|info|say|warn|print)\b")
SENT = pattern(r"(?<![\d&])>(?!&2|[ ]*/dev/(?:null|stderr))|\|")
ASKED = pattern(r"(?:.*\s)?(?:-[nz][ ]+[\"']?|:[ ]+[\"']?)\$\{?")
"""Expressions that only test whether a variable is set, or give its default."""
LINE_NAME = pattern(
    r"[ \t]*(?:-[ \t]+)?(?:(?:export|local|readonly|override|ENV|ARG)[ \t]+)?(?:Environment=)?[\"']?"
    r"(?P<name>[A-Za-z_]\w*)[\"']?[ \t]*[:?+]{0,3}=[ \t]*(?P<value>.*)"
)
BEFORE = pattern(r"(?P<name>[A-Za-z_]\w*)[\"']?[ \t]*(?:[:?+]{0,3}=|:)[ \t]*[^=:\n]*")
ANCHOR = pattern(r"&(?P<name>[\w-]+)")
RUNS = pattern(r"\$\((?!\()|`")


def expansion(names: set[str]) -> str:
    """Return the pattern of a word that is one of these variables."""
    any_name = "|".join(sorted(map(re.escape, names)))
    return (
        rf"\${{1,2}}(?:{any_name})(?!\w)|\${{1,2}}\{{(?:{any_name})\}}|\$\((?:{any_name})\)"
        rf"|\$?\{{\{{[ ]*(?:(?:env|vars)\.)?(?:{any_name})[ ]*\}}\}}|%(?:{any_name})%|\*(?:{any_name})(?![\w-])"
    )


def named_at(script: Script, start: int) -> set[str]:
    """Return the variables that are written at an offset; YAML anchors begin with ``&``."""
    names = {each.name for each in script.assignments if each.place.start <= start < max(each.place.end, 1)}
    first = script.text.rfind("\n", 0, start) + 1
    head = script.text[first:start]
    found = list(BEFORE.finditer(head))
    names |= {found[-1]["name"]} if found and script.kind != "bash" else set()
    return names | {f"&{name}" for name in _anchors(script, first, start)}


def _anchors(script: Script, first: int, start: int) -> Iterator[str]:
    """Yield the YAML anchors of the value at an offset, and of what it is indented below."""
    if script.kind not in ("compose", "kubernetes", "steps"):
        return
    yield from (match["name"] for match in ANCHOR.finditer(script.text, first, start))
    depth = _depth(script.text[first:])
    for row in reversed(script.text[:first].splitlines()):
        if row.strip() and _depth(row) < depth:
            depth = _depth(row)
            yield from (match["name"] for match in ANCHOR.finditer(row))


def _depth(row: str) -> int:
    return len(row) - len(row.lstrip(" "))


def uses(script: Script, names: set[str]) -> Iterator[tuple[int, str]]:
    """Yield where the text reads one of these variables, and which; not in comments, nor where it is only shown."""
    text = script.text
    anchors = {name[1:] for name in names if name.startswith("&")}
    plain = {name for name in names if SHELL_NAME.fullmatch(name)}
    if plain:
        any_name = "|".join(sorted(plain))
        for match in re.finditer(rf"{EXPANDED}{any_name})\b|{PASSED}{any_name})(?![\w=])", text):
            at = match.start("name" if match["name"] else "passed")
            if not _is_without_effect(script, match.start(), at):
                yield at, match["name"] or match["passed"]
    if anchors:
        any_name = "|".join(sorted(map(re.escape, anchors)))
        yield from ((match.start(1), f"&{match[1]}") for match in re.finditer(rf"\*({any_name})(?![\w-])", text))
    yield from ((use.place.start, use.name) for use in script.uses if text.startswith(use.name, use.place.start))


def _is_without_effect(script: Script, start: int, at: int) -> bool:
    """Return whether a use is in a comment, only shows the value, or only asks whether there is one."""
    text = script.text
    first = text.rfind("\n", 0, start) + 1
    if text[first:start].lstrip().startswith(("#", "//")) or start in _commented(script):
        return True
    if ASKED.fullmatch(text[first:at]):
        return True
    begun = max((end.end() for end in ENDS.finditer(text, first, start)), default=first)
    end = next((end.start() for end in re.compile(r"[;\n]|&&|\|\|").finditer(text, at)), len(text))
    return SHOWING.match(text, begun) is not None and not SENT.search(text, at, end) and text[begun - 2 : begun] != "$("


@lru_cache(maxsize=16)
def _commented(script: Script) -> frozenset[int]:
    places = (comment.place for comment in script.comments)
    return frozenset(at for place in places for at in range(place.start, place.end))


def given_at(script: Script, start: int) -> set[str]:
    """Return the variables whose new value reads what is at an offset; empty if a command there reads it."""
    around = [assignment for assignment in script.assignments if assignment.place.start < start < assignment.place.end]
    if around:
        inner = max(around, key=lambda assignment: assignment.place.start)
        return set() if RUNS.search(script.text, inner.place.start, start) else {inner.name}
    first = script.text.rfind("\n", 0, start) + 1
    if script.kind == "bash" or script.text[first : first + 1] == "\t":
        return set()
    last = script.text.find("\n", start)
    line = LINE_NAME.fullmatch(script.text, first, len(script.text) if last < 0 else last)
    if line is None or start < line.start("value") or (line["name"].startswith("Exec") and script.kind == "systemd"):
        return set()
    value = script.text[line.start("value") : start]
    alone = script.kind == "lines" or re.fullmatch(r"\"[^\"]*|'[^']*|\S*", value)
    return {line["name"]} if alone and not re.search(r"\$\((?:shell|\w+ )|`", value) else set()
