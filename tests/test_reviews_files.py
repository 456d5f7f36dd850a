"""The labelled files of many kinds: their form, and that each label points into its text."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from labels import FAMILIES, LONGEST_LINE, SEVERITIES
from seeds import ROOT

FOLDER = ROOT / "tests" / "reviews" / "files"
FILES = sorted(FOLDER.glob("*.yaml"))
REQUIRED = {"id", "path", "text", "source", "context", "launches", "labels", "maybe"}
LONGEST_TEXT = 700


@cache
def entry(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def test_there_are_enough_of_each_kind() -> None:
    """Over eleven hundred files, with half of them no shell scripts, and many without any fault."""
    entries = [entry(path) for path in FILES]
    assert len(entries) >= 1150
    assert sum(not one["path"].endswith(".sh") for one in entries) * 2 >= len(entries)
    assert sum(not one["labels"] for one in entries) >= 100
    assert sum("beside" in one for one in entries) >= 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_has_its_fields(path: Path) -> None:
    """The fields hold what the README says, and each label points into the text and names its source."""
    one = entry(path)
    assert set(one) - {"beside", "windows"} == REQUIRED
    assert one["id"] == path.stem
    assert set(one["source"]) <= {"shape", "found", "opened"}
    assert list(one["context"]) == ["release", "gpu", "load"]
    assert isinstance(one["launches"], int)
    assert len(path.read_text("utf-8").split("\n")) <= LONGEST_TEXT
    for label in one["labels"]:
        assert [name for name in label if name != "rule"] == ["what", "where", "family", "severity", "source"]
        assert label["family"] in {*FAMILIES, "unread"}
        assert label["severity"] in SEVERITIES - {"info"}
        assert source_exists(label["source"]), label["source"]
    for each in [*one["labels"], *one["maybe"]]:
        assert len(each["what"]) <= LONGEST_LINE
        if isinstance(each["where"], str):
            assert each["where"] in one["text"]
        else:
            assert 1 <= each["where"]["line"] <= each["where"].get("to", 10**6)
            assert each["where"].get("to", 1) <= one["text"].count("\n") + 1


def source_exists(name: str) -> bool:
    """A label is evident, or names a record, or the parser of a release."""
    kind, _, rest = name.partition(" ")
    if kind in ("evident", "parser"):
        return (kind == "evident") == (rest == "")
    return (ROOT / "knowledge" / f"{name}.yaml").exists()
