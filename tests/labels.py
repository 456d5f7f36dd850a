"""The form of what was labelled by hand, which the corpus of commands and the golden reviews of the seeds share."""

from pathlib import Path
from typing import Any

from seeds import ROOT

from recommender.knowledge.records import CodeSource
from recommender.maintenance.citations import in_wheel

RELEASES = {path.stem for path in (ROOT / "knowledge" / "releases").glob("*.yaml")}
FAMILIES = {
    "starts-at-all": "starts", "answers-the-workload": "answers", "does-nothing": "nothing",
    "costs-memory-or-speed": "costs", "safety": "safety", "operations": "operations",
}  # fmt: skip
"""The families of the labels, each with its name among the rules."""
SEVERITIES = {"error", "warning", "info"}
CONTEXT = ["release", "release_from", "gpu", "gpus", "model", "load"]
LABEL = ["what", "where", "family", "severity", "why", "source"]
MAYBE = ["what", "where", "depends_on"]
LONGEST_LINE = 120


def assert_file(path: Path, one: dict[str, Any]) -> None:
    """The context stands in its order and names a release, and no line of the file is long."""
    assert list(one["context"]) == CONTEXT
    assert one["context"]["release"] in RELEASES
    assert max(map(len, path.read_text(encoding="utf-8").split("\n"))) <= LONGEST_LINE


def assert_label(label: dict[str, Any], other: str) -> None:
    """A label's fields, and where it is from: lines of code, what is evident, or the one other kind."""
    assert list(label) == LABEL
    assert label["family"] in FAMILIES
    assert label["severity"] in SEVERITIES
    assert label["source"], f"{label['what']}: no source"
    assert set(label["source"]) <= {"code", "evident", other}
    for code in label["source"].get("code", []):
        CodeSource.model_validate(code)
        assert code["release"] in RELEASES or not in_wheel(code["path"])
