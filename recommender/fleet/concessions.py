"""What a server's configuration gives up for memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration

HARMLESS = 8
"""Bits of a KV cache whose published scores barely change."""


def costs_more(config: Configuration, other: Configuration) -> bool:
    """Return whether a configuration costs clearly more accuracy: fewer tiles per image, or a KV cache of 4 bits."""
    fewer_tiles = bool(config.max_tiles) and (not other.max_tiles or config.max_tiles < other.max_tiles)
    return fewer_tiles or config.kv_bits < min(HARMLESS, other.kv_bits)
