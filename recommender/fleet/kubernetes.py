"""Write a fleet as plain Kubernetes manifests under kustomize."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from recommender.common.errors import RequestError
from recommender.common.text import count
from recommender.common.units import GIB
from recommender.fleet import cores, front, monitoring
from recommender.fleet.autoscaling import scale
from recommender.knowledge.conditions import version
from recommender.knowledge.eras import within
from recommender.knowledge.names import PART
from recommender.knowledge.startup_times import describe_longest_start, longest_start
from recommender.render import quoting, template

if TYPE_CHECKING:
    from jinja2 import Environment

    from recommender.choose.recommend import Recommendation
    from recommender.fleet.layout import Layout

TEMPLATES = "fleet/"
ALWAYS = (
    "kustomization",
    "serviceaccount",
    "models",
    "deployment",
    "front",
    "service",
    "pdb",
    "networkpolicy",
    "secret.example",
    "monitoring/kustomization",
    "monitoring/podmonitor",
    "monitoring/rules",
    "keda/kustomization",
    "keda/scaledobject",
    "hpa/kustomization",
    "hpa/hpa",
    "gateway/kustomization",
    "gateway/route",
    "cache/kustomization",
    "cache/server",
)
CHART = ("Chart.yaml", "values.yaml", "values.schema.json", "templates/fleet.tpl", ".helmignore")
"""The same folder as a Helm chart: its template reads the other files."""
DASHBOARD = "monitoring/dashboard.json"
MODELS = "/models"
SERVERS = "lmdeploy-servers"
"""The headless Service: its name resolves to the address of each pod that is ready."""

MOST_PODS = 500
"""Addresses that a DNS answer of 8192 bytes holds, 16 bytes each: what the load balancer accepts."""

STARTS = 3
"""Multiple of the longest measured start, for slower or busier hosts."""
VOLUME_BYTES_S = 100 * 10**6
"""Assumed read rate of a network volume."""
PULL_S = 900
PERIOD_S = 10
ANSWERS_S = 12
"""/health answers within 10 s at the latest."""
DRAIN_S = 40
"""How long the load balancer may use an address that is no longer ready: DNS answers may be 30 s old."""
FRONT_DRAIN_S = 15
FRONTS = 2
MARGIN_S = 15
FRONT_MIB = 256
CONNECTION_KIB = 64
"""Memory of the load balancer for each request it holds: buffers of both sides, including the system's."""
BASE_GIB = 8
"""Host memory of a server without the weights: Python, PyTorch, CUDA. Not measured."""
CPU_SHARE = 0.9
"""Share of a host's cores that its servers request at most; the host and its daemons need the rest."""
PINNED = "host-memory-of-image-buffers"
PINNED_BYTES = 2 * 3 * 448 * 448 * 2
"""Bytes for each token of a pass and each GPU: two tiles of three 16-bit colours."""
HEALTH = "health-says-ok-while-dead"
LABEL_LONGEST = 63

CITES = {
    "authentication": "0.18.0 lmdeploy/serve/utils/server_utils.py:103",
    "semaphore": "0.18.0 lmdeploy/serve/openai/api_server.py:166",
    "weights": "0.18.0 lmdeploy/turbomind/checkpoint.py:207",
}


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a pod and its name."""

    name: str
    number: int


@dataclass(frozen=True)
class Size:
    """The numbers in the manifests, with reasons.

    A pod has ``share`` servers on ``tp`` GPUs.
    """

    pods: int
    spare: int
    spare_why: str
    ports: tuple[Port, ...]
    cpu_milli: int
    memory_gib: int
    memory_why: str
    shm_gib: int
    weights_gib: int
    volume_gib: int
    startup_s: int
    slowest_s: int
    products: tuple[str, ...]
    part: bool
    health_probes_engine: bool
    sharing: str
    replicas_why: str
    cpus_why: str
    startup_why: str
    probe_timeout_s: int
    startup_period_s: int = PERIOD_S
    drain_s: int = DRAIN_S
    front_drain_s: int = FRONT_DRAIN_S

    @property
    def startup_failures(self) -> int:
        """Failures of the startup probe before the pod is restarted."""
        return math.ceil(self.startup_s / self.startup_period_s)

    @property
    def grace_s(self) -> int:
        """Seconds from the signal to stop until the kill."""
        return self.drain_s + self.slowest_s + MARGIN_S

    @property
    def deadline_s(self) -> int:
        """Seconds within which a rollout must make progress."""
        return self.startup_failures * self.startup_period_s + self.grace_s + PULL_S


def files(layout: Layout) -> dict[str, str]:
    """Return the manifests by their path below the output folder.

    Raises RequestError for a model's name that Kubernetes cannot hold, and for too many pods.
    """
    if (most := pods(layout)) > MOST_PODS:
        raise RequestError(
            f"--format k8s: the load balancer finds at most {MOST_PODS} pods by DNS, and this fleet has {most:,}; "
            "plan several fleets, each for a part of --rps"
        )
    names = _names(layout)
    names |= monitoring.context(layout, names["limits"]) | {"scale": scale(layout, names["size"]), "form": "k8s"}
    names["host_pods"] = pods(layout) // layout.hosts
    manifests = [f"{manifest}.yaml" for manifest in (*ALWAYS, *(["download"] if names["hub"] else []))]
    paths = (
        *(f"k8s/{name}" for name in (*manifests, DASHBOARD, *CHART, front.NAME)),
        front.STARTER,
        front.LUA,
        front.README,
    )
    return {
        path.removeprefix("k8s/"): _environment().get_template(f"{TEMPLATES}{path}.j2").render(names) for path in paths
    }


def ports(layout: Layout) -> tuple[Port, ...]:
    """Return the ports of each pod, one for each server in it."""
    config = layout.recommendation.config
    return tuple(
        Port(f"http-{number + 1}" if number else "http", config.port + number) for number in range(config.share)
    )


def pods(layout: Layout) -> int:
    """Return the pods of all hosts: each has ``tp`` GPUs, and the servers that share them."""
    return layout.servers // layout.recommendation.config.share


def quoted(value: object) -> str:
    """Return a value as a double-quoted YAML scalar of ASCII.

    Raises RequestError for what is no text.
    """
    text = str(value)
    try:
        if "\0" in text:
            raise ValueError
        return quoting.yaml(text)
    except ValueError:
        raise RequestError("--format k8s: a manifest cannot hold the model's name; rename its folder") from None


def kube(value: object) -> str:
    """Return a variable's value, quoted so that Kubernetes expands nothing."""
    return quoted(str(value).replace("$", "$$"))


def products(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return a GPU's labels in NVIDIA's feature discovery, from its driver names."""
    labels = ("-".join(re.sub(r"[^A-Za-z0-9\-_. ]", "", name).split()) for name in names)
    return tuple(dict.fromkeys(label for label in labels if 0 < len(label) <= LABEL_LONGEST))


@cache
def _environment() -> Environment:
    environment = template.environment().overlay()
    environment.filters = environment.filters | {"yaml": quoted, "kube": kube, "json": json.dumps}
    return environment


def _names(layout: Layout) -> dict[str, Any]:
    """Return the names that the templates see."""
    recommendation = layout.recommendation
    names = template.context(recommendation)
    setting = names["setting"]
    placed = {setting[name] for name in ("server_name", "port", "proxy_url", "revision") if name in setting}
    source, folder = recommendation.resolved.model_source, recommendation.resolved.local
    health = recommendation.resolved.store.threads[HEALTH].code[0]
    probed = "0.18.0 lmdeploy/serve/core/health.py:20"
    size = _size(layout)
    limits = front.limits(layout)
    at_server, queue = math.ceil(limits.running / FRONTS) + limits.waiting, math.ceil(limits.queue / FRONTS)
    held = at_server * layout.servers + queue
    return names | {
        "size": size,
        "fleet": layout.describe(),
        "limits": limits,
        "front_limit": at_server,
        "front_queue": queue,
        "front_held": held,
        "front_mib": math.ceil((FRONT_MIB + held * CONNECTION_KIB / 1024) / 128) * 128,
        "connection_kib": CONNECTION_KIB,
        "front_port": front.PORT,
        "stats_port": front.STATS_PORT,
        "front_image": front.IMAGE,
        "front_image_source": front.IMAGE_SOURCE,
        "fronts": FRONTS,
        "hosts": 1,
        "server_count": layout.servers,
        "slots": size.pods + max(4, size.pods // 4),
        "servers_name": SERVERS,
        "answers_s": ANSWERS_S,
        "timeout_s": front.client_timeout_s(recommendation),
        "count": count,
        "flags": [option for option in names["flags"] if option.option not in placed],
        "model": f"{MODELS}/{source.rstrip('/').rpartition('/')[2]}" if folder else source,
        "hub": not folder,
        "cites": CITES
        | {"health": probed if size.health_probes_engine else f"{health.release} {health.path}:{health.line}"},
    }


def _size(layout: Layout) -> Size:
    recommendation, config, resolved = (
        layout.recommendation,
        layout.recommendation.config,
        layout.recommendation.resolved,
    )
    host_pods = config.servers // config.share
    most_down, spare_why = layout.most_down
    model_bytes = template.model_bytes(recommendation)
    weights = math.ceil(model_bytes / GIB)
    memory, memory_why = _memory(recommendation, weights)
    cpu_milli, cpus_why = _cpus(layout, host_pods)
    return Size(
        pods=pods(layout),
        spare=max(1, most_down // config.share),
        spare_why=spare_why,
        ports=ports(layout),
        cpu_milli=cpu_milli,
        memory_gib=memory,
        memory_why=memory_why,
        shm_gib=config.tp,
        weights_gib=weights,
        volume_gib=max(20, 2 * weights + 10),
        startup_s=math.ceil(config.share * STARTS * longest_start(config.backend) + model_bytes / VOLUME_BYTES_S),
        slowest_s=front.client_timeout_s(recommendation),
        products=products(resolved.gpu.nvml_names),
        part=PART in resolved.gpu.id,
        health_probes_engine=resolved.version >= version(resolved.store.threads[HEALTH].until),
        sharing=f"A pod has {config.share} servers on {count(config.tp, 'card')}, under CUDA MPS in the same "
        "container: NVIDIA's toolkit puts its programs there. Nobody has run this form.",
        replicas_why=f"{count(layout.hosts, 'host')} x {count(host_pods, 'pod')}.",
        cpus_why=cpus_why,
        probe_timeout_s=ANSWERS_S * config.share + 3,
        startup_why=f"{STARTS} times {describe_longest_start(config.backend)}"
        f"{f' for each of {config.share} servers' if config.share > 1 else ''}, and {weights} GiB at "
        f"{VOLUME_BYTES_S // 10**6} MB/s: raise failureThreshold for a slower volume.",
    )


def _cpus(layout: Layout, host_pods: int) -> tuple[int, str]:
    """Return the CPU request of a pod in thousandths of a core, and the reason."""
    recommendation, config = layout.recommendation, layout.recommendation.config
    rate = layout.rps or recommendation.speed.rps.value / config.servers
    needed, mean = (
        config.share
        * (
            cores.idle_cores(recommendation.resolved, config, end)
            + rate * cores.request_cores(recommendation.resolved, config, end)
        )
        for end in ("high", "value")
    )
    cpus = recommendation.request.cpus
    most = CPU_SHARE * cpus / host_pods
    why = (
        f"At {rate * config.share:.3g} requests/s, {'the peak' if layout.rps else 'the most predicted'}, "
        f"{mean:.1f} cores are busy in the mean of what runs measured, {needed:.1f} at the high end. "
    )
    if needed <= most:
        return max(100, math.ceil(needed * 10) * 100), f"{why}This asks for the high end."
    return max(100, int(most * 10) * 100), (
        f"{why}A host has {count(cpus, 'core')} for {count(host_pods, 'pod')}: this asks for {CPU_SHARE:.0%} of that."
    )


def _memory(recommendation: Recommendation, weights: int) -> tuple[int, str]:
    """Return the GiB of host memory of a pod, and why."""
    config, resolved = recommendation.config, recommendation.resolved
    thread = resolved.store.threads[PINNED]
    pinned = 0
    if resolved.vision is not None and within(thread.since, thread.until, resolved.version):
        tokens = config.prefill_tokens + config.max_batch_size
        pinned = math.ceil(config.share * config.tp * tokens * PINNED_BYTES / GIB)
    buffers = f", {pinned} for images' page-locked buffers of this release ({thread.thread.url})" if pinned else ""
    return weights + BASE_GIB * config.share + config.tp + pinned, (
        f"All {weights} GiB of weights pass through host memory at the start. Each server takes {BASE_GIB} GiB more "
        f"(assumed, not measured), /dev/shm {config.tp}{buffers}. The limit equals the request: a host can share "
        "cores, but not memory."
    )
