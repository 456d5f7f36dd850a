"""The one screen: its size, what it says was assumed, and that what it tells people to run runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from artefacts import recommend_process, requests
from hypothesis import given, settings
from test_properties import fits

from recommender.cli import COMMANDS, root
from recommender.render.screen import screen
from recommender.request.request import Request

MAIN = ("--gpu", "A100-80G", "--load", "single")


def told(*words: str) -> str:
    done = recommend_process(*words)
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


@settings(max_examples=60)
@given(request=requests())
def test_it_is_one_screen(request: Request) -> None:
    """Whatever is asked: at most 30 lines of 80 columns, with the settings that the script has."""
    made = fits(request)
    lines = screen(made, ("gpu",), ("--gpu", request.gpu), "serve.sh", drawn=True).splitlines()
    assert len(lines) <= 30, "\n".join(lines)
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)
    emitted = {each.name: each.value for each in made.explanations if each.emitted}
    at = next(number for number, line in enumerate(lines) if line.split()[:2] == ["SETTING", "VALUE"])
    for line in lines[at + 1 :]:
        if not line.startswith("  ") or line.startswith("  and "):
            break
        name, value = line.split()[:2]
        assert emitted[name].startswith(value.removesuffix("...")), line


@pytest.mark.parametrize(
    ("words", "assumed"),
    [
        (
            (),
            [
                "LMDeploy 0.18.0",
                "model internvl3-8b-awq",
                "1 image of 448x448",
                "24 tokens of text in",
                "16 tokens out",
                "JSON",
                "16 CPU cores",
            ],
        ),
        (
            ("--model", "qwen2.5-7b-instruct"),
            ["LMDeploy", "tokens of text in", "tokens out", "16 CPU cores", "newest revision"],
        ),
        (("--model", "qwen2.5-7b-instruct", "--workload", "chat", "--cpus", "8"), ["LMDeploy", "newest revision"]),
        (
            ("--image", "1280x720", "--prompt-tokens", "30", "--output-tokens", "8", "--lmdeploy", "0.9.2"),
            ["model", "JSON", "CPU"],
        ),
    ],
)  # fmt: skip
def test_what_was_not_told_is_said(words: tuple[str, ...], assumed: list[str]) -> None:
    """Each assumption stands there, and none that the command line made."""
    said = " ".join(re.search(r"^assumed(.*?)^(note|$)", told(*MAIN, *words), re.M | re.S)[1].split())  # type: ignore[index]
    assert all(each in said for each in assumed), said
    assert len(said.split(", ")) == len(assumed)


def test_what_it_tells_people_to_run_runs(tmp_path: Path) -> None:
    """The command under "why" is answered with reasons and sources."""
    why = re.search(r"^  why +(recommend .*)$", told(*MAIN), re.M)
    assert why
    done = recommend_process(*shlex.split(why[1])[1:], "-o", str(tmp_path / "serve.sh"))
    assert done.returncode == 0
    assert b"\n    [0.18.0 lmdeploy/" in done.stderr


def test_a_model_with_code_asks_for_a_commit() -> None:
    """Without one the script would stop: the screen says so; with one it starts as it is."""
    assert "start    REVISION=COMMIT bash serve.sh" in told(*MAIN)
    pinned = recommend_process(*MAIN, "--revision", "0123abc")
    assert b"REVISION=${REVISION:-0123abc}" in pinned.stdout
    assert "start    bash serve.sh" in pinned.stderr.decode()
    assert "start    bash serve.sh" in told(*MAIN, "--model", "qwen2.5-7b-instruct")
    assert recommend_process(*MAIN, "--revision", "a b").returncode == 2


def test_left_over_gpus_are_said() -> None:
    """Three GPUs and a model that needs two: one is left over."""
    assert "2 of 3 GPUs are used" in told("--gpu", "A100-80G:3", "--model", "qwen2.5-72b-instruct", "--load", "64")
    assert "GPUs are used" not in told("--gpu", "A100-80G:2", "--model", "qwen2.5-72b-instruct", "--load", "64")


def test_edits_by_hand_are_kept(tmp_path: Path) -> None:
    """A file as it was written is replaced; with an edit only by --force."""
    script = tmp_path / "serve.sh"
    for words, code in (((), 0), (("--load", "4"), 0), (("--load", "8"), 3), (("--load", "8", "--force"), 0)):
        before = script.read_text() if script.exists() else ""
        done = recommend_process("--gpu", "A100-80G", *words, "-q", "-o", str(script))
        assert (done.returncode, (script.read_text() != before)) == (code, not code), words
        if "4" in words:
            script.write_text(script.read_text().replace("SERVER_PORT:-23333", "SERVER_PORT:-8000"))


SEALED = ("bash", "python", "client", "env", "docker", "json")


@pytest.mark.parametrize("form", [*SEALED, "command", "report"])
def test_no_work_of_a_person_is_lost(form: str, tmp_path: Path) -> None:
    """A file is replaced unasked only where its seal shows that nobody edited it, or where nothing would change."""
    file = tmp_path / "file"
    first, other = (("--gpu", "A100-80G", "--load", load, "-q", "--format", form) for load in ("2", "4"))

    def write(words: tuple[str, ...], *more: str) -> int:
        before = file.read_bytes() if file.exists() else b""
        done = recommend_process(*words, "-o", str(file), *more)
        assert (file.read_bytes() == before) or done.returncode == 0
        assert done.stderr.count(b"\n") == (done.returncode != 0)
        return done.returncode

    assert write(first) == 0
    made = file.read_bytes()
    assert write(first) == 0  # the same bytes again
    assert write(other) == (0 if form in SEALED else 3)
    file.write_bytes(made)
    head_lost = b"".join(line for line in made.splitlines(True) if b"rendered" not in line)
    for text in (
        made.replace(b"4096", b"8192"),
        made + b"more\n",
        head_lost,
        b"echo important\n",
        b"\xff\x00",
        b"{}\n",
    ):
        if text != made:
            file.write_bytes(text)
            assert write(other) == 3, text[-80:]
            assert file.read_bytes() == text
    assert write(other, "--force") == 0
    file.write_bytes(b"")
    assert write(other) == 0


def test_a_skill_of_your_own_is_kept(tmp_path: Path) -> None:
    """Neither file is written where one of them would replace another text."""
    (tmp_path / "examples.md").write_text("mine\n")
    done = recommend_process("mcp", "--skill", str(tmp_path))
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["examples.md"]
    assert recommend_process("mcp", "--skill", str(tmp_path), "--force").returncode == 0
    assert recommend_process("mcp", "--skill", str(tmp_path)).returncode == 0
    assert (tmp_path / "examples.md").read_text() != "mine\n"


def commands(group: click.Group = root, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:  # type: ignore[assignment]
    found: list[tuple[str, ...]] = [prefix]
    context: Any = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found += commands(command, (*prefix, name)) if isinstance(command, click.Group) else [(*prefix, name)]
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_help_is_one_screen(words: tuple[str, ...]) -> None:
    """At most 40 lines of 80 columns, and a way to the rest."""
    done = recommend_process(*words, "--help")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert "--help-all" in lines[-1]


@pytest.mark.parametrize("typed", ["reviw", "smok", "plna", "benchprompt"])
def test_a_mistyped_command_gets_the_nearest(typed: str) -> None:
    """One line that names it."""
    done = recommend_process(typed)
    said = done.stderr.decode()
    assert (done.returncode, said.count("\n")) == (2, 1)
    assert any(f"did you mean {name}" in said for name in COMMANDS), said


@pytest.mark.parametrize("typed", ["recommend", "recomend"])
def test_the_main_command_typed_twice(typed: str) -> None:
    """The error says to leave the word out."""
    done = recommend_process(typed, "--gpu", "L4")
    assert (done.returncode, done.stderr.decode().count("leave the word out")) == (2, 1)
