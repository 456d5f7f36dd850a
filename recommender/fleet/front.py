"""The front of a fleet: HAProxy's configuration, with limits from what was predicted.

Why HAProxy and neither LMDeploy's proxy nor nginx: tests/test_fleet_front.py kills one of two servers under load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recommender import render
from recommender.facts import MIB
from recommender.request import RequestError

if TYPE_CHECKING:
    from recommender.fleet.layout import Layout
    from recommender.pipeline import Recommendation

NAME = "haproxy.cfg"
TEMPLATE = "fleet/haproxy.cfg.j2"
IMAGE = "haproxy:3.4.2"
"""The official image of the newest release with long-term support."""
IMAGE_SOURCE = (
    "https://github.com/docker-library/haproxy/blob/ec437dd2a3656610b10a42c08763d8fa1c591efe/versions.json, "
    "opened 2026-11-21"
)
PORT = 8000
STATS_PORT = 8404
MOST_HOSTS = 32
"""More hosts than this are no longer kept by hand."""
LEAST_BODY = 8 * MIB
LOSSLESS_BYTES = 3 * 4 / 3
"""Bytes of a pixel in a PNG that cannot be packed, as base64."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What the front lets through: requests at a server, waiting here, seconds and bytes of one request."""

    running: int
    waiting: int
    queue: int
    queue_s: int
    answer_s: int
    body: int
    connections: int

    @property
    def at_server(self) -> int:
        """Requests at one server, those whose images it still prepares included."""
        return self.running + self.waiting


def limits(layout: Layout) -> Limits:
    """Limits of one front that deals out to all servers of the fleet."""
    found = layout.found
    running = found.config.max_batch_size
    waiting = max(4, math.ceil(running / 4))
    queue_s = max(10, math.ceil(client_timeout_s(found) / 2))
    # Never so few that a burst of one more batch for each server is refused.
    queue = max(running, math.ceil(found.speed.rps.value / found.config.servers * queue_s)) * layout.servers
    facts = found.facts
    pixels = facts.images * facts.image_width * facts.image_height
    body = max(LEAST_BODY, math.ceil(2 * (pixels * LOSSLESS_BYTES + 8 * facts.input_tokens()) / MIB) * MIB)
    return Limits(
        running=running,
        waiting=waiting,
        queue=queue,
        queue_s=queue_s,
        answer_s=max(60, math.ceil(found.speed.p99_ms.high * 10 / 1000)),
        body=body,
        connections=2 * ((running + waiting) * layout.servers + queue) + 100,
    )


def client_timeout_s(found: Recommendation) -> int:
    """What the client of ``--format client`` waits for an answer."""
    return int(max(30.0, round(found.speed.p99_ms.high * 5 / 1000)))


def servers(layout: Layout) -> list[tuple[str, str]]:
    """(name, address) of every server; a host's address is a variable where there are several.

    Raises RequestError for more hosts than anybody keeps by hand.
    """
    if layout.hosts > MOST_HOSTS:
        raise RequestError(f"{layout.hosts} hosts are too many for files kept by hand; take --format k8s")
    config = layout.found.config
    return [
        (
            f"host{host}-server{number}" if layout.hosts > 1 else f"server{number}",
            f"{f'${{HOST_{host}}}' if layout.hosts > 1 else '127.0.0.1'}:{config.port + number}",
        )
        for host in range(1, layout.hosts + 1)
        for number in range(config.servers)
    ]


def context(layout: Layout) -> dict[str, Any]:
    """What the templates of hosts see beside what those of one launch see."""
    return render.context(layout.found) | {
        "hosts": layout.hosts,
        "servers": servers(layout),
        "server_count": layout.servers,
        "limits": limits(layout),
        "timeout_s": client_timeout_s(layout.found),
        "front_port": PORT,
        "stats_port": STATS_PORT,
        "front_image": IMAGE,
        "front_image_source": IMAGE_SOURCE,
        "count": render.count,
    }


def files(layout: Layout) -> dict[str, str]:
    """The configuration of the front, the same on every host. Raises RequestError for too many hosts."""
    return {NAME: render.environment().get_template(TEMPLATE).render(context(layout))}
