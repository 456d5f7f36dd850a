"""Apply a review's repairs, review again, and undo those that did not help."""

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from recommender.common import atomic_write
from recommender.common.text import printable
from recommender.common.user_file import Unreadable, read_bytes
from recommender.review.engine import Review
from recommender.review.rule import Finding
from recommender.review.script.source import Source

ROUNDS = 8
FEWEST_LOOKS, MOST_LOOKS, MOST_REVIEWED, MANY_FINDINGS = 4, 100, 300, 8
"""How many reviews may separate conflicting repairs: fewer for more launches and findings."""
LONGEST, MOST_LAUNCHES = 20_000, 12
"""Characters and launches of a file whose repairs are tried before they are offered."""
Look = Callable[[Source], Review]
Stretch = tuple[int, int, str]


@dataclass(frozen=True)
class Repaired:
    """A repaired file, its new review, and the applied and undone repairs."""

    source: Source
    review: Review
    applied: tuple[Finding, ...]
    withdrawn: tuple[Finding, ...]


def with_kept_repairs(source: Source, review: Review, look: Look) -> Review:
    """Return a review that offers only the repairs that ``repair`` would keep; of a long file, all."""
    if len(source.whole) > LONGEST or len(review.script.launches) > MOST_LAUNCHES:
        return review
    for unsafe in sorted({finding.fix.unsafe for finding in review.findings if finding.fix}):
        review = without(review, repair(source, look, unsafe, review).withdrawn)
    return review


def repair(source: Source, look: Look, unsafe: bool = False, start: Review | None = None) -> Repaired:
    """Repair until nothing is left; change nothing if that never ends. Idempotent. ``unsafe``: unsafe repairs too.

    ``start``: the file's review, where it is known.
    """
    start = start or look(source)
    source_now, review, applied = source, start, list[Finding]()
    size = 1 + len(start.script.launches) + len(start.findings) // MANY_FINDINGS
    looks = iter(range(max(FEWEST_LOOKS, min(MOST_LOOKS, MOST_REVIEWED // size))))
    for _ in range(ROUNDS):
        wanted = list(_independent(review, unsafe))
        if not wanted:
            return Repaired(source_now, review, tuple(applied), ())
        step = _helpful_repairs(source_now, review, wanted, look, looks)
        if step is None:
            break
        helpful, source_now, review = step
        if not helpful:
            return Repaired(source_now, review, tuple(applied), tuple(wanted))
        applied += helpful
    # Two rules undo each other's repairs, or there are too many combinations to try.
    return Repaired(source, start, (), tuple(_offered(start, unsafe)))


def _offered(review: Review, unsafe: bool) -> Iterator[Finding]:
    return (finding for finding in review.findings if finding.fix and (unsafe or not finding.fix.unsafe))


def _helpful_repairs(
    now: Source, review_before: Review, findings: list[Finding], look: Look, looks: Iterator[int]
) -> tuple[list[Finding], Source, Review] | None:
    """Return the repairs that help: all, else by rule, else by half of a rule's.

    Return None if the reviews are used up: the result would depend on their number.
    """
    by_rule: dict[str, list[Finding]] = {}
    for finding in findings:
        by_rule.setdefault(finding.rule.id, []).append(finding)
    chosen: list[Finding] = []
    best, best_review = now, review_before
    groups = [findings]
    while groups:
        if next(looks, None) is None:
            return None
        group = groups.pop(0)
        tried = now.edited(_edits([*chosen, *group]))
        review = look(tried)
        if tried.whole != best.whole and not is_worse(review_before, review, [*chosen, *group]):
            chosen, best, best_review = [*chosen, *group], tried, review
        elif group is findings and len(by_rule) > 1:
            groups += by_rule.values()
        elif len(group) > 1:
            half = len(group) // 2
            groups += [group[:half], group[half:]]
    return chosen, best, best_review


def is_worse(before: Review, after: Review, applied: Iterable[Finding]) -> bool:
    """Return whether a repaired finding remains, a launch is lost, or a rule finds more than before."""
    applied = list(applied)
    then, now = _count_by_rule(before), _count_by_rule(after)
    repaired = Counter(finding.rule.id for finding in applied)
    allowed = {name for finding in applied if finding.fix for name in finding.fix.follows}
    if any(now[name] > then[name] - repaired[name] for name in now.keys() - allowed):
        return True
    return len(after.script.launches) < len(before.script.launches)


def _count_by_rule(review: Review) -> Counter[str]:
    """Count findings by rule; a message may contain the repaired value."""
    return Counter(finding.rule.id for finding in review.findings)


def _edits(findings: Iterable[Finding]) -> list[Stretch]:
    """Return the edits of these repairs, without duplicates."""
    edits = (edit for finding in findings if finding.fix for edit in finding.fix.edits)
    return list(dict.fromkeys((place.start, place.end, new) for place, new in edits))


def _independent(review: Review, unsafe: bool) -> Iterator[Finding]:
    """Yield findings whose repairs do not overlap, first come first."""
    free_edits: set[Stretch] = set()
    size = len(review.script.text)
    for finding in _offered(review, unsafe):
        edits = set(_edits([finding]))
        alone = all(_disjoint(edit, other) for edit in edits for other in edits if edit is not other)
        free = all(edit in free_edits or all(_disjoint(edit, other) for other in free_edits) for edit in edits)
        inside = all(0 <= start <= end <= size for start, end, _ in edits)
        if edits and alone and free and inside:
            free_edits |= edits
            yield finding


def _disjoint(first_edit: Stretch, second_edit: Stretch) -> bool:
    """Return whether two edits neither overlap nor insert at the same place."""
    if first_edit[:2] == second_edit[:2]:
        return False
    first, second = sorted((first_edit, second_edit))
    return first[1] <= second[0]


def without(review: Review, undone: Iterable[Finding]) -> Review:
    """Return a review that does not offer the repairs that were undone."""
    left = Counter((finding.rule.id, finding.message) for finding in undone)
    findings: list[Finding] = []
    for finding in reversed(review.findings):
        key = finding.rule.id, finding.message
        if finding.fix and left[key]:
            left[key] -= 1
            finding = finding._replace(diagnostic=finding.diagnostic._replace(fix=None))
        findings.append(finding)
    return review._replace(findings=tuple(reversed(findings)))


# --- files


def save(before: Source, after: Source) -> None:
    """Write a repaired file atomically. Raise OSError or Unreadable."""
    path = Path(before.path)
    if read_bytes(path) != before.whole.encode("utf-8"):
        raise Unreadable("the file changed during the review, so nothing was written; run the command again")
    atomic_write.write(path, after.whole)


def patch(before: Source, after: Source) -> Iterator[str]:
    """Yield a unified diff for patch and git apply, line by line."""
    if before.whole == after.whole:
        return
    path = printable(before.path)
    names = (path, path) if path.startswith("/") else (f"a/{path}", f"b/{path}")
    for line in difflib.unified_diff(_rows(before.whole), _rows(after.whole), *names):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _rows(text: str) -> Sequence[str]:
    """Split into lines with their ends; only a line feed ends a line."""
    rows = [f"{row}\n" for row in text.split("\n")]
    rows[-1] = rows[-1][:-1]
    return rows if rows[-1] else rows[:-1]
