"""What a review found for machines: JSON, workflow commands of GitHub, JUnit. SARIF stands in its own module."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recommender import __version__
from recommender.review.engine import Review
from recommender.review.output import counts, silent, sources
from recommender.review.rule import Finding
from recommender.review.script import Place, Script

FORMAT = 1
Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Spot:
    """A stretch of a file: lines and columns count characters from 1; the end is the first one beyond it."""

    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class Edit:
    """Text that takes the place of a stretch."""

    at: Spot
    text: str


@dataclass(frozen=True)
class Repair:
    """A safe repair: all of its edits, or none."""

    what: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Found:
    """One finding. ``fix`` is null where no repair is safe."""

    path: str
    rule: str
    name: str
    family: str
    severity: Severity
    at: Spot
    message: str
    why: str
    sources: tuple[str, ...]
    fix: Repair | None


@dataclass(frozen=True)
class Silent:
    """Rules that could not judge some launch, and what they would need to be told."""

    needs: str
    rules: tuple[str, ...]


@dataclass(frozen=True)
class Published:
    """The JSON form of a review. ``format`` rises when a field changes its meaning."""

    format: int
    made_by: str
    files: tuple[str, ...]
    launches: int
    error: int
    warning: int
    info: int
    findings: tuple[Found, ...]
    silent: tuple[Silent, ...]


def spot(script: Script, place: Place) -> Spot:
    """Where a place begins and ends, in lines and columns."""
    head = script.text[: place.end]
    return Spot(place.line, place.column, head.count("\n") + 1, place.end - (head.rfind("\n") + 1) + 1)


def published(reviews: Sequence[Review]) -> Published:
    """Reviews as they are written."""
    made = counts(reviews)
    return Published(
        format=FORMAT,
        made_by=f"lmdeploy-recommender {__version__}",
        files=tuple(each.path for each in reviews),
        launches=sum(len(each.script.launches) for each in reviews),
        error=made.error,
        warning=made.warning,
        info=made.info,
        findings=tuple(_found(review.script, each) for review in reviews for each in review.findings),
        silent=tuple(Silent(need, names) for need, names in silent(reviews).items()),
    )


def _found(script: Script, finding: Finding) -> Found:
    said, rule = finding.said, finding.rule
    edits = tuple(Edit(spot(script, place), new) for place, new in said.fix.edits) if said.fix else ()
    return Found(
        path=finding.path,
        rule=rule.id,
        name=rule.name,
        family=rule.family,
        severity=finding.severity,
        at=spot(script, said.place),
        message=said.message,
        why=said.why,
        sources=rule.sources,
        fix=Repair(said.fix.what, edits) if said.fix else None,
    )


def as_json(reviews: Sequence[Review]) -> str:
    """The whole as one object; only ASCII."""
    from recommender.terminal import plain

    return json.dumps(plain(published(reviews)), indent=2, ensure_ascii=True) + "\n"


def schema() -> dict[str, Any]:
    """The JSON Schema of what ``--format json`` writes."""
    from pydantic import TypeAdapter

    made = TypeAdapter(Published).json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made | {"title": "Review"}


# --- GitHub

LEVELS = {"error": "error", "warning": "warning", "info": "notice"}


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_github(reviews: Sequence[Review]) -> str:
    """A workflow command a line: each becomes an annotation of the pull request."""
    return "".join(f"{line}\n" for line in _commands(reviews))


def _commands(reviews: Sequence[Review]) -> Iterator[str]:
    for review in reviews:
        for finding in review.findings:
            said, at = finding.said, spot(review.script, finding.said.place)
            where = [("file", finding.path), ("line", at.line), ("endLine", at.end_line)]
            if at.line == at.end_line:  # GitHub takes columns within one line only; its last one is part of the place
                where += [("col", at.column), ("endColumn", max(at.end_column - 1, at.column))]
            where.append(("title", f"{finding.rule.id} {finding.rule.name}"))
            properties = ",".join(f"{name}={_property(str(value))}" for name, value in where)
            told = [said.message, said.why, f"fix: {said.fix.what}" if said.fix else "", _cited(finding)]
            yield f"::{LEVELS[finding.severity]} {properties}::{_data(chr(10).join(each for each in told if each))}"


def _cited(finding: Finding) -> str:
    cited = sources(finding)
    return f"source: {cited}" if cited else ""


# --- JUnit


def as_junit(reviews: Sequence[Review], fails: Sequence[frozenset[str]]) -> str:
    """A suite a file, a case a finding; one fails where its severity is among the file's ``fails``."""
    suites, tests, failures = [], 0, 0
    for review, failing in zip(reviews, fails, strict=True):
        bad = sum(each.severity in failing for each in review.findings)
        cases = [_case(review, each, each.severity in failing) for each in review.findings] or [
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
    said = finding.said
    where = f"{finding.rule.id} {finding.rule.name} at {said.place.line}:{said.place.column}"
    body = "\n".join(each for each in (said.why, f"fix: {said.fix.what}" if said.fix else "", _cited(finding)) if each)
    inner = (
        f'<failure type="{finding.severity}" message="{_attribute(said.message)}">{_xml(body)}</failure>'
        if fails
        else f"<system-out>{_xml(f'{finding.severity}: {said.message}{chr(10)}{body}')}</system-out>"
    )
    return f'    <testcase classname="{_attribute(review.path)}" name="{_attribute(where)}">{inner}</testcase>'


def _xml(text: str) -> str:
    """Text of an element; what XML cannot hold becomes a question mark."""
    legal = "".join(
        c if c in "\t\n" or (c >= " " and not "\ud800" <= c <= "\udfff" and c < "\ufffe") or c > "\uffff" else "?"
        for c in text
    )
    return legal.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _attribute(text: str) -> str:
    return _xml(text).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")
