"""Every command with streams that are closed, full or abandoned: the exit code, and no traceback."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from artefacts import BASH, KNOWLEDGE, text

ROOT = KNOWLEDGE.parent
MAIN = ("--gpu", "A100-80G", "--load", "single")
COMMANDS = {
    "recommend": MAIN,
    "quiet": (*MAIN, "-q"),
    "file": (*MAIN, "-o", "written.sh"),
    "fleet": (*MAIN, "--format", "systemd", "-o", "fleet"),
    "nothing fits": ("--gpu", "A2", "--model", "internvl3-78b", "--load", "single"),
    "wrong value": ("--gpu", "nope", "--load", "single"),
    "estimate": ("estimate", *MAIN),
    "compare": ("compare", *MAIN),
    "explain": ("explain", "tp"),
    "diff": ("diff", "0.9.2", "0.18.0", "--json"),
    "list": ("list", "gpus"),
    "review": ("review", "bad.sh"),
    "review, json": ("review", "bad.sh", "--format", "json"),
    "review, sarif": ("review", "bad.sh", "--format", "sarif"),
    "review, patch": ("review", "bad.sh", "--diff"),
    "check": ("check", "serve.sh"),
    "check, json": ("check", "serve.sh", "--json"),
    "plan": ("plan", "--rps", "3", "--gpu", "A100-80G"),
    "knowledge check": ("knowledge", "check", "--knowledge", "knowledge"),
    "knowledge schema": ("knowledge", "schema", "--check"),
    "smoke": ("smoke", "serve.sh", "--dry-run"),
    "campaign": ("campaign", "plan.yaml", "results.jsonl", "--list"),
    "bench-prompt": ("bench-prompt", "--images", "none", "serve.sh", "serve.sh"),
    "version": ("--version",),
    "help": ("--help",),
    "help of a command": ("smoke", "--help"),
    "completion": (),
}
BAD = "lmdeploy serve api_server OpenGVLab/InternVL3-8B --tp 3 --cache-max-entry-count 1.5 --no-such-option\n"
PLAN = """\
id: few
about: Two starts.
gpu: A100-80G
seconds: 1
common: --patience 40
bases: {tuned: --follow defaults}
starts: [{id: one, base: tuned, phases: 1}, {id: two, base: tuned, phases: 2}]
"""
GONE = ("2>&3", ">&3", ">&3 2>&3")
"""To a pipe that nobody reads any more."""
EVERY = ("<&-", "2>&-", ">&-", ">&- 2>&-", "2>/dev/full", ">/dev/full", *GONE[:2])
HARSH = ("<&- >&- 2>&-", ">/dev/full 2>&1", GONE[2])
CASES = dict.fromkeys(COMMANDS, HARSH) | dict.fromkeys(("recommend", "review"), HARSH + EVERY)
CASES |= {"quiet": (">&-", ">/dev/full")}
"""What each command is run with; the plain ones with all, which takes half a second each."""
VERDICT, LOST, LEFT = 1, 3, 141


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("streams")
    (made / "bad.sh").write_text(BAD)
    (made / "serve.sh").write_text(text())
    (made / "plan.yaml").write_text(PLAN)
    # Without the runs: a check reads half as long, and has much to say.
    shutil.copytree(KNOWLEDGE, made / "knowledge", ignore=shutil.ignore_patterns("evidence"))
    (made / "knowledge" / "evidence").mkdir()
    (made / "fleet").mkdir()
    (made / "fleet/api-keys").touch()  # it is written and named only once
    return made


def end(name: str, folder: Path, redirections: str = "") -> tuple[int, bytes, bytes]:
    """Run a command in bash with redirections; descriptor 3 is a pipe whose reader left."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    if name == "completion":
        environment["_RECOMMEND_COMPLETE"] = "bash_source"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [BASH, "-c", f'exec 3>&{writer}; exec "$@" {redirections}', "bash", sys.executable, "-m", "recommender",
             *COMMANDS[name]],
            env=environment, cwd=folder, capture_output=True, pass_fds=(writer,), timeout=120, check=False,
        )  # fmt: skip
    finally:
        os.close(writer)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_only_lost_output_changes_the_exit_code(name: str, folder: Path) -> None:
    """Without stderr or stdin, code and stdout are the same; without stdout, a result or a verdict is no success."""
    code, stdout, stderr = end(name, folder)
    assert code in (0, VERDICT, 2, 3)
    assert stdout + stderr
    with ThreadPoolExecutor(2) as pool:
        ends = pool.map(lambda case: end(name, folder, case), CASES[name])
        for case, (got, out, said) in zip(CASES[name], ends, strict=True):
            lost = stdout and code in (0, VERDICT) and any(word.startswith(">") for word in case.split())
            assert got == (code if not lost else LEFT if case in GONE else LOST), (case, got, said)
            assert out == (b"" if ">" in case.replace("2>", "") else stdout), case
            assert b"Traceback" not in said, case
            assert b"internal error" not in said, case
            if lost and case in (">&-", ">/dev/full"):
                assert said.endswith(b"send it to a file that can be written\n"), said
                assert name != "quiet" or said.count(b"\n") == 1, said
            elif case in ("<&-", ">&-", ">/dev/full", ">&3"):
                assert said == stderr, case


@pytest.mark.parametrize("reader", ["head -1", "head -c 10", "true"])
def test_a_reader_that_leaves_early(reader: str, folder: Path) -> None:
    """The code is 0 if all was written before the reader left, else 141; both streams go to it."""
    line = f'{sys.executable} -m recommender list claims 2>&1 | {reader}; echo "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        [BASH, "-c", line], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=folder, capture_output=True, timeout=60,
        check=False,
    )  # fmt: skip
    assert done.stderr == b""
    assert int(done.stdout.split()[-1]) in (0, LEFT)


def test_what_is_written_is_whole_without_any_stream(folder: Path) -> None:
    """Files are the same as with open streams: none of them gets the number of a closed one."""
    for name, path in (("file", "written.sh"), ("fleet", "fleet/lmdeploy@.service")):
        end(name, folder)
        wanted = (folder / path).read_bytes()
        for case in ("<&- >&- 2>&-", ">/dev/full 2>&1", ">&3 2>&3"):
            (folder / path).unlink()
            end(name, folder, case)
            assert (folder / path).read_bytes() == wanted, case


def test_a_script_from_a_closed_stdin_is_refused(folder: Path) -> None:
    """It is no empty script that would pass."""
    done = subprocess.run(
        [BASH, "-c", f"exec {sys.executable} -m recommender review - <&-"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=folder, capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"stdin is closed" in done.stderr
    assert b"Traceback" not in done.stderr


def test_a_slow_reader_of_a_non_blocking_pipe_gets_everything(folder: Path) -> None:
    """More than a pipe holds, to a pipe that another program made non-blocking."""
    _, wanted, _ = end("diff", folder)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    command = [sys.executable, "-m", "recommender", *COMMANDS["diff"]]
    assert len(wanted) > 2**16
    read: list[bytes] = []
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=folder, stdout=writer) as process:
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            read = list(iter(lambda: file.read1(4096), b""))
    assert process.returncode == 0
    assert b"".join(read) == wanted
