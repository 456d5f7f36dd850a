"""``# recommend: ignore LMD101 because ...``: findings that the author knows of and wants as they are."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

from recommender.review.rule import Finding, Fix, Said
from recommender.review.script import Comment, Script
from recommender.store import did_you_mean, shorten

DIRECTIVE = re.compile(r"[#/*\s]*recommend:?\s*ignore\b(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
BECAUSE = re.compile(r"\bbecause\b", re.IGNORECASE)
WORD = re.compile(r"[\w-]+")
SHAPE = "# recommend: ignore LMD101 because the reason"


@dataclass(frozen=True)
class Ignore:
    """One such comment: its rules, the lines that it covers (the whole file: none), and what is wrong with it."""

    comment: Comment
    ids: tuple[str, ...]
    first: int
    last: int
    wrong: str = ""

    @property
    def whole(self) -> bool:
        """Whether it covers the whole file."""
        return self.first == 0

    def covers(self, finding: Finding) -> bool:
        """Whether a finding is one of those meant."""
        return finding.rule.id in self.ids and (self.whole or self.first <= finding.said.place.line <= self.last)


def ignores(script: Script, known: Collection[str]) -> list[Ignore]:
    """The ignores of a script."""
    if "ignore" not in script.text:
        return []
    lines = script.text.split("\n")
    own = {each.place.line for each in script.comments if _alone(lines, each)}
    top = _top(lines, own)
    found = []
    for comment in script.comments:
        match = DIRECTIVE.fullmatch(comment.text.rstrip("\n"))
        if match and _meant(match["rest"]):
            ids, wrong = _read(match["rest"], known)
            first, last = (0, 0) if comment.place.line <= top else _lines(lines, own, comment.place.line)
            found.append(Ignore(comment, ids, first, last, wrong))
    return found


def _alone(lines: list[str], comment: Comment) -> bool:
    line = lines[comment.place.line - 1] if comment.place.line <= len(lines) else ""
    return not line[: comment.place.column - 1].strip()


def _top(lines: list[str], own: set[int]) -> int:
    """The last line of the comments that the file begins with."""
    for number, line in enumerate(lines, 1):
        if line.strip() and number not in own and not line.startswith("#"):
            return number - 1
    return len(lines)


def _lines(lines: list[str], own: set[int], line: int) -> tuple[int, int]:
    """The lines that a comment covers: its own, or those of the command below; all of a command that goes on."""
    first = line
    while first in own and first < len(lines):
        first += 1
    last = first
    while last < len(lines) and lines[last - 1].endswith("\\"):
        last += 1
    while first > 1 and lines[first - 2].endswith("\\"):
        first -= 1
    return first, last


def _meant(text: str) -> bool:
    """Whether this is an ignore, and no sentence of a comment that happens to begin so."""
    return "LMD" in text.upper() or BECAUSE.search(text) is not None or WORD.findall(text.casefold()) in ([], ["all"])


def _read(text: str, known: Collection[str]) -> tuple[tuple[str, ...], str]:
    """The known rules that are named, and what is wrong with how."""
    because = BECAUSE.search(text)
    named = [each.upper() for each in WORD.findall(text[: because.start()] if because else text)]
    if not because:  # what follows the ids is a sentence
        named = list(takewhile(lambda each: each.startswith("LMD"), named)) or named[:1]
    unknown = [each for each in named if each not in known]
    good = tuple(dict.fromkeys(each for each in named if each in known))
    if not named:
        return (), "names no rule"
    if unknown:
        return good, f"names {shorten(unknown[0])}, which is no rule{did_you_mean(unknown[0], known)}"
    if not because or not text[because.end() :].strip(" \t.:*/"):
        return good, "gives no reason behind the word because"
    return good, ""


def apply(findings: Iterable[Finding], all_of: Iterable[Ignore]) -> tuple[list[Finding], dict[Ignore, set[str]]]:
    """The findings that stay, and for each ignore the rules of which it hid something."""
    used: dict[Ignore, set[str]] = {each: set() for each in all_of}
    kept = []
    for finding in findings:
        hiding = [each for each in used if each.covers(finding)]
        for each in hiding:
            used[each].add(finding.rule.id)
        if not hiding:
            kept.append(finding)
    return kept, used


def bad(all_of: Iterable[Ignore]) -> Iterator[Said]:
    """A word on each ignore that is not written as it must be."""
    for each in all_of:
        if each.wrong:
            yield Said(
                each.comment.place,
                f"This ignore {each.wrong}.",
                f"What is ignored is named with a reason, so that the next reader can judge it: {SHAPE}.",
            )


def unused(script: Script, used: dict[Ignore, set[str]], ran: Collection[str]) -> Iterator[Said]:
    """A word on each ignore that hides nothing, of rules that did run."""
    for each, hit in used.items():
        idle = [name for name in each.ids if name in ran and name not in hit]
        if each.wrong or not idle:
            continue
        yield Said(
            each.comment.place,
            f"This ignore of {' and '.join(idle)} ignores nothing {'in the file' if each.whole else 'here'}.",
            "What it hid is gone; left in place it would hide the next fault of that kind.",
            _without(script, each, idle),
        )


def _without(script: Script, ignore: Ignore, idle: list[str]) -> Fix:
    """The comment without the idle rules; with none left, no comment, and no line where it stood alone."""
    place, text = ignore.comment.place, script.text
    left = [each for each in ignore.ids if each not in idle]
    if left:
        because = re.search(r"because\b.*", ignore.comment.text, re.DOTALL | re.IGNORECASE)
        kept = f"# recommend: ignore {', '.join(left)} {because[0] if because else ''}".rstrip(" ")
        return Fix(((place, kept),), f"ignore {' and '.join(left)} only")
    start = place.start
    while start > 0 and text[start - 1] in " \t":
        start -= 1
    end = place.end
    if (start == 0 or text[start - 1] == "\n") and end < len(text) and text[end] == "\n":
        end += 1
    return Fix(((script.place(start, end), ""),), "remove the comment")
