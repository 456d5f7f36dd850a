"""The one screen: its size, what it says was assumed, and that what it tells people to run runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from artefacts import command, recommend_here, requests
from hypothesis import given, settings
from test_properties import fits

from recommender.choose.recommend import recommend
from recommender.cli import COMMANDS, root
from recommender.common.units import duration
from recommender.estimate.speed import estimate
from recommender.render.next_steps import request_words
from recommender.render.screen import screen
from recommender.request.request import Request

MAIN = ("--gpu", "A100-80G", "--load", "single")


def told(*words: str) -> str:
    done = recommend_here(*words)
    assert done.returncode == 0, done.stderr
    return done.stderr.decode()


@settings(max_examples=60)
@given(request=requests())
def test_it_is_one_screen(request: Request) -> None:
    """Whatever is asked: at most 30 lines of 80 columns, with the settings that the script has."""
    made = fits(request)
    lines = screen(made, ("gpu",), ("--gpu", request.gpu), "serve.sh", with_bar=True).splitlines()
    assert len(lines) <= 30, "\n".join(lines)
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)
    emitted = {each.name: each.value for each in made.explanations if each.emitted}
    at = next((number for number, line in enumerate(lines) if line.split()[:2] == ["SETTING", "VALUE"]), len(lines))
    for line in lines[at + 1 :]:
        if not line.startswith("  ") or line.startswith("  and "):
            break
        name, value = line.split()[:2]
        assert emitted[name] == value, line


@pytest.mark.parametrize("columns", [40, 60, 70, 80])
def test_a_narrow_terminal_shows_names_and_values_whole(columns: int) -> None:
    """A reason is cut, or left out with the default; a row is longer only if its value is."""
    asked = Request(gpu="a100-sxm-80g", gpu_count=4, model="qwen2.5-7b-instruct", concurrency=64)
    made = recommend(asked)
    lines = screen(made, ("gpu",), (), "serve.sh", width=columns).splitlines()
    start = next(number for number, line in enumerate(lines) if line.split()[:2] == ["SETTING", "VALUE"])
    rows = [line for line in lines[start + 1 :] if line.startswith("  ") and not line.startswith("  and ")][:5]
    shown = {each.name: each.value for each in made.explanations}
    for row in rows:
        name, value, *rest = row.split()
        assert shown[name] == value
        assert len(row) <= columns or not rest


def test_a_long_value_is_shown_whole() -> None:
    """Only the reason after it is cut."""
    made = recommend(Request(gpu="l4", model="qwen2.5-7b-instruct"))
    address = "a-server-with-a-long-name.example.com"
    long = tuple(
        replace(each, value=address, emitted=True) if each.option == "server-name" else each
        for each in made.explanations
    )
    lines = screen(replace(made, explanations=long), ("gpu",), (), "serve.sh").splitlines()
    (row,) = (line for line in lines if line.startswith("  --server-name"))
    assert row.split()[1] == address
    assert len(row) <= 80


CARD = "card a100-sxm-80g (not a100-pcie-80g)"


@pytest.mark.parametrize(
    ("words", "assumed"),
    [
        (
            ("--load", "single"),
            [
                "LMDeploy 0.18.0", "model internvl3-8b-awq", CARD,
                "workload vision-json (1 image of 448x448, 24 tokens of text in, 16 out, answers in JSON)",
                "16 CPU cores",
            ],
        ),
        (
            ("--model", "qwen2.5-7b-instruct"),
            [
                "LMDeploy 0.18.0", "the model's newest revision", CARD,
                "workload text (1,024 tokens of text in, 128 out)",
                "one request at a time", "16 CPU cores",
            ],
        ),
        (
            ("--model", "qwen2.5-7b-instruct", "--workload", "chat", "--cpus", "8", "--rps", "1", "--revision", "abc"),
            ["LMDeploy 0.18.0", CARD],
        ),
        (
            ("--image", "1280x720", "--isl", "30", "--output-tokens", "8", "--lmdeploy", "0.9.2", "--load", "2"),
            [
                "model internvl3-8b-awq", CARD, "workload vision-json (answers in JSON)",
                "16 CPU cores",
            ],
        ),
        (
            ("--text-only", "--gpu=a100-sxm-80g", "--load", "2"),
            [
                "LMDeploy 0.18.0", "model internvl3-8b-awq",
                "workload text (1,024 tokens of text in, 128 out)", "16 CPU cores",
            ],
        ),
    ],
)  # fmt: skip
def test_what_was_not_told_is_said(words: tuple[str, ...], assumed: list[str]) -> None:
    """Everything that the command line leaves open: card, workload and its contents, revision, CPUs; and no more."""
    words = words if any("--gpu" in word for word in words) else ("--gpu", "A100-80G", *words)
    said = " ".join(re.search(r"^assumed(.*?)^(note|$)", told(*words), re.M | re.S)[1].split())  # type: ignore[index]
    assert said == ", ".join(assumed)


FORMS = ("bash", "command", "python", "client", "env", "docker", "json", "compose", "systemd", "k8s")


@pytest.mark.parametrize("form", FORMS)
def test_every_format_says_what_was_assumed_and_what_is_next(form: str, tmp_path: Path) -> None:
    """The commands under "why" and "measure" are understood; "why" writes no file and prints the report alone."""
    file = tmp_path / "made"
    done = recommend_here(*MAIN, "--format", form, "-o", str(file))
    said = done.stderr.decode()
    assert (done.returncode, len(said.splitlines()) <= 30) == (0, True), said
    assert "\nassumed  LMDeploy 0.18.0" in said
    assert "\nEXPECT (" in said
    found = re.findall(r"^  (start|measure|why) +(\S.*(?:\n {11}\S.*)*)", said, re.M)
    steps = {name: " ".join(text.split()) for name, text in found}
    assert set(steps) == {"measure", "why"} | ({"start"} if form != "json" else set())
    assert form == "json" or str(file) in steps["start"]
    words = shlex.split(steps["why"])
    assert words == ["recommend", *MAIN, "--format", "report"]
    why = recommend_here(*words[1:])
    assert (why.returncode, why.stderr) == (0, b"")
    assert b"\n    [0.18.0 lmdeploy/" in why.stdout
    measure = shlex.split(steps["measure"].partition("recommend smoke ")[2])
    assert measure == ([str(file)] if form in ("bash", "python", "compose", "systemd") else list(MAIN))
    assert recommend_here("smoke", *measure, "--dry-run").returncode == 0


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("--gpu L4 --format json", "--gpu L4"), ("--format=json --gpu L4 -o x -q", "--gpu L4"),
        ("--gpu L4 -qo x --why --load 4", "--gpu L4 --load 4"), ("--gpu L4 -ox -v --force --json", "--gpu L4"),
        ("--output=x --gpu L4 --comments none --follow gemini", "--gpu L4 --follow gemini"),
    ],
)  # fmt: skip
def test_why_asks_the_same_without_its_output(line: str, kept: str) -> None:
    """Neither a file, nor another format, nor another look."""
    assert request_words(shlex.split(line)) == shlex.split(kept)


def test_a_model_with_code_asks_for_a_commit() -> None:
    """Without one the script would stop: the screen says so; with one it starts as it is."""
    assert "start    REVISION=COMMIT bash serve.sh" in told(*MAIN)
    pinned = recommend_here(*MAIN, "--revision", "0123abc")
    assert b"REVISION=${REVISION:-0123abc}" in pinned.stdout
    assert "start    bash serve.sh" in pinned.stderr.decode()
    assert "start    bash serve.sh" in told(*MAIN, "--model", "qwen2.5-7b-instruct")
    assert recommend_here(*MAIN, "--revision", "a b").returncode == 2


@pytest.mark.parametrize("name", ["e.env", "-e.env", "a b.env", "sub/e.env"])
def test_the_start_of_an_env_file_starts(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is shown, with a commit: serve.sh gets it and the file's values, whatever the file's name."""
    monkeypatch.chdir(tmp_path)
    Path("sub").mkdir()
    Path("serve.sh").write_text('echo "$REVISION $MAX_BATCH_SIZE"\n')
    status, _, said = command(*MAIN, "--format", "env", "-o", name)
    assert status == 0
    (start,) = re.findall(r"^  start +(\S.*(?:\n {11}\S.*)*)", said, re.M)
    shown = " ".join(start.partition("  (")[0].split()).replace("COMMIT", "abc")
    done = subprocess.run(["bash", "-c", shown], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.stderr) == ("abc 1\n", ""), shown


@pytest.mark.parametrize(("form", "name"), [("bash", "-s.sh"), ("python", "-p.py")])
def test_a_name_that_begins_with_a_dash_is_no_option(
    form: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of the program that starts the file nor of ours."""
    monkeypatch.chdir(tmp_path)
    status, _, said = command(*MAIN, "--format", form, "-o", name)
    assert status == 0
    assert re.search(rf"^  start .* \./{name}$", said, re.M)
    assert re.search(rf"^  measure .* \./{name}$", said, re.M)


GIVEN = re.compile(r"^  (\S+) +\S+ +\S", re.M)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--gpu A100-80G --vram 24 --kv int8 --lmdeploy 0.9.2", ["--quant-policy", "--session-len"]),
        ("--gpu H100:3 --model qwen3-32b-awq --kv int8 --load 4", ["--tp", "--quant-policy", "--session-len"]),
        ("--gpu A100-80G --rps 5", ["--session-len", "--max-batch-size"]),
        ("--gpu A100-80G --follow grok", ["--quant-policy", "--session-len"]),
    ],
)
def test_the_settings_that_matter_most_are_shown(words: str, shown: list[str]) -> None:
    """Whatever there is room for: first how many GPUs, the cache's precision, lengths and batch; clients' come last."""
    table = told(*shlex.split(words)).partition("  SETTING")[2].partition("\n\n")[0]
    found = [name for name in GIVEN.findall(table) if name != "and"]
    assert found[: len(shown)] == shown
    assert "more; --format report shows all" in table
    assert not {"temperature", "response_format", "max_tokens"} & set(found)


def test_a_rejected_configuration_is_not_started() -> None:
    """Errors come before warnings; no table without rows; the way to one that runs."""
    for adviser in ("gemini", "grok", "defaults"):
        said = told("--gpu", "A100-80G", "--follow", adviser)
        marks = re.findall(r"^(error|warning|accuracy):", said, re.M)
        assert marks[0] == "error"
        assert marks == sorted(marks, key=["error", "warning", "accuracy"].index)
        assert not re.search(r"SETTING.*\n\n", said)
        assert "start    not before the errors are repaired" in said
        assert "\n  ours     recommend --gpu A100-80G\n" in said
        assert "smoke" not in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--gpu A100-80G --rps 5", "5 requests/s arriving, 4 at most at once: 1 image of 448x448"),
        ("--gpu A100-80G --rps 5 --load 16", "  goal        rate 25.1 of 5 requests/s\n"),
        ("--gpu H100-80G --model qwen3-8b --workload chat --ttft p99:2s", "  goal        TTFT p99 "),
        ("--gpu H100-80G --model qwen3-8b --workload chat --ttft p99:2s", " ms of 2 s\n"),
        ("--gpu H100-80G --load 4 --p99 900 --latency 1s --tpot 50ms", "  goal        latency p99 "),
        ("--gpu H100-80G --load 4 --p99 900 --latency 1s --tpot 50ms", " ms of 900 ms\n"),
        ("--gpu H100-80G --load 4 --p99 900 --latency 1s --tpot 50ms", "  goal        TPOT mean "),
        ("--gpu A100-80G --load 64 --p99 2s", ", missed\n"),
        ("--gpu A100-80G:8 --model llama-3.1-70b-instruct --workload chat --rps 5.4", "5.4 requests/s may be too many"),
        ("--gpu L4 --model qwen3-8b-awq --workload chat --rps 0.00002", "0.000020 requests/s 0.000020 to 0.000020\n"),
    ],
)
def test_what_was_asked_is_on_the_screen(words: str, said: str) -> None:
    """The load, and each goal with what is predicted for it."""
    assert said in told(*shlex.split(words))


@pytest.mark.parametrize(("rate", "warned"), [(2, False), (12, False), (26, True)])
def test_a_rate_near_what_is_served_is_a_warning(rate: int, warned: bool) -> None:
    """By the low end of what the servers answer if requests never lack; far below it there is none."""
    made = recommend(Request(gpu="h100-sxm-80g", model="llama-3.1-8b-instruct", workload="chat", rps=rate))
    found = [each for each in made.findings if each.constraint == "rate-near-limit"]
    assert bool(found) == warned
    full = replace(made.resolved, rps=0.0, concurrency=made.config.max_batch_size * made.config.servers)
    served = estimate(full, made.config, kv_tokens=made.memory.kv_tokens).rps
    assert (served.low < rate) == warned


def test_times_from_ten_seconds_on_are_in_seconds() -> None:
    """On the screen, and in errors; a round goal as it was typed."""
    said = told(*shlex.split("--gpu A100-80G:8 --model llama-3.1-70b-instruct --workload chat --rps 5"))
    assert re.search(r"^  latency +\d\d\.\d s +\d\d\.\d to \d\d\.\d ", said, re.M)
    assert re.search(r"^  TPOT +\d{3} ms", said, re.M)
    done = recommend_here("--gpu", "A100-80G", "--latency", "8s", "--load", "1000")
    assert re.search(rb"is \d\d\.\d s; the goal is 8 s\.", done.stderr)
    shown = {0.1234: "0.123 ms", 6.94: "6.9 ms", 141.4: "141 ms", 1326.4: "1,326 ms", 9999: "9,999 ms", 2000: "2 s",
             1500: "1.5 s", 21863: "21.9 s", 679_439.432: "679 s", 50.0: "50 ms", 5.0: "5 ms"}  # fmt: skip
    assert {ms: duration(ms) for ms in shown} == shown


def test_left_over_gpus_are_said() -> None:
    """Three GPUs and a model that needs two: one is left over."""
    assert "2 of 3 GPUs are used" in told("--gpu", "A100-80G:3", "--model", "qwen2.5-72b-instruct", "--load", "64")
    assert "GPUs are used" not in told("--gpu", "A100-80G:2", "--model", "qwen2.5-72b-instruct", "--load", "64")
    followed = told("--gpu", "A100-80G:2", "--load", "64", "--follow", "defaults")
    assert "1 of 2 GPUs are used: the advice that is followed asks for no more" in " ".join(followed.split())


def test_edits_by_hand_are_kept(tmp_path: Path) -> None:
    """A file as it was written is replaced; with an edit only by --force."""
    script = tmp_path / "serve.sh"
    for words, code in (((), 0), (("--load", "4"), 0), (("--load", "8"), 3), (("--load", "8", "--force"), 0)):
        before = script.read_text() if script.exists() else ""
        done = recommend_here("--gpu", "A100-80G", *words, "-q", "-o", str(script))
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
        done = recommend_here(*words, "-o", str(file), *more)
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
    done = recommend_here("mcp", "--skill", str(tmp_path))
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["examples.md"]
    assert recommend_here("mcp", "--skill", str(tmp_path), "--force").returncode == 0
    assert recommend_here("mcp", "--skill", str(tmp_path)).returncode == 0
    assert (tmp_path / "examples.md").read_text() != "mine\n"


def test_a_folder_keeps_what_somebody_edited_or_made(tmp_path: Path) -> None:
    """Nothing is written beside it either; what recommend wrote is replaced, and --force replaces all."""
    words = ("--gpu", "L4", "-q", "--format", "compose", "-o")
    folder, own = tmp_path / "fleet", tmp_path / "own"
    assert recommend_here(*words, str(folder)).returncode == 0
    assert recommend_here(*words, str(folder), "--load", "4").returncode == 0
    edited = (folder / "compose.yaml").read_text() + "# mine\n"
    (folder / "compose.yaml").write_text(edited)
    own.mkdir()
    (own / "haproxy.cfg").write_text("mine\n")
    for place, name in ((folder, "compose.yaml"), (own, "haproxy.cfg")):
        before = {path: path.read_text() for path in place.iterdir()}
        done = recommend_here(*words, str(place))
        assert (done.returncode, done.stderr.count(b"\n")) == (3, 1)
        assert f"-o {place / name}: edited by hand" in done.stderr.decode()
        assert {path: path.read_text() for path in place.iterdir()} == before
    assert recommend_here(*words, str(folder), "--force").returncode == 0
    assert (folder / "compose.yaml").read_text() != edited


def commands(group: click.Group = root, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:  # type: ignore[assignment]
    found: list[tuple[str, ...]] = [prefix]
    context: Any = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        found += commands(command, (*prefix, name)) if isinstance(command, click.Group) else [(*prefix, name)]
    return found


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_help_is_one_screen(words: tuple[str, ...]) -> None:
    """At most 40 lines of 80 columns, no text cut off, a way to the rest, and examples last."""
    done = recommend_here(*words, "--help")
    lines = done.stdout.decode().splitlines()
    assert done.returncode == 0
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80
    assert not [line for line in lines if line.endswith("...") and not line.startswith("Usage:")]
    (more,) = (number for number, line in enumerate(lines) if "--help-all" in line)
    assert more == len(lines) - 1 or all(line.startswith("  ") for line in lines[more + 1 :])


@pytest.mark.parametrize("typed", ["reviw", "smok", "plna", "benchprompt"])
def test_a_mistyped_command_gets_the_nearest(typed: str) -> None:
    """One line that names it."""
    done = recommend_here(typed)
    said = done.stderr.decode()
    assert (done.returncode, said.count("\n")) == (2, 1)
    assert any(f"did you mean {name}" in said for name in COMMANDS), said


@pytest.mark.parametrize("typed", ["recommend", "recomend"])
def test_the_main_command_typed_twice(typed: str) -> None:
    """The error says to leave the word out."""
    done = recommend_here(typed, "--gpu", "L4")
    assert (done.returncode, done.stderr.decode().count("leave the word out")) == (2, 1)
