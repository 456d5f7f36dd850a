"""Parse the loads of ``--phase``."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from recommender.common.errors import RequestError
from recommender.request.command_line import parse_image, positive_int
from recommender.request.request import MAX_CONCURRENCY
from recommender.smoke.result import Load

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation

LOAD = re.compile(r"(?P<count>\d+)(?P<open>rps)?(?:@(?P<image>text|mix|\d+x\d+(?:x\d+)?))?", re.IGNORECASE)


def parse_loads(texts: tuple[str, ...], recommendation: Recommendation) -> tuple[Load, ...]:
    """Return the loads given, else one request at a time and the request's own load."""
    resolved = recommendation.resolved
    own = Load(1, 0.0, resolved.images, resolved.image_width, resolved.image_height)
    own = replace(own, image_mix=resolved.request.image_mix if resolved.image_sizes else "")
    if not texts:
        rate = resolved.request.rps
        arriving = replace(own, concurrency=0, rps=rate, burstiness=resolved.burstiness)
        requested = arriving if rate else replace(own, concurrency=resolved.concurrency)
        return (own,) if requested == own else (own, requested)
    parsed = []
    for text in texts:
        match = LOAD.fullmatch(text.strip())
        if not match:
            raise RequestError(f"--phase {text[:40]!r}: use N, Nrps, N@WIDTHxHEIGHT or N@text, such as 16@1280x720")
        load = own
        image = (match["image"] or "").lower()
        if image == "mix" and not own.image_mix:
            raise RequestError(f"--phase {text}: the request has no mix; give one: --images 448x448:0.7,1280x720:0.3")
        if image not in ("", "mix"):
            width, height, number = (0, 0, 0) if image == "text" else parse_image(image)
            load = replace(own, images=number, width=width, height=height, image_mix="")
        if load.images and not resolved.model.vision:
            raise RequestError(f"--phase {text}: {resolved.model.hub} is a text model; write {match['count']}@text")
        count = positive_int("--phase", match["count"], MAX_CONCURRENCY)
        arriving = replace(load, concurrency=0, rps=float(count), burstiness=resolved.burstiness)
        parsed.append(arriving if match["open"] else replace(load, concurrency=count))
    return tuple(parsed)
