"""Applies the safe repairs of a review, looks again, and takes back what did not help."""

from __future__ import annotations

import difflib
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from recommender import files
from recommender.render import printable
from recommender.review.engine import UNREAD, Review
from recommender.review.rule import Finding, Fix
from recommender.review.source import Source, Unreadable

ROUNDS = 8
FEWEST_LOOKS, MOST_LOOKS, MOST_REVIEWED, MANY_FINDINGS = 4, 100, 300, 8
"""How often repairs that do not go together are tried apart: less often the more servers and findings a look has."""
Look = Callable[[Source], Review]
Stretch = tuple[int, int, str]


@dataclass(frozen=True)
class Mended:
    """A file after its repairs: its review as it now is, what was repaired, and repairs that were taken back."""

    source: Source
    review: Review
    applied: tuple[Finding, ...]
    withdrawn: tuple[Finding, ...]


def mend(source: Source, look: Look) -> Mended:
    """Repairs until nothing more can be; where that has no end, nothing is changed. Twice changes nothing more."""
    start = look(source)
    now, found, applied = source, start, list[Finding]()
    size = 1 + len(start.script.launches) + len(start.findings) // MANY_FINDINGS
    looks = iter(range(max(FEWEST_LOOKS, min(MOST_LOOKS, MOST_REVIEWED // size))))
    for _ in range(ROUNDS):
        wanted = list(_apart(found))
        if not wanted:
            return Mended(now, found, tuple(applied), ())
        made = _helpful(now, found, wanted, look, looks)
        if made is None:
            break
        taken, after, review = made
        if not taken:
            return Mended(now, found, tuple(applied), tuple(wanted))
        now, found = after, review
        applied += taken
    # Two rules that undo each other's repair, neither of which is right; or more tries than a file is worth.
    return Mended(source, start, (), tuple(each for each in start.findings if each.said.fix))


def _helpful(
    now: Source, found: Review, wanted: list[Finding], look: Look, looks: Iterator[int]
) -> tuple[list[Finding], Source, Review] | None:
    """The repairs that do what they say: all at once, else those of each rule, else of each half of a rule's.

    None where the looks are used up: what would then be repaired depended on their number.
    """
    by_rule: dict[str, list[Finding]] = {}
    for each in wanted:
        by_rule.setdefault(each.rule.id, []).append(each)
    taken: list[Finding] = []
    best, best_review = now, found
    groups = [wanted]
    while groups:
        if next(looks, None) is None:
            return None
        group = groups.pop(0)
        tried = now.edited(_stretches([*taken, *group]))
        review = look(tried)
        if tried.whole != best.whole and not worse(found, review, [*taken, *group]):
            taken, best, best_review = [*taken, *group], tried, review
        elif group is wanted and len(by_rule) > 1:
            groups += by_rule.values()
        elif len(group) > 1:
            half = len(group) // 2
            groups += [group[:half], group[half:]]
    return taken, best, best_review


def worse(before: Review, after: Review, applied: Iterable[Finding]) -> bool:
    """Whether a repaired finding is still there, or something broke that was whole."""
    then, now = _counted(before), _counted(after)
    repaired = Counter(each.rule.id for each in applied)
    if any(now[name] > then[name] - number for name, number in repaired.items()):
        return True
    if len(after.script.launches) < len(before.script.launches):
        return True
    return any(_number(after, grave) > _number(before, grave) for grave in (_error, _unread))


def _number(review: Review, which: Callable[[Finding], bool]) -> int:
    return sum(which(each) for each in review.findings)


def _error(finding: Finding) -> bool:
    return finding.severity == "error"


def _unread(finding: Finding) -> bool:
    return finding.rule.id == UNREAD


def _counted(review: Review) -> Counter[str]:
    """By rule alone: a message may name the value, which the repair changed."""
    return Counter(each.rule.id for each in review.findings)


def _stretches(findings: Iterable[Finding]) -> list[Stretch]:
    """The edits of some repairs; one that several ask for is made once."""
    edits = (edit for each in findings if each.said.fix for edit in each.said.fix.edits)
    return list(dict.fromkeys((place.start, place.end, new) for place, new in edits))


def _apart(review: Review) -> Iterator[Finding]:
    """The findings whose repairs do not touch each other, the first of those that do."""
    taken: set[Stretch] = set()
    size = len(review.script.text)
    for each in review.findings:
        if each.said.fix is None:
            continue
        edits = set(_stretches([each]))
        alone = all(_clear(one, other) for one in edits for other in edits if one is not other)
        free = all(one in taken or all(_clear(one, other) for other in taken) for one in edits)
        if edits and alone and free and _within(each.said.fix, size):
            taken |= edits
            yield each


def _within(fix: Fix, size: int) -> bool:
    return all(0 <= place.start <= place.end <= size for place, _ in fix.edits)


def _clear(one: Stretch, other: Stretch) -> bool:
    """Whether two edits share no character, and are not two texts for one spot."""
    if one[:2] == other[:2]:
        return False
    first, second = sorted((one, other))
    return first[1] <= second[0]


# --- files


def save(before: Source, after: Source) -> None:
    """Writes a repaired file, whole or not at all. Raises OSError, or Unreadable where it must not be written."""
    path = Path(before.path)
    if not stat.S_ISREG(path.stat().st_mode):
        raise Unreadable("not a regular file, so it cannot be rewritten; name the script itself")
    if path.read_bytes() != before.whole.encode("utf-8"):
        raise Unreadable("it changed while it was reviewed; nothing was written: run it again")
    files.write(path, after.whole)


def unified(before: Source, after: Source) -> Iterator[str]:
    """The difference as patch and git apply take it, line by line with the line ends."""
    if before.whole == after.whole:
        return
    path = printable(before.path)
    names = (path, path) if path.startswith("/") else (f"a/{path}", f"b/{path}")
    for line in difflib.unified_diff(_rows(before.whole), _rows(after.whole), *names):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _rows(text: str) -> Sequence[str]:
    """Lines with their ends; only a line feed ends one."""
    rows = [f"{row}\n" for row in text.split("\n")]
    rows[-1] = rows[-1][:-1]
    return rows if rows[-1] else rows[:-1]
