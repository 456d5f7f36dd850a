"""What the commands write to stdout: colour on a terminal alone, plain text of 80 columns, JSON of records."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from artefacts import BASH, KNOWLEDGE, recommend_process

from recommender.common import terminal
from recommender.knowledge.load import load

MAIN = ("--gpu", "A100-80G", "--load", "single")
COMMANDS = [
    ("compare", "--gpu", "A100-80G", "--load", "single"),
    ("explain", "--quant-policy"),
    ("diff", "0.9.2", "0.18.0"),
    ("list", "claims", "session"),
]


def on_terminal(*words: str, stream: str = "stdout", **changed: str) -> str:
    leader, follower = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(KNOWLEDGE.parent), "LC_ALL": "C.UTF-8", **changed}
    process = subprocess.Popen(
        [sys.executable, "-m", "recommender", *words],
        env={"TERM": "xterm-256color"} | environment,
        cwd=KNOWLEDGE.parent,
        **{"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, stream: follower},
    )
    os.close(follower)
    read = b"".join(_parts(leader))
    os.close(leader)
    assert process.wait(timeout=60) == 0
    return read.decode()


def _parts(leader: int) -> Iterator[bytes]:
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the last writer left
            return
        if not part:
            return
        yield part


@pytest.mark.parametrize(("words", "stream"), [*((each, "stdout") for each in COMMANDS[:3]), (MAIN, "stderr")])
def test_a_terminal_gets_colour_unless_it_asks_not_to(words: tuple[str, ...], stream: str) -> None:
    """Coloured on a terminal; plain with NO_COLOR, on a dumb one, and in a pipe: the same words, without bars."""
    coloured = on_terminal(*words, stream=stream)
    assert "\x1b[" in coloured
    shown = [word for word in re.sub(r"\x1b\[[0-9;]*m", "", coloured).split() if not set(word) <= set("█░")]
    piped = getattr(recommend_process(*words), stream).decode()
    for changed in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        plain = on_terminal(*words, stream=stream, **changed)
        assert "\x1b" not in plain + piped
        assert shown == plain.split() == piped.split()


@pytest.mark.parametrize("words", [*COMMANDS, (*MAIN, "-q", "--format", "report")])
def test_a_reader_may_leave_early(words: tuple[str, ...]) -> None:
    """It gets its line; a closed pipe is no error, and nothing is complained about."""
    command = f"{sys.executable} -m recommender {' '.join(words)} | head -1"
    done = subprocess.run([BASH, "-c", command], cwd=KNOWLEDGE.parent, capture_output=True, text=True, timeout=60)
    assert (done.returncode, len(done.stdout.splitlines()), done.stderr) == (0, 1, "")
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize("words", COMMANDS)
def test_json_is_ascii_and_stable(words: tuple[str, ...]) -> None:
    """Twice the same bytes, and a format number."""
    first, second = (recommend_process(*words, "--json").stdout for _ in range(2))
    assert first == second
    assert first.isascii()
    assert json.loads(first)["format"] == 1


def test_records_become_objects() -> None:
    """A record of the store keeps all its fields, tuples as lists."""
    made = terminal.plain(load().gpus["l4"])
    assert made["id"] == "l4"
    assert isinstance(made["rates"], list)
    assert made["rates"][0]["tera"] > 0


def test_a_long_line_of_a_list_ends_in_dots() -> None:
    """What fits stays, what does not is cut at 80."""
    assert terminal.cut("a" * 80) == "a" * 80
    assert terminal.cut("a" * 81) == "a" * 77 + "..."


def test_a_label_that_is_too_long_stands_before_its_text() -> None:
    """Its text begins behind it and goes on in its column."""
    first, second = terminal.labelled("a-label-that-is-long", "word " * 20)[:2]
    assert first.startswith("  a-label-that-is-long word")
    assert second.startswith(" " * 14 + "word")
