"""What the network of a host brings in."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender.request.resolved_request import ResolvedRequest

JPEG_BYTES_PER_PIXEL = 0.35
"""Assumed for photographs as clients send them; not measured."""
BASE64 = 4 / 3
NETWORK_SHARE = 0.7
"""Share of a host's network that requests may fill."""


def network_rate(resolved: ResolvedRequest, gbps: float) -> float:
    """Return the requests/s that the network of a host brings in."""
    each = (share * own.image_width * own.image_height for own, share in resolved.each_size())
    pixels = resolved.mean_images * math.fsum(each)
    size = pixels * JPEG_BYTES_PER_PIXEL * BASE64 + 4 * resolved.input_tokens(1)
    return gbps * 1e9 / 8 * NETWORK_SHARE / size
