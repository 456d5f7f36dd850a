"""Findings that depend on what lies beside the script."""

from __future__ import annotations

from pathlib import Path

import pytest

from recommender.review.engine import review

TEXT = "lmdeploy serve api_server OpenGVLab/InternVL3-8B-hf --tp 1 --chat-template own.json\n"


@pytest.mark.parametrize("there", [True, False])
def test_a_template_that_is_not_there_is_taken_out(tmp_path: Path, there: bool) -> None:
    """A file beside the script is the author's choice; one that is missing would stop the start."""
    script = tmp_path / "serve.sh"
    script.write_text(TEXT)
    if there:
        (tmp_path / "own.json").write_text("{}")
    (finding,) = [each for each in review(str(script), TEXT).findings if each.rule.id == "LMD116"]
    assert finding.severity == ("info" if there else "warning")
    assert (finding.said.fix is None) == there
    if finding.said.fix:
        ((place, text),) = finding.said.fix.edits
        assert (TEXT[: place.start] + text + TEXT[place.end :]).split() == TEXT.split()[:-2]


def test_a_text_that_is_no_file_is_left_alone() -> None:
    """From stdin nothing tells what lies where it will run."""
    found = [each for each in review("-", TEXT).findings if each.rule.id == "LMD116"]
    assert [(each.severity, each.said.fix) for each in found] == [("info", None)]
