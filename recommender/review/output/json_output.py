"""Write reviews for machines: JSON, GitHub workflow commands, JUnit."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from recommender.common.terminal import json_text
from recommender.common.version import __version__
from recommender.review.engine import Review
from recommender.review.output.text import counts, silent, sources
from recommender.review.rule import Finding, Severity
from recommender.review.script.model import Script, Span

FORMAT = 1


@dataclass(frozen=True)
class Spot:
    """A range of a file: lines and columns from 1; the end is exclusive."""

    line: int
    """First line, from 1."""
    column: int
    """First column, from 1."""
    end_line: int
    """Line of the end."""
    end_column: int
    """Column of the end, exclusive."""


@dataclass(frozen=True)
class Edit:
    """Text that replaces a range."""

    at: Spot
    """The range to replace."""
    text: str
    """The new text."""


@dataclass(frozen=True)
class Repair:
    """A safe repair: apply all of its edits, or none."""

    what: str
    """What it changes."""
    edits: tuple[Edit, ...]
    """All edits; apply all or none."""


@dataclass(frozen=True)
class Found:
    """One finding. ``fix`` is null if no repair is safe."""

    path: str
    """The file, as given."""
    rule: str
    """Number of the rule, such as LMD201."""
    name: str
    """Name of the rule."""
    family: str
    """What the rule is about."""
    severity: Severity
    """error, warning or info."""
    at: Spot
    """Where it was found."""
    message: str
    """What is wrong."""
    why: str
    """Why it matters."""
    sources: tuple[str, ...]
    """What the rule rests on."""
    fix: Repair | None
    """A safe repair; null: there is none."""


@dataclass(frozen=True)
class Silent:
    """Rules that skipped some launch, and the missing input."""

    needs: str
    """The missing input."""
    rules: tuple[str, ...]
    """Numbers of the rules that skipped a launch."""


@dataclass(frozen=True)
class ReviewJson:
    """The JSON form of a review."""

    format: int
    made_by: str
    """This program and its version."""
    files: tuple[str, ...]
    """Files that were read."""
    launches: int
    """Server starts that were found."""
    error: int
    """Number of errors."""
    warning: int
    """Number of warnings."""
    info: int
    """Number of hints."""
    findings: tuple[Found, ...]
    """What was found."""
    silent: tuple[Silent, ...]
    """Rules that lacked an input."""


def spot(script: Script, place: Span) -> Spot:
    """Return the lines and columns of a place."""
    head = script.text[: place.end]
    return Spot(place.line, place.column, head.count("\n") + 1, place.end - (head.rfind("\n") + 1) + 1)


def json_form(reviews: Sequence[Review]) -> ReviewJson:
    """Return reviews in their JSON form."""
    total = counts(reviews)
    return ReviewJson(
        format=FORMAT,
        made_by=f"lmdeploy-recommender {__version__}",
        files=tuple(review.path for review in reviews),
        launches=sum(len(review.script.launches) for review in reviews),
        error=total.error,
        warning=total.warning,
        info=total.info,
        findings=tuple(_json_finding(review.script, finding) for review in reviews for finding in review.findings),
        silent=tuple(Silent(need, names) for need, names in silent(reviews).items()),
    )


def _json_finding(script: Script, finding: Finding) -> Found:
    diagnostic, rule = finding.diagnostic, finding.rule
    edits = tuple(Edit(spot(script, place), new) for place, new in diagnostic.fix.edits) if diagnostic.fix else ()
    return Found(
        path=finding.path,
        rule=rule.id,
        name=rule.name,
        family=rule.family,
        severity=finding.severity,
        at=spot(script, diagnostic.place),
        message=diagnostic.message,
        why=diagnostic.why,
        sources=finding.sources,
        fix=Repair(diagnostic.fix.description, edits) if diagnostic.fix else None,
    )


def as_json(reviews: Sequence[Review]) -> str:
    """Return one JSON object, in ASCII."""
    return json_text(json_form(reviews))


# --- GitHub

LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_github(reviews: Sequence[Review]) -> str:
    """Return one workflow command per line: annotations of a pull request."""
    return "".join(f"{line}\n" for line in _commands(reviews))


def _commands(reviews: Sequence[Review]) -> Iterator[str]:
    for review in reviews:
        for finding in review.findings:
            at = spot(review.script, finding.place)
            where = [("file", finding.path), ("line", at.line), ("endLine", at.end_line)]
            if at.line == at.end_line:  # GitHub accepts columns within one line only, end inclusive
                where += [("col", at.column), ("endColumn", max(at.end_column - 1, at.column))]
            where.append(("title", f"{finding.rule.id} {finding.rule.name}"))
            properties = ",".join(f"{name}={_property(str(value))}" for name, value in where)
            yield f"::{LEVELS[finding.severity]} {properties}::{_data(_lines(finding.message, *_details(finding)))}"


def _details(finding: Finding) -> Iterator[str]:
    """Yield why, the repair and the sources."""
    cited = sources(finding)
    yield finding.diagnostic.why
    yield f"fix: {finding.fix.description}" if finding.fix else ""
    yield f"source: {cited}" if cited else ""


def _lines(*texts: str) -> str:
    return "\n".join(text for text in texts if text)


# --- JUnit


def as_junit(reviews: Sequence[Review], fails: Sequence[frozenset[str]]) -> str:
    """Return a suite per file, a case per finding.

    A case fails if its severity is among the file's ``fails``.
    """
    suites, tests, failures = [], 0, 0
    for review, failing in zip(reviews, fails, strict=True):
        bad = sum(finding.severity in failing for finding in review.findings)
        cases = [_case(review, finding, finding.severity in failing) for finding in review.findings] or [
            f'    <testcase classname="{_attribute(review.path)}" name="clean"/>'
        ]
        tests, failures = tests + len(cases), failures + bad
        suites.append(
            f'  <testsuite name="{_attribute(review.path)}" tests="{len(cases)}" failures="{bad}" errors="0">\n'
            + "".join(f"{case}\n" for case in cases)
            + "  </testsuite>\n"
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<testsuites name="recommend review" tests="{tests}" failures="{failures}" errors="0">\n'
        + "".join(suites)
        + "</testsuites>\n"
    )


def _case(review: Review, finding: Finding, fails: bool) -> str:
    diagnostic = finding.diagnostic
    where = f"{finding.rule.id} {finding.rule.name} at {diagnostic.place.line}:{diagnostic.place.column}"
    body = _lines(*_details(finding))
    inner = (
        f'<failure type="{finding.severity}" message="{_attribute(diagnostic.message)}">{_xml(body)}</failure>'
        if fails
        else f"<system-out>{_xml(f'{finding.severity}: {diagnostic.message}{chr(10)}{body}')}</system-out>"
    )
    return f'    <testcase classname="{_attribute(review.path)}" name="{_attribute(where)}">{inner}</testcase>'


def _xml(text: str, entities: dict[str, str] | None = None) -> str:
    """Escape an element's text; characters that XML lacks become question marks."""
    legal = "".join(
        c if c in "\t\n" or (c >= " " and not "\ud800" <= c <= "\udfff" and c < "\ufffe") or c > "\uffff" else "?"
        for c in text
    )
    return escape(legal, entities or {})


def _attribute(text: str) -> str:
    return _xml(text, {'"': "&quot;", "\n": "&#10;", "\t": "&#9;"})
