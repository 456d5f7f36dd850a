"""The artefacts: read by their own languages' parsers, and run against stand-ins."""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from artefacts import (
    BASH,
    GPUS,
    LOADS,
    MODELS,
    RECORD,
    RELEASES,
    Machine,
    alive,
    answer,
    fits,
    found,
    grid,
    parser,
    release_facts,
    requests,
    run_program,
    running,
    shellcheck,
    text,
    vision,
    wait_for,
)
from fronts import free_ports
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from schemas import valid, validator

from recommender.choose import recommend as pipeline
from recommender.choose.candidates import tiers
from recommender.choose.recommend import NothingFits, Recommendation, recommend
from recommender.choose.select import predict
from recommender.common.errors import RequestError
from recommender.knowledge.load import load
from recommender.render import json_output
from recommender.render.formats import render
from recommender.request.request import Request
from recommender.request.resolved_request import resolve_request


def accepted(release: str, words: list[str]) -> Any:
    """What the release's own parser makes of a command line; fails where it refuses."""
    assert words[:3] == ["lmdeploy", "serve", "api_server"]
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parser(release).parse_args(words[3:])
    except SystemExit:
        pytest.fail(f"LMDeploy {release} refuses {words}: {said.getvalue()}")


def recording(then: str) -> str:
    return RECORD + then + "\n"


# --- bash: the text


def test_every_script_of_the_grid_is_bash_and_its_command_is_the_releases(tmp_path: Path) -> None:
    """Over every release and GPU a script parses, and the release accepts its command or is named in the refusal."""
    scripts, fitting = [], 0
    for request in grid():
        made = answer(request)
        if isinstance(made, NothingFits):
            newest = answer(Request(**{**vars_of(request), "lmdeploy": RELEASES[-1]}))
            if isinstance(newest, Recommendation):
                said = " ".join(each.message for each in (made.nothing.binding, *made.nothing.others))
                assert request.lmdeploy in said, (request, said)
            continue
        fitting += 1
        taken = accepted(request.lmdeploy, json_output.command(made))
        assert taken.model_path == made.resolved.model_source
        scripts.append(tmp_path / f"{fitting}.sh")
        scripts[-1].write_text(render(made, "bash"))
    assert fitting > 150
    for script in scripts[::5]:
        subprocess.run([BASH, "-n", str(script)], check=True)


def vars_of(request: Request) -> dict[str, Any]:
    return {name: getattr(request, name) for name in request.__slots__}


def test_shellcheck_finds_nothing_in_the_scripts_of_the_table(tmp_path: Path) -> None:
    """shellcheck is silent on one script of each kind: one server, several, tensor parallel, text, old and new."""
    table: list[dict[str, Any]] = [
        {},
        {"lmdeploy": RELEASES[0], "model": "qwen2.5-7b-instruct-awq"},
        {"lmdeploy": "0.12.3", "load": "medium"},
        {"gpu": "h100-sxm-80g", "gpu_count": 2, "load": "high", "goal": "throughput"},
        {"gpu": "a100-sxm-40g", "gpu_count": 4, "goal": "latency", "model": "internvl3-38b-awq"},
        {"model": "qwen2.5-7b-instruct", "load": "high"},
        {"model": "internvl3-8b-hf", "kv": "int8", "image_width": 1280, "image_height": 720, "images": 2},
    ]
    shellcheck(tmp_path, *(text("bash", **asked) for asked in table))


@settings(max_examples=25)
@given(request=requests())
def test_any_script_passes_bash_and_shellcheck(request: Request, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whatever is asked, the script passes bash -n and shellcheck."""
    shellcheck(tmp_path_factory.getbasetemp(), render(fits(request), "bash"))


# --- bash: what runs


@settings(max_examples=40)
@given(request=requests(gpu_count=1))
def test_the_launched_command_is_the_published_one(request: Request, shared_machine: Machine) -> None:
    """A script launches the command of the JSON, with the revision that was asked for, and the release takes it."""
    made = fits(request)
    assume(made.config.servers == 1)  # several have a proxy in front, and a command each
    launched = shared_machine.words(render(made, "bash"))
    accepted(request.lmdeploy, launched)
    published = json.loads(render(made, "json"))["command"]
    extra = ["--revision", "abc"] if "--revision" in launched else []
    assert sorted(launched) == sorted([*published, *extra])
    assert launched[3] == made.resolved.model_source


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_accepts_the_launched_command_of_the_main_job(release: str, machine: Machine) -> None:
    """The main job's script launches a command line that the release's parser takes, with the model first.

    InternVL3 is served from 0.8.0, the first release that knows its chat template; before it Qwen2.5 shows the same.
    """
    old = RELEASES.index(release) < RELEASES.index("0.8.0")
    model, hub = (
        ("qwen2.5-7b-instruct-awq", "Qwen/Qwen2.5-7B-Instruct-AWQ")
        if old
        else ("internvl3-8b-awq", "OpenGVLab/InternVL3-8B-AWQ")
    )
    made = found(lmdeploy=release, model=model)
    taken = accepted(release, machine.words(render(made, "bash")))
    assert (taken.model_path, taken.backend) == (hub, "turbomind")
    assert taken.session_len > made.resolved.total_tokens()


def test_the_environment_overrides_what_the_script_says(machine: Machine) -> None:
    """MODEL, SESSION_LEN and a switch from the environment reach the command line."""
    words = machine.words(text(), MODEL="/models/mine and yours", SESSION_LEN="777", DISABLE_FASTAPI_DOCS="false")
    assert words[3] == "/models/mine and yours"
    assert words[words.index("--session-len") + 1] == "777"
    assert "--disable-fastapi-docs" not in words


def test_the_processes_environment_is_set(machine: Machine) -> None:
    """The server sees OMP_NUM_THREADS as decided, or as the user's environment says."""
    made = found()
    machine.run(render(made, "bash"))
    machine.run(render(made, "bash"), OMP_NUM_THREADS="7")
    seen = [call.environment["OMP_NUM_THREADS"] for call in machine.calls()]
    assert seen == [str(made.config.omp_threads), "7"]


def test_keys_come_from_the_environment_or_a_file(machine: Machine, tmp_path: Path) -> None:
    """API_KEYS and API_KEYS_FILE reach the server as --api-keys; without them there is none, none is in the text."""
    body = text()
    assert "--api-keys" not in machine.words(body)
    words = machine.words(body, API_KEYS="one two")
    assert words[words.index("--api-keys") + 1 :][:2] == ["one", "two"]
    keys = tmp_path / "keys.txt"
    keys.write_text("sk-$(touch p)\nsk-three\n")
    words = machine.words(body, API_KEYS_FILE=str(keys))
    assert words[words.index("--api-keys") + 1 :][:2] == ["sk-$(touch p)", "sk-three"]
    accepted("0.18.0", words)
    assert not re.search(r"sk-|--api-keys [A-Za-z0-9]", body)


def test_a_model_with_code_asks_for_its_revision(machine: Machine) -> None:
    """Without REVISION the script stops with status 2 and says what to set; nothing is launched."""
    done = machine.run(text(), REVISION="")
    assert done.returncode == 2
    assert "REVISION" in done.stderr
    assert not machine.calls()


def test_a_model_without_code_needs_no_revision(machine: Machine) -> None:
    """A checkpoint with native classes starts without REVISION."""
    assert "--revision" not in machine.words(text(model="internvl3-8b-hf"), REVISION="")


def test_signals_reach_the_server_itself(machine: Machine) -> None:
    """Without RESTART the script becomes the server: same process, so it gets each signal."""
    machine.tool("lmdeploy", recording("exec sleep 60"))
    with running(machine.start(text())) as process:
        wait_for(machine.calls)
        assert machine.calls()[0].pid == process.pid
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == -signal.SIGTERM


def test_restart_backs_off_and_gives_up(machine: Machine, tmp_path: Path) -> None:
    """A server that keeps crashing is started again after 5, 10, 20 s, and given up after RESTART restarts."""
    pauses = tmp_path / "pauses"
    machine.tool("lmdeploy", recording("exit 1"))
    machine.tool("sleep", f'#!/bin/bash\necho "$1" >>"{pauses}"\n')
    done = machine.run(text(), RESTART="3")
    assert done.returncode not in (0, 1)
    assert pauses.read_text().split() == ["5", "10", "20"]
    assert len(machine.calls()) == 4
    assert "giving up" in done.stderr


def test_restart_ends_when_the_server_ends_well(machine: Machine) -> None:
    """A server that ends with status 0 is not started again."""
    assert machine.run(text(), RESTART="3").returncode == 0
    assert len(machine.calls()) == 1


# --- bash: preflight

UNUSED = socket.socket()
"""Has a port for as long as the tests run and does not listen on it, so that nothing does."""
UNUSED.bind(("127.0.0.1", 0))
FIT = {"PREFLIGHT": "yes", "LMDEPLOY_VERSION": "0.18.0", "HF_HUB_OFFLINE": "0", "FREE_MIB": "81000"}
FIT |= {"SERVER_PORT": str(UNUSED.getsockname()[1])}


FAILED = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"LMDEPLOY_VERSION": "0.9.2"}, "0.9.2"),
        ({"LMDEPLOY_VERSION": ""}, "not installed"),
        ({"PYTHON_OLD": "1"}, "too old"),
        ({"FREE_MIB": "900"}, "900 MiB free"),
        ({"CARDS": "0"}, "GPU"),
        ({"SMI_FAILS": FAILED, "SMI_CODE": "9"}, FAILED),
        ({"SMI_FAILS": FAILED, "SMI_CODE": "0"}, FAILED),
        ({"SMI_FAILS": "No devices were found", "SMI_CODE": "6"}, "No devices were found"),
        ({"SMI_FAILS": "No devices were found", "SMI_CODE": "0"}, "No devices were found"),
        ({"SMI_FAILS": "No devices were found", "SMI_CODE": "0", "CUDA_VISIBLE_DEVICES": "0"}, "No devices were found"),
        ({"CARDS": "0", "CUDA_VISIBLE_DEVICES": "0"}, "GPU"),
        ({"CARDS": "2", "CUDA_VISIBLE_DEVICES": "2"}, "nvidia-smi lists 0 1"),
        ({"CUDA_VISIBLE_DEVICES": "-1"}, "nvidia-smi lists 0"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-1b5e"}, "nvidia-smi lists 0"),
        ({"CUDA_VISIBLE_DEVICES": ""}, "0 GPU(s) found"),
        ({"CUDA_VERSION": "11.8"}, "supports CUDA 11"),
        ({"CUDA_VERSION": "N/A"}, "no driver for CUDA"),
        ({"HF_HUB_OFFLINE": "1"}, "cannot be downloaded"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_preflight_refuses_before_the_launch(machine: Machine, changed: dict[str, str], said: str) -> None:
    """What is missing stops the script with one line that names it, and nothing is launched."""
    done = machine.run(text(), **{**FIT, **changed})
    assert done.returncode == 3
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not machine.calls()


@pytest.mark.parametrize("visible", ["0", "1", "1,0", "GPU-0", "GPU-0000", "MIG-5f4e", "0 , 1"])
def test_preflight_accepts_the_cards_that_are_there(machine: Machine, visible: str) -> None:
    """By number, by the beginning of a UUID, or a slice, whose UUIDs nvidia-smi lists elsewhere."""
    done = machine.run(text(), **FIT, CARDS="2", CUDA_VISIBLE_DEVICES=visible)
    assert done.returncode == 0, done.stderr


def test_preflight_counts_a_card_once(machine: Machine) -> None:
    """Two servers need two cards; one that is named twice is one."""
    done = machine.run(text(**SERVERS), **FIT, CARDS="2", CUDA_VISIBLE_DEVICES="1,1")
    assert (done.returncode, machine.calls()) == (3, [])
    assert "twice" in done.stderr


def test_preflight_accepts_a_local_folder_offline(machine: Machine, tmp_path: Path) -> None:
    """A model folder with its config.json needs no network."""
    (tmp_path / "config.json").write_text("{}")
    done = machine.run(text(), **{**FIT, "HF_HUB_OFFLINE": "1", "MODEL": str(tmp_path)})
    assert done.returncode == 0, done.stderr
    assert machine.calls()[0].words[3] == str(tmp_path)


def test_preflight_accepts_a_cached_model_offline(machine: Machine, tmp_path: Path) -> None:
    """A model in the hub's cache needs no network."""
    (tmp_path / "models--OpenGVLab--InternVL3-8B-AWQ" / "snapshots").mkdir(parents=True)
    done = machine.run(text(), **{**FIT, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path)})
    assert done.returncode == 0, done.stderr


# --- bash: several servers

SERVERS = {"gpu": "h100-sxm-80g", "gpu_count": 2, "load": "high", "goal": "throughput"}
SERVE = recording('if [[ $2 == proxy ]]; then exec "$REAL_PYTHON" "$PROXY" "$@"; fi\nexec sleep 60')
PROXY = """
import os, socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1 + sys.argv.index("--server-port")])))
while True:
    server.accept()[0].close()
"""


@pytest.fixture
def servers(machine: Machine, tmp_path: Path) -> Machine:
    """A machine whose servers sleep and whose proxy listens."""
    (tmp_path / "proxy.py").write_text(PROXY)
    machine.tool("lmdeploy", SERVE)
    machine.variables |= {"REAL_PYTHON": sys.executable, "PROXY": str(tmp_path / "proxy.py")}
    machine.variables |= {"PROXY_URL": f"http://127.0.0.1:{free_ports(5)}"}  # the next four are the servers'
    return machine


@contextlib.contextmanager
def started(machine: Machine, body: str, calls: int, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A script once it has started so many programs; after the test it is ended."""
    with running(machine.start(body, **variables)) as process:
        wait_for(lambda: len(machine.calls()) == calls)
        yield process


def ended(process: subprocess.Popen[str], number: signal.Signals, pids: Sequence[int]) -> None:
    """Fails unless a signal to the script ends all that it started, and its status tells the signal."""
    process.send_signal(number)
    assert process.wait(timeout=60) == 128 + number
    wait_for(lambda: not any(map(alive, pids)))


def test_several_servers_each_have_their_card_and_port_behind_the_proxy(servers: Machine) -> None:
    """The proxy starts first; each server has a card and a port of its own and registers with that proxy."""
    made = found(**SERVERS)
    assert made.config.servers == 2
    with started(servers, render(made, "bash"), 3):
        proxy, *two = servers.calls()
        assert proxy.words[1:3] == ["serve", "proxy"]
        address = servers.variables["PROXY_URL"]
        assert proxy.words[proxy.words.index("--server-port") + 1] == address.rpartition(":")[2]
        assert sorted(each.environment["CUDA_VISIBLE_DEVICES"] for each in two) == ["0", "1"]
        taken = [accepted("0.18.0", each.words) for each in two]
        assert sorted(each.server_port for each in taken) == [23333, 23334]
        assert {each.proxy_url for each in taken} == {address}


def test_several_servers_share_the_cards_the_user_names(servers: Machine) -> None:
    """CUDA_VISIBLE_DEVICES of the user is divided among the servers."""
    with started(servers, text(**SERVERS), 3, CUDA_VISIBLE_DEVICES="5,3"):
        assert sorted(each.environment["CUDA_VISIBLE_DEVICES"] for each in servers.calls()[1:]) == ["3", "5"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
def test_several_servers_end_with_the_script(servers: Machine, number: signal.Signals) -> None:
    """A signal to the script ends the proxy and all servers; no orphan stays."""
    with started(servers, text(**SERVERS), 3) as process:
        ended(process, number, [call.pid for call in servers.calls()])


@pytest.mark.parametrize("victim", [0, 1, 2], ids=["proxy", "first", "second"])
def test_several_servers_end_when_one_does(servers: Machine, victim: int) -> None:
    """When the proxy or a server dies, the others are stopped and the script fails."""
    with started(servers, text(**SERVERS), 3) as process:
        pids = [call.pid for call in servers.calls()]
        os.kill(pids[victim], signal.SIGKILL)
        assert process.wait(timeout=60) not in (0, None)
        wait_for(lambda: not any(map(alive, pids)))


def test_several_servers_restart_together(servers: Machine) -> None:
    """Under RESTART a dead server brings all down, all start again, and a signal then leaves nothing behind."""
    with started(servers, text(**SERVERS), 3, RESTART="1") as process:
        first = [call.pid for call in servers.calls()]
        os.kill(first[1], signal.SIGKILL)
        wait_for(lambda: len(servers.calls()) == 6)
        assert not any(map(alive, first))
        ended(process, signal.SIGTERM, [call.pid for call in servers.calls()])


def test_several_servers_do_not_start_when_the_proxy_fails(machine: Machine) -> None:
    """A proxy that ends at once is the end: no server is launched."""
    machine.tool("lmdeploy", recording("exit 9"))
    assert machine.run(text(**SERVERS), PROXY_URL="http://127.0.0.1:1").returncode != 0
    assert [call.words[2] for call in machine.calls()] == ["proxy"]


def test_several_servers_ask_for_keys_too(servers: Machine) -> None:
    """With keys the proxy asks its clients for them, and the servers too or they listen on loopback only."""
    with started(servers, text(**SERVERS), 3, API_KEYS="one two"):
        proxy, *two = servers.calls()
        assert proxy.words[proxy.words.index("--api-keys") + 1 :][:2] == ["one", "two"]
        for each in two:
            guarded = "--api-keys" in each.words
            assert guarded or accepted("0.18.0", each.words).server_name == "127.0.0.1"


# --- bash: servers that share a card under CUDA MPS

LISTEN = """
import socket, sys, time
time.sleep(float(sys.argv[1]))
ports = [after for word, after in zip(sys.argv, sys.argv[1:]) if word == "--server-port"]
server = socket.create_server(("127.0.0.1", int(ports[-1])))
while True:
    server.accept()[0].close()
"""


def shared(cards: int = 1, share: int = 2) -> Recommendation:
    """A recommendation of two servers to a card, or of four of the PyTorch engine, whether or not it is the choice."""
    model = "internvl3-8b-awq" if share == 2 else "qwen3-vl-4b-instruct"
    resolved = resolve_request(Request(gpu="h100-sxm-80g", gpu_count=cards, concurrency=64, model=model), load())
    config = next(each for each in next(tiers(resolved)) if each.share == share)
    candidate = predict(resolved, config)
    return pipeline._complete(resolved, candidate, (), pipeline.explain(resolved, candidate))


@pytest.fixture
def sharing(servers: Machine, tmp_path: Path) -> Machine:
    """Servers that listen a second after their start, and a daemon of CUDA MPS."""
    (tmp_path / "listen.py").write_text(LISTEN)
    serve = 'if [[ $2 == proxy ]]; then exec "$REAL_PYTHON" "$PROXY" "$@"; fi\nexec "$REAL_PYTHON" "$LISTEN" 1 "$@"'
    servers.tool("lmdeploy", recording(serve))
    servers.tool("nvidia-cuda-mps-control", recording("exec sleep 60"))
    first = int(servers.variables["PROXY_URL"].rpartition(":")[2]) + 1
    servers.variables |= {"LISTEN": str(tmp_path / "listen.py"), "SERVER_PORT": str(first)}
    return servers


@pytest.mark.parametrize(
    ("cards", "share", "visible", "order"),
    [(1, 2, "3", ["3", "3"]), (2, 2, "5,3", ["5", "3", "5", "3"]), (1, 4, "3", ["3", "3", "3", "3"])],
)
def test_servers_of_a_card_start_one_after_the_other(
    sharing: Machine, cards: int, share: int, visible: str, order: list[str]
) -> None:
    """The daemon sees every card; a further server of a card starts once the last listens; all end together."""
    script = render(shared(cards, share), "bash")
    with started(sharing, script, 2 + share * cards, CUDA_VISIBLE_DEVICES=visible) as process:
        proxy, daemon, *each = sharing.calls()
        each.sort(key=lambda call: accepted("0.18.0", call.words).server_port)
        assert proxy.words[1:3] == ["serve", "proxy"]
        assert daemon.words[1:] == ["-f"]
        assert "CUDA_VISIBLE_DEVICES" not in daemon.environment
        pipe = daemon.environment["CUDA_MPS_PIPE_DIRECTORY"]
        assert [call.environment["CUDA_VISIBLE_DEVICES"] for call in each] == order
        assert {call.environment["CUDA_MPS_PIPE_DIRECTORY"] for call in each} == {pipe}
        first = int(sharing.variables["SERVER_PORT"])
        ports = [accepted("0.18.0", call.words).server_port for call in each]
        assert ports == [first + number for number in range(share * cards)]
        ended(process, signal.SIGTERM, [call.pid for call in sharing.calls()])


def test_the_second_server_waits_for_the_first(sharing: Machine) -> None:
    """As long as the first does not listen, no second is started; where it ends instead, all end."""
    serve = 'if [[ $2 == proxy ]]; then exec "$REAL_PYTHON" "$PROXY" "$@"; fi\nsleep 3; exit 7'
    sharing.tool("lmdeploy", recording(serve))
    done = sharing.run(render(shared(), "bash"))
    assert done.returncode == 3
    assert "exited before all were up" in done.stderr
    assert [call.words[2] for call in sharing.calls() if call.words[1:2] == ["serve"]] == ["proxy", "api_server"]


def test_a_daemon_that_runs_is_used(sharing: Machine) -> None:
    """Where the host has CUDA MPS already, no second daemon is started."""
    with started(sharing, render(shared(), "bash"), 3, CUDA_MPS_PIPE_DIRECTORY="/run/mps"):
        assert not [call for call in sharing.calls() if call.words[1:] == ["-f"]]
        assert {call.environment["CUDA_MPS_PIPE_DIRECTORY"] for call in sharing.calls()} == {"/run/mps"}


def test_preflight_wants_mps(machine: Machine) -> None:
    """Without the daemon's program nothing is launched, and the line says why it is needed."""
    done = machine.run(render(shared(), "bash"), **FIT)
    assert done.returncode == 3
    assert "nvidia-cuda-mps-control not found" in done.stderr
    assert not machine.calls()


# --- python


@settings(max_examples=60)
@given(request=requests())
def test_python_fills_fields_that_the_release_has(request: Request) -> None:
    """The Python artefact compiles, and each keyword of the engine's configuration is a field of that release."""
    made = fits(request)
    tree = ast.parse(render(made, "python"))
    engine = {"turbomind": "TurbomindEngineConfig", "pytorch": "PytorchEngineConfig"}[made.config.backend]
    fields = {each.field for each in release_facts(request.lmdeploy).fields if each.config == engine}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == engine]
    assert len(calls) == 1
    given_ = {keyword.arg: ast.literal_eval(keyword.value) for keyword in calls[0].keywords}
    assert set(given_) <= fields
    assert given_["session_len"] == made.config.session_len
    assert given_["max_batch_size"] == made.config.max_batch_size
    assert given_["cache_max_entry_count"] == pytest.approx(made.config.cache_ratio)


# --- client


class Server(HTTPServer):
    """A chat server that keeps what it was asked and answers a fixed completion."""

    bodies: list[dict[str, Any]]
    paths: list[str]
    keys: list[str]
    answer: dict[str, Any]
    refusals: list[int]


class Handler(BaseHTTPRequestHandler):
    """Answers as LMDeploy's OpenAI routes do."""

    server: Server

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self._send({"data": [{"id": "the-model"}]})

    def do_POST(self) -> None:
        self.server.paths.append(self.path)
        self.server.keys.append(self.headers.get("Authorization", ""))
        self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if self.server.refusals:
            return self._refuse(self.server.refusals.pop(0))
        self._send(self.server.answer)
        return None

    def _refuse(self, status: int) -> None:
        """An answer that is none; 0: the connection ends in the middle of one."""
        self.send_response(status or 200)
        self.send_header("Retry-After", "0.1")
        self.send_header("Content-Length", "0" if status else "1000")
        self.end_headers()
        self.close_connection = True

    def _send(self, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


ANSWER = '{"accident_detected": false}'
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(("127.0.0.1", 0), Handler)
    made.bodies, made.paths, made.keys, made.refusals = [], [], [], []
    made.answer = {"choices": [{"message": {"content": ANSWER}}]}
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def client(body: str, folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a client script with the standard library alone."""
    path = folder / "client.py"
    path.write_text(body, encoding="utf-8")
    return run_program(
        [sys.executable, "-I", str(path), *words], env={"PATH": "/usr/bin:/bin", **variables}, cwd=folder, timeout=30
    )


def test_the_client_asks_as_decided(server: Server, tmp_path: Path) -> None:
    """The client sends image, schema, max_tokens and temperature 0, and prints the answer alone."""
    image = tmp_path / "photo 1.png"
    image.write_bytes(PIXEL)
    url = f"http://127.0.0.1:{server.server_port}"
    made = found()
    done = client(render(made, "client"), tmp_path, str(image), BASE_URL=url, API_KEY="secret")
    assert (done.returncode, done.stdout, done.stderr) == (0, ANSWER + "\n", "")
    (body,) = server.bodies
    assert server.paths == ["/v1/models", "/v1/chat/completions"]
    assert server.keys == ["Bearer secret"]
    assert body["model"] == "the-model"
    assert body["temperature"] == 0
    assert body["max_tokens"] >= 16
    schema = body["response_format"]["json_schema"]["schema"]
    jsonschema.validate(json.loads(ANSWER), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"accident_detected": "no"}, schema)
    (picture,) = [part["image_url"] for part in body["messages"][0]["content"] if part["type"] == "image_url"]
    assert picture["url"] == "data:image/png;base64," + base64.b64encode(PIXEL).decode()
    assert "max_dynamic_patch" not in picture


def test_the_client_limits_tiles_only_where_that_was_decided(server: Server, tmp_path: Path) -> None:
    """On a card that cannot hold the image at full detail the client asks for fewer tiles, elsewhere it does not."""
    image = tmp_path / "photo.png"
    image.write_bytes(PIXEL)
    small = next(
        made
        for gib in (7.6, 7.8, 8, 8.2, 8.4, 8.6, 8.8, 9, 9.2, 9.4, 9.6, 9.8, 10, 10.5, 11, 12)
        for load in ("high", "medium")
        for made in [answer(Request(gpu="a10", load=load, images=1, image_width=4000, image_height=3000, vram_gib=gib))]
        if isinstance(made, Recommendation) and made.config.max_tiles
    )
    client(render(small, "client"), tmp_path, str(image), BASE_URL=f"http://127.0.0.1:{server.server_port}")
    (body,) = server.bodies
    picture = next(part["image_url"] for part in body["messages"][0]["content"] if part["type"] == "image_url")
    assert picture["max_dynamic_patch"] == small.config.max_tiles


def test_a_release_without_structured_output_gets_no_schema(server: Server, tmp_path: Path) -> None:
    """TurboMind honours a schema from 0.10.2; for older releases the client sends none."""
    url = f"http://127.0.0.1:{server.server_port}"
    for release in ("0.10.1", "0.10.2"):
        client(text("client", lmdeploy=release), tmp_path, BASE_URL=url)
    assert ["response_format" in body for body in server.bodies] == [False, True]


def test_the_client_says_what_went_wrong(server: Server, tmp_path: Path) -> None:
    """A failure that the proxy answers with HTTP 200, or no server at all, is one line and a status above 0."""
    server.answer = {"error_code": 40401, "text": "no node"}
    for url in (f"http://127.0.0.1:{server.server_port}", "http://127.0.0.1:9"):
        done = client(text("client"), tmp_path, BASE_URL=url)
        assert done.returncode == 1
        assert done.stdout == ""
        assert len(done.stderr.splitlines()) == 1
        assert "Traceback" not in done.stderr
    assert f"client.py: {url}: Connection refused; start the server, or set BASE_URL" in done.stderr


@pytest.mark.parametrize(
    ("refusals", "asked", "code"), [([503], 2, 0), ([503, 503], 3, 0), ([503] * 3, 3, 1), ([0], 1, 1), ([502], 1, 1)]
)
def test_the_client_asks_again_only_what_nobody_began(
    server: Server, tmp_path: Path, refusals: list[int], asked: int, code: int
) -> None:
    """503 is tried twice more; an answer that broke off, or a gateway's word of a dead server, is not."""
    server.refusals = list(refusals)
    done = client(text("client"), tmp_path, BASE_URL=f"http://127.0.0.1:{server.server_port}")
    assert (len(server.bodies), done.returncode) == (asked, code)
    assert (done.stdout == ANSWER + "\n") == (code == 0)
    assert len(done.stderr.splitlines()) == code


def test_the_client_waits_by_chance_for_a_server_that_restarts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A port that refuses is asked again, twice, after up to one and up to two seconds."""
    monkeypatch.setenv("BASE_URL", "http://127.0.0.1:9")
    path = tmp_path / "client.py"
    path.write_text(text("client"), encoding="utf-8")
    names = runpy.run_path(str(path))
    pauses: list[list[float]] = []
    for _ in range(20):
        pauses.append([])
        monkeypatch.setattr("time.sleep", pauses[-1].append)
        with pytest.raises(OSError, match="refused"):
            names["call"]("/v1/models")
    first, second = zip(*pauses, strict=True)
    assert 0 <= min(first) < max(first) <= 1 < max(second) <= 2


def test_the_curl_form_is_bash_with_the_same_body(machine: Machine, tmp_path: Path) -> None:
    """--curl prints a command that bash reads, whose body is the client's own request."""
    image = tmp_path / "it's.png"
    image.write_bytes(PIXEL)
    shown = client(text("client"), tmp_path, "--curl", str(image), API_KEY="k'ey").stdout
    subprocess.run([BASH, "-n"], input=shown, text=True, check=True)
    machine.tool("curl", '#!/bin/bash\nprintf "%s\\0" "$@" >"$RECORD/curl"\ncat >"$RECORD/body"\n')
    assert machine.run(shown).returncode == 0
    record = machine.folder / "record"
    assert "Authorization: Bearer k'ey" in (record / "curl").read_text().split("\0")
    body = json.loads((record / "body").read_text())
    assert body["model"] == "OpenGVLab/InternVL3-8B-AWQ"
    assert body["messages"][0]["content"][1]["image_url"]["url"].startswith("data:image/png;base64,")


@settings(max_examples=30)
@given(request=requests())
def test_every_client_compiles(request: Request) -> None:
    """Whatever is asked, the client is Python and uses the standard library alone."""
    tree = ast.parse(render(fits(request), "client"))
    imported = {
        alias.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    assert imported <= sys.stdlib_module_names


# --- JSON


@settings(max_examples=40)
@given(request=requests())
def test_json_keeps_the_published_schema(request: Request) -> None:
    """The JSON validates against the published schema, which refuses unknown or missing parts, and is all ASCII."""
    made = fits(request)
    written = render(made, "json")
    assert written.isascii()
    plain = valid("recommendation", written)
    assert json.dumps(plain, indent=2, ensure_ascii=True) + "\n" == written


@pytest.mark.parametrize("field", ["command", "config", "memory", "options", "case"])
def test_the_schema_refuses_what_lacks_a_part(field: str) -> None:
    """A recommendation without one of its main parts does not validate."""
    plain = json.loads(text("json"))
    del plain[field]
    assert not validator("recommendation").is_valid(plain)


def test_json_says_what_the_request_was() -> None:
    """The request in the JSON, given again, is answered with the same JSON."""
    written = text("json", load="medium", goal="throughput", image_width=1280, image_height=720, images=1)
    again = recommend(Request(**json.loads(written)["request"]))
    assert render(again, "json") == written


# --- report


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("model", ["internvl3-2b-awq", "qwen2.5-7b-instruct-awq"])
def test_the_report_gives_each_option_a_reason(gpu: str, model: str) -> None:
    """The report names every option of the release, each followed by words and by a source or `unverified`."""
    made = answer(Request(gpu=gpu, model=model, load=LOADS[1]))
    if isinstance(made, NothingFits):  # on the small ones: there is no report, only what binds
        assert load().gpus[gpu].memory_mib < 16_000
        assert made.nothing.binding.message
        return
    written = render(made, "report")
    names = {each.name for each in release_facts("0.18.0").options if each.options}
    for name in names:
        match = re.search(rf"^  {re.escape(name)}( .*)?\n    (?!\[)\S.*", written, re.MULTILINE)
        assert match, name
    assert written.count("[unverified]") + len(re.findall(r"^    \[", written, re.MULTILINE)) >= len(names)


# --- text models

SEEN = re.compile(r"\b(images?|tiles?|photos?|pictures?|InternVL\S*|AWQ|A100|mimetypes)\b", re.IGNORECASE)
OF_A_RUN = re.compile(r"(lmdeploy/vl/|\d concurrent, text|^\s*IMAGE=|\$IMAGE|no images?\b)")
"""Places in LMDeploy's code, similar runs, docker's image, and that there are none."""


@pytest.mark.parametrize("form", ["bash", "command", "python", "client", "env", "docker", "report"])
def test_a_text_model_gets_no_word_of_images(form: str) -> None:
    """Nor of weights that it does not have, or of another card; options about images say that there are none."""
    made = answer(Request(gpu="h100-sxm-80g", model="qwen3-8b", workload="chat"))
    text = render(made, form, "full") if form == "bash" else render(made, form)
    if form == "report":  # each option's heading is its name
        text = re.sub(r"^  (--vision-max-batch-size|max_dynamic_patch).*$", "", text, flags=re.M)
    lines = [line for line in text.splitlines() if SEEN.search(line) and not OF_A_RUN.search(line)]
    if form == "docker":
        lines = [line for line in lines if not re.search(r"IMAGE|release's workflow|tag", line)]
    assert lines == []


def test_a_text_pipeline_takes_prompts(tmp_path: Path) -> None:
    """Its arguments are questions, and without any the planned one is asked; with images they are files."""
    made = answer(Request(gpu="h100-sxm-80g", model="qwen3-8b", workload="chat"))
    asked = []
    for arguments in ((), ("x.png",), ("a", "b")):
        program = render(made, "python").replace('if __name__ == "__main__":', "if False:")
        stub = types.ModuleType("lmdeploy")
        stub.pipeline = lambda *_, **__: contextlib.nullcontext(lambda prompts, **_: asked.append(prompts) or [])  # type: ignore[attr-defined]
        stub.GenerationConfig = stub.TurbomindEngineConfig = lambda **_: types.SimpleNamespace()  # type: ignore[attr-defined]
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "lmdeploy", stub)
            space: dict[str, Any] = {"__name__": "pipeline"}
            exec(compile(program, "pipeline.py", "exec"), space)  # noqa: S102
            space["main"](list(arguments))
    assert asked == [[made.resolved.prompt], ["x.png"], ["a", "b"]]
    assert "pipeline.py [PROMPT...]" in render(made, "python")
    assert "pipeline.py [IMAGE...]" in render(answer(Request(gpu="h100-sxm-80g")), "python")


def test_a_text_client_sends_the_words_it_is_given(tmp_path: Path) -> None:
    """As one question; without any the planned one."""
    made = answer(Request(gpu="h100-sxm-80g", model="qwen3-8b", workload="chat"))
    for words, said in (((), made.resolved.prompt), (("How", "are you?"), "How are you?")):
        shown = client(render(made, "client"), tmp_path, "--curl", *words).stdout
        body = json.loads(shown.split("<<'JSON'\n")[1].rpartition("\nJSON")[0])
        assert body["messages"] == [{"role": "user", "content": said}]


@pytest.mark.parametrize("form", ["bash", "docker", "client"])
def test_a_script_calls_itself_by_its_name(form: str, tmp_path: Path) -> None:
    """Whatever the file is called, and from wherever it is run."""
    path = tmp_path / "my own name"
    path.write_text(text(form), encoding="utf-8")
    program = [sys.executable] if form == "client" else ["bash"]
    wrong = {"MODEL": "-x", "TIMEOUT": "soon", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run([*program, str(path)], env=wrong, cwd="/", capture_output=True, text=True, timeout=30)
    assert done.returncode
    assert done.stderr.startswith("my own name: ")


# --- golden artefacts

GOLDEN = Path(__file__).parent / "golden"
GOLDENS: dict[str, tuple[str, dict[str, Any]]] = {
    "main-job.sh": ("bash", {}),
    "main-job-pipeline.py.txt": ("python", {}),
    "main-job-client.py.txt": ("client", {}),
    "two-servers.sh": ("bash", {"gpu": "h100-sxm-80g", "gpu_count": 2, "load": "high", "goal": "throughput"}),
    "old-text.sh": ("bash", {"gpu": "l4", "model": "qwen2.5-7b-instruct-awq", "load": "low", "lmdeploy": "0.9.2"}),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_golden_artefacts_change_only_on_purpose(name: str) -> None:
    """The committed artefact is what is written today; UPDATE_GOLDEN=1 writes it anew, for the diff to be read."""
    form, asked = GOLDENS[name]
    written = text(form, **asked)
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / name).write_text(written, encoding="utf-8")
    assert (GOLDEN / name).read_text(encoding="utf-8") == written, "read the change, then run with UPDATE_GOLDEN=1"


# --- names as data

HOSTILE = [
    "x$(touch p)'\"; rm", "two\nlines", "`touch p`", "${IFS}touch${IFS}p", "closing } brace", "back\\slash\\",
    "\u202egnp.exe\u2066", "-rf", "--trust-remote-code", ".hidden", "a\tb\x1b[31mred\x07", "{{ 7 * 7 }}{% endraw %}",
    "EOF\nJSON\n$(touch p)", "a'b'c", "!history!!", "~root", "*?[a-z]", "#comment", "naïve café 模型",
    "'''\"\"\"\\N{DIGIT ONE}", "%s %d {0}", "$'\\x41'", "a=b",
]  # fmt: skip
CONFIG = {
    "architectures": ["InternVLChatModel"],
    "auto_map": {"AutoConfig": "configuration_internvl_chat.InternVLChatConfig"},
    "llm_config": {
        "architectures": ["Qwen2ForCausalLM"],
        "hidden_size": 3584,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 151674,
        "max_position_embeddings": 32768,
        "torch_dtype": "float16",
    },
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"},
}
NAME = st.text(
    st.one_of(
        st.sampled_from("$`'\"\\{}()<>|&;!#*?~=%- \n\r\t\x1b\u202e\u2028\x85é"),
        st.characters(codec="utf-8", exclude_characters="/\0"),
    ),
    min_size=1,
    max_size=24,
)


def folder_of(name: str, base: Path) -> Path:
    """A model folder of that name, or the example is passed over where the file system refuses it."""
    assume(name not in (".", ".."))
    base.mkdir(parents=True, exist_ok=True)
    try:
        encoded = os.fsencode(name)
        assume(len(encoded) < 200)
        (base / name).mkdir(exist_ok=True)
    except UnicodeEncodeError:
        assume(False)
    (base / name / "config.json").write_text(json.dumps(CONFIG))
    return base / name


def hostile(test: Any) -> Any:
    for name in HOSTILE:
        test = example(name=name)(test)
    return settings(max_examples=25)(given(name=NAME)(test))


@hostile
def test_a_hostile_name_is_one_word_of_bash(name: str, shared_machine: Machine) -> None:
    """Whatever a model folder is called, the server gets its path as one argument and nothing else is run."""
    work = shared_machine.folder / "work"
    folder = folder_of(name, work / "models")
    body = render(recommend(Request(gpu="a100-sxm-80g", load="single", model=str(folder))), "bash")
    words = shared_machine.words(body)
    assert words[3] == str(folder)
    accepted("0.18.0", words)
    assert "--revision" not in words
    assert [each.name for each in work.iterdir()] == ["models"]


@hostile
def test_a_hostile_name_is_text_of_python_and_json(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same path comes back from the Python literal, from the client's request and from the JSON."""
    folder = folder_of(name, tmp_path_factory.getbasetemp() / "models")
    made = recommend(Request(gpu="a100-sxm-80g", load="single", model=str(folder)))
    tree = ast.parse(render(made, "python"))
    value = next(
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "MODEL"
    )
    assert isinstance(value, ast.BoolOp)
    assert ast.literal_eval(value.values[-1]) == str(folder)
    strings = {node.value for node in ast.walk(ast.parse(render(made, "client"))) if isinstance(node, ast.Constant)}
    assert str(folder) in strings
    plain = json.loads(render(made, "json"))
    assert plain["command"][3] == plain["case"]["model_source"] == str(folder)


@hostile
def test_a_hostile_name_leaves_the_report_plain(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No control character or line end of a name reaches the report or an artefact's comments."""
    folder = folder_of(name, tmp_path_factory.getbasetemp() / "models")
    made = recommend(Request(gpu="a100-sxm-80g", load="single", model=str(folder)))
    assert all(c == "\n" or c.isprintable() for c in render(made, "report"))
    plain = render(found(), "bash")
    script = render(made, "bash")
    header = script.partition("set -euo pipefail")[0].splitlines()
    assert all(line.startswith("#") for line in header if line)
    assert script.startswith("#!/usr/bin/env bash\n")
    assert plain.startswith("#!/usr/bin/env bash\n")


@pytest.mark.parametrize("name", ["x\0y", "\udcff\udcfe", " ", ""])
def test_a_name_that_no_artefact_can_hold_is_refused(name: str) -> None:
    """NUL, bytes that are no UTF-8 and nothing at all are refused as the model's name."""
    with pytest.raises(RequestError, match="--model"):
        Request(gpu="a100-sxm-80g", model=name)


def test_the_grid_covers_the_knowledge() -> None:
    """The sampled grid names every release, GPU and model that the knowledge has."""
    asked = list(grid())
    assert {each.lmdeploy for each in asked} == set(RELEASES)
    assert {each.gpu for each in asked} == set(GPUS)
    assert {each.model for each in asked} == set(MODELS)
    assert any(vision(each.model) for each in asked)
