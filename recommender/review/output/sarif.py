"""Write reviews as SARIF 2.1.0 for code scanning services."""

import hashlib
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from recommender.common.terminal import json_text
from recommender.common.version import __version__
from recommender.review import engine
from recommender.review.engine import Review
from recommender.review.output.json_output import Spot, spot
from recommender.review.output.text import silent, sources
from recommender.review.rule import Finding, Rule
from recommender.review.script.model import Script

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def as_sarif(reviews: Sequence[Review]) -> str:
    """Return one SARIF run with the rules that found something, in ASCII."""
    shown = {finding.rule.id: finding.rule for review in reviews for finding in review.findings}
    rules = sorted(shown.values(), key=lambda rule: rule.id)  # a file of one finding stays small
    index = {rule.id: number for number, rule in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "recommend review",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(rule) for rule in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notes(reviews)}],
        "artifacts": [{"location": {"uri": uri(review.path)}} for review in reviews],
        "results": [
            _result(review, finding, index[finding.rule.id], number)
            for number, review in enumerate(reviews)
            for finding in review.findings
        ],
    }
    return json_text({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]})


def uri(path: str) -> str:
    """Return a path as a URI reference; ``-`` is "stdin"."""
    if path == "-":
        return "stdin"
    pure = PurePath(path)
    text = quote(pure.as_posix().encode("utf-8", "surrogateescape"), safe="/~!$&'()*+,;=@")
    return f"file://{text}" if pure.is_absolute() else text


def _rule(rule: Rule) -> dict[str, Any]:
    page = engine.page(rule) or rule.name
    title, _, rest = page.partition("\n")
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": title.rstrip(".") + "."},
        "fullDescription": {
            "text": rest.strip().removeprefix("## What it does\n").partition("\n\n")[0].replace("\n", " ") or title
        },
        "help": {"text": page, "markdown": f"# {page}"},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"tags": [rule.family], "sources": list(rule.sources)},
    }


def _notes(reviews: Sequence[Review]) -> list[dict[str, Any]]:
    """Return a notification for each missing input, with the rules that it skips."""
    return [
        {"level": "note", "message": {"text": f"skipped, the {need} is not known: {', '.join(names)}"}}
        for need, names in silent(reviews).items()
    ]


def _region(at: Spot) -> dict[str, int]:
    return {
        "startLine": at.line,
        "startColumn": at.column,
        "endLine": at.end_line,
        "endColumn": at.end_column,
    }


def _result(review: Review, finding: Finding, index: int, artifact: int) -> dict[str, Any]:
    diagnostic, location = finding.diagnostic, {"uri": uri(finding.path), "index": artifact}
    cited = sources(finding)
    parts = [diagnostic.message, diagnostic.why, f"Source: {cited}" if cited else ""]
    result: dict[str, Any] = {
        "ruleId": finding.rule.id,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": "\n".join(part for part in parts if part)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": location,
                    "region": _region(spot(review.script, diagnostic.place)),
                }
            }
        ],
        "partialFingerprints": {"lineHash/v1": _fingerprint(review.script, finding)},
    }
    if diagnostic.fix:
        result["fixes"] = [
            {
                "description": {"text": diagnostic.fix.description},
                "artifactChanges": [
                    {
                        "artifactLocation": location,
                        "replacements": [
                            {
                                "deletedRegion": _region(spot(review.script, place)),
                                "insertedContent": {"text": new},
                            }
                            for place, new in diagnostic.fix.edits
                        ],
                    }
                ],
            }
        ]
    return result


def _fingerprint(script: Script, finding: Finding) -> str:
    """Return a hash that stays the same when lines above are added."""
    place = finding.place
    start = script.text.rfind("\n", 0, place.start) + 1
    line = script.text[start:].partition("\n")[0].strip()
    return hashlib.sha256(f"{finding.rule.id}\0{line}\0{place.column}".encode("utf-8", "replace")).hexdigest()[:32]
