"""What a shell within a shell knows of the variables around it: bash itself says what it passes on."""

import os
import subprocess
from pathlib import Path

import pytest

from recommender.review.readers.detect_kind import read

SERVER = "lmdeploy serve api_server Qwen/Qwen2.5-7B-Instruct --session-len"
UNKNOWN = """
    N=4096; bash -c 'SERVER "$N"'
    N=4096; sh -c 'SERVER $N'
    N=4096; nohup setsid bash -c 'SERVER "$N"'
    N=4096; export -n N; bash -c 'SERVER "$N"'
    export N=4096; unset N; bash -c 'SERVER "$N"'
    export N=4096; env -i "PATH=$PATH" bash -c 'SERVER "$N"'
    N=4096; bash -c 'SERVER "$N"' ignored 2048
    f() { local N=4096; bash -c 'SERVER "$N"'; }; f
"""
KNOWN = """
    export N=4096; bash -c 'SERVER "$N"'
    N=4096; export N; bash -c 'SERVER "$N"'
    export N; N=4096; bash -c 'SERVER "$N"'
    declare -x N=4096; bash -c 'SERVER "$N"'
    set -a; N=4096; set +a; bash -c 'SERVER "$N"'
    N=4096; N=2048 bash -c 'SERVER "$N"'
    N=4096; M=$N bash -c 'SERVER "$M"'
    N=4096; env N=2048 sh -c 'SERVER "$N"'
    export N=4096; bash -c "bash -c 'SERVER \\$N'"
    N=4096; bash -c 'N=2048; SERVER $N'
    N=4096; bash -c 'SERVER ${N:-2048}'
    N=4096; bash -c 'SERVER $1' ignored $N
    N=4096; bash -c "SERVER $N"
    N=4096; bash -c "bash -c 'SERVER $N'"
    N=4096; bash -c 'SERVER '"$N"
    N=4096; bash -c 'SERVER '"'$N'"
    N=4096; bash -c 'SERVER '$N''
    N=4096; eval 'SERVER $N'
    N=4096; (SERVER $N)
    N=4096; trap 'SERVER $N' EXIT
    export N=4096; bash -c 'f() { SERVER $N; }; f'
"""
HERE = "{before}\nbash <<{mark}\nSERVER $N\nEOF\n"
DOCUMENTS = [
    HERE.format(before="N=4096", mark="'EOF'"),
    HERE.format(before="export N=4096", mark="'EOF'"),
    HERE.format(before="N=4096", mark="EOF"),
]


def listed(lines: str) -> list[str]:
    return [line.strip() for line in lines.strip().splitlines()]


def given(text: str, folder: Path) -> str:
    """Run a script with a program that prints its last word in the server's place; return what it prints."""
    program = folder / "lmdeploy"
    program.write_text('#!/bin/sh\n[ $# -lt 5 ] || echo "$5"\n', encoding="utf-8")
    program.chmod(0o755)
    path = f"{folder}:{os.environ['PATH']}"
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, env={"PATH": path}, check=False)
    return done.stdout.strip()


@pytest.mark.parametrize("text", [*listed(UNKNOWN), *listed(KNOWN), *DOCUMENTS])
def test_an_inner_shell_has_what_the_outer_one_exports(text: str, tmp_path: Path) -> None:
    """A value is what bash gives the server; where bash gives nothing, it is unknown."""
    script = text.replace("SERVER", SERVER)
    words = [word.value for launch in read("x.sh", script).launches for word in launch.options[0].values]
    assert (words or [None]) == [given(script, tmp_path) or None]


def test_half_of_the_cases_are_known(tmp_path: Path) -> None:
    """The cases tell both answers apart."""
    assert all(not given(text.replace("SERVER", SERVER), tmp_path) for text in listed(UNKNOWN))
    assert all(given(text.replace("SERVER", SERVER), tmp_path) for text in listed(KNOWN))
