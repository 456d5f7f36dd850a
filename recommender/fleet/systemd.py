"""Write a host's servers and load balancer as systemd units with their environment files."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from recommender.common.errors import RequestError
from recommender.common.text import masked
from recommender.fleet import compose, front

if TYPE_CHECKING:
    from recommender.fleet.layout import Layout

UNITS = ("lmdeploy@.service", "lmdeploy-front.service", "lmdeploy.target")
ENVIRONMENT = ("server.env", "front.env")
FETCH = "lmdeploy-fetch.service"
MPS = "lmdeploy-mps.service"
KEYS = "# One API key a line. They are asked for where front.env sets API_KEYS_FILE.\n"


def assigned(value: str, name: str) -> str:
    """Return a value of an EnvironmentFile, quoted.

    Raises RequestError for control characters.
    """
    if not value.isprintable():
        shown = masked(value[:60])
        raise RequestError(f"{name} is {shown!r}; an environment file cannot hold control characters; rename it")
    return '"' + re.sub(r'([\\"$`])', r"\\\1", value) + '"'


def files(layout: Layout) -> dict[str, str]:
    """Return units, environment files and the load balancer's configuration.

    Raises RequestError for a value that these files cannot hold.
    """
    config = layout.recommendation.config
    names = compose.context(layout) | {"assigned": assigned, "form": "systemd"}
    optional = [*([] if names["local"] else [FETCH]), *([MPS] if config.share > 1 else [])]
    texts = compose.render(names, *UNITS, *ENVIRONMENT, compose.ROLLOUT, front.README, *optional)
    for number, gpus, before in compose.place_servers(layout):
        texts[f"server-{number}.env"] = (
            f"# Server {number}: its cards by number or UUID, and its port, which haproxy.cfg has too.\n"
            f"CUDA_VISIBLE_DEVICES={','.join(map(str, gpus))}\nSERVER_PORT={config.port + number}\n"
        )
        if before is not None:
            texts[f"lmdeploy@{number}.service.d/order.conf"] = (
                "# Servers of a card start one after the other: each takes its cache from what is free then.\n"
                f"[Unit]\nAfter=lmdeploy@{before}.service\n"
            )
    return texts | {"api-keys": KEYS} | front.files(layout)
