"""Handle ``# recommend: ignore LMD101 because ...`` comments."""

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import takewhile
from typing import NamedTuple

from recommender.common.pattern import pattern
from recommender.common.text import did_you_mean, shorten
from recommender.review.rule import Diagnostic, Finding, Fix, retirement
from recommender.review.script.model import Comment, Script

DIRECTIVE = pattern(r"[#/*\s]*recommend:?\s*ignore\b(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
BECAUSE = pattern(r"\bbecause\b", re.IGNORECASE)
WORD = pattern(r"[\w-]+")
SHAPE = "# recommend: ignore LMD101 because the reason"


class Ignore(NamedTuple):
    """Hold one ignore comment; ``wrong`` says what is wrong with it.

    It covers the lines ``first`` to ``last``, or the whole file if ``first`` is 0.
    """

    comment: Comment
    ids: tuple[str, ...]
    first: int
    last: int
    wrong: str = ""

    @property
    def whole(self) -> bool:
        """Return whether it covers the whole file."""
        return self.first == 0

    def covers(self, finding: Finding) -> bool:
        """Return whether it hides a finding."""
        return finding.rule.id in self.ids and (self.whole or self.first <= finding.place.line <= self.last)


def ignores(script: Script, rule_ids: Collection[str]) -> list[Ignore]:
    """Return the ignore comments of a script."""
    if "ignore" not in script.text:
        return []
    lines = script.text.split("\n")
    own = {comment.place.line for comment in script.comments if _alone(lines, comment)}
    top = _top(lines, own)
    ignores_read = []
    for comment in script.comments:
        match = DIRECTIVE.fullmatch(comment.text.rstrip("\n"))
        if match and _is_ignore(match["rest"]):
            ids, wrong = _parse(match["rest"], rule_ids)
            first, last = (0, 0) if comment.place.line <= top else _lines(lines, own, comment.place.line)
            ignores_read.append(Ignore(comment, ids, first, last, wrong))
    return ignores_read


def _alone(lines: list[str], comment: Comment) -> bool:
    line = lines[comment.place.line - 1] if comment.place.line <= len(lines) else ""
    return not line[: comment.place.column - 1].strip()


def _top(lines: list[str], own: set[int]) -> int:
    """Return the last line of the file's leading comments."""
    for number, line in enumerate(lines, 1):
        if line.strip() and number not in own and not line.startswith("#"):
            return number - 1
    return len(lines)


def _lines(lines: list[str], own: set[int], line: int) -> tuple[int, int]:
    """Return the lines that a comment covers: its own or the command below."""
    first = line
    while first in own and first < len(lines):
        first += 1
    last = first
    while last < len(lines) and lines[last - 1].endswith("\\"):
        last += 1
    while first > 1 and lines[first - 2].endswith("\\"):
        first -= 1
    return first, last


def _is_ignore(text: str) -> bool:
    """Return whether the comment is an ignore, not a sentence that starts like one."""
    return "LMD" in text.upper() or BECAUSE.search(text) is not None or WORD.findall(text.casefold()) in ([], ["all"])


def _parse(text: str, rule_ids: Collection[str]) -> tuple[tuple[str, ...], str]:
    """Return the known rule ids and an error message, if any."""
    because = BECAUSE.search(text)
    named = [name.upper() for name in WORD.findall(text[: because.start()] if because else text)]
    if not because:  # text after the ids is a sentence
        named = list(takewhile(lambda name: name.startswith("LMD"), named)) or named[:1]
    unknown = [name for name in named if name not in rule_ids]
    good = tuple(dict.fromkeys(name for name in named if name in rule_ids))
    if not named:
        return (), "names no rule"
    if unknown:
        if retired := retirement(unknown[0]):
            return good, f"names a rule that no longer exists: {retired}"
        return good, f"names {shorten(unknown[0])}, which is not a rule{did_you_mean(unknown[0], rule_ids)}"
    if not because or not text[because.end() :].strip(" \t.:*/"):
        return good, "gives no reason after the word because"
    return good, ""


def apply(findings: Iterable[Finding], ignores: Iterable[Ignore]) -> tuple[list[Finding], dict[Ignore, set[str]]]:
    """Return the remaining findings, and the rules that each ignore hid."""
    used: dict[Ignore, set[str]] = {ignore: set() for ignore in ignores}
    kept = []
    for finding in findings:
        hiding = [ignore for ignore in used if ignore.covers(finding)]
        for ignore in hiding:
            used[ignore].add(finding.rule.id)
        if not hiding:
            kept.append(finding)
    return kept, used


def bad(ignores: Iterable[Ignore]) -> Iterator[Diagnostic]:
    """Yield a finding for each malformed ignore."""
    for ignore in ignores:
        if ignore.wrong:
            yield Diagnostic(
                ignore.comment.place,
                f"This ignore {ignore.wrong}.",
                f"Name the rule and a reason that the next reader can check: {SHAPE}.",
            )


def unused(script: Script, hits: dict[Ignore, set[str]], ran: Collection[str]) -> Iterator[Diagnostic]:
    """Yield a finding for each ignore that hides nothing, of rules that ran."""
    for ignore, hit in hits.items():
        idle = [name for name in ignore.ids if name in ran and name not in hit]
        if ignore.wrong or not idle:
            continue
        yield Diagnostic(
            ignore.comment.place,
            f"This ignore of {' and '.join(idle)} hides no finding {'in the file' if ignore.whole else 'here'}.",
            "The finding it hid is gone; left in place, it would hide the next one of that rule.",
            _drop_idle(script, ignore, idle),
        )


def _drop_idle(script: Script, ignore: Ignore, idle: list[str]) -> Fix:
    """Return the repair that drops idle rules, or the whole comment."""
    place, text = ignore.comment.place, script.text
    left = [name for name in ignore.ids if name not in idle]
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
