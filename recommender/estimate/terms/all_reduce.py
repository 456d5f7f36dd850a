"""Time the all-reduces that synchronise the GPUs of one tensor-parallel server.

Each layer has two: one after attention, one after the MLP.
"""

from __future__ import annotations

from collections.abc import Mapping

from recommender.estimate.vision_shape import BYTES_16_BIT, patches
from recommender.request.resolved_request import ResolvedRequest


def estimate_pass_ms(resolved: ResolvedRequest, tp: int, tokens: int, coefficients: Mapping[str, float]) -> float:
    """Return the ms that all-reduces add to a pass of ``tokens`` through the LLM.

    0 on one GPU. ``coefficients`` are those of ``speed.read_coefficients``.
    """
    text = resolved.model.text
    return text.layers * _layer_ms(resolved, tp, tokens * text.hidden, coefficients)


def estimate_image_ms(resolved: ResolvedRequest, tp: int, tiles: int, coefficients: Mapping[str, float]) -> float:
    """Return the ms that all-reduces add to encoding one image of ``tiles`` tiles.

    The GPUs share the vision encoder too. 0 on one GPU.
    """
    return sum(
        vision.layers * _layer_ms(resolved, tp, tiles * patches(vision) * vision.hidden, coefficients)
        for vision in resolved.model.vision
    )


def _layer_ms(resolved: ResolvedRequest, tp: int, numbers: int, coefficients: Mapping[str, float]) -> float:
    """Return the ms of a layer's two all-reduces over 16-bit numbers.

    A ring all-reduce: each GPU sends ``2 * (tp - 1) / tp`` of the data, in ``2 * (tp - 1)`` transfers, each of which
    takes its time even for few bytes.
    """
    if tp == 1:
        return 0.0
    nvlink = resolved.gpu.nvlink_gb_s
    link = nvlink / 2 * coefficients["link-efficiency"] if nvlink else coefficients["pcie-link-gb-s"]
    sent = 2 * (tp - 1) / tp * numbers * BYTES_16_BIT
    return 2 * (coefficients["reduction-ms"] * (tp - 1) + sent / (link * 1e6))
