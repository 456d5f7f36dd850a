"""The corpus of published launch commands: its form, and that each label points into its text."""

import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from labels import FAMILIES, MAYBE, SEVERITIES, assert_file, assert_label
from seeds import ROOT

FOLDER = ROOT / "tests" / "reviews" / "corpus"
FILES = sorted(FOLDER.glob("*.yaml"))
KINDS = {"bash", "docker", "compose", "kubernetes", "python", "command"}
FIELDS = ["id", "kind", "text", "source", "context", "labels", "maybe"]
MOST_LINES = 15


@cache
def entry(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def entries() -> list[dict[str, Any]]:
    return [entry(path) for path in FILES]


def labels() -> list[tuple[str, dict[str, Any]]]:
    return [(one["id"], label) for one in entries() for label in one["labels"]]


def test_there_are_enough_and_enough_are_clean() -> None:
    """Enough commands of each kind and family, and a third of them without a fault."""
    clean = [one["id"] for one in entries() if not one["labels"]]
    assert len(FILES) >= 60
    assert len(clean) >= 20
    assert len(clean) * 3 >= len(FILES), "at least a third is clean"
    assert {one["kind"] for one in entries()} == KINDS
    assert {label["family"] for _, label in labels()} == set(FAMILIES)
    assert {label["severity"] for _, label in labels()} == SEVERITIES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_command_has_its_fields(path: Path) -> None:
    """The fields stand in their order and hold what the README says."""
    one = entry(path)
    assert list(one) == FIELDS
    assert one["id"] == path.stem
    assert one["kind"] in KINDS
    assert_file(path, one)
    assert one["context"]["release_from"] in {"told", "implied", "assumed"}
    assert isinstance(one["context"]["gpus"], int)
    assert all(isinstance(one["context"][name], str) for name in ("gpu", "model", "load"))
    assert 1 <= len(one["text"].rstrip("\n").split("\n")) <= MOST_LINES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_source_can_be_found_again(path: Path) -> None:
    """A page, or a file of a repository at a tag or a commit."""
    source = entry(path)["source"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", source["opened"])
    if "url" in source:
        assert set(source) == {"url", "opened"}
        assert source["url"].startswith("https://")
    else:
        assert set(source) - {"line"} == {"repository", "at", "path", "opened"}
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", source["repository"])
        assert re.fullmatch(r"v[\d.]+(post\d+)?|[0-9a-f]{40}", source["at"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_labels_point_into_its_text(path: Path) -> None:
    """What a label is about stands in the text, and a label says why and from where."""
    one = entry(path)
    for label in one["labels"]:
        assert_label(label, "pages")
        assert label["where"] in one["text"], label["where"]
        for page in label["source"].get("pages", []):
            assert set(page) == {"url", "opened", "says"}
    for maybe in one["maybe"]:
        assert list(maybe) == MAYBE
        assert maybe["where"] in one["text"], maybe["where"]


def test_no_command_is_labelled_twice_for_the_same_thing() -> None:
    """One finding is one label."""
    counted = Counter((name, label["what"], label["where"]) for name, label in labels())
    assert [key for key, times in counted.items() if times > 1] == []
