"""What a review found as SARIF 2.1.0, which code scanning services read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any
from urllib.parse import quote

from recommender import __version__
from recommender.review import engine
from recommender.review.engine import Review
from recommender.review.machine import Spot, spot
from recommender.review.output import silent, sources
from recommender.review.rule import Finding, Rule
from recommender.review.script import Script

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS = {"error": "error", "warning": "warning", "info": "note"}


def as_sarif(reviews: Sequence[Review]) -> str:
    """One run, with every rule and its page; only ASCII."""
    shown = {each.rule.id: each.rule for review in reviews for each in review.findings}
    rules = sorted({each.id: each for each in (*engine.rules(), *shown.values())}.values(), key=lambda each: each.id)
    index = {rule.id: number for number, rule in enumerate(rules)}
    run = {
        "tool": {
            "driver": {
                "name": "recommend review",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(each) for each in rules],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notes(reviews, index)}],
        "artifacts": [{"location": {"uri": uri(each.path)}} for each in reviews],
        "results": [
            _result(review, each, index[each.rule.id], number)
            for number, review in enumerate(reviews)
            for each in review.findings
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2, ensure_ascii=True) + "\n"


def uri(path: str) -> str:
    """A path as a relative reference, or an absolute one; stdin is called so."""
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
        "fullDescription": {"text": rest.strip().partition("\n\n")[0].replace("\n", " ") or title},
        "help": {"text": page, "markdown": f"# {page}"},
        "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"tags": [rule.family], "sources": list(rule.sources)},
    }


def _notes(reviews: Sequence[Review], index: Mapping[str, int]) -> list[dict[str, Any]]:
    """Which rules could not judge, and why."""
    return [
        {
            "level": "note",
            "message": {"text": f"{name} stayed silent: the {need} is not known"},
            "associatedRule": {"id": name} | ({"index": index[name]} if name in index else {}),
        }
        for need, names in silent(reviews).items()
        for name in names
    ]


def _region(at: Spot) -> dict[str, int]:
    return {
        "startLine": at.line,
        "startColumn": at.column,
        "endLine": at.end_line,
        "endColumn": at.end_column,
    }


def _result(review: Review, finding: Finding, index: int, artifact: int) -> dict[str, Any]:
    said, location = finding.said, {"uri": uri(finding.path), "index": artifact}
    cited = sources(finding)
    told = [said.message, said.why, f"Source: {cited}" if cited else ""]
    made: dict[str, Any] = {
        "ruleId": finding.rule.id,
        "ruleIndex": index,
        "level": LEVELS[finding.severity],
        "message": {"text": "\n".join(each for each in told if each)},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": location,
                    "region": _region(spot(review.script, said.place)),
                }
            }
        ],
        "partialFingerprints": {"lineHash/v1": _fingerprint(review.script, finding)},
    }
    if said.fix:
        made["fixes"] = [
            {
                "description": {"text": said.fix.what},
                "artifactChanges": [
                    {
                        "artifactLocation": location,
                        "replacements": [
                            {
                                "deletedRegion": _region(spot(review.script, place)),
                                "insertedContent": {"text": new},
                            }
                            for place, new in said.fix.edits
                        ],
                    }
                ],
            }
        ]
    return made


def _fingerprint(script: Script, finding: Finding) -> str:
    """The same finding's mark after lines were added above it."""
    place = finding.said.place
    start = script.text.rfind("\n", 0, place.start) + 1
    line = script.text[start:].partition("\n")[0].strip()
    return hashlib.sha256(f"{finding.rule.id}\0{line}\0{place.column}".encode("utf-8", "replace")).hexdigest()[:32]
