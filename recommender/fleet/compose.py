"""A host's servers and front as a compose file."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from recommender import render
from recommender.conditions import version
from recommender.fleet import front
from recommender.request import RequestError

if TYPE_CHECKING:
    from recommender.fleet.layout import Layout
    from recommender.pipeline import Recommendation

NAME = "compose.yaml"
TEMPLATE = "fleet/compose.yaml.j2"
COLD_BYTES_PER_S = 200e6
"""A slow network disk."""
STARTS = 4
"""The longest measured start so often: other models, busier hosts."""
HEALTH_TELLS = "0.14.0"
"""From here /health asks the engine: knowledge/threads/health-says-ok-while-dead."""
# What stands between the braces of ${NAME:-...} and means itself.
PLAIN = re.compile(r"[A-Za-z0-9_./:@%+=, ~-]+")


def quoted(text: str) -> str:
    """A text as YAML's double-quoted scalar, whatever it holds. Raises RequestError for what is no Unicode text."""
    made = []
    for each in text:
        code = ord(each)
        if 0xD800 <= code <= 0xDFFF:
            shown = "".join(one if one.isprintable() else "?" for one in text[:60])
            raise RequestError(f"{shown!r} is no valid text, so it cannot stand in YAML; rename it")
        if each in '"\\':
            made.append("\\" + each)
        elif " " <= each <= "~":
            made.append(each)
        else:
            made.append(f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")
    return f'"{"".join(made)}"'


def given(name: str, value: object) -> str:
    """A value that a variable overrides. One with signs that compose reads stands alone, as it is."""
    text = str(value)
    if PLAIN.fullmatch(text):
        return f'"${{{name}:-{text}}}"'
    return quoted(text.replace("$", "$$"))


def own(found: Recommendation) -> frozenset[str]:
    """Options that a host's files give themselves: the address of each server; there is no proxy to register with."""
    settings = {each.setting: each.id for each in found.facts.store.options() if each.setting}
    return frozenset(settings[name] for name in ("server_name", "port", "proxy_url") if name in settings)


def placed(layout: Layout) -> list[tuple[int, range | list[int], int | None]]:
    """(number, cards, the server that must be up before) of each server of a host."""
    config = layout.found.config
    made: list[tuple[int, range | list[int], int | None]] = []
    for number in range(config.servers):
        if config.share > 1:
            made.append((number, [number % config.cards], number - config.cards if number >= config.cards else None))
        else:
            made.append((number, range(number * config.tp, (number + 1) * config.tp), None))
    return made


def patience_s(found: Recommendation) -> int:
    """Seconds that a start may take before it counts as failed."""
    return math.ceil(STARTS * longest_start() + render.model_bytes(found) / COLD_BYTES_PER_S)


def longest_start() -> float:
    """Seconds of the longest measured start."""
    from recommender.review.rules import lmd606_killed_while_loading as loading

    return loading.longest_start()


def context(layout: Layout) -> dict[str, Any]:
    """What the templates of a host's servers see."""
    found = layout.found
    return front.context(layout) | {
        "given": given,
        "own": own(found),
        "placed": placed(layout),
        "local": bool(found.facts.weight_bytes),
        "shm": f"{max(2, found.config.tp)}gb",
        "weights": render.model_bytes(found),
        "longest": longest_start(),
        "patience": patience_s(found),
        "gib": render.gib,
        "health_tells": found.facts.version >= version(HEALTH_TELLS),
    }


def files(layout: Layout) -> dict[str, str]:
    """The compose file and the front's configuration. Raises RequestError for what they cannot hold."""
    return {NAME: render.environment().get_template(TEMPLATE).render(context(layout)), **front.files(layout)}
