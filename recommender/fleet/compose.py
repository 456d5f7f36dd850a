"""Write a host's servers and load balancer as a compose file."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from recommender.common.errors import RequestError
from recommender.common.text import masked
from recommender.fleet import front
from recommender.knowledge.conditions import version
from recommender.knowledge.startup_times import describe_longest_start, longest_start
from recommender.render import quoting, template
from recommender.render.summary import gib

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.fleet.layout import Layout

NAME, ROLLOUT = "compose.yaml", "rollout.sh"
COLD_BYTES_PER_S = 200e6
"""A slow network disk."""
STARTS = 4
"""Multiple of the longest measured start, for other models and busier hosts."""
HEALTH_TELLS = "0.14.0"
"""From here /health asks the engine: knowledge/threads/health-says-ok-while-dead."""
# Text that is literal between the braces of ${NAME:-...}.
PLAIN = re.compile(r"[A-Za-z0-9_./:@%+=, ~-]+")


def quoted(text: str) -> str:
    """Return a text as YAML's double-quoted scalar.

    Raises RequestError for what is no Unicode text.
    """
    try:
        return quoting.yaml(text)
    except ValueError:
        shown = masked(text[:60])
        raise RequestError(f"{shown!r} is not valid Unicode, so YAML cannot hold it; rename it") from None


def overridable(name: str, value: object) -> str:
    """Return a value that a variable overrides, if compose can read it so."""
    text = str(value)
    return f'"${{{name}:-{text}}}"' if PLAIN.fullmatch(text) else quoted(text.replace("$", "$$"))


def host_options(recommendation: Recommendation) -> frozenset[str]:
    """Return the options that a host's files set themselves: addresses, no proxy."""
    options = recommendation.resolved.store.options()
    return frozenset(option.id for option in options if option.setting in ("server_name", "port", "proxy_url"))


def place_servers(layout: Layout) -> list[tuple[int, range | list[int], int | None]]:
    """Return (number, GPUs, the server that must be up before) of each server of a host."""
    config = layout.recommendation.config
    if config.share == 1:
        return [(number, range(number * config.tp, (number + 1) * config.tp), None) for number in range(config.servers)]
    gpus = config.cards
    return [(number, [number % gpus], number - gpus if number >= gpus else None) for number in range(config.servers)]


def patience_s(recommendation: Recommendation) -> int:
    """Return the seconds that a start may take before it counts as failed."""
    longest = longest_start(recommendation.config.backend)
    return math.ceil(STARTS * longest + template.model_bytes(recommendation) / COLD_BYTES_PER_S)


def context(layout: Layout) -> dict[str, Any]:
    """Return the names that the templates of a host's servers see."""
    recommendation = layout.recommendation
    resolved = recommendation.resolved
    return front.context(layout) | {
        "given": overridable,
        "own": host_options(recommendation),
        "placed": place_servers(layout),
        "local": resolved.local,
        "shm": f"{max(2, recommendation.config.tp)}gb",
        "weights": template.model_bytes(recommendation),
        "longest": describe_longest_start(recommendation.config.backend),
        "patience": patience_s(recommendation),
        "gib": gib,
        "health_tells": resolved.version >= version(HEALTH_TELLS),
        "most_down": layout.most_down[0],
        "rollout_why": layout.most_down[1],
    }


def render(names: dict[str, Any], *files: str) -> dict[str, str]:
    """Return files of ``templates/fleet``, filled."""
    return {name: template.environment().get_template(f"fleet/{name}.j2").render(names) for name in files}


def files(layout: Layout) -> dict[str, str]:
    """Return the compose file, the rollout script, the README and the load balancer's configuration.

    Raises RequestError for a value that these files cannot hold.
    """
    return render(context(layout) | {"form": "compose"}, NAME, ROLLOUT, front.README) | front.files(layout)
