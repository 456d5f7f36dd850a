"""What a review found as text for people: the place, the line, what is wrong, why, where it is from, the repair."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from recommender.explain import opened
from recommender.render import WIDTH, cite, count, printable
from recommender.review.case import Reviewed
from recommender.review.engine import SEVERITIES, Review
from recommender.review.rule import Finding, Rule
from recommender.store import load
from recommender.terminal import wrap

STYLES = {"error": "1;31", "warning": "1;33", "info": "1;36", "place": "1", "caret": "1;32", "label": "2"}
TOLD_BY = {"gpu": "--gpu", "model": "--model", "load": "--load"}
INDENT = "    "
KINDS = ("flags", "environment", "client", "constraints", "claims", "models", "gpus", "releases", "disagreements")


@dataclass(frozen=True)
class Counts:
    """How many files were read, and the findings by severity."""

    files: int
    error: int
    warning: int
    info: int
    mendable: int

    @property
    def findings(self) -> int:
        """All findings."""
        return self.error + self.warning + self.info


def counts(reviews: Sequence[Review]) -> Counts:
    """The counts of some reviews."""
    found = [each for review in reviews for each in review.findings]
    by = {severity: sum(each.severity == severity for each in found) for severity in SEVERITIES}
    return Counts(len(reviews), **by, mendable=sum(each.said.fix is not None for each in found))


def silent(reviews: Iterable[Review]) -> dict[str, tuple[str, ...]]:
    """The rules that did not run on some launch, by what was not told."""
    found: dict[str, set[str]] = {}
    for review in reviews:
        for need, names in review.silent.items():
            found.setdefault(need, set()).update(names)
    return {need: tuple(sorted(found[need])) for need in TOLD_BY if found.get(need)}


def text(reviews: Sequence[Review], colour: bool = False) -> Iterator[str]:
    """The lines of the whole report."""
    for review in reviews:
        for finding in review.findings:
            yield from lines(finding, review, colour)
            yield ""
    yield from summary(reviews)


def lines(finding: Finding, review: Review, colour: bool = False) -> Iterator[str]:
    """One finding."""

    def styled(words: str, style: str) -> str:
        return f"\x1b[{STYLES[style]}m{words}\x1b[0m" if colour else words

    place, said = finding.said.place, finding.said
    where = f"{printable(finding.path)}:{place.line}:{place.column}:"
    head = f"{finding.severity} {finding.rule.id} {finding.rule.name}"
    fits = len(where) + 1 + len(head) <= WIDTH
    if fits:
        yield f"{styled(where, 'place')} {styled(head, finding.severity)}"
    else:
        yield styled(where, "place")
        yield f"  {styled(head, finding.severity)}"
    shown, caret = excerpt(review.script.text, finding)
    if shown.strip():
        yield f"{INDENT}{shown}"
        yield f"{INDENT}{caret[: len(caret) - len(caret.lstrip())]}{styled(caret.lstrip(), 'caret')}"
    yield from wrap(said.message, "  ", "  ")
    told = [("why", said.why), ("source", sources(finding)), ("fix", said.fix.what if said.fix else "")]
    for label, words in told:
        if words:
            first, *rest = wrap(words, f"  {label}: ", INDENT)
            yield first.replace(f"{label}:", styled(f"{label}:", "label"), 1)
            yield from rest


def excerpt(source: str, finding: Finding) -> tuple[str, str]:
    """The line of a finding and the marks below the place, both within the width."""
    place = finding.said.place
    rows = source.split("\n")
    row = rows[place.line - 1] if 0 < place.line <= len(rows) else ""
    first = min(max(place.column - 1, 0), len(row))
    last = min(first + max(place.end - place.start, 1), max(len(row), first + 1))
    room, before = WIDTH - len(INDENT), 0
    if _columns(_plain(row)) > room:  # a part of the line, with the place in it
        before = max(0, min(first - 20, len(row) - room + 6))
        dots = "..." if before else ""
        part = row[before : before + room - 6]
        row, shift = dots + part + ("..." if before + len(part) < len(row) else ""), len(dots) - before
        first, last = first + shift, min(last + shift, len(dots) + len(part))
    plain = _plain(row)
    lead = _columns(plain[:first])
    marks = max(1, min(_columns(plain[first:last].rstrip()), room - lead))
    stripped = len(plain) - len(plain.lstrip())
    keep = min(stripped, first, max(0, stripped - 4))  # deep indentation says nothing here
    return plain[keep:].rstrip(), " " * (lead - keep) + "^" + "~" * (marks - 1)


def _plain(row: str) -> str:
    """A line without tabs and control characters, of as many characters."""
    return "".join(c if c.isprintable() else (" " if c in "\t\r" else "?") for c in row)


def _columns(row: str) -> int:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in row)
    return len(row) + wide - sum(1 for c in row if unicodedata.combining(c))


def sources(finding: Finding) -> str:
    """Where the rule's knowledge is from: addresses as they are, records with what they cite."""
    return "; ".join(sources_of(finding.rule))


def sources_of(rule: Rule) -> tuple[str, ...]:
    """The same of a rule, one by one."""
    return tuple(_source(each) for each in rule.sources)


@lru_cache(maxsize=512)
def _source(name: str) -> str:
    kind, _, record = name.partition("/")
    store = load()
    if kind == "threads" and record in store.threads:
        return f"{name} ({store.threads[record].thread.url})"
    found = getattr(store, kind, {}).get(record) if kind in KINDS else None
    if found is None:
        return name
    parts = (found, *reversed(getattr(found, "eras", ())))  # of an option, else of its last era that was read
    cited = (cite(each.sources, 1) for each in parts if hasattr(each, "sources") and opened(each.sources))
    return f"{name} ({next(cited, 'unverified')})"


def uncovered(reviews: Iterable[Review]) -> tuple[str, ...]:
    """Releases that scripts name and the knowledge does not cover."""
    found = {case.context.uncovered for each in reviews for case in each.cases if isinstance(case, Reviewed)}
    return tuple(sorted(found - {""}))


def summary(reviews: Sequence[Review]) -> Iterator[str]:
    """How much was found, and which rules could not judge."""
    made = counts(reviews)
    launches = sum(len(each.script.launches) for each in reviews)
    parts = [
        count(number, name) if name != "info" else f"{number} of note"
        for name, number in (("error", made.error), ("warning", made.warning), ("info", made.info))
        if number
    ]
    found = f"{count(made.findings, 'finding')} ({', '.join(parts)})" if parts else "nothing found"
    mend = f"; --fix mends {made.mendable}" if made.mendable else ""
    yield from wrap(
        f"{count(made.files, 'file')}, {count(launches, 'launch').replace('launchs', 'launches')}: {found}{mend}."
    )
    for release in uncovered(reviews):
        yield from wrap(f"LMDeploy {release}, which a script names, is not covered: no rule rests on a release there.")
    newest = {case.facts.release.id for each in reviews for case in each.cases if not case.release_known}
    for release in sorted(newest):
        yield from wrap(
            f"No LMDeploy release was told: {release}, the newest known here, is assumed; or say --lmdeploy."
        )
    for need, names in silent(reviews).items():
        yield from wrap(
            f"{count(len(names), 'rule')} stayed silent for want of {TOLD_BY[need]}: {', '.join(names)}.", "", "  "
        )
