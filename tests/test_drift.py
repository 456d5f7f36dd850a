"""Whether an artefact drifted: nothing just made has, an edit is told from newer advice, and an update keeps edits."""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from artefacts import BASH, KNOWLEDGE, answer, grid, requests
from click.testing import CliRunner, Result
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from recommender.choose import recommend as pipeline
from recommender.choose.recommend import Recommendation, recommend, recommend_adviser
from recommender.commands import check
from recommender.common import progress
from recommender.common.errors import RequestError
from recommender.fleet import write
from recommender.fleet.layout import Layout
from recommender.knowledge import store
from recommender.knowledge.load import load
from recommender.render import drift, seal
from recommender.render.formats import render
from recommender.render.template import TEMPLATES
from recommender.request.request import Request

FORMS = (*TEMPLATES, "json")
pytestmark = pytest.mark.usefixtures("_records_are_read_once")
STORE = load()
# One value of each format, as a person edits it in place.
EDITS = {
    "bash": ("SESSION_LEN", r"^SESSION_LEN=.*", "SESSION_LEN=${SESSION_LEN:-8192}"),
    "env": ("SESSION_LEN", r"^SESSION_LEN=.*", "SESSION_LEN=8192"),
    "docker": ("--session-len", r"^  --session-len .*", r"  --session-len 8192 \\"),
    "python": ("session_len", r"session_len=\d+", "session_len=8192"),
    "client": ("max_tokens", r"'max_tokens': \d+", "'max_tokens': 8192"),
}


def text(form: str, comments: str = "short", **asked: Any) -> str:
    """An artefact as the knowledge of now has it, also where a test puts a later one in its place."""
    return render(recommend(Request(**{"gpu": "a100-sxm-80g", "load": "single"} | asked), STORE), form, comments)


def run(*words: object) -> Result:
    return CliRunner().invoke(check.command, [str(each) for each in words], prog_name="recommend check")


def told(*words: object) -> dict[str, Any]:
    done = run(*words, "--json")
    assert done.exit_code in (0, 1), done.output
    (found,) = json.loads(done.stdout)["files"]
    return dict(found)


def kinds(found: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["kind"] for each in found["settings"]}


def edited(place: Path, pattern: str, new: str) -> None:
    before = place.read_text()
    after, number = re.subn(pattern, new, before, count=1, flags=re.MULTILINE)
    assert number, pattern
    assert after != before
    place.write_text(after)


def unsealed(made: str) -> str:
    """An artefact of the time before there was a seal."""
    return seal.SEAL.sub("", made)


@pytest.fixture
def serve(tmp_path: Path) -> Path:
    place = tmp_path / "serve.sh"
    place.write_text(text("bash"))
    return place


@pytest.fixture(scope="module")
def later(tmp_path_factory: pytest.TempPathFactory) -> store.Store:
    """A later knowledge: the reference request's answers are longer, and the reason of a value says more."""
    folder = tmp_path_factory.mktemp("later") / "knowledge"
    shutil.copytree(KNOWLEDGE, folder)
    record = folder / "workloads" / "vision-json.yaml"
    record.write_text(record.read_text().replace("output_tokens: 16", "output_tokens: 6000"))
    flag = folder / "flags" / "session-len.yaml"
    plain = yaml.safe_load(flag.read_text())
    for reason in plain["reasons"]:
        reason["text"] += " Learnt since."
    flag.write_text(yaml.safe_dump(plain, sort_keys=False))
    return load(folder)


@pytest.fixture
def newer(later: store.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the knowledge is the later one."""
    monkeypatch.setattr(pipeline, "load", lambda: later)


# --- no drift


def drifted(made: Recommendation, form: str) -> drift.Drift | None:
    """What is told of a text just written; None where the format cannot hold this recommendation."""
    try:
        there = seal.read(render(made, form))
    except RequestError:
        return None
    assert there.form == form
    assert there.sealed == there.seal
    found = check._render_today(there)
    assert isinstance(found, tuple), found
    return drift.compare("x", there, *found)


@settings(max_examples=40)
@given(requests(), st.sampled_from(FORMS))
def test_what_is_written_now_has_no_drift(request: Request, form: str) -> None:
    """Whatever was asked, in any format: made anew from its own head it is the same."""
    made = answer(request)
    assume(isinstance(made, Recommendation))
    assert isinstance(made, Recommendation)
    found = drifted(made, form)
    assert found is None or not found.differs, found


def test_no_release_drifts() -> None:
    """One request of each release, the formats taking turns."""
    for number, request in enumerate(list(grid())[::13]):
        made = answer(request)
        if isinstance(made, Recommendation):
            found = drifted(made, FORMS[number % len(FORMS)])
            assert found is None or not found.differs, found


@pytest.mark.parametrize("form", FORMS)
def test_a_followed_configuration_does_not_drift(form: str) -> None:
    """Whom it follows, what was added and what was left out stand in its head too."""
    asked = Request(gpu="a100-sxm-80g")
    made = recommend_adviser(asked, "gemini", {"trust-remote-code": "", "chat-template": "it's\n'two' lines"}, ["tp"])
    found = drifted(made, form)
    assert found is None or not found.differs, found


@pytest.mark.parametrize("form", FORMS)
def test_each_value_of_a_text_is_seen(form: str) -> None:
    """The options that the text sets are among the values that are compared."""
    there = seal.read(text(form))
    names = {name.lower().strip("-").replace("-", "_") for name, _ in there.lines}
    wanted = {"max_tokens"} if form == "client" else {"session_len", "max_batch_size", "cache_max_entry_count"}
    assert wanted | {"request"} <= names
    empty = {name for name, number in there.lines if not there.value((name, number))}
    assert empty <= {"REVISION", "PYTHON"}  # what the user may set


def test_several_files_and_their_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All formats in one call, each found by what it says of itself and not by its name."""
    monkeypatch.setattr(progress, "QUIET_S", float("inf"))
    for form in FORMS:
        (tmp_path / form).write_text(text(form))
    done = run(*sorted(tmp_path.iterdir()))
    assert (done.exit_code, done.stdout.count("no drift")) == (0, len(FORMS)), done.output
    assert done.stderr == ""


def test_stdin_is_checked_as_a_file() -> None:
    """Written a moment ago, with a value edited, and with a patch; what is no file cannot be updated."""
    made = text("bash")
    edited = re.sub(r"(?m)^SESSION_LEN=.*", "SESSION_LEN=${SESSION_LEN:-8192}", made)
    assert edited != made

    def piped(words: str, given: str) -> Result:
        return CliRunner().invoke(check.command, words.split(), input=given, prog_name="recommend check")

    assert piped("-", made).exit_code == 0
    (file,) = json.loads(piped("- --json", edited).stdout)["files"]
    assert (file["path"], [setting["name"] for setting in file["settings"]]) == ("-", ["SESSION_LEN"])
    assert "-SESSION_LEN=${SESSION_LEN:-8192}\n" in piped("- --diff", edited).stdout
    refused = piped("- --update", edited)
    assert (refused.exit_code, "--update cannot change stdin; name a file" in refused.stderr) == (2, True)
    nothing = piped("-", "")
    assert (nothing.exit_code, nothing.stderr.startswith("recommend check: -: ")) == (2, True)


def test_another_version_of_the_recommender_is_no_drift(serve: Path) -> None:
    """Who made it is not what it does: the line alone neither counts nor makes an update write."""
    edited(serve, r"^# Made by lmdeploy-recommender .*", "# Made by lmdeploy-recommender 0.0.9.")
    before = serve.stat().st_mtime_ns
    assert run(serve, "--update").exit_code == 0
    assert serve.stat().st_mtime_ns == before


# --- edits


@pytest.mark.parametrize("form", EDITS)
def test_an_edited_value_is_a_hand_edit(form: str, tmp_path: Path) -> None:
    """It is named with its own value and today's, and nothing else is said to differ."""
    name, pattern, new = EDITS[form]
    place = tmp_path / "x"
    place.write_text(text(form))
    edited(place, pattern, new)
    found = told(place)
    assert kinds(found) == {name: "hand"}
    assert found["settings"][0]["file"] == "8192"
    assert found["settings"][0]["today"] in ("4096", "32")
    assert (found["drift"], found["others"]) == (True, [])
    assert run(place).exit_code == 1


def test_an_edited_value_of_json_is_a_hand_edit(tmp_path: Path) -> None:
    """JSON is compared by its options, however it is laid out."""
    plain = json.loads(text("json"))
    place = tmp_path / "x.json"
    place.write_text(json.dumps(plain))
    assert run(place).exit_code == 0
    next(each for each in plain["options"] if each["option"] == "session-len")["value"] = "8192"
    place.write_text(json.dumps(plain))
    assert kinds(told(place)) == {"--session-len": "hand"}
    assert "cannot be kept" in told(place, "--update")["refused"]


@pytest.mark.parametrize(
    ("pattern", "new", "name", "file"),
    [
        (r"^SESSION_LEN=.*", "SESSION_LEN=4096", "SESSION_LEN", "SESSION_LEN=4096"),
        (r"^(export OMP_NUM_THREADS)=.*", r"\1=3 # cores", "OMP_NUM_THREADS", "3"),
        (r"^MODEL=.*", "MODEL=${MODEL:-/models/own}", "MODEL", "/models/own"),
        (r"^SESSION_LEN=.*\n", "", "SESSION_LEN", ""),
        (r"^args=\($", "args=(\n  --tp 2", "--tp", "2"),
        (r"^REVISION=.*", "REVISION=${REVISION:-0123abc}", "REVISION", "0123abc"),
    ],
)
def test_other_edits_of_values(serve: Path, pattern: str, new: str, name: str, file: str) -> None:
    """A value that no variable overrides any more, one that is gone, one that was added: each is a hand edit."""
    if not re.search(pattern, serve.read_text(), re.MULTILINE):
        pytest.fail(f"{pattern} is not in the main job's script")
    edited(serve, pattern, new)
    found = told(serve)
    assert kinds(found) == {name: "hand"}
    assert found["settings"][0]["file"] == file


def test_another_line_edited_is_told(serve: Path) -> None:
    """A comment of somebody's is an edit beside the values, and an update would lose it: it is refused."""
    edited(serve, r"^set -euo pipefail", "# ours\nset -euo pipefail")
    before = serve.read_text()
    found = told(serve, "--update")
    assert (found["others"], found["settings"], found["updated"]) == (["hand"], [], False)
    assert "edited by hand" in found["refused"]
    assert serve.read_text() == before


def test_an_edited_request_is_a_new_request(serve: Path) -> None:
    """What follows from it is advice; an update writes for it, and then nothing drifts."""
    edited(serve, r'^# request: \{"gpu"', '# request: {"output_tokens": 6000, "gpu"')
    found = kinds(told(serve))
    assert found.pop("request") == "hand"
    assert set(found.values()) == {"newer"}
    assert run(serve, "--update").exit_code == 0
    assert serve.read_text() == text("bash", output_tokens=6000, load="single")
    assert run(serve).exit_code == 0


# --- newer advice


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("form", FORMS)
def test_changed_knowledge_is_newer_advice(form: str, tmp_path: Path) -> None:
    """Nobody touched the file: all that differs is newer, each value with today's reason."""
    place = tmp_path / "x"
    place.write_text(text(form))
    found = told(place)
    assert found["settings"]
    assert set(kinds(found).values()) == {"newer"}
    assert found["others"] == ["newer"]
    lengths = [each for each in found["settings"] if "session" in each["name"].lower()]
    assert all("Learnt since." in each["reason"] and each["file"] == "4096" for each in lengths)
    assert len(lengths) == (0 if form == "client" else 1)
    assert told(place, "--update")["updated"]
    done = run(place)
    assert (done.exit_code, done.stdout) == (0, f"{place}: no drift\n")


@pytest.mark.usefixtures("newer")
@pytest.mark.parametrize("form", EDITS)
def test_edits_are_told_apart_from_newer_advice_and_kept(form: str, tmp_path: Path) -> None:
    """A value that both changed is said to be both; an update takes the advice and keeps the edit, twice the same."""
    name, pattern, new = EDITS[form]
    place = tmp_path / "x"
    place.write_text(text(form))
    edited(place, pattern, new)
    found = kinds(told(place))
    assert found.pop(name) == "both"
    assert set(found.values()) <= {"newer"}
    first = told(place, "--update")
    assert (first["updated"], first["kept"], first["drift"]) == (True, [name], True)
    once = place.read_text()
    assert "8192" in once
    assert kinds(told(place)) == {name: "hand"}
    second = told(place, "--update")
    assert (second["updated"], second["kept"]) == (False, [name])
    assert place.read_text() == once
    assert told(place, "--update", "--discard-edits")["drift"] is False
    assert run(place).exit_code == 0


@pytest.mark.usefixtures("newer")
def test_a_reason_alone_is_newer_text(tmp_path: Path) -> None:
    """Where no value changed, what stands beside the values did."""
    place = tmp_path / "x.sh"
    place.write_text(text("bash", "full", images=0, output_tokens=16))
    found = told(place)
    assert (found["settings"], found["others"]) == ([], ["newer"])


def test_another_coefficient_is_newer_advice(serve: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prediction that another fit moved is newer text; an update takes it, and the next one has nothing to do."""
    folder = tmp_path / "knowledge"
    shutil.copytree(KNOWLEDGE, folder)
    record = folder / "coefficients" / "megapixel-host-ms.yaml"
    plain = yaml.safe_load(record.read_text())
    record.write_text(yaml.safe_dump(plain | {"value": plain["high"]}, sort_keys=False))
    refitted = load(folder)
    monkeypatch.setattr(pipeline, "load", lambda: refitted)
    found = told(serve)
    assert (set(kinds(found).values()) <= {"newer"}, found["others"]) == (True, ["newer"])
    assert told(serve, "--update")["updated"]
    assert serve.read_text() != text("bash")
    assert (run(serve).exit_code, told(serve, "--update")["updated"]) == (0, False)


def test_where_nothing_fits_today_that_is_told(serve: Path) -> None:
    """It is drift, with the reason, and an update leaves the file alone."""
    edited(serve, r'"gpu": "[^"]*"', '"gpu": "l4", "vram_gib": 1.0')
    before = serve.read_text()
    found = told(serve, "--update")
    assert "nothing fits" in found["nothing"]
    assert found["refused"]
    assert run(serve).exit_code == 1
    assert serve.read_text() == before


# --- files made before there was a seal


def test_an_old_file_without_drift_gets_its_seal(serve: Path) -> None:
    """It has no drift; an update adds the line, and a second one does nothing."""
    serve.write_text(unsealed(serve.read_text()))
    assert run(serve).exit_code == 0
    assert told(serve, "--update")["updated"]
    assert serve.read_text() == text("bash")
    assert not told(serve, "--update")["updated"]


@pytest.mark.parametrize("form", EDITS)
def test_of_an_old_file_nobody_can_tell(form: str, tmp_path: Path) -> None:
    """What differs is shown as of either; an update is refused until it is asked to drop edits."""
    name, pattern, new = EDITS[form]
    place = tmp_path / "x"
    place.write_text(unsealed(text(form)))
    edited(place, pattern, new)
    before = place.read_text()
    found = told(place, "--update")
    assert (found["format"], kinds(found), found["sealed"]) == (form, {name: "unknown"}, False)
    assert "older advice" in found["refused"]
    assert place.read_text() == before
    assert run(place, "--update", "--discard-edits").exit_code == 0
    assert place.read_text() == text(form)


def test_a_mangled_seal_is_none(serve: Path) -> None:
    """A seal that was cut short tells nothing, and breaks nothing."""
    edited(serve, r"^(# rendered: bash .{20}).*", r"\1")
    assert told(serve)["sealed"] is False
    assert run(serve).exit_code == 0


# --- what is shown and written


def test_the_patch_leads_to_todays_text(serve: Path) -> None:
    """patch applies what --diff shows; the file itself is not touched."""
    if not shutil.which("patch"):
        pytest.skip("no patch: the diff was not applied")
    edited(serve, r"^SESSION_LEN=.*", "SESSION_LEN=8192")
    before = serve.read_text()
    done = run(serve, "--diff")
    assert (done.exit_code, serve.read_text()) == (1, before)
    assert "1 value edited by hand" in done.stderr
    subprocess.run(["patch", "-s", str(serve)], input=done.stdout, text=True, check=True, timeout=60)
    assert serve.read_text() == text("bash")


@pytest.mark.usefixtures("newer")
def test_an_update_keeps_mode_and_link(serve: Path, tmp_path: Path) -> None:
    """The link still is one, what it names was written and keeps its mode, and nothing else lies about."""
    serve.chmod(0o750)
    link = tmp_path / "link.sh"
    link.symlink_to("serve.sh")
    assert run(link, "--update").exit_code == 0
    assert link.is_symlink()
    assert stat.S_IMODE(serve.stat().st_mode) == 0o750
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.sh", "serve.sh"]
    assert run(serve).exit_code == 0


@pytest.mark.usefixtures("newer")
def test_an_updated_script_is_whole_bash(serve: Path) -> None:
    """With a kept value it is still a script that bash reads."""
    edited(serve, r"^SESSION_LEN=.*", "SESSION_LEN=8192")
    run(serve, "--update")
    subprocess.run([BASH, "-n", str(serve)], check=True, timeout=60)
    assert re.search(r"^SESSION_LEN=8192$", serve.read_text(), re.MULTILINE)


def test_the_report_has_lines_of_80_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value with its reason and source, as the other reports have them."""
    monkeypatch.chdir(tmp_path)
    place = Path("serve.sh")
    place.write_text(text("bash"))
    edited(place, r"^SESSION_LEN=.*", "SESSION_LEN=8192")
    done = run(place)
    assert "  SESSION_LEN 8192, today's advice: 4096" in done.stdout
    assert "This request takes" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def heads() -> Iterator[str]:
    yield from ("{}", "{]}", "[]", "1", '"x"', '{"gpu": 5}', '{"gpu": ["a"]}', '{"gpu": "l4", "gpu_count": true}')
    yield from ('{"gpu": "l4", "odd": 1}', '{"gpu": "no-such-card"}', '{"gpu": "l4", "with": "x", "follow": "gemini"}')
    yield from ('{"gpu": "l4", "follow": "nobody"}', '{"gpu": "l4", "host_scale": NaN}', '{"gpu": "l4", "rps": 1e999}')
    yield from ('{"gpu": "l4", "without": [1], "follow": "gemini"}', "[" * 100_000, '{"gpu": "l4", "model": "./none"}')


@pytest.mark.parametrize("head", list(heads()), ids=lambda head: str(head)[:40])
def test_a_broken_head_is_one_line(serve: Path, head: str) -> None:
    """What cannot be answered is told in one line with the file's name; the other files are checked all the same."""
    good = serve.with_name("good.sh")
    good.write_text(serve.read_text())
    serve.write_text(serve.read_text().replace('{"gpu": "a100-sxm-80g", "load": "single"}', head))
    done = run(serve, good, "--update")
    assert done.exit_code == 2, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.stderr.startswith(f"recommend check: {serve}: ")
    assert done.stderr.count("\n") == 1
    assert "no drift" in done.stdout


@pytest.mark.parametrize(
    "content", [b"", b"#!/bin/bash\nlmdeploy serve api_server x\n", b"{}", b"[1]", b'{"a": 1}', b"\0\1", b"\xff\xfe"]
)
def test_what_recommend_did_not_write_is_refused(content: bytes, tmp_path: Path) -> None:
    """Another's file, another JSON, no text at all: exit 2 and one line."""
    place = tmp_path / "x"
    place.write_bytes(content)
    done = run(place, "--update")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.output
    assert place.read_bytes() == content


def test_wrong_command_lines(serve: Path, tmp_path: Path) -> None:
    """No file, a missing one, a folder, options that exclude each other: exit 2."""
    lines = [(), (tmp_path,), (tmp_path / "none",), (serve, "--diff", "--json"), (serve, "--diff", "--update")]
    for words in [*lines, (serve, "--discard-edits")]:
        assert run(*words).exit_code == 2, words


@pytest.mark.usefixtures("newer")
def test_a_file_that_cannot_be_written_is_told(serve: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit 2, and the file is as it was; to root, who may write anything, the system's answer is made up."""
    serve.chmod(0o400)
    monkeypatch.setattr(os, "access", lambda *_: False)
    before = serve.read_text()
    done = run(serve, "--update")
    assert (done.exit_code, serve.read_text()) == (2, before)
    assert "cannot be written" in done.stderr


@pytest.mark.parametrize("form", ["compose", "systemd", "k8s"])
def test_a_fleets_files_are_left_alone(tmp_path: Path, form: str) -> None:
    """They have no seal: nothing is said of values in them, and nothing written over them."""
    asked = Request(gpu="l40s", gpu_count=2, concurrency=32)
    for path in write.write(write.render_files(Layout(recommend(asked)), form), tmp_path).paths:
        text = path.read_text()
        if "# request: " in text:
            done = run(path, "--update", "--discard-edits")
            assert (done.exit_code, done.stdout, path.read_text()) == (2, "", text)
            assert "a file of a fleet" in done.stderr


def test_long_work_says_how_far_it_is(serve: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After two seconds, on stderr; here after none."""
    monkeypatch.setattr(progress, "QUIET_S", -1.0)
    assert "1 of 2 files" in run(serve, serve.parent / "none").stderr
