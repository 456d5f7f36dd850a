"""CPU time that the pods of a fleet request: against the cores of every run, and the hosts that clouds have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest
import yaml
from artefacts import found
from test_fleet_kubernetes import documents, pod

from recommender.api import plan
from recommender.fleet import cores, kubernetes
from recommender.fleet.layout import Layout, lay_out
from recommender.request.request import Request

ROOT = Path(__file__).parent.parent
HOSTS = yaml.safe_load((ROOT / "tests" / "cases" / "cloud_hosts.yaml").read_text())
KINDS = {"448x448": (448, 448), "1280x720": (1280, 720), "": (0, 0)}
MOST_OMP = 4
"""Threads of a server: what recommend sets, at most."""
FREE = 0.25
"""Cores of a host that its own daemons take."""


@cache
def measured() -> list[tuple[str, int, float, float, str]]:
    """Kind of load, GPUs, requests/s and cores of each phase of one server whose threads were limited, and its run."""
    made = []
    for path in sorted((ROOT / "knowledge" / "evidence").glob("*.yaml")):
        run = yaml.load(path.read_text(), yaml.CSafeLoader)
        threads = [
            int(each.partition("=")[2]) for each in run.get("environment", []) if each.startswith("OMP_NUM_THREADS=")
        ]
        if not threads or threads[0] > MOST_OMP or run.get("copies", 1) > 1 or run.get("servers", 1) > 1:
            continue
        for phase in run["phases"]:
            if phase.get("image", "") in KINDS and phase["window_s"] > 5 and not phase.get("failures"):
                rate = phase["window_requests"] / phase["window_s"]
                made.append((phase.get("image", ""), run.get("gpu_count", 1), rate, phase["server_cores"], run["id"]))
    return made


@cache
def predicted(image: str, tp: int) -> Any:
    """A server with this load."""
    width, height = KINDS[image]
    load = {"images": int(bool(image)), "image_width": width, "image_height": height}
    return found(gpu="h100-sxm-80g", gpu_count=tp, tp=tp, load="", concurrency=16, **load)


def shares(image: str, end: cores.End, tp: int) -> Iterator[float]:
    """Measured cores over those of the formula."""
    made = predicted(image, tp)
    idle, each = (count(made.resolved, made.config, end) for count in (cores.idle_cores, cores.request_cores))
    for kind, gpus, rate, busy, _ in measured():
        if (kind, gpus) == (image, tp):
            yield busy / (idle + rate * each)


@pytest.mark.parametrize("image", KINDS)
def test_the_high_end_holds_the_runs(image: str) -> None:
    """19 of 20 phases of each kind of load took no more, and none half as much again; the mean is in the middle."""
    high = list(shares(image, "high", 1))
    assert len(high) > 20
    assert mean(each <= 1 for each in high) >= 0.95
    assert max(high) < 1.5
    assert median(shares(image, "value", 1)) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("tp", [2, 4])
def test_each_gpu_has_a_thread_that_spins(tp: int) -> None:
    """Servers of several GPUs took as much for each, also almost idle."""
    all_of_them = [share for image in KINDS for share in shares(image, "high", tp)]
    assert all_of_them
    assert max(all_of_them) <= 1
    idle = [busy for _, gpus, rate, busy, _ in measured() if gpus == tp and rate < 6]
    assert idle
    assert min(idle) / tp > 1.1


def cpu(layout: Layout) -> float:
    (deployment,) = documents(kubernetes.files(layout)["deployment.yaml"])
    return int(pod(deployment)["containers"][0]["resources"]["requests"]["cpu"].removesuffix("m")) / 1000


def test_fifty_requests_a_second_of_an_h100() -> None:
    """What its runs took at that rate, and not a host's 16."""
    made = plan(Request(gpu="h100-sxm-80g", rps=100 / 3, p99_ms=3000.0), ["H100-80G"])
    layout = lay_out(made.fleets[0], made)
    assert layout.rps == pytest.approx(50, rel=0.05)
    took = [busy for image, gpus, rate, busy, _ in measured() if (image, gpus) == ("448x448", 1) and 45 < rate < 55]
    assert len(took) > 20
    assert max(took) <= cpu(layout) <= 1.3 * max(took)


@pytest.mark.parametrize("host", HOSTS, ids=[each["host"] for each in HOSTS])
@pytest.mark.parametrize("load", ["image", "picture", "text"])
@pytest.mark.usefixtures("few_simulated")
def test_pods_fit_the_smallest_hosts_of_clouds(host: dict[str, Any], load: str) -> None:
    """At the peak of a plan, with all its pods on the host."""
    asked = {
        "image": {},
        "picture": {"images": 1, "image_width": 1280, "image_height": 720},
        "text": {"images": 0, "model": "qwen2.5-7b-instruct-awq"},
    }[load]
    model = {"model": "internvl3-2b"} if host["gpu"] in ("t4", "v100-sxm2-16g") and load != "text" else {}
    made = plan(Request(gpu=host["gpu"], rps=200.0, **asked, **model), [f"{host['gpu']}:{host['gpus']}"])  # type: ignore[arg-type]
    if not made.fleets:
        pytest.skip("no fleet")
    layout = lay_out(made.fleets[0], made)
    pods = kubernetes.pods(layout) // layout.hosts
    assert pods * cpu(layout) <= host["vcpus"] - FREE


def test_a_host_is_never_asked_for_more_than_it_has() -> None:
    """A plan for few cores: nine tenths of them, and a comment that says why."""
    made = Layout(found(gpu="h100-sxm-80g", gpu_count=4, load="high", cpus=8), 2)
    assert cpu(made) == pytest.approx(0.9 * 8 / 4, abs=0.1)
    text = re.sub(r"\n *# ", " ", kubernetes.files(made)["deployment.yaml"])
    assert "A host has 8 cores for 4 pods: this asks for 90% of that." in text
