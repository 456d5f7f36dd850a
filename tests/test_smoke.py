"""``recommend smoke`` as a process on a stand-in machine: every outcome, what is told, and that nothing is left."""

import contextlib
import fcntl
import hashlib
import http.server
import itertools
import json
import os
import pty
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from artefacts import WORKER, command, run_program, wait_for
from fleet import made_ahead, uses
from schemas import valid
from standin.machine import Standin

from recommender.knowledge import records, run_figures
from recommender.render import artefact
from recommender.request.request import Request
from recommender.smoke import json_output, report
from recommender.smoke.failures import KINDS

RECOMMEND = (sys.executable, "-m", "recommender")
AT_ONCE = 4
# Below the ports that the kernel gives to clients, so that nothing else takes one between the look and the use.
_PORTS = itertools.count(10000 + WORKER * 2000 + os.getpid() % 100 * 10, 4)
BUSY_S = 100.0


def with_changed(module: str, change: str) -> tuple[str, ...]:
    return (
        sys.executable,
        "-c",
        f"import recommender.{module} as m; m.{change}; import recommender.cli; recommender.cli.main()",
    )


def ports() -> int:
    """The first of four free ports in a row that no other test gets."""
    for first in _PORTS:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for port in range(first, first + 4):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise AssertionError


def listens(port: int) -> bool:
    with socket.socket() as made:
        return made.connect_ex(("127.0.0.1", port)) == 0


@dataclass
class Ran:
    code: int
    out: str
    err: str
    left: dict[int, str]
    folders: list[Path]
    machine: Standin
    seconds: float

    @property
    def own(self) -> list[str]:
        return [line for line in self.err.splitlines() if not line.startswith("  | ")]

    @property
    def log(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("  | ")]

    @property
    def work(self) -> Path:
        return self.machine.folder / "work"


def prepared(folder: Path, fault: str, cards: int, variables: Mapping[str, str]) -> tuple[Standin, dict[str, str]]:
    """A machine with a model, and the environment of a command there. A variable set to "" is left out."""
    machine = Standin(folder, fault=fault, cards=cards)
    model = machine.model()
    temporary = folder / "tmp"
    temporary.mkdir()
    first = ports()
    own = {"MODEL": str(model), "SERVER_PORT": str(first), "PROXY_URL": f"http://127.0.0.1:{first + 3}"}
    environment = machine.environment(**{**own, "TMPDIR": str(temporary), **variables})
    return machine, {name: value for name, value in environment.items() if value or name == "STANDIN_FAULT"}


def smoke(
    folder: Path, *words: str, fault: str = "", cards: int = 1, script: str = "", name: str = "serve.sh",
    gpu: str = "H100-80G", seconds: str = "0.6", patience: str = "20", **variables: str,
) -> Ran:  # fmt: skip
    """One run to its end; ``{port}``, ``{model}`` and ``{work}`` in words and variables are the machine's."""
    machine, environment = prepared(folder, fault, cards, variables)
    work = folder / "work"
    if script:
        (work / name).write_text(script)
    told = {"model": str(folder / "model"), "work": str(work), "port": environment.get("SERVER_PORT", "")}
    command = [*RECOMMEND, "smoke", *([name] if script else []), *(["--gpu", gpu] if gpu else [])]
    command += ["--seconds", seconds, "--patience", patience, *(word.format(**told) for word in words)]
    begun = time.monotonic()
    done = run_program(command, env=environment, cwd=work, timeout=BUSY_S)
    took, folders = time.monotonic() - begun, list((folder / "tmp").iterdir())
    return Ran(done.returncode, done.stdout, done.stderr, machine.processes(), folders, machine, took)


def rendered(*words: str) -> str:
    return subprocess.run(
        [*RECOMMEND, *words, "-q"], capture_output=True, text=True, check=True, env={"PYTHONPATH": _path()}
    ).stdout


def _path() -> str:
    return str(Path(__file__).parent.parent)


def edited(text: str, old: str, new: str) -> str:
    made, count = re.subn(old, new, text)
    assert count == 1, old
    return made


def on_taken_port(folder: Path) -> Ran:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        return smoke(folder, SERVER_PORT=str(taken.getsockname()[1]))


def answering(body: bytes) -> type[http.server.BaseHTTPRequestHandler]:
    """A handler that answers every GET alike and says nothing."""

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    return Answers


def behind_web_server(folder: Path) -> Ran:
    """Runs where http_proxy leads to a web server that answers everything."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), answering(b"<html>Welcome</html>")) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        try:
            return smoke(folder, http_proxy=f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()


# A server that lists its model and refuses to answer.
REFUSES = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.answer(200, b'{"data": [{"id": "m"}]}')
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(503, b'{"message": "come back later"}')
    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["SERVER_PORT"])), Handler).serve_forever()
"""


def refusing(folder: Path) -> Ran:
    (folder / "bin").mkdir()
    tool = folder / "bin" / "server"
    tool.write_text(f"#!{sys.executable}\n{REFUSES}")
    tool.chmod(0o755)
    return smoke(folder, script=f"#!/bin/bash\nexec {tool} # api_server m --server-port $SERVER_PORT\n")


def beside_a_stranger(folder: Path) -> Ran:
    """Runs where somebody else's server takes the port while this one loads."""
    began, port, taken = folder / "began", ports(), threading.Event()

    def take() -> None:
        wait_for(began.exists, BUSY_S)
        with http.server.ThreadingHTTPServer(("127.0.0.1", port), answering(b'{"data": [{"id": "m"}]}')) as server:
            server.timeout = 0.05
            while not taken.is_set():
                server.handle_request()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    script = f"#!/bin/bash\necho loading\ntouch {began}\nsleep 60 # api_server m --server-port $SERVER_PORT\n"
    try:
        return smoke(folder, script=script, SERVER_PORT=str(port))
    finally:
        taken.set()
        thread.join()


OWN = """#!/bin/bash
# written by hand
MODEL_DIR="$MODEL"
lmdeploy serve api_server "$MODEL_DIR" \\
  --server-port "${SERVER_PORT:-23333}" --trust-remote-code \\
  --session-len 8192 --cache-max-entry-count=0.2 2>&1
"""
TOO_SHORT = ("--follow", "chatgpt", "--with", "trust-remote-code", "--with", "server-port={port}")
TOO_SHORT += ("--without", "chat-template")
MANY = ("--load", "16")
W = ("--gpu", "H100-80G", "--load", "4")
Job = Callable[[Path], Ran]


def job(*words: str, edit: tuple[str, str] | None = None, render: tuple[str, ...] = (), **named: Any) -> Job:
    """A run to be made; ``render`` is what the script in a file was asked with, ``edit`` a change to it."""

    def run(folder: Path) -> Ran:
        if render:
            text = rendered(*render)
            named.update(script=edited(text, *edit) if edit else text, gpu="")
        return smoke(folder, *words, **named)

    return run


# Name -> exit code, a piece of the message, the run. With 16 in flight the ninth request comes on any machine.
FAULTS: dict[str, tuple[int, str, Job]] = {
    "port-taken": (10, r"another process listens on port \d+; .*SERVER_PORT", on_taken_port),
    "stranger": (10, r"another process listens on port \d+; stop it", beside_a_stranger),
    "absent": (3, r"machine: LMDeploy is not installed .*pip install lmdeploy==0\.18\.0", job(fault="absent")),
    "other-release": (11, r"LMDeploy 0\.17\.0 is installed .*for 0\.18\.0", job(fault="other-release")),
    "no-gpu": (3, r"machine: no NVIDIA GPU on this machine", job(cards=0)),
    "too-few-gpus": (3, r"machine: 2 GPU\(s\) needed, 1 visible", job(gpu="H100-80G:2")),
    "no-folder": (12, r"model: MODEL is /nowhere/model, and there is no config\.json", job(MODEL="/nowhere/model")),
    "unsupported": (12, r"model: .*not supported by turbomind engine; name a folder", job(fault="unsupported-model")),
    "fallback": (13, r"pytorch-fallback: the engine is pytorch", job(fault="fallback")),
    "oom-start": (14, r"out-of-memory: .*SIGABRT: .*CUDA error: out of memory", job(fault="oom-start")),
    "few-blocks": (28, r"cache-too-small: .*No enough gpu memory for runtime", job(fault="few-blocks")),
    "oom-image": (15, r"out-of-memory-image: .*an image request.*CUDA error: out of memory",
     job(fault="oom-image:1:die")),
    "oom-image-load": (15, r"out-of-memory-image: .*requests under load", job(*MANY, fault="oom-image:9:die")),
    "oom-image-500": (15, r"HTTP 500: .*the log says: torch\.OutOfMemoryError", job(fault="oom-image:1:500")),
    "oom-image-abort": (15, r"finish_reason .*the log says: torch\.Out", job(*MANY, fault="oom-image:9:abort")),
    "hang": (16, r"not ready after .* no new log line for \d+ s; the warm-up", job(fault="hang-start", patience="12")),
    "hang-by-nature": (16, r"hang-at-start: .*as with a KV cache too small for it",
     job(render=W, edit=(r"(?m)^(CACHE_MAX_ENTRY_COUNT=.*:-)[\d.]+", r"\g<1>0.001"), patience="12")),
    "dies": (17, r"server-died: .*\d+ of \d+ requests under load: Server", job(*MANY, fault="die-under-load:9")),
    "hangs": (18, r"requests-hang: a text request: .*/health answers 200", job(fault="hang-requests:0", patience="5")),
    "hangs-load": (18, r"\d of \d+ requests under load: no answer", job(*MANY, fault="hang-requests:9", patience="5")),
    "too-long": (19, r"too-long: .*HTTP 400: .*Input length", job("--load", "4", *TOO_SHORT)),
    "malformed": (20, r"malformed-json: a JSON request: the answer is not JSON", job(fault="malformed-json")),
    "error-200": (21, r"error-in-200: .*Failed to get response", job(fault="error-200")),
    "error-200-load": (21, r"error-in-200: \d+ of \d+ requests", job(*MANY, fault="error-200:9")),
    "dead-proxy": (22, r"http_proxy=http://127\.0\.0\.1:9 intercepts",
     job(HTTP_PROXY="http://user:secret@127.0.0.1:9")),
    "web-proxy": (22, r"environment-proxy: http_proxy=http://.* NO_PROXY=127\.0\.0\.1", behind_web_server),
    "settings": (23, r"settings-differ: session_len is \d+, not \d+ as requested", job(fault="settings")),
    "crash": (24, r"start-failed: .*status 1 before it was ready: ValueError: Unrec", job(fault="crash-start")),
    "restarting": (24, r"start-failed: .*ValueError", job(fault="crash-start", RESTART="5")),
    "refuses": (25, r"request-failed: a text request: HTTP 503: .*come back later", refusing),
    "time-limit": (26, r"not done after 2 s; raise --time-limit", job("--time-limit", "2", fault="slow-start:30")),
    "goal": (27, r"p99 ms \d.*, wanted 330; ask", job("--load", "4", "--p99", "330", STANDIN_STEP_MS="30")),
}  # fmt: skip
# Failures of requests do not end a run: it goes on and measures how many there are.
REPORTED = {"too-long", "malformed", "error-200", "error-200-load", "refuses", "goal", "oom-image-load", "dies"}
UNSTARTED = {"port-taken", "absent", "other-release", "no-gpu", "too-few-gpus", "no-folder", "dead-proxy", "web-proxy"}

OTHERS: dict[str, Job] = {
    "evidence": lambda folder: smoke(
        folder, "--model", "{model}", "--load", "4", "--save-evidence", "run-1.yaml", "--note", "quiet host",
        seconds="1.5", MODEL="", PROXY_URL="",
    ),
    "json": job("--json", "--load", "2", "--p99", "900"),
    "json-goal": job("--json", "--p99", "260", STANDIN_STEP_MS="30"),
    "unready": job("--save-evidence", "none.yaml", "--model", "{model}", fault="oom-start", MODEL=""),
    "overridden": job("--save-evidence", "none.yaml"),
    "file": job(render=W),
    "edited": job(render=W, edit=(r"(?m)^(SESSION_LEN=.*:-)\d+", r"\g<1>2048")),
    "edited-dry": job("--dry-run", render=W, edit=(r"(?m)^(SESSION_LEN=.*:-)\d+", r"\g<1>2048")),
    "two": job(render=("--gpu", "H100-80G:2", "--load", "4"), cards=2),
    "copies": job("--copies", "2"),
    "mps": job("--copies", "2", "--mps", "--text-only", cards=2, CUDA_VISIBLE_DEVICES="1"),
    "pipeline": job(render=(*W, "--format", "python"), name="pipeline.py"),
    "own": job(script=OWN),
    "text": job("--text-only", "--output-tokens", "4"),
    "rate": job("--rps", "8", "--image", "96x96", seconds="1.5"),
    "phases": job("--phase", "2", "--phase", "1@text", "--phase", "2@96x64x2", "--phase", "9rps@96x64"),
    "garbage": job("--text-only", fault="garbage-log"),
    "forks": job("--text-only", fault="forks"),
    "excepted": job("--text-only", http_proxy="http://127.0.0.1:9", no_proxy="localhost,127.0.0.1"),
}  # fmt: skip


@pytest.fixture(scope="module")
def fleet(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Ran]]:
    """The runs that the chosen tests look at, made several at a time."""
    jobs = {name: each[2] for name, each in FAULTS.items()} | OTHERS
    yield from made_ahead(request, Path(__file__), "case", jobs, AT_ONCE, tmp_path_factory)


def clean(ran: Ran) -> None:
    """Nothing is left, and nothing was said that no user should see."""
    assert ran.left == {}
    assert ran.folders == []
    assert not any("Traceback" in line for line in ran.own), ran.err
    assert "\x1b" not in ran.out + ran.err
    text = "" if ran.out.startswith("{") else ran.out
    assert [line for line in text.splitlines() if len(line) > 80 and "lmdeploy serve" not in line] == []


def sound(ran: Ran) -> None:
    clean(ran)
    assert ran.code == 0, ran.err + ran.out[-3000:]
    assert not ran.log
    assert ran.out.endswith("RESULT\n  ok\n") or ran.out.startswith("{")


# --- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", FAULTS)
def test_every_failure_has_its_name_code_and_one_line(case: str, fleet: Callable[[str], Ran]) -> None:
    """The last line names the failure and what to do; before it come log lines, and nothing stays behind."""
    code, piece, _ = FAULTS[case]
    ran = fleet(case)
    clean(ran)
    assert ran.code == code, ran.err
    last = ran.err.splitlines()[-1]
    name = next(kind.name for kind in KINDS.values() if kind.code == code)
    assert last.startswith(f"recommend smoke: {name}: ")
    assert re.search(piece, last), last
    assert sum(line.startswith(f"recommend smoke: {name}") for line in ran.own) == 1
    assert bool(ran.log) == (case not in UNSTARTED | {"time-limit", "goal"}), ran.err
    assert len(ran.log) <= 15


@pytest.mark.parametrize("case", sorted(REPORTED))
def test_failed_requests_are_still_measured(case: str, fleet: Callable[[str], Ran]) -> None:
    """A run whose requests fail reports the load, and says how many failed of what."""
    ran = fleet(case)
    assert "LOAD 1: " in ran.out
    assert "\nRESULT\n  " in ran.out
    if case == "too-long":
        assert "LOAD 2: concurrency 4" in ran.out
        assert ran.out.count("x too-long: HTTP 400") == 2


@uses("dead-proxy")
def test_a_password_is_not_told(fleet: Callable[[str], Ran]) -> None:
    """The proxy that intercepts loopback traffic is named without the password in its address."""
    assert "secret" not in fleet("dead-proxy").err + fleet("dead-proxy").out


def test_all_names_are_tried() -> None:
    """Every failure that the help lists is among the cases here."""
    assert {code for code, _, _ in FAULTS.values()} == {kind.code for kind in KINDS.values()}


# --- runs that end well --------------------------------------------------------------------------


@uses("evidence")
def test_the_report_says_what_was_proved_and_measured(fleet: Callable[[str], Ran]) -> None:
    """Checks, settings, memory and two loads; each setting found as asked."""
    ran = fleet("evidence")
    sound(ran)
    for piece in ("/health answers 200", "/v1/models lists", "a text request is", "an image request is", "schema par"):
        assert piece in ran.out.partition("SETTINGS")[0]
    settings = ran.out.partition("SETTINGS")[2].partition("\n\n")[0].splitlines()[1:]
    assert len(settings) == 6
    assert "DIFFERS" not in ran.out
    assert all(line[22:48].strip() == line[48:].strip() for line in settings)
    assert re.search(r"VRAM ready MiB +8,\d\d\d +\d,\d\d\d  [\d,]+ to [\d,]+ +[+-]\d+\.\d %", ran.out)
    assert "LOAD 1: concurrency 1, 448x448, 330 input and 16 output tokens" in ran.out
    assert "LOAD 2: concurrency 4, 448x448" in ran.out
    assert "random, seed 0; not the real model" in ran.out


@uses("evidence")
def test_evidence_is_a_valid_record_that_renders_again(fleet: Callable[[str], Ran]) -> None:
    """Its request alone remakes the artefact to the digest; the report is computed from the record."""
    ran = fleet("evidence")
    path = ran.work / "run-1.yaml"
    assert f"wrote {path.name}" in ran.own[-1]
    assert path.stat().st_mode & 0o777 == 0o644
    made = records.SmokeRun.model_validate_json(json.dumps(yaml.safe_load(path.read_text())))
    head = json.loads(made.request)
    found = artefact.remake(Request(**head), {})
    from recommender.render.formats import render

    text = render(found, "bash")
    assert hashlib.sha256(text.encode()).hexdigest() == made.artefact_sha256
    assert artefact.parse(text, "serve.sh").launch_sha256(found.resolved) == made.launch_sha256
    assert report.text(found, made) == ran.out
    assert (made.id, made.outcome, made.notes) == ("run-1", "ok", ("quiet host",))
    assert made.checkpoint == "random, seed 0; not the real model"
    assert "MODEL=model" in made.set_by_smoke
    assert str(ran.machine.folder) not in path.read_text().replace(made.request, "")
    told = valid("smoke", json_output.to_json(found, made))
    for phase in told["phases"]:
        shown = [re.escape(f"{row['name']}") + f" +{_shown(row['measured'])} " for row in phase["compared"]]
        assert sum(bool(re.search(each, ran.out)) for each in shown) >= 6


def _shown(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}"


@uses("json")
def test_json_is_the_whole_run(fleet: Callable[[str], Ran]) -> None:
    """It parses, its record validates, and its figures are those that are computed from the record."""
    ran = fleet("json")
    sound(ran)
    told = valid("smoke", ran.out)
    made = records.SmokeRun.model_validate_json(json.dumps(told["run"]))
    assert (told["format"], told["outcome"], told["exit_code"]) == (1, "ok", 0)
    assert len(told["phases"]) == len(made.phases) == 2
    for shown, phase in zip(told["phases"], made.phases, strict=True):
        figures = run_figures.figures(phase)
        assert shown["figures"] == json.loads(json.dumps(figures.__dict__ if hasattr(figures, "__dict__") else {
            name: getattr(figures, name) for name in figures.__slots__}))  # fmt: skip
        assert figures.requests == len(phase.latencies_ms.split()) > 5
    assert [goal["met"] for goal in told["goals"]] == [True]


@uses("json-goal")
def test_json_and_the_exit_code_agree_on_a_missed_goal(fleet: Callable[[str], Ran]) -> None:
    """A missed goal is the outcome in the JSON too."""
    ran = fleet("json-goal")
    clean(ran)
    told = valid("smoke", ran.out)
    assert (ran.code, told["exit_code"], told["outcome"], told["run"]["outcome"]) == (27, 27, "goals-missed", "ok")


@uses("unready", "overridden")
def test_evidence_is_not_written_of_what_proves_nothing(fleet: Callable[[str], Ran]) -> None:
    """Not of a server that never got ready, and not where the environment changes the script."""
    ran = fleet("unready")
    clean(ran)
    assert ran.code == 14
    assert "no evidence written: the server never became ready" in ran.err
    assert not list(ran.work.glob("*.yaml"))
    ran = fleet("overridden")
    clean(ran)
    assert (ran.code, ran.out) == (2, "")
    assert re.search("--save-evidence: .* MODEL, SERVER_PORT", ran.err)


def test_evidence_is_never_replaced(tmp_path: Path) -> None:
    """A file of that name ends the command before anything starts, and stays as it is."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "run.yaml").write_text("precious")
    ran = smoke(tmp_path, "--save-evidence", "run.yaml")
    clean(ran)
    assert ran.code == 2
    assert "exists and is never replaced" in ran.err
    assert (tmp_path / "work" / "run.yaml").read_text() == "precious"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the gigabyte that the first run with random weights writes, and the next ones find."""
    return tmp_path_factory.mktemp("written") / "weights"


@pytest.mark.parametrize(("card", "code"), [("NVIDIA H200", 3), ("NVIDIA H100 80GB HBM3", 0), ("NVIDIA Z9", 0)])
def test_evidence_of_another_gpu_is_refused_before_weights_are_written(
    tmp_path: Path, written: Path, card: str, code: int
) -> None:
    """A record says which GPU it is of. A name that no record knows may be the GPU planned for."""
    weights = tmp_path / "weights" if code else written
    words = ("--weights", "random", "--weights-dir", str(weights), "--model", "qwen2-0.5b-instruct")
    ran = smoke(tmp_path, *words, "--save-evidence", "run.yaml", STANDIN_GPU=card, MODEL="")
    clean(ran)
    assert ran.code == code, ran.err
    assert weights.exists() == (ran.work / "run.yaml").exists() == (not code)
    assert ("the plan is for NVIDIA H100 80GB SXM, and this machine has NVIDIA H200" in ran.err) == bool(code)


def test_another_gpu_than_planned_for_is_said(tmp_path: Path) -> None:
    """Without evidence the run goes on: its predictions are for the other GPU."""
    ran = smoke(tmp_path, STANDIN_GPU="NVIDIA H200")
    clean(ran)
    assert ran.code == 0, ran.err
    assert "this machine has NVIDIA H200: predictions will not match" in ran.err


@pytest.mark.parametrize(
    "case", ["file", "edited", "two", "copies", "mps", "own", "text", "garbage", "forks", "excepted"]
)
def test_what_smoke_can_launch(case: str, fleet: Callable[[str], Ran]) -> None:
    """Scripts from files, edited and foreign ones, several servers, text only, odd logs and daemons: all end well."""
    ran = fleet(case)
    sound(ran)
    pieces = {
        "edited": r"session-len +2048 +2048",
        "two": r"2 x NVIDIA H100",
        "copies": r", 2 copies; LMDeploy 0\.18\.0",
        "mps": r"2 copies under CUDA MPS",
        "own": r"session-len +8192 +8192(?s:.*)14,?585 MiB \(0\.200\)",
        "text": r"concurrency 1, text, \d+ input and 4 output tokens",
        "garbage": r"max-batch-size",
    }
    assert re.search(pieces.get(case, "CHECKED"), ran.out), ran.out
    assert ("predicted" in ran.out and "p50 ms   " in ran.out) or case == "text"


@uses("edited-dry", "edited")
def test_an_edit_is_named(fleet: Callable[[str], Ran]) -> None:
    """The dry run of an edited script says which value is another one, and what would run."""
    ran = fleet("edited-dry")
    clean(ran)
    assert ran.code == 0
    assert "serve.sh: edited; nothing was started\n  SESSION_LEN is edited\n" in ran.out
    assert "--session-len 2048" in ran.out
    assert "the parser of the installed LMDeploy 0.18.0" in ran.out


@uses("pipeline")
def test_a_pipeline_is_one_batch(fleet: Callable[[str], Ran]) -> None:
    """Every input has an answer, each answer parses, and the script's own end is looked at."""
    ran = fleet("pipeline")
    sound(ran)
    assert "each of the 16 inputs has an answer" in ran.out
    assert "all 16 answers parse by the JSON schema" in ran.out
    assert "the script ended with status 0" in ran.out
    assert "LOAD 1: batch of 16, 448x448" in ran.out
    assert "16 requests answered in" in ran.out
    assert re.search(r"session-len +4096 +4096", ran.out)
    assert "TTFT" not in ran.out


@uses("rate")
def test_arrivals_at_a_rate_are_a_goal(fleet: Callable[[str], Ran]) -> None:
    """--rps is driven as Poisson arrivals and held against what was reached."""
    ran = fleet("rate")
    clean(ran)
    assert ran.code in (0, 27)
    assert "LOAD 2: 8 requests/s (Poisson), 96x96" in ran.out
    assert re.search(r"GOALS\n  requests/s 8: (met|missed), measured \d+\.\d", ran.out)


@uses("phases")
def test_loads_of_ones_own(fleet: Callable[[str], Ran]) -> None:
    """Each --phase is one load, in their order."""
    ran = fleet("phases")
    sound(ran)
    loads = re.findall(r"^LOAD \d: (.*?), \d+ input and", ran.out, re.MULTILINE)
    assert loads == [
        "concurrency 2, 448x448",
        "concurrency 1, text",
        "concurrency 2, 96x64 x 2",
        "9 requests/s (Poisson), 96x64",
    ]


# --- the command line ----------------------------------------------------------------------------


def said(*words: str, code: int = 2, fault: str = "", folder: Path | None = None, **variables: str) -> str:
    environment = {"PYTHONPATH": _path(), "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", **variables}
    if folder is not None:
        environment = Standin(folder, fault=fault).environment(**variables)
    done = run_program([*RECOMMEND, *words], env=environment, cwd=folder, timeout=BUSY_S)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout + done.stderr


WRONG = {
    "nothing to launch": ((), "name a script that recommend wrote, or pass --gpu"),
    "no such file": (("gone.sh",), r"gone\.sh: No such file"),
    "no cores": (("--gpu", "L4", "--pin", "all"), r"--pin '?all'?: use the format of taskset -c"),
    "other cores": (("--gpu", "L4", "--pin", "0-99999"), r"--pin 0-99999: this machine has cores \d+ to \d+"),
    "a folder": (("/usr",), r"/usr: it has no compose.yaml, .*name a folder that --format wrote"),
    "no script": (("notes.txt",), "neither a shell nor a Python script"),
    "by hand without a GPU": (("own.sh",), "recommend did not write this .* pass --gpu"),
    "nothing to see in it": (("empty.sh", "--gpu", "L4"), "no 'lmdeploy serve api_server' in it"),
    "unknown option": (("--gpus", "L4"), "no such option --gpus"),
    "unknown GPU": (("--gpu", "H1000"), "unknown GPU .* did you mean"),
    "a phase": (("--gpu", "L4", "--phase", "often"), r"--phase 'often': use N, Nrps, N@WIDTHxHEIGHT, N@text or trace"),
    "no load": (("--gpu", "L4", "--phase", "0"), "use a whole number from 1"),
    "a picture for text": (
        ("--gpu", "H100-80G", "--model", "qwen2.5-7b-instruct", "--phase", "1@64x64"),
        "is a text model",
    ),
    "patience": (("--gpu", "L4", "--patience", "0"), "0.* is not in the range"),
    "seconds": (("--gpu", "L4", "--seconds", "-1"), "--seconds"),
    "weights": (("--gpu", "L4", "--weights", "real"), "'real' is not 'random'"),
    "evidence's name": (("--gpu", "L4", "--save-evidence", "My Run.yaml"), "lower-case letters, digits and dashes"),
    "evidence's folder": (("--gpu", "L4", "--save-evidence", "/nowhere/run.yaml"), "is not a writable folder"),
    "follow with a script": (("serve.sh", "--follow", "gemini"), "cannot go with a script"),
    "copies of one port": (
        ("--gpu", "H100-80G", "--follow", "defaults", "--copies", "2"),
        "does not take its port from SERVER_PORT",
    ),
    "mps for python": (("--mps", "pipeline.py"), "--mps: a pipeline.py is a single process"),
    "a broken head": (("broken.sh",), "the request in its head cannot be read"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_command_lines(case: str, command_lines: dict[str, str]) -> None:
    """Exit code 2 and one line that says what is wrong."""
    told = command_lines[case]
    assert re.search(WRONG[case][1], told), told
    assert told.startswith("recommend: ")
    assert len(told.splitlines()) == 1


@pytest.fixture(scope="module")
def command_lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each wrong command line says, in this process: nothing is started."""
    folder = tmp_path_factory.mktemp("lines")
    (folder / "own.sh").write_text(OWN)
    (folder / "empty.sh").write_text("#!/bin/bash\nexec ./start-it\n")
    (folder / "notes.txt").write_text("hello")
    (folder / "broken.sh").write_text('#!/bin/bash\n# request: {"gpu": }\n')
    (folder / "serve.sh").write_text(rendered(*W))
    (folder / "pipeline.py").write_text(rendered(*W, "--format", "python"))
    machine = Standin(folder)

    told = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in machine.environment().items():
            patch.setenv(name, value)
        for case, (words, _) in WRONG.items():
            code, out, told[case] = command("smoke", *words)
            assert (code, out) == (2, ""), (words, told[case])
    return told


def test_options_belong_behind_smoke() -> None:
    """An option before the command's name is refused with its place, not silently dropped."""
    assert "--gpu belongs after smoke" in said("--gpu", "L4", "smoke")


def test_nothing_fits() -> None:
    """The main job's own exit code where no configuration holds the goals."""
    assert "nothing fits" in said("smoke", "--gpu", "L4", "--load", "64", "--p99", "1", code=1)


def test_the_help_fits_and_lists_every_code() -> None:
    """80 columns, every exit code, examples."""
    told = said("smoke", "--help-all", code=0)
    assert max(map(len, told.splitlines())) <= 80
    for kind in KINDS.values():
        assert re.search(rf"^ +{kind.code}  {kind.name} ", told, re.MULTILINE)


def test_a_dry_run_needs_no_lmdeploy(tmp_path: Path) -> None:
    """Without LMDeploy the options are checked with the extracted facts, and wrong ones are refused alike."""
    (tmp_path / "serve.sh").write_text(edited(rendered(*W), r"(?m)^  --session-len ", "  --session-length "))
    (tmp_path / "none").mkdir()
    (tmp_path / "some").mkdir()
    wrong = ("smoke", str(tmp_path / "serve.sh"), "--dry-run")
    for place, fault, by in (("none", "absent", "LMDeploy 0.18.0's list"), ("some", "", "the parser of the insta")):
        folder = tmp_path / place
        told = said("smoke", *W, "--dry-run", code=0, fault=fault, folder=folder)
        assert f"options checked against {by}" in told
        assert "nothing was started" in told
        shown = run_program([*RECOMMEND, *wrong], env=_again(folder, fault), timeout=BUSY_S)
        assert shown.returncode == 2
        assert re.fullmatch(
            r"recommend: LMDeploy 0\.18\.0 refuses the options: .*--session-length.*\n", shown.stderr
        ), shown.stderr


def _again(folder: Path, fault: str) -> dict[str, str]:
    """The environment of a machine that is there already."""
    machine = Standin.__new__(Standin)
    machine.folder, machine.fault, machine.cards, machine.step_ms, machine.variables, machine.token = (
        folder, fault, 1, 1.0, {}, "again",
    )  # fmt: skip
    return machine.environment()


@pytest.mark.parametrize(("name", "value"), [("SERVER_PORT", "http"), ("SERVER_PORT", "70000"), ("SESSION_LEN", "4k")])
def test_values_that_are_no_numbers(name: str, value: str, tmp_path: Path) -> None:
    """A variable that cannot be meant ends the command before anything starts."""
    ran = smoke(tmp_path, **{name: value})
    clean(ran)
    assert (ran.code, ran.out) == (2, "")
    assert value in ran.err


def test_seconds_are_driven_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load with a length of its own goes on though enough answers for one without came early."""
    monkeypatch.setattr(sys.modules[__name__], "RECOMMEND", with_changed("commands.smoke", "ENOUGH = 5"))
    ran = smoke(tmp_path, "--phase", "32@text", "--json", seconds="1", STANDIN_STEP_MS="0")
    clean(ran)
    (phase,) = json.loads(ran.out)["run"]["phases"]
    assert phase["window_requests"] > 5
    assert phase["window_s"] > 0.5  # it ends with the last answer in time; five answers took milliseconds


# --- a terminal ----------------------------------------------------------------------------------


def test_a_terminal_shows_progress_and_keeps_nothing_of_it(tmp_path: Path) -> None:
    """One line of 80 columns is redrawn; at the end it is erased and the cursor is there again."""
    _, environment = prepared(tmp_path, "", 1, {"TERM": "xterm-256color"})
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [*RECOMMEND, "smoke", "--gpu", "H100-80G", "--seconds", "0.6"]
    process = subprocess.Popen(
        command, env=environment, cwd=tmp_path / "work", stdout=subprocess.PIPE, stderr=theirs, text=True
    )
    os.close(theirs)
    seen = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):
            while data := os.read(ours, 65536):
                seen.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    out, _ = process.communicate(timeout=BUSY_S)
    reader.join(10)
    os.close(ours)
    text = seen.decode("utf-8", "replace")
    assert process.returncode == 0, text
    assert out.startswith("SMOKE RUN\n")
    assert out.endswith("  ok\n")
    for stage in ("waiting for the server", "checking the answers", "load 1 of 1", "answered"):
        assert stage in text
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", text).replace("\r", "\n").split("\n")
    assert max(map(len, drawn)) <= 80
    assert text.rfind("\x1b[2K") > text.rfind("stopping")
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")
    assert not re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text[text.rfind("\x1b[2K") :]).strip()


# --- stopped -------------------------------------------------------------------------------------

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
TRIALS, SEED = 24, 7


class Started:
    """A run that is stopped."""

    def __init__(self, folder: Path, fault: str, *words: str) -> None:
        folder.mkdir(exist_ok=True)
        self.machine, environment = prepared(folder, fault, 1, {})
        self.port = int(environment["SERVER_PORT"])
        self.errors = folder / "stderr"
        command = [*RECOMMEND, "smoke", "--gpu", "H100-80G", "--seconds", "1", "--patience", "30", *words]
        with self.errors.open("wb") as file:
            self.process = subprocess.Popen(
                command, env=environment, cwd=folder / "work", stdout=subprocess.DEVNULL, stderr=file,
                start_new_session=True,
            )  # fmt: skip

    def ready(self) -> None:
        wait_for(lambda: listens(self.port) or self.process.poll() is not None, BUSY_S)

    def ended(self) -> int:
        try:
            code = self.process.wait(BUSY_S)
        finally:
            self.process.kill()
        wait_for(lambda: not self.machine.processes() and not listens(self.port), 30)
        return code

    def said(self) -> str:
        return self.errors.read_text("utf-8", "replace")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_stops_everything_and_says_so(number: signal.Signals, code: int, tmp_path: Path) -> None:
    """The exit code of the signal, one line after those of progress on a slow machine, and no folder left."""
    run = Started(tmp_path, "")
    run.ready()
    run.process.send_signal(number)
    assert run.ended() == code
    *before, last = run.said().splitlines()
    assert last == f"recommend smoke: stopped by {number.name}; all processes are stopped"
    assert all(re.match("recommend smoke: (waiting|reading|checking|load|1 |stopping)", line) for line in before)
    assert not list((tmp_path / "tmp").iterdir())


def test_the_next_run_removes_what_a_killed_one_left(tmp_path: Path) -> None:
    """SIGKILL leaves the work folder, and the run after it removes that too."""
    run = Started(tmp_path / "killed", "")
    run.ready()
    run.process.kill()
    run.ended()
    temporary = tmp_path / "killed/tmp"
    assert [path.name[:16] for path in temporary.iterdir()] == ["recommend-smoke-"]
    (tmp_path / "next").mkdir()
    assert smoke(tmp_path / "next", "--text-only", TMPDIR=str(temporary)).code == 0
    assert not list(temporary.iterdir())


@pytest.mark.parametrize(("redirections", "code"), [("<&- >&- 2>&-", 3), (">/dev/full 2>&1", 3), (">&3 2>&3", 141)])
def test_a_run_that_cannot_say_anything_ends_as_any_other(redirections: str, code: int, tmp_path: Path) -> None:
    """Its streams are closed, full or read by nobody: evidence is written, and nothing is left behind."""
    machine, environment = prepared(tmp_path, "", 1, {"MODEL": "", "PROXY_URL": ""})
    command = [*RECOMMEND, "smoke", "--gpu", "H100-80G", "--model", str(tmp_path / "model"), "--text-only"]
    command += ["--seconds", "0.6", "--patience", "20", "--save-evidence", "kept.yaml"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        ["bash", "-c", f'exec 3>&{writer}; exec "$@" {redirections}', "bash", *command],
        env=environment, cwd=tmp_path / "work", pass_fds=(writer,), timeout=BUSY_S, check=False,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == code
    assert yaml.safe_load((tmp_path / "work/kept.yaml").read_text("utf-8"))["id"] == "kept"
    assert not machine.processes()
    assert not list((tmp_path / "tmp").iterdir())


def test_a_second_interrupt_cuts_the_wait_for_a_stubborn_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first Ctrl-C gives the server time to end; the second does not, and still leaves nothing."""
    grace_s = 10 * BUSY_S
    monkeypatch.setattr(sys.modules[__name__], "RECOMMEND", with_changed("smoke.run", f"GRACE_S = {grace_s}"))
    run = Started(tmp_path, "stubborn")
    run.ready()
    run.process.send_signal(signal.SIGINT)
    time.sleep(0.7)
    assert run.process.poll() is None
    run.process.send_signal(signal.SIGINT)
    assert run.ended() == 130  # long before the time that the first one gives
    assert "Traceback" not in run.said()


def _trial(number: int, folder: Path) -> None:
    """Stops one run at a moment that only the seed knows."""
    dice = random.Random(SEED * 1000 + number)
    fault = dice.choice(("", "", "stubborn", "forks", "slow-start:1"))
    chosen, late = SIGNALS[number % 4], dice.random() < 0.5
    run = Started(folder, fault)
    if late:
        run.ready()
    time.sleep(dice.uniform(0.1, 2.5))
    run.process.send_signal(chosen)
    if dice.random() < 0.3:
        time.sleep(dice.uniform(0, 0.5))
        run.process.send_signal(chosen)
    code = run.ended()
    told = f"{number}: {chosen.name} {fault} {code}\n{run.said()}"
    # Before the handlers are there a signal ends the process in its own way; after its end nothing happens. Ctrl-C is
    # an exception from the start on: it ends an import, with Python's words or, once the command line is there, ours.
    early = chosen == signal.SIGINT and run.said().endswith(("KeyboardInterrupt\n", "recommend: stopped\n"))
    assert code in (0, 128 + chosen, -chosen) or (early and code == 1), told
    assert "stopped by" in run.said() or early or code in (0, -chosen), told
    assert chosen == signal.SIGKILL or not list((folder / "tmp").iterdir()), told


def test_no_moment_to_stop_leaves_anything(tmp_path: Path) -> None:
    """SIGINT, SIGTERM, SIGHUP and SIGKILL at random moments, with servers that ignore them, fork or start late."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for trial in [pool.submit(_trial, number, tmp_path / str(number)) for number in range(TRIALS)]:
            trial.result()
