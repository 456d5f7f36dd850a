"""Write HAProxy's configuration for a fleet, with limits from the prediction.

Why HAProxy and neither LMDeploy's proxy nor nginx: tests/test_fleet_front.py kills one of two servers under load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recommender.common.errors import RequestError
from recommender.common.text import count
from recommender.common.units import MIB
from recommender.estimate.arrivals import places
from recommender.render import template

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.fleet.layout import Layout

NAME = "haproxy.cfg"
STARTER = "front.sh"
"""Starts HAProxy with the API keys, as every script reads them."""
LUA = "front.lua"
"""Answers refused requests once their bodies are read."""
IMAGE = "haproxy:3.4.2"
"""The official image of the newest release with long-term support."""
IMAGE_SOURCE = (
    "https://github.com/docker-library/haproxy/blob/ec437dd2a3656610b10a42c08763d8fa1c591efe/versions.json, "
    "opened 2026-11-21"
)
FILES = (NAME, STARTER, LUA)
README = "README.md"
"""The page that explains a folder's files and commands."""
PORT = 8000
STATS_PORT = 8404
MOST_HOSTS = 32
"""Hosts above which nobody keeps files by hand."""
LEAST_BODY, LEAST_IMAGE_BODY = 8 * MIB, 32 * MIB
LOSSLESS_BYTES = 3 * 4 / 3
"""Bytes of a pixel in an incompressible PNG, as base64."""
IDLE_CONNECTIONS = 4000
"""Connections beyond those of requests: idle ones, and clients that are slow."""
LEAST_WAIT_MS = 50


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the load balancer for requests, their time and their size."""

    running: int
    waiting: int
    running_why: str
    queue: int
    queue_ms: int
    queue_why: str
    answer_s: int
    drain_s: int
    body: int
    body_why: str
    connections: int

    @property
    def at_server(self) -> int:
        """Requests at one server, including those that it still prepares."""
        return self.running + self.waiting

    @property
    def retry_s(self) -> int:
        """Seconds after which a client that was refused may try again."""
        return max(1, math.ceil(self.queue_ms / 1000))


def limits(layout: Layout) -> Limits:
    """Return the limits of one load balancer for all servers of the fleet."""
    recommendation = layout.recommendation
    resolved, speed = recommendation.resolved, recommendation.speed
    batch = recommendation.config.max_batch_size
    at_server = layout.places or places(batch)
    running = batch * at_server // places(batch)
    patience = 500 * client_timeout_s(recommendation)
    queue_ms = max(LEAST_WAIT_MS, math.ceil(layout.wait_ms or patience))
    # Never so few that a burst, or one request for each server, is refused.
    completed = speed.rps.value / recommendation.config.servers * layout.servers * queue_ms / 1000
    queue = max(math.ceil(completed), 2 * layout.servers, math.ceil(4 * layout.burst))
    pixels = resolved.images * resolved.image_width * resolved.image_height
    needed = math.ceil(2 * (pixels * LOSSLESS_BYTES + 8 * resolved.input_tokens()) / MIB) * MIB
    least = LEAST_IMAGE_BODY if resolved.images else LEAST_BODY
    return Limits(
        running=running,
        waiting=at_server - running,
        running_why="its maximum batch size" if at_server == places(batch) else "with more, it would miss the goal",
        queue=queue,
        queue_ms=queue_ms,
        queue_why="A request that waits longer would miss the goal: it gets 503, so that it can be sent elsewhere."
        if layout.wait_ms
        else "A request that waits longer gets 503: half of what the client of recommend --format client waits in all.",
        answer_s=max(60, math.ceil(speed.p99_ms.high * 10 / 1000)),
        drain_s=client_timeout_s(recommendation),
        body=max(least, needed),
        body_why="twice its images in a lossless format as base64" if needed > least else "ample for this load",
        connections=2 * (at_server * layout.servers + queue) + IDLE_CONNECTIONS,
    )


def client_timeout_s(recommendation: Recommendation) -> int:
    """Return the whole seconds that the client of ``--format client`` waits for an answer."""
    return int(template.client_timeout_s(recommendation))


def servers(layout: Layout) -> list[tuple[str, str]]:
    """Return (name, address) of each server; of several hosts, a variable.

    Raises RequestError for more than MOST_HOSTS hosts.
    """
    if layout.hosts > MOST_HOSTS:
        raise RequestError(f"{layout.hosts} hosts are too many for files kept by hand; use --format k8s")
    config = layout.recommendation.config
    return [
        (
            f"host{host}-server{number}" if layout.hosts > 1 else f"server{number}",
            f"{f'${{HOST_{host}}}' if layout.hosts > 1 else '127.0.0.1'}:{config.port + number}",
        )
        for host in range(1, layout.hosts + 1)
        for number in range(config.servers)
    ]


def context(layout: Layout) -> dict[str, Any]:
    """Return the names that the templates of hosts see: those of one launch, and the fleet's."""
    return template.context(layout.recommendation) | {
        "fleet": layout.describe(),
        "hosts": layout.hosts,
        "servers": servers(layout),
        "server_count": layout.servers,
        "limits": limits(layout),
        "timeout_s": client_timeout_s(layout.recommendation),
        "front_port": PORT,
        "stats_port": STATS_PORT,
        "front_image": IMAGE,
        "front_image_source": IMAGE_SOURCE,
        "count": count,
    }


def files(layout: Layout) -> dict[str, str]:
    """Return the load balancer's configuration and what starts with it, the same on every host.

    Raises RequestError for too many hosts.
    """
    names = context(layout)
    return {name: template.environment().get_template(f"fleet/{name}.j2").render(names) for name in FILES}
