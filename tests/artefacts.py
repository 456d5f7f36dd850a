"""What the tests of the outputs share: requests of a grid, and a machine of stand-ins to run scripts on."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from packaging.version import Version

from recommender import cli
from recommender.choose.recommend import NothingFits, Recommendation, recommend
from recommender.knowledge.load import data_root, load
from recommender.knowledge.names import PART
from recommender.maintenance.argparse_rebuild import rebuild_parser
from recommender.maintenance.wheel_facts import ReleaseFacts, WheelFacts, load_extracted
from recommender.render.formats import render
from recommender.request.request import Request

KNOWLEDGE = data_root() / "knowledge"
RELEASES = sorted((path.stem for path in (KNOWLEDGE / "releases").glob("*.yaml")), key=Version)
GPUS = sorted(path.stem for path in (KNOWLEDGE / "gpus").glob("*.yaml"))
MODELS = sorted(path.stem for path in (KNOWLEDGE / "models").glob("*.yaml"))
GRID_GPUS = 13
LOADS = ("single", "low", "medium", "high")
GOALS = ("latency", "throughput", "memory", "balanced")
KV = ("auto", "fp16", "int8", "int4")
IMAGES = ((448, 448), (1280, 720), (300, 2000), (4000, 3000))
BASH = shutil.which("bash") or "bash"
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
"""The number of this process among those that run tests side by side: each takes other ports."""
Called = Callable[..., tuple[int, str, str]]
"""A command to be called with its words: status, stdout, stderr."""


@lru_cache(maxsize=4096)
def answer(request: Request) -> Recommendation | NothingFits:
    try:
        return recommend(request)
    except NothingFits as error:
        return error


def fits(request: Request) -> Recommendation:
    """The recommendation; the example is passed over where nothing fits."""
    recommendation = answer(request)
    assume(isinstance(recommendation, Recommendation))
    assert isinstance(recommendation, Recommendation)
    return recommendation


def found(**asked: object) -> Recommendation:
    load = {} if "concurrency" in asked else {"load": "single"}
    made = answer(Request(**{"gpu": "a100-sxm-80g"} | load | asked))  # type: ignore[arg-type]
    assert isinstance(made, Recommendation), f"nothing fits: {made}"
    return made


def text(form: str = "bash", **asked: object) -> str:
    return render(found(**asked), form)


def grid() -> Iterator[Request]:
    """Every release on some GPUs, so that every GPU and model comes up; the other questions take turns."""
    for index, release in enumerate(RELEASES):
        for turn in range(GRID_GPUS):
            number = index * GRID_GPUS + turn
            gpu = GPUS[number % len(GPUS)]
            yield Request(
                gpu=gpu,
                load=LOADS[number % 4],
                goal=GOALS[(index + 3 * turn) % 4],
                model=MODELS[number % len(MODELS)],
                gpu_count=1 if PART in gpu else (1, 2, 4)[number % 3],
                lmdeploy=release,
            )


def vision(model: str) -> bool:
    return bool(load().models[model].vision)


@st.composite
def requests(draw: st.DrawFn, **fixed: object) -> Request:
    gpu = draw(st.sampled_from(GPUS))
    asked: dict[str, object] = {
        "gpu": gpu,
        "gpu_count": 1 if PART in gpu else draw(st.sampled_from((1, 1, 1, 2, 4, 8))),
        "model": draw(st.sampled_from(MODELS)),
        "concurrency": draw(st.sampled_from((1, 2, 3, 4, 7, 16, 33, 64, 128, 300))),
        "goal": draw(st.sampled_from(GOALS)),
        "kv": draw(st.sampled_from(KV)),
        "lmdeploy": draw(st.sampled_from(RELEASES)),
        "cpus": draw(st.sampled_from((1, 4, 16, 64))),
        "prompt_tokens": draw(st.sampled_from((0, 1, 24, 1000, 3000, 6000))),
        "output_tokens": draw(st.sampled_from((0, 1, 16, 500))),
    } | fixed
    if load().models[str(asked["model"])].text.max_positions < 8192:
        asked["prompt_tokens"] = min(int(str(asked["prompt_tokens"])), 2000)
    if vision(str(asked["model"])) and draw(st.booleans()):
        width, height = draw(st.sampled_from(IMAGES))
        images = draw(st.sampled_from((1, 2) if width < 4000 else (1,)))  # two and the text exceed 32,768 tokens
        asked |= {"images": images, "image_width": width, "image_height": height}
    elif draw(st.booleans()):
        asked["images"] = 0
    return Request(**asked)  # type: ignore[arg-type]


@cache
def release_facts(release: str) -> ReleaseFacts:
    return extracted().release(release)


@cache
def extracted() -> WheelFacts:
    return load_extracted(KNOWLEDGE / "extracted" / "api_server.json")


@cache
def parser(release: str):  # type: ignore[no-untyped-def]
    """The api_server parser of a release, rebuilt from those facts."""
    return rebuild_parser(extracted(), release)


NOT_OF_DEBIAN = {"kubectl": "that of Debian 12 is too old to build it", "helm": "Debian has none"}


def need(tool: str) -> str:
    """The path of a system tool, also of root's; skips the test, naming the tool, where it is missing."""
    path = shutil.which(tool, path=f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin")
    if path is None:
        if tool in NOT_OF_DEBIAN:
            pytest.skip(f"{tool} is not installed, and {NOT_OF_DEBIAN[tool]}")
        package = {"promtool": "prometheus", "systemd-analyze": "systemd"}.get(tool, tool)
        pytest.skip(f"{tool} is not installed; .ci/run installs it (apt-get install {package})")
    return path


def shellcheck(folder: Path, *scripts: str) -> None:
    """Fails where bash does not parse a script, or shellcheck has anything to say of one."""
    paths = [folder / f"checked-{number}.sh" for number in range(len(scripts))]
    for path, script in zip(paths, scripts, strict=True):
        path.write_text(script)
        subprocess.run([BASH, "-n", str(path)], check=True)
    done = subprocess.run([need("shellcheck"), "--shell=bash", *map(str, paths)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[:3000]


RECORD = """#!/bin/bash
set -u
file=$(mktemp "$RECORD/call.XXXXXXXX")
{ printf '%s\\0' "${0##*/}" "$@"; } >"$file.part"
printf '%s' "$$" >"$file.pid"
env -0 >"$file.env"
mv "$file.part" "$file.argv"
"""
NVIDIA_SMI = """#!/bin/bash
if [[ -n ${SMI_FAILS:-} ]]; then echo "$SMI_FAILS"; exit "$SMI_CODE"; fi
case $* in
  "") echo "| NVIDIA-SMI 570.86.15    Driver Version: 570.86.15    CUDA Version: ${CUDA_VERSION:-12.8} |" ;;
  *query-gpu=index,uuid*) for ((i = 0; i < ${CARDS:-1}; i++)); do echo "$i, GPU-${i}000a11b-3c4d"; done ;;
  *query-gpu=memory.free*) for ((i = 0; i < ${CARDS:-1}; i++)); do echo "${FREE_MIB:-81000}"; done ;;
  *query-gpu=name*) for ((i = 0; i < ${CARDS:-1}; i++)); do echo "${GPU_NAME:-NVIDIA A100-SXM4-80GB}"; done ;;
esac
"""
PYTHON = """#!/bin/bash
case $* in
  *version_info*) exit "${PYTHON_OLD:-0}" ;;
  *importlib.metadata*) [[ -n ${LMDEPLOY_VERSION:-} ]] || exit 1; echo "$LMDEPLOY_VERSION" ;;
esac
"""


SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
"""Those that end a launch."""


@dataclass
class Call:
    """One run of a stand-in: its words, its process and its environment."""

    words: list[str]
    pid: int
    environment: dict[str, str]


@dataclass
class Machine:
    """A folder with stand-ins for lmdeploy, nvidia-smi and python3, first on the PATH of what runs there."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("bin", "record", "home", "work"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.tool("lmdeploy", RECORD)
        self.tool("docker", RECORD)
        self.tool("nvidia-smi", NVIDIA_SMI)
        self.tool("python3", PYTHON)

    def tool(self, name: str, body: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(body, encoding="utf-8")
        path.chmod(0o755)

    def environment(self, **changed: str) -> dict[str, str]:
        """A bare environment: no variable of the tester's own reaches a script."""
        return {
            "PATH": f"{self.folder / 'bin'}:/usr/bin:/bin",
            "HOME": str(self.folder / "home"),
            "RECORD": str(self.folder / "record"),
            "LC_ALL": "C.UTF-8",
            "PREFLIGHT": "no",
            "REVISION": "abc",
            **self.variables,
            **changed,
        }

    def script(self, body: str) -> Path:
        path = self.folder / "serve.sh"
        path.write_text(body, encoding="utf-8")
        return path

    def run(self, body: str, *, timeout: float = 30, **variables: str) -> subprocess.CompletedProcess[str]:
        words = [BASH, str(self.script(body))]
        return run_program(words, env=self.environment(**variables), cwd=self.folder / "work", timeout=timeout)

    def start(self, body: str, **variables: str) -> subprocess.Popen[str]:
        return self.launch([BASH, str(self.script(body))], **variables)

    def launch(self, words: list[str], **variables: str) -> subprocess.Popen[str]:
        """Starts a command in a session of its own, without signals that the tester's shell ignores."""
        return subprocess.Popen(
            words,
            env=self.environment(**variables),
            cwd=self.folder / "work",
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: [signal.signal(number, signal.SIG_DFL) for number in SIGNALS] and None,
        )

    def calls(self) -> list[Call]:
        """What the stand-ins were called with so far, in the order of their processes' start."""
        made = []
        for path in sorted((self.folder / "record").glob("*.argv"), key=lambda path: path.stat().st_mtime_ns):
            pairs = path.with_suffix(".env").read_bytes().split(b"\0")
            environment = dict(pair.decode(errors="surrogateescape").split("=", 1) for pair in pairs if b"=" in pair)
            words = path.read_bytes().decode("utf-8", "surrogateescape").split("\0")[:-1]
            made.append(Call(words, int(path.with_suffix(".pid").read_text()), environment))
        return made

    def forget(self) -> None:
        for path in (self.folder / "record").iterdir():
            path.unlink()

    def words(self, body: str, **variables: str) -> list[str]:
        self.forget()
        done = self.run(body, **variables)
        assert done.returncode == 0, done.stderr
        (call,) = self.calls()
        return call.words


def wait_for(
    condition: Callable[[], object], seconds: float = 60.0, said: Callable[[], object] = lambda: "waited in vain"
) -> None:
    """Waits until something holds; fails after a while."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, said()
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@contextmanager
def running(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that is killed with its group, should it still run."""
    try:
        yield process
    finally:
        finish(process)


def finish(process: subprocess.Popen[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def command(*words: str) -> tuple[int, str, str]:
    """Status, stdout and stderr of a command line, in this process."""
    kept, out, err = sys.argv, *(io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    sys.argv = ["recommend", *words]
    status = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as stop:
            status = int(stop.code or 0)
        finally:
            sys.argv = kept
            gc.enable()
    for stream in (out, err):
        stream.seek(0)
    return status, out.read(), err.read()


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files by their paths below a folder, which is returned."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def run_program(words: Sequence[str], **more: Any) -> subprocess.CompletedProcess[str]:
    """A program's status and what it wrote, as text."""
    return subprocess.run(words, capture_output=True, text=True, check=False, **more)


def plan_json(*words: str, code: int = 0) -> Any:
    """What ``recommend plan --json`` prints, which ends with this status."""
    status, out, err = command("plan", *words, "--json")
    assert status == code, err
    return json.loads(out)


def recommend_here(*words: str) -> subprocess.CompletedProcess[bytes]:
    """What ``recommend_process`` returns, in this process: for tests of what a command says."""
    with contextlib.chdir(KNOWLEDGE.parent):
        status, out, err = command(*words)
    return subprocess.CompletedProcess(words, status, out.encode(), err.encode())


def recommend_process(
    *words: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "recommender", *words],
        env=dict(environment) if environment is not None else {**os.environ, "PYTHONPATH": str(KNOWLEDGE.parent)},
        cwd=cwd or KNOWLEDGE.parent,
        capture_output=True,
        timeout=60,
        check=False,
    )
