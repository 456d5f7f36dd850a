"""Print a review as text: place, line, problem, reason, source, repair."""

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from recommender.choose.reasons import has_source
from recommender.common.terminal import wrap
from recommender.common.text import WIDTH, count, masked, printable
from recommender.knowledge.load import load
from recommender.knowledge.provenance import record_caveat
from recommender.render.summary import cite
from recommender.review.case import Case
from recommender.review.engine import ESTIMATE, SEVERITIES, Review
from recommender.review.releases import covered, release_of
from recommender.review.rule import Finding, Rule

STYLES = {"error": "1;31", "warning": "1;33", "info": "1;36", "place": "1", "caret": "1;32", "label": "2"}
OPTION_FOR = {"gpu": "--gpu", "model": "--model", "load": "--load"}
INDENT = "    "
KINDS = ("flags", "environment", "client", "constraints", "claims", "models", "gpus", "releases", "disagreements")


class Counts(NamedTuple):
    """Count the files, and the findings by severity."""

    files: int
    error: int
    warning: int
    info: int
    fixable: int
    unsafe: int = 0

    @property
    def findings(self) -> int:
        """Return the number of findings."""
        return self.error + self.warning + self.info


def counts(reviews: Sequence[Review]) -> Counts:
    """Return how many files were reviewed, and the findings by severity."""
    findings = [finding for review in reviews for finding in review.findings]
    by = {severity: sum(finding.severity == severity for finding in findings) for severity in SEVERITIES}
    fixes = [finding.fix.unsafe for finding in findings if finding.fix]
    return Counts(len(reviews), **by, fixable=fixes.count(False), unsafe=fixes.count(True))


def silent(reviews: Iterable[Review]) -> dict[str, tuple[str, ...]]:
    """Return the rules that skipped a launch, by missing input."""
    rules: dict[str, set[str]] = {}
    for review in reviews:
        for need, names in review.silent.items():
            rules.setdefault(need, set()).update(names)
    return {need: tuple(sorted(rules[need])) for need in (*OPTION_FOR, ESTIMATE) if rules.get(need)}


def text(reviews: Sequence[Review], colour: bool = False, short: bool = False) -> Iterator[str]:
    """Yield the lines of the whole report; ``short``: one line for each finding."""
    for review in reviews:
        for finding in review.findings:
            if short:
                yield concise(finding, colour)
            else:
                yield from lines(finding, review, colour)
                yield ""
    yield from summary(reviews)


def lines(finding: Finding, review: Review, colour: bool = False) -> Iterator[str]:
    """Yield the lines of one finding."""

    def styled(words: str, style: str) -> str:
        return f"\x1b[{STYLES[style]}m{words}\x1b[0m" if colour else words

    diagnostic = finding.diagnostic
    yield concise(finding, colour)
    shown, caret = excerpt(review.script.text, finding)
    if shown.strip():
        yield f"{INDENT}{shown}"
        yield f"{INDENT}{caret[: len(caret) - len(caret.lstrip())]}{styled(caret.lstrip(), 'caret')}"
    repair = finding.fix.description if finding.fix else ""
    details = [("why", diagnostic.why), ("source", sources(finding)), ("fix", repair)]
    for label, words in details:
        if words:
            first, *rest = wrap(words, f"  {label}: ", INDENT)
            yield first.replace(f"{label}:", styled(f"{label}:", "label"), 1)
            yield from rest


def concise(finding: Finding, colour: bool = False) -> str:
    """Return a finding in one line: place, rule, severity, message."""
    where = f"{printable(finding.path)}:{finding.place.line}:{finding.place.column}:"
    head, message = f"{finding.rule.id} {finding.severity}", printable(" ".join(finding.message.split()))
    if colour:
        where, head = f"\x1b[{STYLES['place']}m{where}\x1b[0m", f"\x1b[{STYLES[finding.severity]}m{head}\x1b[0m"
    return f"{where} {head} {message}"


def excerpt(source: str, finding: Finding) -> tuple[str, str]:
    """Return a finding's line and the markers below it, within 80 columns."""
    place = finding.place
    rows = _rows(source)
    row = rows[place.line - 1] if 0 < place.line <= len(rows) else ""
    first = min(max(place.column - 1, 0), len(row))
    last = min(first + max(place.end - place.start, 1), max(len(row), first + 1))
    room, before = WIDTH - len(INDENT), 0
    if _columns(_plain(row)) > room:  # show the part of the line around the place
        before = max(0, min(first - 20, len(row) - room + 6))
        dots = "..." if before else ""
        part = row[before : before + room - 6]
        row, shift = dots + part + ("..." if before + len(part) < len(row) else ""), len(dots) - before
        first, last = first + shift, min(last + shift, len(dots) + len(part))
    plain = _plain(row)
    lead = _columns(plain[:first])
    marks = max(1, min(_columns(plain[first:last].rstrip()), room - lead))
    stripped = len(plain) - len(plain.lstrip())
    keep = min(stripped, first, max(0, stripped - 4))  # deep indentation is not shown
    return plain[keep:].rstrip(), " " * (lead - keep) + "^" + "~" * (marks - 1)


@lru_cache(maxsize=4)
def _rows(source: str) -> list[str]:
    return source.split("\n")


def _plain(row: str) -> str:
    """Return a line with tabs and control characters replaced, one for one."""
    return masked(row.translate({ord("\t"): " ", ord("\r"): " "}))


def _columns(row: str) -> int:
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in row)
    return len(row) + wide - sum(1 for c in row if unicodedata.combining(c))


def sources(finding: Finding) -> str:
    """Return the finding's sources in one line: addresses, or records and citations."""
    return "; ".join(_source(source) for source in finding.sources)


def sources_of(rule: Rule) -> tuple[str, ...]:
    """Return the rule's sources, one by one."""
    return tuple(_source(source) for source in rule.sources)


@lru_cache(maxsize=512)
def _source(name: str) -> str:
    kind, _, record = name.partition("/")
    store = load()
    if kind == "threads" and record in store.threads:
        thread = store.threads[record]
        return f"{name} ({'; '.join(filter(None, (thread.thread.url, record_caveat(store, thread))))})"
    entry = getattr(store, kind, {}).get(record) if kind in KINDS else None
    if entry is None:
        return name
    parts = (entry, *reversed(getattr(entry, "eras", ())))  # a flag's own sources, else its latest era's
    part = next((part for part in parts if hasattr(part, "sources") and has_source(part.sources)), None)
    if part is None:
        return f"{name} (unverified)"
    return f"{name} ({cite(part.sources, record_caveat(store, entry), most=1)})"


def _named(case: Case) -> Iterator[tuple[str, str]]:
    """Yield the release of a case and what says so: a file beside the script, or a range that is installed."""
    pinned = release_of(case.script, case.launch) if case.release_known else None
    if pinned and covered(case.resolved.store, pinned.release) == case.resolved.release.id:
        where = f"{pinned.file} beside it" if pinned.file else ""
        if pinned.requirement:
            yield case.resolved.release.id, f"the newest that {pinned.requirement}{where and f' in {where}'} allows"
        elif where:
            yield case.resolved.release.id, f"as {where} says"


def _unknown_lines(reviews: Sequence[Review]) -> str:
    """Return the lines of a file whose release is assumed, where it names the release of others."""
    cases = reviews[0].cases if len(reviews) == 1 else ()
    lines = sorted({case.launch.place.line for case in cases if not case.release_known})
    if not any(case.release_known for case in cases):
        return ""
    return f" for {'line' if len(lines) == 1 else 'lines'} {', '.join(map(str, lines))}"


def summary(reviews: Sequence[Review]) -> Iterator[str]:
    """Yield the counts, assumptions and skipped rules."""
    total = counts(reviews)
    launches = sum(len(review.script.launches) for review in reviews)
    parts = [
        count(number, name) if name != "info" else f"{number} info"
        for name, number in (("error", total.error), ("warning", total.warning), ("info", total.info))
        if number
    ]
    findings = ", ".join(parts) if parts else "nothing found"
    repairs = f"; --fix repairs {total.fixable}" if total.fixable else ""
    repairs += f"; --fix --unsafe repairs {total.unsafe} more" if total.unsafe else ""
    starts = count(launches, "launch").replace("launchs", "launches")
    yield from wrap(f"{count(total.files, 'file')}, {starts}: {findings}{repairs}.")
    newest = {case.resolved.release.id for review in reviews for case in review.cases if not case.release_known}
    for release in sorted(newest):
        where = _unknown_lines(reviews)
        yield f"Assuming LMDeploy {release}{where} (pass --lmdeploy to change, and for repairs that depend on it)."
    for release, named in sorted({named for review in reviews for case in review.cases for named in _named(case)}):
        yield f"LMDeploy {release}, {named} (pass --lmdeploy to change)."
    skipped = silent(reviews)
    unestimated = skipped.pop(ESTIMATE, ())
    if skipped:
        number = len({name for names in skipped.values() for name in names})
        options = [OPTION_FOR[need] for need in skipped]
        listed = f"{', '.join(options[:-1])} and {options[-1]}" if len(options) > 1 else options[0]
        yield f"{count(number, 'rule')} skipped; pass {listed} to run more (--rules lists them)."
    if unestimated:
        number = len(unestimated)
        yield f"{count(number, 'rule')} skipped: no estimate knows how a launch spreads its model over GPUs."
