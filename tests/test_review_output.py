"""What a review writes: text, JSON, SARIF, workflow commands of GitHub, JUnit."""

from __future__ import annotations

import json
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import jsonschema
import pytest
from artefacts import KNOWLEDGE
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts import place_of, read_bash

from recommender.review import engine
from recommender.review.output import json_output, sarif
from recommender.review.output import text as output
from recommender.review.rule import Diagnostic, Finding, Fix, Rule

SERVE = "lmdeploy serve api_server OpenGVLab/InternVL3-8B-AWQ"
ODD = "a:b,c%d\r\ne]]>&<\"'\t\x00\x1b[31m\ud800\ufffe Tiếng Việt 漢"
ALL = frozenset({"error", "warning", "info"})


def rule(severity: str = "warning", **more: Any) -> Rule:
    return Rule("LMD900", "odd-thing", "nothing", severity, **({"sources": ()} | more))  # type: ignore[arg-type]


def review(
    text: str, *said: Diagnostic, path: str = "deploy.sh", severity: str = "warning", **more: Any
) -> engine.Review:
    script = read_bash(path, text)
    found = tuple(Finding(rule(severity, **more), path, each) for each in said)
    return engine.Review(path, script, found, {"gpu": frozenset({"LMD901", "LMD902"})})


def about(text: str, part: str, **more: Any) -> Diagnostic:
    return Diagnostic(place_of(text, part), **({"message": "It is odd.", "why": "Odd things break."} | more))


TEXT = f"#!/bin/bash\n{SERVE} \\\n\t--tp 7 --quant-policy 8\n"
FIXED = about(TEXT, "7", fix=Fix(((place_of(TEXT, "7"), "4"),), "use 4"))


# --- text


def test_a_finding_as_text() -> None:
    """Place, rule, severity and what; the line with a mark below; why, where from, the repair."""
    assert list(output.text([review(TEXT, FIXED, sources=("https://example.org/a", "flags/tp"))])) == [
        "deploy.sh:3:7: LMD900 warning It is odd.",
        "     --tp 7 --quant-policy 8",
        "          ^",
        "  why: Odd things break.",
        "  source: https://example.org/a",
        "  fix: use 4",
        "",
        "1 file, 1 launch: 1 warning; --fix repairs 1.",
        "2 rules skipped; pass --gpu to run more (--rules lists them).",
    ]


def test_rules_that_no_option_would_wake_are_counted_apart() -> None:
    """They ask for an estimate, and there is none for the way the launch spreads its model."""
    made = review(TEXT)._replace(silent={"estimate": frozenset({"LMD901"}), "load": frozenset({"LMD902"})})
    assert list(output.text([made]))[-2:] == [
        "1 rule skipped; pass --load to run more (--rules lists them).",
        "1 rule skipped: no estimate knows how a launch spreads its model over GPUs.",
    ]


def test_a_finding_in_one_line() -> None:
    """The short form is the first line of the long one, and the summary."""
    made = list(output.text([review(TEXT, FIXED, about(TEXT, "--tp", message="Line\nend."))], short=True))
    assert made[:2] == ["deploy.sh:3:7: LMD900 warning It is odd.", "deploy.sh:3:2: LMD900 warning Line end."]
    assert made[2] == "1 file, 1 launch: 2 warnings; --fix repairs 1."


def test_a_finding_names_what_it_rests_on() -> None:
    """The finding's own sources come before the rule's, of which only the first is named."""
    own = about(TEXT, "7", sources=("https://example.org/own",))
    (finding,) = review(TEXT, own, sources=("https://example.org/a",)).findings
    assert output.sources(finding) == "https://example.org/own"


def test_a_clean_review_is_one_line() -> None:
    """A clean review prints one line."""
    script = read_bash("x", "echo")
    assert list(output.text([engine.Review("x", script, ())])) == ["1 file, 0 launches: nothing found."]


@pytest.mark.parametrize("part", ["--tp", "7", "lmdeploy", "#!/bin/bash", "8\n"])
def test_the_mark_stands_below_the_place(part: str) -> None:
    """Tabs and indentation do not move it."""
    finding = review(TEXT, about(TEXT, part)).findings[0]
    shown, caret = output.excerpt(TEXT, finding)
    start = caret.index("^")
    assert shown[start : start + len(caret) - start] == part.strip("\n")


@given(
    st.text(alphabet="ab \t\n\r漢é\u0301\x1b\x00'\"", max_size=200),
    st.integers(0, 250),
    st.integers(0, 60),
    st.text(max_size=60),
)
def test_no_line_is_wider_than_80_and_none_holds_a_control_character(text: str, at: int, size: int, path: str) -> None:
    """This holds for any file, name and message; only one long word may be wider."""
    start = min(at, len(text))
    place = read_bash("x", text).place(start, min(start + size, len(text)))
    made = output.text(
        [review(text, Diagnostic(place, f"{text} is odd.", "why", Fix(((place, ""),), "mend")), path=path)]
    )
    for line in made:
        width = sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line if not unicodedata.combining(c))
        assert width <= 80 or len(line.split()) <= 3 or not line.isascii()
        assert line.isprintable()


def test_a_long_line_is_cut_around_the_place() -> None:
    """The shown part contains the place."""
    text = f"{SERVE} {'--x 1 ' * 60}--tp 3 {'--y 2 ' * 60}"
    shown, caret = output.excerpt(text, review(text, about(text, "--tp")).findings[0])
    assert len(shown) <= 76
    assert shown.startswith("...")
    assert shown.endswith("...")
    assert shown[caret.index("^") :].startswith("--tp")


def test_colour_changes_no_word() -> None:
    """Only escapes are added."""
    plain = list(output.text([review(TEXT, FIXED)]))
    coloured = list(output.text([review(TEXT, FIXED)], colour=True))
    assert plain != coloured
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in coloured] == plain


# --- JSON


def test_the_json_is_what_its_schema_says() -> None:
    """The output matches the committed schema; lines and columns count from 1."""
    schema = json.loads((KNOWLEDGE / "schema/review.json").read_text("utf-8"))
    made = json.loads(json_output.as_json([review(TEXT, FIXED), review(ODD, about(ODD, "漢", message=ODD), path=ODD)]))
    jsonschema.validate(made, schema)
    first = made["findings"][0]
    assert first["at"] == {"line": 3, "column": 7, "end_line": 3, "end_column": 8}
    assert first["fix"] == {"what": "use 4", "edits": [{"at": first["at"], "text": "4"}]}
    assert made["silent"] == [{"needs": "gpu", "rules": ["LMD901", "LMD902"]}]
    assert (made["warning"], made["launches"], made["files"]) == (2, 1, ["deploy.sh", ODD])


def test_a_place_over_several_lines_has_its_end() -> None:
    """The end is the first character beyond it."""
    script = read_bash("x", "ab\ncd\nef")
    assert json_output.spot(script, script.place(1, 7)) == json_output.Spot(1, 2, 3, 2)
    assert json_output.spot(script, script.place(1, 3)) == json_output.Spot(1, 2, 2, 1)
    assert json_output.spot(script, script.place(8, 8)) == json_output.Spot(3, 3, 3, 3)


# --- SARIF: the parts of the standard's schema that are used here, with nothing else allowed beside them


def closed(required: str, **properties: object) -> dict[str, object]:
    """An object with these properties only."""
    return {
        "type": "object",
        "required": required.split(),
        "properties": properties,
        "additionalProperties": False,
    }


def several(item: object, **more: object) -> dict[str, object]:
    return {"type": "array", "items": item, **more}


STRING, INDEX = {"type": "string"}, {"type": "integer", "minimum": 0}
FROM_1 = {"type": "integer", "minimum": 1}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
MESSAGE = closed("text", text={"type": "string", "minLength": 1}, markdown=STRING)
URI = {"type": "string", "pattern": r"^[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+$"}
LOCATION = closed("uri", uri=URI, index=INDEX)
REGION = closed(
    "startLine startColumn endLine endColumn", startLine=FROM_1, startColumn=FROM_1, endLine=FROM_1, endColumn=FROM_1
)
REPLACEMENT = closed("deletedRegion insertedContent", deletedRegion=REGION, insertedContent=closed("text", text=STRING))
CHANGE = closed(
    "artifactLocation replacements", artifactLocation=LOCATION, replacements=several(REPLACEMENT, minItems=1)
)
RULE = closed(
    "id shortDescription help",
    id=STRING,
    name={"type": "string", "pattern": "^[A-Z][A-Za-z0-9]+$"},
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=MESSAGE,
    defaultConfiguration=closed("level", level=LEVEL),
    properties=closed("tags", tags=several(STRING, uniqueItems=True), sources=several(STRING)),
)
RESULT = closed(
    "ruleId ruleIndex level message locations",
    ruleId=STRING,
    ruleIndex=INDEX,
    level=LEVEL,
    message=MESSAGE,
    locations=several(
        closed(
            "physicalLocation",
            physicalLocation=closed("artifactLocation region", artifactLocation=LOCATION, region=REGION),
        ),
        minItems=1,
    ),
    partialFingerprints={"type": "object", "additionalProperties": STRING},
    fixes=several(
        closed("artifactChanges", description=MESSAGE, artifactChanges=several(CHANGE, minItems=1)), uniqueItems=True
    ),
)
NOTE = closed("message", level=LEVEL, message=MESSAGE, associatedRule=closed("id", id=STRING, index=INDEX))
RUN = closed(
    "tool results columnKind",
    tool=closed(
        "driver",
        driver=closed(
            "name rules", name=STRING, version=STRING, semanticVersion=STRING, rules=several(RULE, uniqueItems=True)
        ),
    ),
    columnKind={"const": "unicodeCodePoints"},
    invocations=several(
        closed("executionSuccessful", executionSuccessful={"type": "boolean"}, toolExecutionNotifications=several(NOTE))
    ),
    artifacts=several(closed("location", location=LOCATION), uniqueItems=True),
    results=several(RESULT),
)
SARIF = closed("version runs", **{"$schema": URI}, version={"const": "2.1.0"}, runs=several(RUN, minItems=1))


def test_the_sarif_is_of_the_standards_shape() -> None:
    """Every rule has help, each result its rule's index, places are within the file."""
    made = json.loads(
        sarif.as_sarif([review(TEXT, FIXED), review(ODD, about(ODD, "漢", message=ODD), path="/ä b/%.sh")])
    )
    jsonschema.validate(made, SARIF)
    (run,) = made["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [each["id"] for each in rules] == ["LMD900"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        location = result["locations"][0]["physicalLocation"]["artifactLocation"]
        assert run["artifacts"][location["index"]]["location"]["uri"] == location["uri"]
    first, second = run["results"]
    assert first["fixes"][0]["artifactChanges"][0]["replacements"][0]["insertedContent"]["text"] == "4"
    assert unquote(second["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]) == "file:///ä b/%.sh"
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"].endswith(
        "not known: LMD901, LMD902"
    )


def test_the_sarif_of_a_finding_is_small() -> None:
    """Only rules that found something are described."""
    found = engine.review("x.sh", f"{SERVE} --tp 3 --quant-polcy 8\n")
    assert {"LMD101"} <= {finding.rule.id for finding in found.findings}
    assert len(sarif.as_sarif([found]).encode()) < 50_000


def test_the_mark_of_a_result_outlives_lines_above_it() -> None:
    """The fingerprint stays the same if lines above change."""
    below = f"# more\n{TEXT}"
    first, second = (
        json.loads(sarif.as_sarif([review(each, about(each, "7"))]))["runs"][0]["results"][0]["partialFingerprints"]
        for each in (TEXT, below)
    )
    assert first == second


# --- GitHub


def test_workflow_commands_are_escaped() -> None:
    """Each command is one line, escaped as GitHub requires."""
    made = json_output.as_github([review(ODD, about(ODD, "漢", message=ODD), path="a:b,c%\n.sh", severity="info")])
    (line,) = made.splitlines()[:1]
    match = re.fullmatch(
        r"::notice file=([^:,]+),line=2,endLine=2,col=(\d+),endColumn=\2,title=LMD900 odd-thing::(.*)", line
    )
    assert match
    assert match[1] == "a%3Ab%2Cc%25%0A.sh"
    assert match[3].startswith("a:b,c%25d%0D%0Ae]]>")
    assert made.count("\n") == 1


def test_a_place_over_several_lines_has_no_columns() -> None:
    """GitHub takes columns within one line only."""
    text = "ab\ncd\n"
    script = read_bash("x", text)
    made = json_output.as_github([review(text, Diagnostic(script.place(0, 5), "No.", "No."), severity="error")])
    assert made.startswith("::error file=deploy.sh,line=1,endLine=2,title=")


# --- JUnit


def test_junit_is_xml_with_failures_where_it_fails() -> None:
    """One suite per file, with correct counts, for any text."""
    reviews = [review(TEXT, FIXED), review(ODD, about(ODD, "漢", message=ODD), path=ODD), review("echo", path="clean")]
    root = ET.fromstring(json_output.as_junit(reviews, [ALL, frozenset(), ALL]))
    assert (root.get("tests"), root.get("failures")) == ("3", "1")
    assert [(each.get("tests"), each.get("failures")) for each in root] == [("1", "1"), ("1", "0"), ("1", "0")]
    (failure,) = root.iter("failure")
    assert failure.get("message") == "It is odd."
    assert [each.get("name") for each in root[2]] == ["clean"]


# --- all


def _forms(reviews: list[engine.Review]) -> Iterator[str]:
    yield "".join(output.text(reviews))
    yield json_output.as_json(reviews)
    yield json_output.as_github(reviews)
    yield json_output.as_junit(reviews, [ALL] * len(reviews))
    yield sarif.as_sarif(reviews)


@settings(max_examples=25)
@given(st.text(max_size=80), st.integers(0, 90), st.integers(0, 90), st.text(max_size=20))
def test_any_text_and_place_can_be_written(text: str, start: int, size: int, path: str) -> None:
    """No format fails on odd input; machine formats can be parsed."""
    start = min(start, len(text))
    place = read_bash("x", text).place(start, min(start + size, len(text)))
    made = [review(text, Diagnostic(place, text or "No.", path or "No."), path=path or "x")]
    _, as_json, as_github, as_junit, as_sarif = _forms(made)
    assert json.loads(as_json)["findings"][0]["path"] == (path or "x")
    assert as_github.count("\n") == 1
    ET.fromstring(as_junit.encode("utf-8"))
    jsonschema.validate(json.loads(as_sarif), SARIF)
