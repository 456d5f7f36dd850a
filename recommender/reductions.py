"""What the cards of one server add up among them: two all-reduces a layer, after attention and after the MLP."""

from __future__ import annotations

from collections.abc import Mapping

from recommender.facts import Facts
from recommender.shapes import BYTES_16_BIT


def reduced(facts: Facts, tp: int, tokens: int, c: Mapping[str, float]) -> float:
    """ms of a pass of so many tokens through the language model; 0 on one card."""
    text = facts.model.text
    return text.layers * _twice(facts, tp, tokens * text.hidden, c)


def reduced_seeing(facts: Facts, tp: int, tiles: int, c: Mapping[str, float]) -> float:
    """ms of one image of so many tiles in its encoder, which the cards share as well."""
    return sum(
        each.layers * _twice(facts, tp, tiles * (each.image // each.patch) ** 2 * each.hidden, c)
        for each in facts.model.vision
    )


def _twice(facts: Facts, tp: int, numbers: int, c: Mapping[str, float]) -> float:
    """ms of the two all-reduces of a layer over 16-bit numbers: each card sends nearly all of them twice (a ring)."""
    if tp == 1:
        return 0.0
    link = facts.gpu.nvlink_gb_s / 2 * c["link-efficiency"] if facts.gpu.nvlink_gb_s else c["pcie-link-gb-s"]
    sent = 2 * (tp - 1) / tp * numbers * BYTES_16_BIT
    return 2 * (c["reduction-ms"] + sent / (link * 1e6))
