"""The stand-in machine itself: it says, counts and fails as LMDeploy 0.18.0 on a card does."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from artefacts import alive, found, text, wait_for
from standin.machine import HERE, Standin, free_port

SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", "properties": {
    "accident_detected": {"type": "boolean"}}, "required": ["accident_detected"]}}}  # fmt: skip
TIMEOUT = {"error_code": 10402, "text": "Failed to get response after a period of time"}
BUSY_S = 60.0
"""Seconds after which a process that should end hangs, on a busy machine too."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch(url: str, body: Any = None, **headers: str) -> tuple[int, bytes]:
    data = None if body is None else json.dumps(body).encode()
    try:
        with DIRECT.open(
            urllib.request.Request(url, data, {"Content-Type": "application/json", **headers}), timeout=10
        ) as got:
            return got.status, got.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


class Running:
    """A server under test, its log and its questions."""

    def __init__(self, machine: Standin, *flags: str, **variables: str) -> None:
        self.machine, self.port = machine, free_port()
        self.model = machine.folder / "model"
        if not self.model.exists():
            machine.model()
        self.log = machine.folder / f"log.{self.port}"
        self.url = f"http://127.0.0.1:{self.port}"
        where = ("--server-name", "127.0.0.1", "--server-port", str(self.port), "--trust-remote-code")
        words = ("python3", "-m", "lmdeploy", "serve", "api_server", str(self.model), *where, *flags)
        self.process = machine.start(*words, log=self.log, **variables)

    def ready(self) -> Running:
        wait_for(lambda: (self.listens() and "Uvicorn running" in self.said()) or self.process.poll() is not None)
        assert self.process.poll() is None, self.said()
        return self

    def listens(self) -> bool:
        with socket.socket() as made:
            return made.connect_ex(("127.0.0.1", self.port)) == 0

    def said(self) -> str:
        return self.log.read_bytes().decode("utf-8", "replace")

    def ended(self) -> int:
        """Waits for its end, and tells its status."""
        return self.process.wait(BUSY_S)

    def chat(self, content: Any = "x" * 35, **asked: Any) -> tuple[int, Any]:
        body = {"model": str(self.model), "messages": [{"role": "user", "content": content}], **asked}
        status, got = fetch(f"{self.url}/v1/chat/completions", body)
        return status, json.loads(got)


@contextlib.contextmanager
def served(machine: Standin, *flags: str, ready: bool = True, **variables: str) -> Iterator[Running]:
    """A server that is gone afterwards, with all that it started."""
    made = Running(machine, *flags, **variables)
    try:
        yield made.ready() if ready else made
    finally:
        for pid in machine.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        made.process.wait(BUSY_S)
        wait_for(lambda: not machine.processes())


def picture(width: int, height: int, **more: int) -> list[dict[str, Any]]:
    """A prompt of 35 characters and one picture."""
    from PIL import Image

    made = io.BytesIO()
    Image.new("RGB", (width, height)).save(made, "JPEG")
    link = {"url": "data:image/jpeg;base64," + base64.b64encode(made.getvalue()).decode(), **more}
    return [{"type": "text", "text": "x" * 35}, {"type": "image_url", "image_url": link}]


def nvml() -> Any:
    """The stand-in of the NVML package, without hiding the real one."""
    spec = importlib.util.spec_from_file_location("standin_nvml", HERE / "site" / "pynvml.py")
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_log_tells_the_settings_in_the_engines_own_words(tmp_path: Path) -> None:
    """Values of a real log: 28 layers x 4 heads x 128 x 2 x 2 bytes x 64 tokens; 8192 + 64 tokens of warm-up."""
    flags = ("--session-len", "4096", "--max-batch-size", "64", "--cache-max-entry-count", "0.2", "--log-level", "INFO")
    with served(Standin(tmp_path), *flags) as server:
        log = server.said()
    assert "`max_context_token_num` is not set, default to 4096." in log
    assert "Object cache budget: 14584.80 MB from free 72924.00 MB and ratio 0.200" in log
    assert "slab_size 33554432, object_size 3670016, object_count 9, ratio 0.984375\n" in log
    real = "8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 8256"
    assert f"Warm-up lengths: {real}\n" in log
    assert "Warm-up for 8256 tokens failed with status 6" in log
    assert re.search(r"Warm-up finished in \d+\.\d\d seconds\.", log)
    shown = re.search(r"updated backend_config=TurbomindEngineConfig\((.*)\)", log)
    assert "dtype='float16', gemm_input_dtype=None, model_format='awq', tp=1, dp=1" in shown[1]
    assert "session_len=4096, max_batch_size=64, cache_max_entry_count=0.2" in shown[1]
    assert "quant_policy=<QuantPolicy.NONE: 0>" in shown[1]
    assert log.index("Application startup complete.") < log.index(f"Uvicorn running on {server.url}")


@pytest.mark.parametrize(("policy", "size", "count"), [("8", 1892352, 17), ("4", 974848, 34)])
def test_a_quantised_cache_has_scales(tmp_path: Path, policy: str, size: int, count: int) -> None:
    """128 bytes and two 16-bit numbers a head and token for int8; half of the bytes for int4."""
    flags = ("--quant-policy", policy, "--max-batch-size", "16", "--max-prefill-token-num", "2048")
    with served(Standin(tmp_path), *flags, TM_LOG_LEVEL="INFO") as server:
        log = server.said()
    assert f"object_size {size}, object_count {count}," in log
    assert "1536, 2048, 2064\n" in log
    assert "default to 32768." in log
    assert " - INFO - " not in log


def test_without_info_only_warnings_are_there(tmp_path: Path) -> None:
    """As the default log level has it."""
    with served(Standin(tmp_path)) as server:
        log = server.said()
    assert "slab_size" in log
    assert "max_context_token_num" in log
    assert "[INFO]" not in log
    assert "cache budget" not in log


def test_requests_are_counted_and_answered(tmp_path: Path) -> None:
    """Tokens as a byte-level tokenizer counts them, tiles as InternVL cuts them, and the answers' shapes."""
    with served(Standin(tmp_path), "--session-len", "4096") as server:
        status, answer = server.chat(max_tokens=16, ignore_eos=True)
        assert status == 200
        assert (answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]) == (54, 16)
        assert answer["choices"][0]["finish_reason"] == "length"
        assert server.chat(max_tokens=100)[1]["choices"][0]["finish_reason"] == "stop"
        pictures = (picture(448, 448), picture(1280, 720), picture(1280, 720, max_dynamic_patch=1))
        told = [server.chat(each, max_tokens=1)[1]["usage"]["prompt_tokens"] for each in pictures]
        assert told == [313, 2361, 313]
        form = server.chat(response_format=SCHEMA)[1]["choices"][0]["message"]["content"]
        assert json.loads(form) == {"accident_detected": False}
        status, answer = server.chat("x" * (4096 - 19), max_tokens=4)
        assert status == 400
        said = "Input length (4096) must be smaller than the model context length (4096)."
        kind = "invalid_request_error"
        assert answer == {"message": said, "type": kind, "code": 400, "param": None, "object": "error"}
        assert server.chat("x" * (4096 - 20), max_tokens=4)[1]["usage"]["completion_tokens"] == 1
        assert server.chat(model="other")[0] == 404
        listed = json.loads(fetch(f"{server.url}/v1/models")[1])
        assert [each["id"] for each in listed["data"]] == [str(server.model)]
        assert json.loads(fetch(f"{server.url}/health")[1])["status"] == "healthy"
        shown = fetch(f"{server.url}/metrics")[1].decode()
        assert re.search(r"^lmdeploy:num_requests_succeeded\{.*\} 7\.0$", shown, re.MULTILINE)
        assert re.search(r"^lmdeploy:prompt_tokens_total\{.*\} \d+\.0$", shown, re.MULTILINE)


def test_a_stream_is_one_event_a_token(tmp_path: Path) -> None:
    """With the usage in the last event if asked for."""
    with served(Standin(tmp_path)) as server:
        body = {"model": str(server.model), "messages": [{"role": "user", "content": "hi"}], "stream": True,
                "max_tokens": 5, "ignore_eos": True, "stream_options": {"include_usage": True}}  # fmt: skip
        events = fetch(f"{server.url}/v1/chat/completions", body)[1].decode().strip().split("\n\n")
    assert events.pop() == "data: [DONE]"
    parts = [json.loads(event.removeprefix("data: ")) for event in events]
    assert parts.pop()["usage"]["completion_tokens"] == 5
    assert [bool(part["choices"][0]["delta"]["content"]) for part in parts] == [True] * 5 + [False]
    assert parts[-1]["choices"][0]["finish_reason"] == "length"


def test_keys_are_asked_for_but_not_for_health(tmp_path: Path) -> None:
    """As the real middleware does."""
    with served(Standin(tmp_path), "--api-keys", "k1", "k2") as server:
        assert fetch(f"{server.url}/health")[0] == 200
        status, body = fetch(f"{server.url}/v1/models")
        assert (status, json.loads(body)["message"]) == (401, "Unauthorized.")
        assert fetch(f"{server.url}/v1/models", Authorization="Bearer k2")[0] == 200


def test_the_batch_is_full_at_its_size(tmp_path: Path) -> None:
    """Four requests of 50 steps at 4 ms, two at a time, take two rounds."""
    with served(Standin(tmp_path, step_ms=4), "--max-batch-size", "2") as server, ThreadPoolExecutor(4) as many:
        begun = time.monotonic()
        done = [many.submit(server.chat, max_tokens=50, ignore_eos=True) for _ in range(4)]
        assert all(each.result()[0] == 200 for each in done)
    assert time.monotonic() - begun >= 2 * 50 * 0.004


def test_the_cards_memory_follows_the_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights and cache count while the process lives, for NVML and nvidia-smi alike."""
    machine, card = Standin(tmp_path), nvml()
    monkeypatch.setenv("STANDIN_STATE", str(tmp_path / "state"))
    card.nvmlInit()
    handle = card.nvmlDeviceGetHandleByIndex(0)
    assert card.nvmlDeviceGetMemoryInfo(handle).total == 81559 * 2**20
    assert card.nvmlDeviceGetMemoryInfo(handle).used == 480 * 2**20
    with served(machine, "--cache-max-entry-count", "0.5") as server:
        used = card.nvmlDeviceGetMemoryInfo(handle).used / 2**20
        assert used == pytest.approx(480 + 8155 + 36462, abs=1)
        (process,) = card.nvmlDeviceGetComputeRunningProcesses(handle)
        assert process.pid == server.process.pid
        words = ["--query-gpu=memory.free", "--format=csv,noheader,nounits", "-i", "0"]
        assert smi(machine, *words).stdout.strip() == str(int(81559 - used))
        assert list(machine.processes()) == [server.process.pid]
        server.process.kill()
        server.ended()
        assert card.nvmlDeviceGetMemoryInfo(handle).used == 480 * 2**20
    assert "CUDA Version: 13.0" in smi(machine).stdout


def smi(machine: Standin, *words: str) -> subprocess.CompletedProcess[str]:
    tool = [str(machine.folder / "bin" / "nvidia-smi"), *words]
    return subprocess.run(tool, env=machine.environment(), capture_output=True, text=True, check=False, timeout=60)


def test_a_machine_without_cards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML finds no driver, and nvidia-smi says so."""
    monkeypatch.setenv("STANDIN_CARDS", "0")
    card = nvml()
    with pytest.raises(card.NVMLError, match="Driver Not Loaded"):
        card.nvmlInit()
    assert smi(Standin(tmp_path, cards=0)).returncode == 9


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    """By the release's own parser."""
    with served(Standin(tmp_path), "--no-such-option", ready=False) as server:
        assert server.ended() == 2
    assert "unrecognized arguments: --no-such-option" in server.said()
    asked = "from lmdeploy.cli.serve import SubCliServe as s; s.add_parsers()"
    asked += "; print(s.subparsers.choices['api_server'].parse_args(['m', '--tp', '2']).tp)"
    assert server.machine.start("python3", "-c", asked).wait(BUSY_S) == 0
    assert (tmp_path / "log").read_text() == "2\n"


def test_an_artefact_launches_it_with_its_checks(tmp_path: Path) -> None:
    """The bash artefact, preflight included; then SIGTERM ends it."""
    machine = Standin(tmp_path)
    port = str(free_port())
    script = tmp_path / "serve.sh"
    script.write_text(text(gpu="h100-sxm-80g", model="internvl3-8b-awq"))
    process = machine.start("bash", str(script), MODEL=str(machine.model()), SERVER_PORT=port)
    log = tmp_path / "log"
    wait_for(lambda: "Uvicorn running" in log.read_text() or process.poll() is not None)
    process.terminate()
    assert process.wait(BUSY_S) == -signal.SIGTERM, log.read_text()
    assert "Finished server process" in log.read_text()


def test_a_pipeline_artefact_answers_in_process(tmp_path: Path) -> None:
    """Its answer to a picture is what the schema asks for."""
    machine = Standin(tmp_path)
    from PIL import Image

    Image.new("RGB", (448, 448)).save(tmp_path / "a.jpg")
    (tmp_path / "pipeline.py").write_text(text("python", gpu="h100-sxm-80g", model="internvl3-8b-awq"))
    process = machine.start(
        "python3", str(tmp_path / "pipeline.py"), str(tmp_path / "a.jpg"), MODEL=str(machine.model())
    )
    log = tmp_path / "log"
    assert process.wait(BUSY_S) == 0, log.read_text()
    assert found(gpu="h100-sxm-80g", model="internvl3-8b-awq").config.structured_output
    assert json.loads(log.read_text().splitlines()[-1]) == {"accident_detected": False}


STARTS = {
    "oom-start": (-signal.SIGABRT, r"\[TM\]\[FATAL\]\[.*\]\[allocator\.cc:85\] CUDA error: out of memory"),
    "few-blocks": (1, r"RuntimeError: No enough gpu memory for runtime"),
    "crash-start": (1, r"Traceback[\s\S]*ValueError: Unrecognized configuration"),
    "unsupported-model": (1, r"Fallback to pytorch engine[\s\S]*Can not found rewrite for architectures"),
}


@pytest.mark.parametrize("fault", STARTS)
def test_a_start_that_fails(tmp_path: Path, fault: str) -> None:
    """It ends with its status and its words."""
    status, words = STARTS[fault]
    with served(Standin(tmp_path, fault=fault), ready=False) as server:
        assert server.ended() == status
    assert re.search(words, server.said())


def test_a_start_that_fails_by_nature(tmp_path: Path) -> None:
    """A taken port; an empty folder; a second server that finds the card full; custom code without consent."""
    machine = Standin(tmp_path)
    with served(machine, "--cache-max-entry-count", "0.95") as server:
        second = Running(machine, "--server-port", str(server.port))
        third = Running(machine, "--session-len", "4096")
        assert third.ended() == -signal.SIGABRT, third.said()
        assert second.ended() == -signal.SIGABRT
    with served(machine, "--cache-max-entry-count", "0.2") as server:
        second = Running(machine, "--server-port", str(server.port))
        assert second.ended() == 1
        assert "error while attempting to bind on address" in second.said()
    (tmp_path / "model" / "config.json").unlink()
    with served(machine, ready=False) as server:
        assert server.ended() == 1
    assert "does not appear to have a file named config.json" in server.said()


@pytest.mark.parametrize("fault", ["hang-start", ""])
def test_a_start_that_hangs(tmp_path: Path, fault: str) -> None:
    """By name, or by 0.002 of the memory, which the warm-up finds too little: silent, deaf to SIGINT."""
    ratio = "0.8" if fault else "0.002"
    with served(Standin(tmp_path, fault=fault), "--cache-max-entry-count", ratio, ready=False) as server:
        wait_for(lambda: "slab_size" in server.said())
        time.sleep(0.2)
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert server.process.poll() is None
        assert not server.listens()
        assert "Uvicorn" not in server.said()


def test_a_fallback_serves_all_the_same(tmp_path: Path) -> None:
    """With a warning only."""
    with served(Standin(tmp_path, fault="fallback")) as server:
        assert server.chat()[0] == 200
        assert re.search(
            r" - lmdeploy - WARNING - .*Fallback to pytorch engine because '.*' not supported", server.said()
        )
        assert "[TM]" not in server.said()


def test_settings_that_are_lost(tmp_path: Path) -> None:
    """Half the session length, in the log and in what is refused."""
    with served(Standin(tmp_path, fault="settings"), "--session-len", "4096") as server:
        assert "default to 2048." in server.said()
        assert server.chat("x" * 2029)[0] == 400


@pytest.mark.parametrize("how", ["die", "500", "abort"])
def test_no_memory_for_a_picture(tmp_path: Path, how: str) -> None:
    """At the second picture: an abort of the process, HTTP 500, or an empty answer."""
    with served(Standin(tmp_path, fault=f"oom-image:2:{how}")) as server:
        assert server.chat()[0] == 200
        assert server.chat(picture(64, 64))[0] == 200
        if how == "die":
            with pytest.raises(OSError, match=r".*"):
                server.chat(picture(64, 64))
            assert server.ended() == -signal.SIGABRT
            assert "CUDA error: out of memory" in server.said()
            return
        status, answer = server.chat(picture(64, 64))
        assert "CUDA out of memory. Tried to allocate" in server.said()
        if how == "500":
            assert (status, answer["message"]) == (500, "An internal server error occurred.")
        else:
            assert (status, answer["choices"][0]["finish_reason"]) == (200, "abort")


def test_death_under_load(tmp_path: Path) -> None:
    """After two answers."""
    with served(Standin(tmp_path, fault="die-under-load:2")) as server:
        assert [server.chat()[0] for _ in range(2)] == [200, 200]
        with pytest.raises(OSError, match=r".*"):
            server.chat()
        assert server.ended() == -signal.SIGSEGV


def test_requests_hang_while_health_answers(tmp_path: Path) -> None:
    """And SIGTERM waits for them, as uvicorn does, until the client leaves."""
    with served(Standin(tmp_path, fault="hang-requests:1")) as server:
        assert server.chat()[0] == 200
        with socket.create_connection(("127.0.0.1", server.port)) as link:
            body = json.dumps({"model": str(server.model), "messages": [{"role": "user", "content": "x"}]})
            link.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
            link.settimeout(0.3)
            with pytest.raises(TimeoutError):
                link.recv(1)
            assert fetch(f"{server.url}/health")[0] == 200
            server.process.terminate()
            time.sleep(0.2)
            assert server.process.poll() is None
        assert server.ended() == -signal.SIGTERM


def test_answers_that_are_wrong(tmp_path: Path) -> None:
    """JSON cut short; an error inside HTTP 200."""
    with served(Standin(tmp_path / "a", fault="malformed-json")) as server:
        content = server.chat(response_format=SCHEMA)[1]["choices"][0]["message"]["content"]
        with pytest.raises(ValueError, match=r"."):
            json.loads(content)
    with served(Standin(tmp_path / "b", fault="error-200:1")) as server:
        assert server.chat()[1]["object"] == "chat.completion"
        assert server.chat() == (200, TIMEOUT)


def test_what_is_left_behind(tmp_path: Path) -> None:
    """A stubborn server, and one with a daemon that keeps the port."""
    with served(Standin(tmp_path / "a", fault="stubborn")) as server:
        server.process.terminate()
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        assert server.chat()[0] == 200
    machine = Standin(tmp_path / "b", fault="forks")
    with served(machine) as server:
        assert server.chat()[0] == 200  # it listens before it has a daemon, and serves after
        server.process.kill()
        server.ended()
        assert server.listens()
        (left,) = machine.processes()
        assert alive(left)


def test_a_log_of_rubbish_and_a_slow_start(tmp_path: Path) -> None:
    """Bytes that are no text, a line of 5 MiB; seconds before anything happens."""
    with served(Standin(tmp_path / "a", fault="garbage-log")) as server:
        assert max(map(len, server.log.read_bytes().split(b"\n"))) >= 5 * 2**20
    begun = time.monotonic()
    with served(Standin(tmp_path / "b", fault="slow-start:1")):
        assert time.monotonic() - begun > 1


@pytest.mark.parametrize(("fault", "said"), [("", "0.18.0"), ("other-release", "0.17.0"), ("absent", "")])
def test_what_is_installed(tmp_path: Path, fault: str, said: str) -> None:
    """The package's metadata, and a parser of that release."""
    machine = Standin(tmp_path, fault=fault)
    asked = "import importlib.metadata as m; print(m.version('lmdeploy'))"
    process = machine.start("python3", "-c", asked)
    assert process.wait(BUSY_S) == (0 if said else 1)
    assert said in (tmp_path / "log").read_text()
    assert (tmp_path / "bin" / "lmdeploy").exists() == bool(said)


def test_servers_behind_the_proxy(tmp_path: Path) -> None:
    """They register once; a dead one gives HTTP 200 with an error in the body, streaming or not."""
    machine, port = Standin(tmp_path), free_port()
    front = f"http://127.0.0.1:{port}"
    words = ("--server-name", "127.0.0.1", "--server-port", str(port), "--disable-cache-status")
    proxy = machine.start("lmdeploy", "serve", "proxy", *words)
    wait_for(lambda: "Uvicorn running" in (tmp_path / "log").read_text())
    with served(machine, "--proxy-url", front, "--session-len", "256") as server:
        assert list(json.loads(fetch(f"{front}/nodes/status")[1])) == [server.url]
        body = {"model": str(server.model), "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}
        status, got = fetch(f"{front}/v1/chat/completions", body)
        assert (status, json.loads(got)["usage"]["completion_tokens"]) == (200, 3)
        assert b"[DONE]" in fetch(f"{front}/v1/chat/completions", body | {"stream": True})[1]
        long = body | {"messages": [{"role": "user", "content": "x" * 999}]}
        status, got = fetch(f"{front}/v1/chat/completions", long)
        assert (status, json.loads(got)["code"]) == (200, 400)
        assert fetch(f"{front}/v1/chat/completions", long | {"stream": True})[0] == 400
        server.process.kill()
        server.ended()
        for stream in (False, True):
            status, got = fetch(f"{front}/v1/chat/completions", body | {"stream": stream})
            assert (status, json.loads(got)) == (200, TIMEOUT)
    assert proxy.wait(BUSY_S)


def test_the_mps_daemon(tmp_path: Path) -> None:
    """Stays in the foreground with -f until it is told to quit; a second one is refused."""
    machine = Standin(tmp_path)
    tool = str(tmp_path / "bin" / "nvidia-cuda-mps-control")
    asked = {"env": machine.environment(), "timeout": 10, "check": False}
    assert subprocess.run([tool], input=b"quit\n", capture_output=True, **asked).returncode == 1  # type: ignore[call-overload]
    daemon = machine.start(tool, "-f")
    wait_for(lambda: (tmp_path / "state" / "mps" / "pid").exists())
    assert subprocess.run([tool, "-f"], capture_output=True, **asked).returncode == 1  # type: ignore[call-overload]
    assert daemon.poll() is None
    assert subprocess.run([tool], input=b"quit\n", capture_output=True, **asked).returncode == 0  # type: ignore[call-overload]
    assert daemon.wait(BUSY_S) == 0
    assert not machine.processes()
