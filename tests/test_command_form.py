"""The bare command line, and the three lengths of the script's comments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from artefacts import Machine, found, recommend_here, requests, shellcheck
from click.testing import CliRunner
from hypothesis import given, settings
from test_properties import fits

from recommender.cli import root
from recommender.common.errors import RequestError
from recommender.render import command_line
from recommender.render.formats import render
from recommender.render.template import COMMENTS
from recommender.request.request import Request
from recommender.review import engine

MAIN = ("--gpu", "A100-80G", "--load", "single")


@settings(max_examples=40)
@given(request=requests(gpu_count=1))
def test_the_bare_command_is_what_the_script_launches(request: Request, shared_machine: Machine) -> None:
    """Five to fifteen lines, and the same words."""
    made = fits(request)
    try:
        command = render(made, "command")
    except RequestError:
        assert made.config.servers > 1
        return
    assert 5 <= len(command.splitlines()) <= 15, command
    script = shared_machine.words(render(made, "bash"))
    if "--revision" not in command:
        script = [word for word in script if word not in ("--revision", "abc")]
    assert sorted(shared_machine.words(command)) == sorted(script)
    (call,) = shared_machine.calls()
    exported = {each.name: each.value for each in made.explanations if each.kind == "environment" and each.emitted}
    assert exported.items() <= call.environment.items()


@pytest.mark.parametrize(("width", "lines"), [(9, ["a b", "  cc dddd"]), (8, ["a b", "  cc", "  dddd"])])
def test_a_line_takes_what_fits(width: int, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A further word needs room for itself and a space, to the last column."""
    monkeypatch.setattr(command_line, "SCRIPT_WIDTH", width)
    assert command_line._packed(["a", "b"], "") + command_line._packed(["cc", "dddd"], "  ") == lines


def test_as_many_lines_as_allowed_keep_an_option_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines hold more only where one line would be too many."""
    made = found(model="qwen2.5-7b-instruct")
    text = render(made, "command")
    for most, same in ((text.count("\n"), True), (text.count("\n") - 1, False)):
        monkeypatch.setattr(command_line, "LINES", most)
        assert (render(made, "command") == text) is same


def test_hostile_names_stay_words(machine: Machine, tmp_path: Path) -> None:
    """A revision and an option's value reach the server as one word each."""
    asked = ("--gpu", "A100-80G", "--follow", "gemini", "--with", "chat-template=a b$(touch p)'.json")
    done = CliRunner().invoke(root, [*asked, "--format", "command", "-q"])
    assert done.exit_code == 0, done.output
    assert "a b$(touch p)'.json" in machine.words(done.stdout)
    assert not list(machine.folder.rglob("p"))


def test_a_missing_commit_is_said_before_anything_starts(machine: Machine) -> None:
    """The command names the page with the commits; a pinned one needs nothing."""
    page = "https://huggingface.co/OpenGVLab/InternVL3-8B-AWQ/commits/main"
    bare = recommend_here(*MAIN, "--format", "command", "-q").stdout.decode()
    done = machine.run(bare, REVISION="")
    assert done.returncode
    assert page in done.stderr
    assert not machine.calls()
    pinned = recommend_here(*MAIN, "--format", "command", "--revision", "abc1234")
    assert machine.words(pinned.stdout.decode(), REVISION="")[-2:] == ["--revision", "abc1234"]
    assert b"REVISION" not in pinned.stdout + pinned.stderr
    for form in ("bash", "command"):
        text = recommend_here(*MAIN, "--format", form, "-q").stdout.decode()
        assert page in " ".join(line.lstrip("# ") for line in text.split("set -euo")[0].splitlines())
    assert page.encode() in recommend_here(*MAIN).stderr


@pytest.mark.parametrize("comments", COMMENTS)
@pytest.mark.parametrize("gpu", ["A100-80G", "H100:2"])
def test_comments_change_nothing_else(comments: str, gpu: str, tmp_path: Path, machine: Machine) -> None:
    """Each length starts the same server, passes shellcheck, and comes back clean from check, review and smoke."""
    path = tmp_path / "serve.sh"
    words = ["--gpu", gpu, "--load", "16", "--comments", comments, "-q", "-o", str(path)]
    assert CliRunner().invoke(root, words).exit_code == 0
    text = path.read_text()
    shellcheck(tmp_path, text)
    full = CliRunner().invoke(root, ["--gpu", gpu, "--load", "16", "--comments", "full", "-q"]).stdout
    if gpu == "A100-80G":
        assert machine.words(text) == machine.words(full)
    assert len(text) <= len(full)
    assert not engine.review("shell", text).findings
    for command in (["check", str(path)], ["smoke", str(path), "--dry-run"]):
        done = CliRunner().invoke(root, command)
        assert done.exit_code == 0, done.output
    path.write_text(re.sub(r"(SESSION_LEN:-)\d+", r"\g<1>8192", text))
    assert "SESSION_LEN" in CliRunner().invoke(root, ["check", str(path)]).output


def test_a_setting_has_one_line_of_comment() -> None:
    """By default; with ``none`` the settings have no comment, and the head only what check reads."""
    short, bare = (
        CliRunner().invoke(root, [*MAIN, "-q", "--comments", comments]).stdout for comments in ("short", "none")
    )
    settings = short.partition("set -euo pipefail\n")[2].partition("# No settings below")[0]
    for block in settings.strip().split("\n\n"):
        assert re.fullmatch(r"# \S.*\n(export )?[A-Z][A-Z_0-9]*=.*", block), block
    assert CliRunner().invoke(root, [*MAIN, "-q"]).stdout == short
    comments = [line for line in bare.splitlines() if line.lstrip().startswith("# ")]
    assert all(re.match(r"\s*# (Made by|request: |rendered: |shellcheck )", line) for line in comments), comments


def test_comments_are_those_of_the_script() -> None:
    """Another format has none to choose."""
    done = recommend_here(*MAIN, "--format", "python", "--comments", "none")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--comments none: only --format bash" in done.stderr
