"""A host's servers and front as systemd units with their environment files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recommender import render
from recommender.fleet import compose, front
from recommender.request import RequestError

if TYPE_CHECKING:
    from recommender.fleet.layout import Layout

UNITS = ("lmdeploy@.service", "lmdeploy-front.service", "lmdeploy.target")
ENVIRONMENT = ("server.env", "front.env")
FETCH = "lmdeploy-fetch.service"
MPS = "lmdeploy-mps.service"
KEYS = "# One API key a line. They are asked for where front.env sets API_KEYS_FILE.\n"


def assigned(value: str, name: str) -> str:
    """A value of an EnvironmentFile, quoted. Raises RequestError for what no line of it holds."""
    if not value.isprintable():
        shown = "".join(each if each.isprintable() else "?" for each in value[:60])
        raise RequestError(f"{name} is {shown!r}, and an environment file holds no control characters; rename it")
    for each in ("\\", '"', "$", "`"):
        value = value.replace(each, "\\" + each)
    return f'"{value}"'


def files(layout: Layout) -> dict[str, str]:
    """Units, environment files and the front's configuration. Raises RequestError for what they cannot hold."""
    config = layout.found.config
    seen = compose.context(layout) | {"assigned": assigned}
    names = [*UNITS, *ENVIRONMENT]
    names += [] if seen["local"] else [FETCH]
    names += [MPS] if config.share > 1 else []
    made = {name: render.environment().get_template(f"fleet/{name}.j2").render(seen) for name in names}
    for number, cards, before in compose.placed(layout):
        made[f"server-{number}.env"] = (
            f"# Server {number}: its cards by number or UUID, and its port, which haproxy.cfg has too.\n"
            f"CUDA_VISIBLE_DEVICES={','.join(map(str, cards))}\nSERVER_PORT={config.port + number}\n"
        )
        if before is not None:
            made[f"lmdeploy@{number}.service.d/order.conf"] = (
                "# Servers of a card start one after the other: each takes its cache from what is free then.\n"
                f"[Unit]\nAfter=lmdeploy@{before}.service\n"
            )
    return made | {"api-keys": KEYS} | front.files(layout)
