"""Findings that depend on what lies beside the script."""

from pathlib import Path

import pytest

from recommender.review.engine import review

TEXT = "lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --tp 1 --chat-template own.json\n"


@pytest.mark.parametrize("there", [True, False])
def test_a_template_that_is_not_there_is_said_and_kept(tmp_path: Path, there: bool) -> None:
    """The server may start in another folder, so that only the text differs: no warning, no repair."""
    script = tmp_path / "serve.sh"
    script.write_text(TEXT)
    if there:
        (tmp_path / "own.json").write_text("{}")
    found = review(str(script), TEXT, {"lmdeploy": "0.18.0"}).findings
    (finding,) = [finding for finding in found if finding.rule.id == "LMD116"]
    assert (finding.severity, finding.fix) == ("info", None)
    assert ("is not in the script's folder" in finding.message) != there


def test_a_text_that_is_no_file_is_left_alone() -> None:
    """From stdin nothing tells what lies where it will run."""
    found = [finding for finding in review("-", TEXT).findings if finding.rule.id == "LMD116"]
    assert [(each.severity, each.fix) for each in found] == [("info", None)]
