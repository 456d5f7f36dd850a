"""What the experts of a mixture add to a pass, as TurboMind computes them.

A mixture layer scores the experts, sorts its tokens by expert and runs two grouped matrix products, so each layer has
more kernels than a dense one (0.16.0 and later, src/turbomind/models/llama/moe_ffn_layer.cc and
kernels/gemm/moe_utils_v2.cu). A grouped product reads an expert once, however many tokens go through it, and computes
whole tiles of tokens. Experts in 4 bits use other kernels than 16-bit and FP8 ones: tensor core instructions of an
A100, with unpacking in registers (kernels/gemm/kernel/sm90_16816_4.cu, against sm90_64n16_16.cu and sm90_64n32_8.cu).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from recommender.estimate import model_shape

if TYPE_CHECKING:
    from recommender.knowledge.records import Model

PADDING = 64
"""Tokens missing from an expert's last tile on average, in a pass with prefill: half of the 128 of the largest tile."""


class ExpertTimes(NamedTuple):
    """Times in ms; all 0 without experts.

    ``launches`` is that of a step's further kernels, where reading the experts is not longer; ``token`` is what a
    prompt's token takes longer than it would at the rate of other layers. A pass with prefill takes ``whole_pass``
    beside its tokens, one that only decodes up to ``most`` for all experts; a token goes past the share ``missed`` of
    the experts. ``spread`` is the share of chance in the routing of a step's further tokens.
    """

    launches: float = 0.0
    token: float = 0.0
    whole_pass: float = 0.0
    most: float = 0.0
    missed: float = 0.0
    spread: float = 0.0


def estimate_experts(
    model: Model, tp: int, peak: float, dense: float, bandwidth: float, coefficients: Mapping[str, float]
) -> ExpertTimes:
    """Return what the experts add, on ``tp`` GPUs.

    ``peak`` is that of all of them, ``dense`` what other layers reach of it, both in FLOP a ms; ``bandwidth`` is that
    of one in bytes a ms.
    """
    if not model.text.mixture:
        return ExpertTimes()
    (mixture,) = model.text.mixture
    packed = bool(model.quantization) and model.quantization[0].bits == 4
    rate = peak * coefficients["expert-efficiency-quantised" if packed else "prefill-efficiency"]
    flops = model_shape.expert_flops(model)
    read = model_shape.decode_bytes(model, tp, model_shape.MANY_TOKENS) - model_shape.decode_bytes(model, tp, 0)
    # Reading hides what few tokens compute, but not where weights are unpacked for it.
    tile = mixture.experts * coefficients["expert-tile-tokens"] * flops / rate if packed else 0.0
    return ExpertTimes(
        launches=coefficients["expert-layer-ms"] * (model.text.layers - mixture.dense_layers),
        token=mixture.per_token * flops * (1 / rate - 1 / dense),
        whole_pass=max(mixture.experts * PADDING * flops / rate, read / bandwidth),
        most=read / bandwidth + tile,
        missed=1 - mixture.per_token / mixture.experts,
        spread=coefficients["expert-spread"],
    )
