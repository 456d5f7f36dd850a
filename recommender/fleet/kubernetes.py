"""A fleet as plain Kubernetes manifests under kustomize. What they say follows from one host's recommendation."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from recommender import render
from recommender.checkpoint import is_folder, looks_like_path
from recommender.conditions import version
from recommender.facts import GIB, within
from recommender.fleet import front
from recommender.fleet.compose import longest_start
from recommender.request import RequestError
from recommender.store import PART

if TYPE_CHECKING:
    from jinja2 import Environment

    from recommender.fleet.layout import Layout
    from recommender.pipeline import Recommendation

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
)
MODELS = "/models"
SERVERS = "lmdeploy-servers"
"""The headless Service: its name resolves to the address of each pod that is ready."""

STARTS = 3
"""Times the slowest measured start, for hosts that are slower or busy."""
VOLUME_BYTES_S = 100 * 10**6
"""What a volume over the network is taken to read in a second."""
PULL_S = 900
PERIOD_S = 10
ANSWERS_S = 12
"""/health answers within 10 s at the latest."""
DRAIN_S = 40
"""How long the front may go on with an address that is no longer ready: what DNS says may be 30 s old."""
FRONT_DRAIN_S = 15
FRONTS = 2
MARGIN_S = 15
FRONT_MIB = 256
CONNECTION_KIB = 64
"""Memory of the front for a request that it holds: buffers of both sides, the system's included."""
BASE_GIB = 8
"""Host memory of a server beside the weights: Python, PyTorch, CUDA. Nobody measured it."""
CPU_SHARE = 0.9
"""Of the cores that the prediction gave to a server; the rest is the host's own and what runs on every host."""
PINNED = "host-memory-of-image-buffers"
PINNED_BYTES = 2 * 3 * 448 * 448 * 2
"""For each token of a pass and each card: two tiles of three 16-bit colours."""
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
    """Numbers of the manifests and why they are what they are. A pod has ``share`` servers on ``tp`` cards."""

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
    fleet: str
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
        """From the word to end until the kill."""
        return self.drain_s + self.slowest_s + MARGIN_S

    @property
    def deadline_s(self) -> int:
        """Within which a rollout must have moved on."""
        return self.startup_failures * self.startup_period_s + self.grace_s + PULL_S


def files(layout: Layout) -> dict[str, str]:
    """The manifests by their path below the output folder.

    Raises RequestError for a model's name that Kubernetes cannot hold.
    """
    seen = _seen(layout)
    names = [*ALWAYS, *(["download"] if seen["hub"] else [])]
    return {f"{name}.yaml": _render(f"k8s/{name}.yaml", seen) for name in names} | {
        front.NAME: _render(f"k8s/{front.NAME}", seen)
    }


def ports(layout: Layout) -> tuple[Port, ...]:
    """The ports of each pod, one for each server in it."""
    config = layout.found.config
    return tuple(Port("http" if at == 0 else f"http-{at + 1}", config.port + at) for at in range(config.share))


def pods(layout: Layout) -> int:
    """Pods of all hosts: each has ``tp`` cards, and the servers that share them."""
    return layout.servers // layout.found.config.share


def quoted(value: object) -> str:
    """A value as a double-quoted YAML scalar of ASCII, whatever it holds. Raises RequestError for what is no text."""
    return '"' + "".join(map(_escaped, str(value))) + '"'


def _escaped(char: str) -> str:
    code = ord(char)
    if char in '"\\':
        return "\\" + char
    if 0x20 <= code < 0x7F:
        return char
    if code == 0 or 0xD800 <= code < 0xE000:
        raise RequestError("--format k8s: the model's name is no text that a manifest holds; rename its folder")
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def kube(value: object) -> str:
    """A value of a variable, quoted, in which Kubernetes replaces nothing: it makes one of two dollar signs."""
    return quoted(str(value).replace("$", "$$"))


def products(names: tuple[str, ...]) -> tuple[str, ...]:
    """What NVIDIA's GPU feature discovery calls cards, for each name that the driver has for them."""
    made = ("-".join(re.sub(r"[^A-Za-z0-9\-_. ]", "", name).split()) for name in names)
    return tuple(dict.fromkeys(each for each in made if 0 < len(each) <= LABEL_LONGEST))


@cache
def _environment() -> Environment:
    made = render.environment().overlay()
    made.filters = made.filters | {"yaml": quoted, "kube": kube}
    return made


def _render(name: str, seen: dict[str, Any]) -> str:
    return _environment().get_template(f"{TEMPLATES}{name}.j2").render(seen)


def _seen(layout: Layout) -> dict[str, Any]:
    """What the templates see."""
    found = layout.found
    seen = render.context(found)
    setting = seen["setting"]
    placed = {setting[each] for each in ("server_name", "port", "proxy_url", "revision") if each in setting}
    source = found.facts.model_source
    folder = is_folder(source) or looks_like_path(source)
    health = found.facts.store.threads[HEALTH].code[0]
    probed = "0.18.0 lmdeploy/serve/core/health.py:20"
    size = _size(layout)
    limits = front.limits(layout)
    at_server, queue = math.ceil(limits.running / FRONTS) + limits.waiting, math.ceil(limits.queue / FRONTS)
    held = at_server * layout.servers + queue
    return seen | {
        "size": size,
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
        "timeout_s": front.client_timeout_s(found),
        "count": render.count,
        "flags": [each for each in seen["flags"] if each.option not in placed],
        "model": f"{MODELS}/{source.rstrip('/').rpartition('/')[2]}" if folder else source,
        "hub": not folder,
        "cites": CITES
        | {"health": probed if size.health_probes_engine else f"{health.release} {health.path}:{health.line}"},
    }


def _size(layout: Layout) -> Size:
    found, config, facts = layout.found, layout.found.config, layout.found.facts
    a_host = config.servers // config.share
    spare, spare_why = _out(layout, a_host)
    weights = math.ceil(render.model_bytes(found) / GIB)
    memory, memory_why = _memory(found, weights)
    startup = config.share * STARTS * longest_start() + render.model_bytes(found) / VOLUME_BYTES_S
    cpu = max(100, int(CPU_SHARE * 1000 * found.request.cpus / a_host) // 100 * 100)
    return Size(
        pods=pods(layout),
        spare=spare,
        spare_why=spare_why,
        ports=ports(layout),
        cpu_milli=cpu,
        memory_gib=memory,
        memory_why=memory_why,
        shm_gib=config.tp,
        weights_gib=weights,
        volume_gib=max(20, 2 * weights + 10),
        startup_s=math.ceil(startup),
        slowest_s=front.client_timeout_s(found),
        products=products(facts.gpu.nvml_names),
        part=PART in facts.gpu.id,
        health_probes_engine=facts.version >= version(facts.store.threads[HEALTH].until),
        fleet=f"Fleet: {render.count(layout.servers, 'server')} on {render.count(layout.hosts, 'host')} "
        f"with {render.count(config.cards, 'card')} each.",
        sharing=f"A pod has {config.share} servers on {render.count(config.tp, 'card')}, under CUDA MPS in the same "
        "container: NVIDIA's toolkit puts its programs there. Nobody has run this form.",
        replicas_why=f"{render.count(layout.hosts, 'host')} x {render.count(a_host, 'pod')}.",
        cpus_why=f"The prediction is for {render.count(found.request.cpus, 'core')} and {render.count(a_host, 'pod')} "
        f"on a host; {CPU_SHARE:.0%} of that, for a host needs some itself.",
        probe_timeout_s=ANSWERS_S * config.share + 3,
        startup_why=f"{STARTS} times the longest start measured ({longest_start():.0f} s, warm disk)"
        f"{f' for each of {config.share} servers' if config.share > 1 else ''}, and {weights} GiB at "
        f"{VOLUME_BYTES_S // 10**6} MB/s: raise failureThreshold for a slower volume.",
    )


def _out(layout: Layout, a_host: int) -> tuple[int, str]:
    """Pods that an update or a drain may take down together, and why; at least one, or nothing would ever change."""
    spare = min(layout.spare, layout.hosts - 1)
    if not spare:
        return 1, "One at a time: no host is to spare."
    if spare == 1:
        return a_host, "The pods of one host, which the fleet can be without."
    what = f"The pods of {render.count(spare - 1, 'host')}"
    return a_host * (spare - 1), f"{what}: of {spare} to spare, one is kept for a failure."


def _memory(found: Recommendation, weights: int) -> tuple[int, str]:
    """GiB of host memory of a pod, and why."""
    config, facts = found.config, found.facts
    thread = facts.store.threads[PINNED]
    pinned = 0
    if facts.vision is not None and within(thread.since, thread.until, facts.version):
        tokens = config.prefill_tokens + config.max_batch_size
        pinned = math.ceil(config.share * config.tp * tokens * PINNED_BYTES / GIB)
    why = f"All {weights} GiB of weights pass through host memory at the start, {BASE_GIB} GiB a server besides "
    why += f"(nobody measured that), {config.tp} for /dev/shm"
    if pinned:
        why += f", {pinned} for images' page-locked buffers of this release ({thread.thread.url})"
    why += ". The limit is as high: it is memory, not cores, that a host cannot lend."
    return weights + BASE_GIB * config.share + config.tp + pinned, why
