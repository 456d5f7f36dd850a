"""The parts of the smoke run, each alone: artefacts, logs, diagnoses, records, reports, checks, cards, options."""

import contextlib
import hashlib
import http.server
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from artefacts import found, text, wait_for
from schemas import valid

from recommender.calibration.predict import predict_phase
from recommender.commands import smoke
from recommender.common.errors import RequestError
from recommender.knowledge import records, run_figures
from recommender.render import artefact as launch
from recommender.render.formats import render
from recommender.request.request import Request
from recommender.smoke import dryrun, json_output, phases, record, report
from recommender.smoke.client import checks
from recommender.smoke.failures import KINDS, TAIL_LINES, Failure
from recommender.smoke.goals import Goal, check_goals
from recommender.smoke.process import diagnose, gpu, host, readback
from recommender.smoke.process.metrics import Metrics
from recommender.smoke.result import Load, RunRequest, RunResult, describe_load

H100 = {"gpu": "h100-80g", "load": "", "concurrency": 4}


def artefact(form: str = "bash", **asked: Any) -> launch.Artefact:
    return launch.parse(text(form, **(H100 | asked)), "serve.sh" if form == "bash" else "pipeline.py")


def changed(made: launch.Artefact, old: str, new: str) -> launch.Artefact:
    assert old in made.text
    return launch.parse(made.text.replace(old, new, 1), made.name)


FOUND = found(**H100)
SERVE = artefact()

# --- launch ----------------------------------------------------------------------------------


def test_the_head_is_the_request() -> None:
    """What recommend wrote tells what it was asked; other scripts do not."""
    assert SERVE.head == {"concurrency": 4, "gpu": "h100-80g"}
    assert launch.parse("#!/bin/bash\nlmdeploy serve api_server m\n", "x.sh").head is None


@pytest.mark.parametrize(
    ("name", "body", "kind"),
    [
        ("serve.sh", "lmdeploy serve api_server m", "bash"),
        ("run", "#!/usr/bin/env bash\nlmdeploy serve api_server m", "bash"),
        ("p.py", "pass", "python"),
        ("run", "#!/usr/bin/python3\npass", "python"),
    ],
)
def test_the_kind_is_told_by_name_or_first_line(name: str, body: str, kind: str) -> None:
    """A suffix or a first line of a shell or of Python."""
    assert launch.parse(body, name).kind == kind


@pytest.mark.parametrize(
    ("name", "body", "piece"),
    [
        ("notes.txt", "hello", "neither a shell nor a Python script"),
        (
            "docker.sh",
            SERVE.text.replace("rendered: bash", "rendered: docker"),
            "a file of --format docker is not launched",
        ),
        ("client.py", "# request: {}\n# rendered: client 0a\n", "a file of --format client is not launched"),
        ("p.py", "a = (\n", r"p\.py:\d: not Python"),
        ("s.sh", "# request: {]}", "the request in its head cannot be read"),
        ("s.sh", "./start-it", "no 'lmdeploy serve api_server' in it"),
        ("s.sh", "# lmdeploy serve api_server m", "no 'lmdeploy serve api_server' in it"),
        ("s.sh", "lmdeploy serve api_server 'm", "no 'lmdeploy serve api_server' in it"),
    ],
)
def test_what_cannot_be_launched(name: str, body: str, piece: str) -> None:
    """A text of another kind, or one whose settings cannot be told, is refused in one line."""
    with pytest.raises(RequestError, match=piece):
        launch.parse(body, name)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """A missing file, a folder and bytes that are no text."""
    (tmp_path / "b.sh").write_bytes(b"\xff\xfe")
    for name, piece in (
        ("gone.sh", "No such file"),
        ("", "a folder, not a regular file"),
        ("b.sh", "is not UTF-8"),
    ):
        with pytest.raises(RequestError, match=piece):
            launch.read(tmp_path / name)


def test_options_and_variables_without_running_it() -> None:
    """The words and exports of the script; a variable of the environment changes them as it would for bash."""
    words = SERVE.words(FOUND.resolved, {})
    assert words[words.index("--session-len") + 1] == str(FOUND.config.session_len)
    assert "--trust-remote-code" in words
    now = SERVE.words(FOUND.resolved, {"SESSION_LEN": "2048", "TRUST_REMOTE_CODE": "false", "OTHER": "x"})
    assert now[now.index("--session-len") + 1] == "2048"
    assert "--trust-remote-code" not in now
    assert SERVE.exported({}) == ("OMP_NUM_THREADS=4",)
    assert SERVE.exported({"OMP_NUM_THREADS": "2"}) == ("OMP_NUM_THREADS=2",)
    assert SERVE.overridden({}) == []
    assert SERVE.overridden({"SESSION_LEN": str(FOUND.config.session_len), "MODEL": "/m"}) == ["MODEL"]


def test_the_launch_digest_is_of_what_runs() -> None:
    """A comment does not change it; a value and a switch do."""
    digest = SERVE.launch_sha256(FOUND.resolved)
    assert changed(SERVE, "# The model:", "# A model:").launch_sha256(FOUND.resolved) == digest
    assert changed(SERVE, "SESSION_LEN:-", "SESSION_LEN:-1").launch_sha256(FOUND.resolved) != digest
    assert changed(SERVE, "CODE:-true", "CODE:-false").launch_sha256(FOUND.resolved) != digest
    assert changed(SERVE, "# The model:", "# A model:").sha256 != SERVE.sha256


def test_a_pipeline_tells_the_same_settings() -> None:
    """The keywords of its engine configuration as options, and its defaults of variables."""
    made = artefact("python")
    words = made.words(FOUND.resolved, {})
    assert words[words.index("--session-len") + 1] == str(FOUND.config.session_len)
    assert {"--max-batch-size", "--max-prefill-token-num", "--cache-max-entry-count"} < set(words)
    assert made.exported({}) == ("OMP_NUM_THREADS=4",)
    assert made.model({}) == "OpenGVLab/InternVL3-8B-AWQ"
    assert made.model({"MODEL": "/m"}) == "/m"
    edited = changed(made, "import os\n", 'import os\nos.environ.setdefault("NCCL_DEBUG")\n')
    assert edited.exported({}) == made.exported({})  # Python refuses a line without a default, and none is made up


OWN = "#!/bin/bash\nM=/models/x\nexport PORT=${PORT:-8000}\n{}\n"


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("  --session-len 8192 --tp 2\n", ("--session-len", "8192", "--tp", "2")),
        ('  --session-len "$SESSION_LEN" --log-level=INFO  # why\n', ("--session-len", "4096", "--log-level=INFO")),
        (
            '  --session-len "${SESSION_LEN}"\n  # off\n  --enable-metrics\n',
            ("--session-len", "4096", "--enable-metrics"),
        ),
        ("", ()),
    ],
)
def test_options_that_somebody_wrote_into_a_script_are_read(written: str, words: tuple[str, ...]) -> None:
    """In place of a line, beside it or after it, with a value or a variable, as Bash reads them."""
    edited = replace(SERVE, text=SERVE.text.replace('  --session-len "$SESSION_LEN"\n', written))
    assert edited.text != SERVE.text
    old = SERVE.words(FOUND.resolved, {})
    place = old.index("--session-len")
    assert edited.words(FOUND.resolved, {}) == (*old[:place], *words, *old[place + 2 :])


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("lmdeploy serve api_server $M --tp 2", ("/models/x", "--tp", "2")),
        ('exec python3 -m lmdeploy serve api_server "${M}" \\\n  --tp 2', ("/models/x", "--tp", "2")),
        ("lmdeploy serve api_server $M --server-port $PORT", ("/models/x", "--server-port", "9001")),
        ("lmdeploy serve api_server $M --log ${LEVEL:-INFO}", ("/models/x", "--log", "INFO")),
        ("lmdeploy serve api_server $M --tp 2 2>&1 | tee log", ("/models/x", "--tp", "2")),
        ("lmdeploy serve api_server $M --tp 2 > log 2>&1 &", ("/models/x", "--tp", "2")),
        ("lmdeploy serve api_server 'a b' --tp 2 # two cards", ("a b", "--tp", "2")),
    ],
)
def test_a_script_of_another_hand_is_read(line: str, words: tuple[str, ...]) -> None:
    """The server's command line, with the variables as bash would put them in."""
    made = launch.parse(OWN.replace("{}", line), "own.sh")
    assert made.foreign
    assert made.command_line({"PORT": "9001"})[: len(words)] == words
    assert made.model({"PORT": "9001"}) == words[0]
    assert made.words(FOUND.resolved, {"PORT": "9001"})[: len(words) - 1] == words[1:]


def test_our_own_form_needs_no_head() -> None:
    """A script whose head was removed is still read by its variables."""
    made = launch.parse(SERVE.text.replace("# request:", "# asked:"), "serve.sh")
    assert made.head is None
    assert not made.foreign
    assert made.words(FOUND.resolved, {}) == SERVE.words(FOUND.resolved, {})


def test_fields_of_the_command_line_come_on_top_of_the_head() -> None:
    """A load of any kind takes the place of the head's; whom it follows stays."""
    request, follow = launch.parse_request(SERVE, {})
    assert (request.concurrency, dict(follow)) == (4, {})
    assert launch.parse_request(SERVE, {"rps": 3.0})[0].concurrency == 0
    assert launch.parse_request(SERVE, {"load": "high"})[0].load == "high"
    assert launch.parse_request(SERVE, {"cpus": 8})[0].concurrency == 4
    head = '# request: {"follow": "gemini", "gpu": "h100-80g", "with": {"trust-remote-code": ""}}\n--tp "$TP"'
    expected = {"follow": "gemini", "with": {"trust-remote-code": ""}}
    assert dict(launch.parse_request(launch.parse(head, "s.sh"), {})[1]) == expected


@pytest.mark.parametrize(
    ("head", "piece"),
    [
        ('{"gpu": "l4", "colour": 1}', "unknown: colour"),
        ('{"concurrency": 4}', "it names no GPU"),
    ],
)
def test_heads_that_cannot_be_used(head: str, piece: str) -> None:
    """A field of another version, or none that is needed, is refused by name."""
    with pytest.raises(RequestError, match=piece):
        launch.parse_request(launch.parse(f'# request: {head}\n  --tp "$TP"', "s.sh"), {})


def test_a_followed_configuration_is_made_again() -> None:
    """The head of an adviser's script remakes the adviser's, with what was added."""
    assert launch.remake(Request(**H100), {"follow": "gemini", "with": {"trust-remote-code": ""}}).adviser
    assert launch.remake(Request(**H100), {}).adviser == ""


def test_settings_are_the_options_or_the_releases_defaults() -> None:
    """What is not given is the release's default; a switch is true."""
    given = launch.settings(FOUND.resolved, SERVE.words(FOUND.resolved, {}))
    assert given["session_len"] == str(FOUND.config.session_len)
    assert given["trust_remote_code"] == "true"
    bare = launch.settings(FOUND.resolved, ("--cache-max-entry-count=0.5", "--tp", "2"))
    assert (bare["cache_ratio"], bare["tp"], bare["session_len"]) == ("0.5", "2", "")
    assert launch.settings(FOUND.resolved, ("--quant-policy", "8"))["kv_bits"] == "8"


@pytest.mark.parametrize(
    ("words", "piece"),
    [
        (("--session-len", "4k"), "--session-len: expected a whole number, got '4k'"),
        (("--cache-max-entry-count", "half"), "--cache-max-entry-count: expected a number, got 'half'"),
        (("--server-port", "70000"), "--server-port: expected a whole number from 1 to 65535"),
        (("--server-port", "0"), "--server-port: expected a whole number from 1 to 65535"),
    ],
)
def test_settings_that_are_no_numbers(words: tuple[str, ...], piece: str) -> None:
    """They are refused before anything starts."""
    with pytest.raises(RequestError, match=piece):
        launch.settings(FOUND.resolved, words)


# --- readback --------------------------------------------------------------------------------

LOG = """\x1b[93mHINT\x1b[0m
[TM][WARN][1121.02:39:16.803525][turbomind.cc:128] `max_context_token_num` is not set, default to 4096.
Loading:   0%|\rLoading: 100%|\r   [TM][INFO][1121.02:39:19.257334][turbomind.cc:338] Object cache budget: {budget}
[TM][WARN][1121.02:39:19.400836][slab.h:136] slab_size 33554432, object_size 3670016, object_count 9, ratio 0.984375
[TM][INFO][1121.02:39:19.401117][turbomind.cc:440] Warm-up lengths: 8, 4096, 8192, 8256
[TM][INFO][1121.02:39:21.515343][turbomind.cc:492] Warm-up finished in 2.11 seconds.
"""
BUDGET = "14584.84 MB from free 72924.19 MB and ratio 0.200"
CONFIG = (
    "- updated backend_config=TurbomindEngineConfig(dtype='float16', tp=1, session_len={}, max_batch_size={}, q=<Q: 0>)"
)
ASKED = {"backend": "turbomind", "session_len": "4096", "cache_ratio": "0.2", "max_batch_size": "64",
         "prefill_tokens": "8192", "tp": "1", "block_len": "64"}  # fmt: skip


def log(budget: str = BUDGET, *more: str) -> str:
    return LOG.format(budget=budget) + "\n".join(more)


def differing(asked: dict[str, str], told: str) -> list[str]:
    compared = readback.compare_settings(FOUND.resolved, asked, readback.parse_log(told))
    return [each.name for each in compared if each.differs]


def test_the_engines_words_are_read() -> None:
    """Every figure of the log, through colours and redrawn progress lines."""
    told = readback.parse_log(log())
    assert told == readback.EngineSettings("turbomind", 4096, 0, 8256, 0.2, 14584.84, 72924.19, 3670016)
    assert readback.parse_log(log(BUDGET, CONFIG.format(2048, 32))).session_len == 2048
    last = readback.parse_log(log(BUDGET, CONFIG.format(2048, 32), CONFIG.format("None", 16)))
    assert (last.session_len, last.max_batch_size) == (4096, 16)


def test_a_silent_log_contradicts_nothing() -> None:
    """What is not told is empty, and differs from nothing."""
    assert readback.parse_log("") == readback.EngineSettings("", 0, 0, 0, 0.0, 0.0, 0.0, 0)
    assert differing(ASKED, "") == []


def test_what_is_as_asked_does_not_differ() -> None:
    """All six settings, the batch told by the warm-up's longest prompt."""
    assert differing(ASKED, log()) == []
    found = {
        setting.name: setting.found
        for setting in readback.compare_settings(FOUND.resolved, ASKED, readback.parse_log(log()))
    }
    assert found == {"backend": "turbomind", "session_len": "4096", "cache_budget": "14585 MiB (0.200)",
                     "max_batch_size": "64", "forward_tokens": "8256", "kv_block_bytes": "3670016"}  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "told", "names"),
    [
        ({"session_len": "8192"}, log(), ["session_len"]),
        ({"cache_ratio": "0.3"}, log(), ["cache_budget"]),
        ({"cache_ratio": "0.2004"}, log(), []),
        ({"max_batch_size": "32"}, log(), ["max_batch_size", "forward_tokens"]),
        ({"kv_bits": "8"}, log(), ["kv_block_bytes"]),
        ({}, log("9000.00 MB from free 72924.19 MB and ratio 0.200"), ["cache_budget"]),
        ({}, log() + "Fallback to pytorch engine because", ["backend"]),
    ],
)
def test_what_differs_is_named(asked: dict[str, str], told: str, names: list[str]) -> None:
    """Each setting that the log contradicts, and no other."""
    assert differing(ASKED | asked, told) == names


PYTORCH = {"backend": "pytorch", "session_len": "4096", "max_batch_size": "64", "prefill_tokens": "8192", "tp": "1"}


@pytest.mark.parametrize(
    ("asked", "told", "names"),
    [
        (PYTORCH, "Warming up decoding:  20%|##    | 1/5", []),
        (PYTORCH, CONFIG.replace("Turbomind", "Pytorch").format(4096, 64), []),
        (PYTORCH, CONFIG.replace("Turbomind", "Pytorch").format(2048, 32), ["session_len", "max_batch_size"]),
        (PYTORCH, "[TM][INFO] Warm-up finished", ["backend"]),
        ({**PYTORCH, "backend": "turbomind"}, "Warming up prefill: 100%", ["backend"]),
    ],
)
def test_the_pytorch_engines_log_is_read(asked: dict[str, str], told: str, names: list[str]) -> None:
    """Its bars and its configuration say which engine runs, and with what."""
    assert differing(asked, told) == names


# --- diagnose --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("[TM][FATAL][x][allocator.cc:85] CUDA error: out of memory", "out-of-memory"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "out-of-memory"),
        ("serve.sh: 900 MiB free on GPU 0; 11421 MiB may be needed: stop other processes there", "out-of-memory"),
        ("ERROR: [Errno 98] error while attempting to bind: address already in use", "port-taken"),
        ("serve.sh: something listens on port 8000 already; set SERVER_PORT", "port-taken"),
        ("serve.sh: LMDeploy 0.9.0 is installed; this script is for 0.18.0: run recommend", "other-release"),
        ("ModuleNotFoundError: No module named 'lmdeploy'", "machine"),
        ("x.sh: line 3: lmdeploy: command not found", "machine"),
        ("OSError: /m does not appear to have a file named config.json.", "model"),
        ("AttributeError: 'dict' object has no attribute 'hidden_size'", "model"),
        ("Please pass the argument `trust_remote_code=True`.", "model"),
        ("Fallback to pytorch engine because", "pytorch-fallback"),
        ("RuntimeError: No enough gpu memory for kv cache.", "cache-too-small"),
        ("RuntimeError: No enough gpu memory for runtime.", "cache-too-small"),
        ("AssertionError: No enough gpu memory for state cache. Please reduce max_batch_size.", "out-of-memory"),
        (
            "[transformers] The argument `trust_remote_code` is to be used with Auto classes. It has no effect here "
            "and is ignored.",
            "start-failed",
        ),
        ("ImportError: triton>=3.0.0 is required. Found triton==2.1.0", "machine"),
        ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "machine"),
        ("PytorchEngineConfig(dtype='auto') and nothing more", "start-failed"),
        ("Segmentation fault", "start-failed"),
    ],
)
def test_the_cause_of_an_end_at_start(line: str, name: str) -> None:
    """The line that names the cause is told, however much comes before and after it."""
    failure = diagnose.startup_failure(("begin", line, "end"), 1)
    assert failure.kind.name == name
    assert line in failure.message or name in ("start-failed", "pytorch-fallback")
    assert failure.tail == ("begin", line, "end")


def test_the_engine_in_a_process_of_its_own() -> None:
    """The error of the process that ended is told, not the one of the server that missed it."""
    log = (
        "Traceback (most recent call last):",
        '  File "/x/lmdeploy/pytorch/models/gemma.py", line 431, in build_rope_emb',
        "    scaling_factor=full_attention['factor'],",
        "KeyError: 'factor'",
        "  + Exception Group Traceback (most recent call last):",
        '  |   File "/x/lmdeploy/serve/core/async_engine.py", line 200, in build',
        "  |     return ZMQMPEngine(model_path, trust_remote_code=trust_remote_code, **kwargs)",
        '  |   File "/x/zmq_rpc.py", line 86, in check_alive',
        "  |     raise self.new_dead_error()",
        "  | lmdeploy.pytorch.engine.mp_engine.zmq_rpc.RPCServerDeadError: PyTorch ZMQ engine process is not alive.",
        "ERROR:    Application startup failed. Exiting.",
    )
    failure = diagnose.startup_failure(log, 1)
    assert failure.kind.name == "start-failed"
    assert failure.message == "the server ended with status 1 before it was ready: KeyError: 'factor'"
    assert failure.tail[-1] == "KeyError: 'factor'"


def test_an_end_without_a_word() -> None:
    """An empty log is said to be empty."""
    failure = diagnose.startup_failure((), -9)
    assert failure.message == "the server ended by SIGKILL before it was ready, and its log is empty"


def test_how_a_process_ended() -> None:
    """Signals by name where they have one."""
    expected = ["with status 0", "with status 3", "by SIGSEGV", "by signal 99"]
    assert [diagnose.describe_exit(each) for each in (0, 3, -11, -99)] == expected


def test_a_hang_tells_where_it_stands() -> None:
    """In the warm-up, or serving where nobody asked."""
    warming = diagnose.startup_hang(("Warm-up lengths: 8, 16", "8"), 30, 20)
    assert warming.kind.name == "hang-at-start"
    assert "KV cache too small" in warming.message
    done = ("Warm-up lengths: 8", "Warm-up finished in 1 s", "INFO: Uvicorn running on http://0.0.0.0:8000 (Press")
    elsewhere = diagnose.startup_hang(done, 30, 20).message
    assert "KV cache" not in elsewhere
    assert "its log says it serves on http://0.0.0.0:8000" in elsewhere
    assert diagnose.startup_hang((), 30, 20).message == "not ready after 30 s, and no new log line for 20 s"


def test_an_end_later() -> None:
    """Out of memory where the log says so, else a death."""
    assert diagnose.later_failure(("CUDA error: out of memory",), -6, "x").kind.name == "out-of-memory-image"
    failure = diagnose.later_failure(("fine",), -11, "a request")
    assert (failure.kind.name, failure.message) == ("server-died", "the server ended by SIGSEGV: a request")


def test_the_tail_of_a_log_is_fit_to_show(tmp_path: Path) -> None:
    """No colours, no control characters, no empty lines, no answered requests, no endless line, and not all of it."""
    path = tmp_path / "log"
    lines = ["first", "\x1b[93mcolour\x1b[0m", "", 'INFO: 1:2 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
             'INFO: 1:2 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request', "odd \x07\x1b]0;title", "old\rnew",
             'INFO: 1:2 - "POST /v1/chat/completions HTTP/1.1" 500 Internal Server Error', "x" * 1000]  # fmt: skip
    path.write_text("\n".join(lines))
    shown = diagnose.tail(path, 6)
    assert shown[0] == "colour"
    assert shown[1] == "odd ??]0;title"
    assert shown[2:4] == ("old", "new")
    assert shown[4].endswith("500 Internal Server Error")
    assert shown[5] == "x" * 300
    path.write_bytes(b"\xff" * 1_000_000)
    assert len(diagnose.tail(path, 3)) == 1
    assert diagnose.tail(tmp_path / "gone", 3) == ()


def test_a_failure_is_one_line_with_few_log_lines() -> None:
    """Line breaks in a server's words do not break the message."""
    failure = Failure("model", "two\n  lines", tuple(map(str, range(99))))
    assert failure.message == "two lines"
    assert failure.tail == tuple(map(str, range(99 - TAIL_LINES, 99)))
    codes = [kind.code for kind in KINDS.values()]
    assert len(set(codes)) == len(codes)
    assert not {0, 1, 2, 4, 70, 130, 143, 129} & set(codes)


# --- record and report -----------------------------------------------------------------------


def phase(**values: Any) -> records.Phase:
    return records.Phase(**{
        "concurrency": 4, "arrivals_rps": 0, "images": 1, "image": "448x448", "input_tokens": 330, "output_tokens": 16,
        "window_s": 2.0, "window_requests": 8, "latencies_ms": "100 200 300 400", "ttft_ms": "50 70",
        "streamed": "2 1", "peak_mib": 9000, "host_cpu_percent": 12.5, "server_cores": 1.5, "running_most": 4,
        "waiting_most": 0, "cache_use_most": 0.25,
    } | values)  # fmt: skip


def smoked(*phases: records.Phase, **values: Any) -> records.SmokeRun:
    return records.SmokeRun(**{
        "id": "run", "taken": "2026-01-02", "made_by": "lmdeploy-recommender 0.1.0", "lmdeploy": "0.18.0",
        "gpu": "h100-sxm-80g", "gpu_name": "NVIDIA H100 80GB HBM3", "gpu_count": 1, "driver": "580.1",
        "memory_mib": 81559, "cpus": 16, "cpu_name": "Xeon", "model": "internvl3-8b-awq", "checkpoint": "random",
        "request": "{}", "kind": "bash", "artefact_sha256": "0" * 64, "launch_sha256": "1" * 64, "environment": (),
        "command": ("--tp", "1"), "set_by_smoke": (), "copies": 1, "mps": False, "startup_s": 12.0, "idle_mib": 480,
        "start_peak_mib": 9500, "ready_mib": 9300,
        "effective": (records.Readback(name="session-len", asked="4096", found="4096"),),
        "checks": ("/health answers 200",),
        "outcome": "ok", "log_sha256": "2" * 64, "phases": phases,
    } | values)  # fmt: skip


def test_figures_are_computed_from_the_raw_numbers() -> None:
    """Medians, nearest-rank shares, rates of the window; no p99 below 300 samples."""
    got = run_figures.figures(phase())
    assert (got.requests, got.failed, got.rps, got.output_tokens_s) == (4, 0, 4.0, 64.0)
    assert (got.p50_ms, got.p95_ms, got.p99_ms, got.ttft_ms) == (250.0, 400.0, 0.0, 60.0)
    assert got.token_ms == pytest.approx((150 + 230) / 2 / 15)
    many = " ".join(map(str, range(1, 305)))  # the first of each of four clients does not count
    assert run_figures.figures(phase(latencies_ms=many)).p99_ms == 301.0
    assert run_figures.figures(phase(latencies_ms=many.rpartition(" ")[0])).p99_ms == 0.0
    nothing = run_figures.figures(phase(latencies_ms="", ttft_ms="", streamed="", window_s=0, window_requests=0))
    assert (nothing.requests, nothing.rps, nothing.p50_ms, nothing.token_ms) == (0, 0.0, 0.0, 0.0)


def test_a_record_names_no_folder_of_this_machine() -> None:
    """Paths in a server's words lose their folders; addresses and control characters stay readable."""
    assert record.clean_message("because '/home/me/models/x' is odd") == "because 'x' is odd"
    assert record.clean_message("at http://127.0.0.1:9/v1") == "at http://127.0.0.1:9/v1"
    assert record.clean_message("MODEL is /a/b, gone") == "MODEL is b, gone"
    assert record.clean_message("a\nb\x1b") == "a?b?"
    assert len(record.clean_message("x" * 999)) == 400


def test_a_run_becomes_a_record() -> None:
    """Also one that never got ready, whose script has an empty value."""
    made = changed(SERVE, "SERVER_NAME:-127.0.0.1", "SERVER_NAME:-")
    asked = RunRequest(
        made, FOUND, (Load(1, 0.0, 1, 448, 448),), {}, {"MODEL": "/home/me/m", "A": "1"}, "a local folder"
    )
    machine = gpu.Host("NVIDIA H100", 1, "580.1", 81559, 16, "")
    taken = RunResult(machine, 480, failure=Failure("model", "no /home/me/m/config.json"), log_sha256="3" * 64)
    kept = record.build_record("x", asked, taken, "2026-01-02")
    assert kept.set_by_smoke == ("A=1", "MODEL=m")
    assert (kept.outcome, kept.said) == ("model", "no config.json")
    assert kept.command[kept.command.index("--server-name") + 1] == "''"
    assert kept.artefact_sha256 == hashlib.sha256(made.text.encode()).hexdigest()
    assert "RESULT\n  model: no config.json\n" in report.text(FOUND, kept)


def test_the_place_of_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name becomes the id; nothing that is there is replaced."""
    monkeypatch.chdir(tmp_path)
    assert record.evidence_path("h100-a.yaml") == (Path("h100-a.yaml"), "h100-a")
    assert record.evidence_path("h100-a")[0] == Path("h100-a.yaml")
    (tmp_path / "there.yaml").touch()
    for name, piece in (
        ("there", "exists"),
        ("Not This", "lower-case letters"),
        ("gone/x", "not a writable folder"),
        ("..", "letters"),
    ):
        with pytest.raises(RequestError, match=piece):
            record.evidence_path(name)


def test_evidence_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads back as the same record; a write that fails leaves no file."""
    run = smoked(phase())
    record.save(tmp_path / "a.yaml", run)
    read = records.SmokeRun.model_validate_json(json.dumps(yaml.safe_load((tmp_path / "a.yaml").read_text())))
    assert read == run

    def fails(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(Path, "replace", fails)
    with pytest.raises(OSError):  # noqa: PT011 - whichever it is
        record.save(tmp_path / "b.yaml", run)
    assert [each.name for each in tmp_path.iterdir()] == ["a.yaml"]


def test_shares_are_nearest_ranks() -> None:
    """The value that so large a part does not exceed, which was measured, not one between two."""
    assert run_figures.quantile([], 0.5) == 0.0
    assert run_figures.quantile([3], 0.01) == run_figures.quantile([3], 1.0) == 3.0
    assert [run_figures.quantile(range(1, 21), part) for part in (0.05, 0.5, 0.95, 0.951, 1.0)] == [1, 10, 19, 20, 20]
    assert run_figures.quantile([7, 1, 5], 0.5) == 5.0


def test_the_report_tells_what_the_first_round_is_left_out_of() -> None:
    """Where there are rounds to tell it of; figures as they are computed."""
    steady = phase(concurrency=2, window_requests=4, gaps_ms="200 0 300 0")
    said = "rate and times exclude the first round"
    assert said in " ".join(report.text(FOUND, smoked(steady)).split())
    assert said not in " ".join(report.text(FOUND, smoked(phase())).split())


def test_the_report_tells_that_no_answer_came_in_time() -> None:
    """A load whose answers all came after its end has no rate; one without any has failures that say why."""
    said = "no rate: all answers came after the load's end"
    assert said in " ".join(report.text(FOUND, smoked(phase(window_requests=0))).split())
    failed = (records.FailedRequests(cause="too-long", count=4, said="x"),)
    refused = phase(window_requests=0, latencies_ms="", ttft_ms="", streamed="", failures=failed)
    assert said not in " ".join(report.text(FOUND, smoked(refused)).split())


def test_the_error_of_a_prediction() -> None:
    """Positive where the prediction is too high; none where one of the two is missing."""
    assert report.ReportRow("x", 100, 120).error == pytest.approx(0.2)
    assert report.ReportRow("x", 100).error is None
    assert report.ReportRow("x", 0, 120).error is None


def test_predictions_stand_beside_comparable_loads_only() -> None:
    """One artefact on its own card, or copies under CUDA MPS, under a closed loop or arrivals; no batch in Python."""
    speed = predict_phase(FOUND, smoked(), phase())
    rows = {row.name: row for row in report.phase_rows(FOUND, smoked(), phase())}
    assert rows["requests/s"].predicted == speed.rps.value
    assert rows["output tokens/s"].predicted == speed.rps.value * 16
    assert rows["p50 ms"].low == speed.latency_ms.low
    both = {row.name: row for row in report.phase_rows(FOUND, smoked(copies=2, mps=True), phase())}
    assert 0 < both["requests/s"].predicted < 2 * speed.rps.value
    (two, _), (one, _) = (report.memory_rows(FOUND, smoked(**more)) for more in ({"copies": 2, "mps": True}, {}))
    assert 1.9 * one.predicted < two.predicted < 2 * one.predicted
    odd = ({"copies": 2}, {"kind": "python"})
    for values in odd:
        assert not any(row.predicted for row in report.phase_rows(FOUND, smoked(**values), phase()))
    arriving = {row.name: row for row in report.phase_rows(FOUND, smoked(), phase(concurrency=0, arrivals_rps=3))}
    assert arriving["requests/s"].predicted == 3


def test_memory_is_told_without_the_idle_card() -> None:
    """The ready server beside its prediction, and the peak of all loads."""
    ready, peak = report.memory_rows(FOUND, smoked(phase(peak_mib=9900), phase(peak_mib=9700)))
    assert (ready.measured, peak.measured) == (8820, 9420)
    assert ready.predicted
    assert report.memory_rows(FOUND, smoked(ready_mib=0)) == []


def wanting(**goals: Any) -> Any:
    return found(**(H100 | goals))


def test_goals_are_held_against_the_last_load() -> None:
    """By the p95 where there are too few samples for a p99, and said so."""
    asked = wanting(p99_ms=390.0, ttft_ms=100.0)
    tail, first = check_goals(asked, smoked(phase(latencies_ms="1"), phase()))
    assert (tail.measured, tail.met, first.met) == (400.0, False, True)
    assert "p95 used: a p99 needs 300 samples, this load has 4" in tail.note
    assert check_goals(asked, smoked()) == []
    assert check_goals(wanting(p99_ms=400.0), smoked(phase()))[0].met
    empty = phase(latencies_ms="", ttft_ms="", streamed="")
    assert not any(goal.met for goal in check_goals(asked, smoked(empty)))


@pytest.mark.parametrize(
    ("goal", "name", "measured"),
    [
        ({"ttft_ms": 1000.0}, "mean TTFT ms", 65.0),
        ({"ttft_ms": 1000.0, "ttft_at": "p90"}, "p90 TTFT ms", 110.0),
        ({"tpot_ms": 1000.0}, "mean TPOT ms", 12.5),
        ({"tpot_ms": 1000.0, "tpot_at": "p50"}, "p50 TPOT ms", 11.0),
        ({"latency_ms": 1000.0}, "mean latency ms", 252.5),
        ({"latency_ms": 1000.0, "latency_at": "p90"}, "p90 ms", 380.0),
    ],
)
def test_each_goal_is_held_against_its_own_figure(goal: dict[str, Any], name: str, measured: float) -> None:
    """Four streamed answers of 16 tokens: TTFT 40 to 110 ms, TPOT 10 to 18 ms."""
    for factor, met in ((1, True), (100, False)):
        whole, first = (
            " ".join(str(ms * factor) for ms in times) for times in ((190, 215, 225, 380), (40, 50, 60, 110))
        )
        (checked,) = check_goals(wanting(**goal), smoked(phase(latencies_ms=whole, ttft_ms=first, streamed="")))
        assert (checked.name, checked.wanted, checked.met) == (name, 1000.0, met)
        assert checked.measured == pytest.approx(factor * measured)


def test_a_rate_is_met_within_a_twentieth() -> None:
    """A little less is no miss: 95 % of the rate counts."""
    asked = wanting(concurrency=0, rps=4.2)
    assert check_goals(asked, smoked(phase()))[0].met
    assert not check_goals(asked, smoked(phase(window_requests=7)))[0].met


def arrivals(latencies: list[int], every_ms: int) -> records.Phase:
    """What a load of 20 s recorded whose requests came at even times and took so long."""
    ends = sorted(number * every_ms + took for number, took in enumerate(latencies))
    order = sorted(range(len(latencies)), key=lambda number: number * every_ms + latencies[number])
    gaps = [end - before for before, end in zip([0, *ends], ends, strict=False)]
    times = {"latencies_ms": [latencies[number] for number in order], "gaps_ms": gaps}
    texts = {name: run_figures.write_numbers(values) for name, values in times.items()}
    inside = {"window_s": 20, "window_requests": sum(end <= 20_000 for end in ends)}
    return phase(concurrency=0, arrivals_rps=1e3 / every_ms, ttft_ms="", streamed="", **inside, **texts)


def test_a_rate_that_arrives_is_met_where_no_queue_grows() -> None:
    """Of answers of 6 s a third comes after the load's end; a server that is too slow makes all wait longer."""
    asked = wanting(concurrency=0, rps=4.0)
    (met,) = check_goals(asked, smoked(arrivals([6000] * 80, 250)))
    assert (met.met, met.measured) == (True, pytest.approx(2.8, abs=0.1))
    assert "no queue grew" in met.note
    (missed,) = check_goals(asked, smoked(arrivals([1000 + 100 * number for number in range(80)], 250)))
    assert not missed.met
    assert "longer and longer" in missed.note
    (fewer,) = check_goals(asked, smoked(arrivals([1000] * 40, 500)))  # 2 requests/s were tried
    assert not fewer.met


def test_goals_are_told_as_they_were_asked() -> None:
    """Minutes in ms without an exponent, and a rate below one."""
    told = report.text(wanting(concurrency=0, rps=0.5, p99_ms=1_234_567.0), smoked(phase()))
    assert "  p99 ms 1,234,567: met" in told
    assert "  requests/s 0.5: met" in told


@pytest.mark.parametrize(
    ("wanted", "measured", "texts"),
    [
        (0.25, 0.2063, ("0.25", "0.2063")),
        (0.012, 0.0114, ("0.012", "0.01140")),
        (1.25, 1.1764, ("1.25", "1.176")),
        (330.0, 352.04, ("330", "352.0")),
        (1_234_567.0, 2_345_678.9, ("1,234,567", "2,345,678.9")),
        (5.0, 0.0, ("5", "0.0")),
    ],
)
def test_a_missed_goal_shows_by_how_much(wanted: float, measured: float, texts: tuple[str, str]) -> None:
    """A goal of 0.25 requests/s is no 0.2, and neither is what was measured."""
    goal = Goal("requests/s", wanted, measured, False)
    assert (goal.wanted_text, goal.measured_text) == texts


def test_a_missed_goal_is_the_outcome_of_a_sound_run_only() -> None:
    """A failure comes first."""
    asked = wanting(p99_ms=390.0)
    assert report.outcome(asked, smoked(phase())) == "goals-missed"
    assert report.outcome(asked, smoked(phase(), outcome="too-long")) == "too-long"
    assert report.outcome(FOUND, smoked(phase())) == "ok"
    told = valid("smoke", json_output.to_json(asked, smoked(phase())))
    assert (told["outcome"], told["exit_code"], told["goals"][0]["met"]) == ("goals-missed", 27, False)


def test_the_report_fits_80_columns_and_marks_what_differs() -> None:
    """Long words of a server are wrapped; a percent sign stays with its number."""
    failures = (records.FailedRequests(cause="too-long", count=3, said="HTTP 400: " + "a word " * 50),)
    told = report.text(
        wanting(p99_ms=390.0),
        smoked(
            phase(failures=failures),
            effective=(
                records.Readback(name="session-len", asked="4096", found="2048"),
                records.Readback(name="max-batch-size", asked="4", found=""),
            ),
        ),
    )
    assert max(map(len, told.splitlines())) <= 80
    assert "  session-len         4096                      2048  DIFFERS\n" in told
    assert "  max-batch-size      4                         unknown\n" in told
    assert "3 x too-long: HTTP 400" in told
    assert "RESULT\n  goals-missed: " in told
    assert not any(line.strip().startswith("%") for line in told.splitlines())
    assert "no p99: at least 300 samples needed" in told


def test_loads_in_a_few_words() -> None:
    """As progress shows them."""
    assert describe_load(Load(4, 0.0, 2, 96, 64)) == "concurrency 4, 96x64 x 2"
    assert describe_load(Load(0, 2.5, 0, 0, 0)) == "2.5 requests/s (Poisson), text only"


# --- checks ----------------------------------------------------------------------------------

SCHEMA = {"type": "object", "required": ["a"], "properties": {"a": {"type": "boolean"}, "b": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        ('{"a": true}', ""),
        ('{"a": false, "b": 3}', ""),
        ('{"a": tr', "not JSON"),
        ("", "not JSON"),
        ("[1]", "no object"),
        ('{"b": 1}', "a is missing"),
        ('{"a": "yes"}', "a is no boolean"),
        ('{"a": true, "b": 1.5}', "b is no integer"),
    ],
)
def test_an_answer_by_a_schema(answer: str, wrong: str) -> None:
    """It parses, has what is required, and of the right types."""
    said = checks.schema_error(answer, SCHEMA)
    assert (wrong in said) if wrong else (said == "")


@contextlib.contextmanager
def serving(answer: Callable[[str], tuple[int, bytes] | None], patience_s: float = 30.0) -> Iterator[checks.Server]:
    """A server that gives one answer for each path; None: it says nothing until the test is over."""
    over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            got = answer(self.path)
            if got is None:
                over.wait(60)
                return
            self.send_response(got[0])
            self.send_header("Content-Length", str(len(got[1])))
            self.end_headers()
            self.wfile.write(got[1])

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as made:
        threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        try:
            yield checks.Server(f"http://127.0.0.1:{made.server_port}", timeout_s=patience_s)
        finally:
            over.set()
            made.shutdown()


def chat(content: str, finish: str = "stop", tokens: int = 3) -> bytes:
    choice = {"message": {"content": content}, "finish_reason": finish}
    return json.dumps({"choices": [choice], "usage": {"completion_tokens": tokens}}).encode()


def test_a_silent_server_hangs() -> None:
    """A request without an answer is told apart from a dead server: /health still answers."""
    silent = serving(lambda path: (200, b"") if path == "/health" else None, 0.4)
    with silent as server, pytest.raises(Failure, match=r"a request: .*/health answers 200 meanwhile") as raised:
        server.chat({}, "a request")
    assert raised.value.kind.name == "requests-hang"


def test_nobody_answers() -> None:
    """A closed port: no model, not healthy, and a request tells that the connection broke."""
    server = checks.Server("http://127.0.0.1:9")
    assert server.model() == ""
    assert not server.healthy()
    with pytest.raises(Failure, match="the connection broke") as raised:
        server.chat({}, "a request")
    assert raised.value.kind.name == "server-died"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"data": []}', b'{"data": [{}]}', b"[]", b"\xff"])
def test_no_model_is_listed(body: bytes) -> None:
    """Whatever a server says while it lists none."""
    with serving(lambda _: (200, body)) as server:
        assert server.model() == ""


def proved(structured: bool, random: bool = False, **answers: bytes) -> list[str]:
    bodies = iter(answers.values())
    with serving(lambda path: (200, b"" if path == "/health" else next(bodies))) as server:
        return list(checks.check_server(server, [server], "m", FOUND.resolved, "", 0, structured, random))


def test_proofs_one_after_another() -> None:
    """Each line says what was proved; without a picture there is no image request."""
    form = json.dumps({"accident_detected": False})
    assert proved(True, text=chat("Hello"), form=chat(form)) == [
        "/health answers 200",
        "/v1/models lists the model",
        "a text request is answered (5 characters)",
        f"an answer by JSON schema parses: {form}",
    ]
    assert "this release refuses it" in proved(False, text=chat("Hello"))[-1]
    with pytest.raises(Failure, match="accident_detected is missing"):
        proved(True, text=chat("Hello"), form=chat("{}"))


@pytest.mark.parametrize(
    ("answer", "begins"),
    [
        ("{\n\n \n", True),
        ('{\r\t"accident_detected":\n\n', True),
        ('{"accident_detected', True),
        ("", False),
        ("\n\n", False),
        ("The answer is", False),
        ('{"accident_detected" false', False),
    ],
)
def test_random_weights_need_not_end_their_json(answer: str, begins: bool) -> None:
    """Cut off by the limit, an answer must be JSON as far as it goes; real weights must end theirs."""
    cut = {"text": chat("Hello"), "form": chat(answer, finish="length")}
    if begins:
        assert "begins as JSON does" in proved(True, random=True, **cut)[-1]
    else:
        with pytest.raises(Failure, match=r"not JSON|no text"):
            proved(True, random=True, **cut)
    with pytest.raises(Failure):
        proved(True, **cut)
    with pytest.raises(Failure):
        proved(True, random=True, text=chat("Hello"), form=chat(answer))


def test_variables_that_catch_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only one that really does; an exception for loopback is respected, and a password never told."""
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert checks.intercepting_proxy() == ""
    monkeypatch.setenv("http_proxy", "http://me:secret@127.0.0.1:9")
    assert checks.intercepting_proxy() == "http_proxy=http://127.0.0.1:9"
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
    assert checks.intercepting_proxy() == ""
    monkeypatch.delenv("no_proxy")
    with serving(lambda _: (200, b"<html>welcome</html>")) as server:
        monkeypatch.setenv("http_proxy", server.url)
        assert checks.intercepting_proxy() == f"http_proxy={server.url}"


def test_two_may_look_for_a_proxy_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each on a port of its own: the other's is taken until its proxy has answered."""
    both = threading.Barrier(2)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with serving(lambda _: (200, b"page%d" % both.wait(10))) as server, ThreadPoolExecutor(2) as pool:
        monkeypatch.setenv("http_proxy", server.url)
        looks = [pool.submit(checks.intercepting_proxy) for _ in range(2)]
        assert [look.result() for look in looks] == [f"http_proxy={server.url}"] * 2


def test_gauges_of_all_servers() -> None:
    """The highest of each; lines that mean nothing to us, or nothing at all, are passed over."""
    metrics = Metrics([])
    metrics.update('lmdeploy:num_requests_running{engine="0"} 3.0\nlmdeploy:num_requests_running 7\nother 9\n')
    metrics.update("lmdeploy:num_requests_running{} 2\nlmdeploy:gpu_cache_usage_perc{} much\n# HELP\n\n")
    assert metrics.peaks == {"running": 7.0}


# --- the command's options -------------------------------------------------------------------

LOADS = {
    "16": Load(16, 0.0, 1, 448, 448),
    "4rps": Load(0, 4.0, 1, 448, 448),
    "4RPS@text": Load(0, 4.0, 0, 0, 0),
    "2@1280x720": Load(2, 0.0, 1, 1280, 720),
    " 2@96x64x3 ": Load(2, 0.0, 3, 96, 64),
    "1@Text": Load(1, 0.0, 0, 0, 0),
}


@pytest.mark.parametrize("form", LOADS)
def test_forms_of_a_load(form: str) -> None:
    """In flight or arrivals, of the request's image, of another, or of text."""
    assert phases.parse_loads((form,), FOUND) == (LOADS[form],)


@pytest.mark.parametrize(
    "form", ["", "x", "-1", "1.5rps", "4@", "4@big", "4@10x", "4@10x10x10x10", "rps", "4 rps", "9999"]
)
def test_wrong_forms_of_a_load(form: str) -> None:
    """Refused with the right forms."""
    with pytest.raises(RequestError, match="--phase"):
        phases.parse_loads((form,), FOUND)


def test_loads_without_being_told() -> None:
    """One request at a time, then the request's own load; once only where both are the same."""
    assert phases.parse_loads((), FOUND) == (Load(1, 0.0, 1, 448, 448), Load(4, 0.0, 1, 448, 448))
    assert phases.parse_loads((), found(gpu="h100-80g", load="single")) == (Load(1, 0.0, 1, 448, 448),)
    rate = found(gpu="h100-80g", load="", rps=3.0)
    assert phases.parse_loads((), rate) == (Load(1, 0.0, 1, 448, 448), Load(0, 3.0, 1, 448, 448))
    with pytest.raises(RequestError, match="is a text model"):
        phases.parse_loads(("4@64x64",), found(gpu="h100-80g", model="qwen2.5-7b-instruct"))


def options(**given: Any) -> dict[str, Any]:
    names = ("gpu", "model", "load", "rps", "image", "prompt_tokens", "output_tokens", "goal", "p99", "ttft", "vram",
             "cpus", "kv", "lmdeploy")  # fmt: skip
    return dict.fromkeys(names) | {"text_only": False} | given


def test_what_the_command_line_changes_of_a_script() -> None:
    """Only what is given; the GPU with its count where it is given."""
    assert dict(smoke._request_overrides(options(), SERVE)) == {}
    assert dict(smoke._request_overrides(options(cpus="8"), SERVE)) == {"cpus": 8}
    assert dict(smoke._request_overrides(options(load="16"), SERVE)) == {"concurrency": 16}
    assert dict(smoke._request_overrides(options(text_only=True), SERVE))["images"] == 0
    with_gpu = dict(smoke._request_overrides(options(gpu="h100-80g:2"), SERVE))
    assert with_gpu["gpu_count"] == 2


def test_a_dry_run_names_edits() -> None:
    """Values by their variable, other lines by number; comments do not count."""
    assert dryrun.find_edits(SERVE, FOUND) == []
    assert dryrun.find_edits(changed(SERVE, "# The model", "# Our model"), FOUND) == []
    assert dryrun.find_edits(changed(SERVE, "CODE:-true", "CODE:-false"), FOUND) == ["TRUST_REMOTE_CODE"]
    (line,) = dryrun.find_edits(changed(SERVE, '  --backend "$BACKEND"', '  --backend "$BACKEND" --tp 2'), FOUND)
    assert SERVE.text.split("\n")[int(line.split()[1]) - 1].strip() == '--backend "$BACKEND"'


def test_a_dry_run_without_lmdeploy_refuses_what_the_release_has_not(tmp_path: Path) -> None:
    """The extracted facts stand in for the parser, with its words."""
    nowhere = {"PATH": str(tmp_path), "PYTHON": str(tmp_path / "python")}
    by = dryrun.check_options(["/m", *SERVE.words(FOUND.resolved, {})], "0.18.0", nowhere)
    assert by == "LMDeploy 0.18.0's list (LMDeploy is not installed)"
    with pytest.raises(RequestError, match=r"LMDeploy 0\.18\.0 refuses the options: .*--colour"):
        dryrun.check_options(["/m", "--colour", "red"], "0.18.0", nowhere)
    with pytest.raises(RequestError, match="invalid int value: 'x'"):
        dryrun.check_options(["/m", "--tp", "x"], "0.18.0", nowhere)
    # An LMDeploy that tells its version but cannot be imported, say for want of a driver, has no parser either.
    broken = tmp_path / "python"
    broken.write_text('#!/bin/sh\ncase "$2" in *SubCliServe*) exit 77 ;; esac\necho 0.18.0\n')
    broken.chmod(0o755)
    assert dryrun.check_options(["/m", "--tp", "1"], "0.18.0", nowhere) == by
    foreign = launch.parse("lmdeploy serve api_server m", "own.sh")
    with pytest.raises(RequestError, match="omit --dry-run"):
        dryrun.dry_run(foreign, FOUND, nowhere)
    told = dryrun.dry_run(artefact("python"), FOUND, nowhere)
    assert "  python3 pipeline.py, its engine settings as options: --" in told


def test_lines_of_progress_only_after_some_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a terminal a short run says nothing; a long one a line now and then, and no line twice."""
    now = [100.0]
    monkeypatch.setattr(smoke.time, "monotonic", lambda: now[0])
    with smoke.progress() as say:
        say("starting")
        now[0] += 5.5
        say("")
        say("waiting")
        say("still waiting")
        now[0] += 5.5
        say("waiting")
        say("loading")
    assert capsys.readouterr().err == "recommend smoke: waiting\nrecommend smoke: loading\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_end_a_block_with_their_code(number: int, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The handlers of before are back afterwards."""
    before = signal.getsignal(number)
    with pytest.raises(SystemExit) as raised, smoke.handle_signals(60):
        signal.raise_signal(number)
    assert raised.value.code == code
    assert signal.getsignal(number) is before
    assert f"stopped by {signal.Signals(number).name}" in capsys.readouterr().err


def test_the_time_limit_is_a_failure() -> None:
    """It comes as one, wherever the run happens to be, and not after the block."""
    with pytest.raises(Failure) as raised, smoke.handle_signals(0.05):
        time.sleep(5)
    assert raised.value.kind.name == "time-limit"
    with smoke.handle_signals(0.5):
        pass
    time.sleep(0.6)


# --- the machine -----------------------------------------------------------------------------


class Nvml:
    class NVMLError(Exception):
        """What NVML raises."""

    def __init__(self, *used: int, broken: bool = False) -> None:
        self.used_mib, self.broken = list(used), broken

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.used_mib)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(used=self.used_mib[handle] << 20, total=81559 << 20)

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        """Older packages give bytes."""
        return b"NVIDIA H100 80GB HBM3"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.1"


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    """A machine with two cards, 480 and 900 MiB in use."""
    made = Nvml(480, 900)
    monkeypatch.setitem(sys.modules, "pynvml", made)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    ("shown", "count", "used"),
    [(None, 1, 480), (None, 2, 900), ("1", 1, 900), ("1,0", 2, 900), ("GPU-8f", 1, 480), (" 1 ", 1, 900)],
)
def test_the_fullest_of_the_cards_used(shown: str | None, count: int, used: int, two: Nvml) -> None:
    """The first of CUDA_VISIBLE_DEVICES, by number or by name."""
    cards = gpu.Gpus(count, {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown})
    assert cards.used_mib() == used
    seen = cards.host()
    expected = ("NVIDIA H100 80GB HBM3", count, 81559, "580.1")
    assert (seen.gpu_name, seen.gpu_count, seen.memory_mib, seen.driver) == expected
    assert seen.cpus >= 1


@pytest.mark.parametrize(("shown", "seen"), [("", 0), ("5", 0), ("0,9", 1), ("-1", 0)])
def test_cards_that_cannot_be_seen(shown: str, seen: int, two: Nvml) -> None:
    """The variable is told where it hides them."""
    with pytest.raises(Failure, match=rf"2 GPU\(s\) needed, {seen} visible \(CUDA_VISIBLE_DEVICES={shown}"):
        gpu.Gpus(2, {"CUDA_VISIBLE_DEVICES": shown})


def test_no_driver_and_no_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are failures of the machine, with what to do."""
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(broken=True))  # type: ignore[arg-type]
    with pytest.raises(Failure, match="NVML says Driver Not Loaded") as raised:
        gpu.Gpus(1, {})
    assert raised.value.kind.code == 3
    monkeypatch.setitem(sys.modules, "pynvml", None)  # type: ignore[arg-type]
    with pytest.raises(Failure, match="pip install nvidia-ml-py"):
        gpu.Gpus(1, {})


def test_the_peak_is_caught_between_looks(two: Nvml) -> None:
    """A thread looks ten times a second; a reset forgets."""
    watch = gpu.MemoryWatch(gpu.Gpus(2, {}))
    try:
        two.used_mib[0] = 5000
        wait_for(lambda: watch._peak == 5000)
        two.used_mib[0] = 480
        assert (watch.peak(), watch.now()) == (5000, 900)
        watch.reset()
        assert watch.peak() == 900
        assert 0 <= watch.host_cpu_percent() <= 100
    finally:
        watch.close()
    assert not watch._thread.is_alive()


def test_memory_comes_back_or_not(two: Nvml) -> None:
    """Waits for the idle figure, within what a driver keeps, and gives up in the end."""
    cards = gpu.Gpus(2, {})
    assert gpu.wait_for_memory(cards, 900, seconds=0.1)
    assert gpu.wait_for_memory(cards, 700, seconds=0.1)
    assert not gpu.wait_for_memory(cards, 100, seconds=0.2)


def test_the_interpreter_of_an_artefact(tmp_path: Path) -> None:
    """PYTHON, else the one of the lmdeploy command, else that beside it, else python3."""
    assert host.find_python({"PYTHON": "/opt/py"}) == ["/opt/py"]
    assert host.find_python({"PATH": str(tmp_path)}) == ["python3"]
    tool = tmp_path / "lmdeploy"
    tool.write_text(f"#!{sys.executable}\n")
    tool.chmod(0o755)
    assert host.find_python({"PATH": str(tmp_path)}) == [sys.executable]
    tool.write_text("#!/bin/sh\n'''exec' python3\n")
    assert host.find_python({"PATH": str(tmp_path)}) == ["python3"]
    (tmp_path / "python3").symlink_to(sys.executable)
    assert host.find_python({"PATH": str(tmp_path)}) == [str(tmp_path / "python3")]


def test_the_model_of_an_artefact(tmp_path: Path) -> None:
    """A folder, marked synthetic or not, a hub name, or whatever a foreign script has."""
    (tmp_path / "config.json").write_text("{}")

    def asked(script: launch.Artefact, **environment: str) -> tuple[str, str]:
        return host.find_model(script, FOUND, {"weights": None}, environment, print)

    assert asked(SERVE) == ("", "OpenGVLab/InternVL3-8B-AWQ from the hub")
    assert asked(SERVE, MODEL=str(tmp_path)) == (str(tmp_path), "a local folder")
    (tmp_path / "config.json").write_text('{"synthetic": {"made_by": "lmdeploy-recommender", "seed": 3}}')
    assert asked(SERVE, MODEL=str(tmp_path))[1] == "random, seed 3; not the real model"
    assert asked(launch.parse("lmdeploy serve api_server $M", "x.sh"), M="") == ("", "as the script has it")
    with pytest.raises(Failure, match=r"no config\.json in that folder"):
        asked(SERVE, MODEL=str(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("model", "started"),
    [("internvl3-8b-awq", True), ("qwen3-8b-fp8", True), ("deepseek-v3", False), ("phi-3.5-vision-instruct", False)],
)
def test_weights_that_no_run_started_are_said(model: str, started: bool) -> None:
    """A warning names model and architecture where no record shows a start; runs of another format do not count."""
    store = FOUND.resolved.store
    warning = host.describe_unstarted(store.models[model], store)
    assert bool(warning) != started
    assert started or (model in warning and store.models[model].architecture in warning)


def test_what_smoke_sets() -> None:
    """The engine's own words, no network for a local model, and no restarts that hide an end."""
    assert host.launch_variables("", {}) == {"TM_LOG_LEVEL": "INFO", "PYTHONUNBUFFERED": "1"}
    made = host.launch_variables("/m", {"RESTART": "5"})
    assert (made["MODEL"], made["HF_HUB_OFFLINE"], made["RESTART"]) == ("/m", "1", "0")


def test_a_followed_head_renders_to_its_bytes() -> None:
    """Reading an adviser's script and rendering its request anew gives the same script."""
    first = launch.remake(Request(**H100), {"follow": "gemini", "with": {"trust-remote-code": ""}})
    script = launch.parse(render(first, "bash"), "serve.sh")
    again = launch.remake(*launch.parse_request(script, {}))
    assert render(again, "bash") == script.text


def test_a_log_that_repeats_itself_says_nothing_new(tmp_path: Path) -> None:
    """A line that differs in numbers only is no news, a progress bar's step is; nothing is read twice."""
    log = tmp_path / "log"
    news = diagnose.LogWatch(log)
    assert not news.has_news()
    told = [
        ("[TM][INFO][1121.05:21:39.192218][scheduler.cc:1186] out of memory at 0/1\n", True),
        ("[TM][INFO][1121.05:21:44.224786][scheduler.cc:1186] out of memory at 0/1\n", False),
        ("Loading:   7%|#  | 2/28\r", True),
        ("Loading:  21%|## | 6/28\r", True),
        ('INFO:     127.0.0.1:34476 - "GET /v1/models HTTP/1.1" 401 Unauthorized\n', True),
        ('INFO:     127.0.0.1:34512 - "GET /v1/models HTTP/1.1" 401 Unauthorized\n', False),
    ]
    for line, fresh in told:
        with log.open("a") as file:
            file.write(line)
        assert news.has_news() == fresh, line
        assert not news.has_news()
    now = time.monotonic()
    with log.open("a") as file:
        file.write("loaded\n")
    assert [news.silent_s(now + wait) for wait in (3, 5, 9)] == pytest.approx([0, 2, 6])


def test_a_scheduler_that_waits_for_blocks_is_not_out_of_memory() -> None:
    """TurboMind's scheduler writes "out of memory" where a request waits for KV blocks: a hang names the cache."""
    lines = ("[TM][INFO][1121.05:21:39.192218][scheduler.cc:1186] out of memory at 0/1",)
    assert not diagnose.out_of_memory(lines)
    assert "KV cache too small" in diagnose.startup_hang(lines, 30, 20).message


def test_a_wrong_phase_is_told_before_anything_starts() -> None:
    """A load that cannot be read ends a dry run too, with exit code 2's error."""
    from click.testing import CliRunner

    done = CliRunner().invoke(smoke.command, ["--gpu", "H100-80G", "--phase", "x", "--dry-run"])
    assert isinstance(done.exception, RequestError)
    assert "--phase 'x'" in str(done.exception)
