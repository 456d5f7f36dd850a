"""A review without --fix promises only the repairs that --fix keeps."""

from pathlib import Path

import pytest
from artefacts import Called


@pytest.mark.parametrize(
    ("options", "repairs"),
    [
        ("--sesion-len 4096 --session-len 8192", ""),
        ("--sesion-len 4096", "; --fix repairs 1"),
        ("--sesion-len 4096 --session-len 8192 --quant_polcy 8", "; --fix repairs 1"),
    ],
)
def test_a_review_counts_the_repairs_that_fix_keeps(options: str, repairs: str, tmp_path: Path, call: Called) -> None:
    """A right spelling that a later option overrides repairs nothing, so it is not promised."""
    script = Path("start.sh")
    script.write_text(f"lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --server-name 127.0.0.1 {options}\n")
    _, out, _ = call("--lmdeploy", "0.18.0", str(script))
    assert out.count(repairs or "--fix repairs") == bool(repairs)
    _, _, err = call("--lmdeploy", "0.18.0", "--fix", str(script))
    assert err.count("did you mean") + err.count("write --") == bool(repairs)
