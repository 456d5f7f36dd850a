"""Tensors and configuration of Qwen2-VL and Qwen2.5-VL: an encoder without positions that keeps an image's shape.

Names and keys are those that LMDeploy's wheel 0.18.0 reads in ``lmdeploy/turbomind/models/qwen2_vl.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recommender.smoke.weights.layouts import CHANNELS, QWEN_VL, Tensor
from recommender.smoke.weights.vision_tensors import dense, norm

if TYPE_CHECKING:
    from recommender.knowledge.records import Model, VisionShape


def config(model: Model, _: dict[str, Any], __: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a Qwen vision model adds to its language model's keys, which lie at the top as published."""
    vision, legacy = model.vision[0], not model.vision[0].gated
    words = {"vision_start": 151652, "vision_end": 151653, "vision": 151654, "image": 151655, "video": 151656}
    encoder: dict[str, Any] = {
        "model_type": QWEN_VL[model.architecture],
        "depth": vision.layers,
        "num_heads": vision.heads,
        "in_chans": CHANNELS,
        "patch_size": vision.patch,
        "spatial_patch_size": vision.patch,
        "spatial_merge_size": round(1 / vision.downsample),
        "temporal_patch_size": vision.pixels[0].frames,
    }
    if legacy:
        encoder |= {"embed_dim": vision.hidden, "hidden_size": model.text.hidden, "hidden_act": "quick_gelu"}
        encoder["mlp_ratio"] = vision.intermediate // vision.hidden
    else:
        encoder |= {"hidden_size": vision.hidden, "intermediate_size": vision.intermediate, "hidden_act": "silu"}
        encoder |= {"out_hidden_size": model.text.hidden, "tokens_per_second": 2}
    for window in vision.window:
        every = vision.layers // window.full_layers
        encoder["window_size"] = window.side
        encoder["fullatt_block_indexes"] = list(range(every - 1, vision.layers, every))
    ids = {f"{word}_token_id": number for word, number in words.items()}
    return {"model_type": QWEN_VL[model.architecture], "vision_config": encoder, **ids}


def vision(vision: VisionShape, hidden: int, kind: str) -> Iterator[Tensor]:
    """Yield the tensors of a Qwen encoder: no class token, no positions, a norm for each patch before it is merged."""
    width, patch = vision.hidden, vision.patch
    shape = (width, CHANNELS, vision.pixels[0].frames, patch, patch)
    yield Tensor("visual.patch_embed.proj.weight", kind, shape, "normal")
    for number in range(vision.layers):
        yield from _layer(vision, f"visual.blocks.{number}.", kind)
    merged = round(1 / vision.downsample**2) * width
    yield from norm("visual.merger.ln_q", width, kind, vision.norm == "layer_norm")
    yield from dense("visual.merger.mlp.0", merged, merged, kind, True)
    yield from dense("visual.merger.mlp.2", merged, hidden, kind, True)


def _layer(vision: VisionShape, layer: str, kind: str) -> Iterator[Tensor]:
    width, deep = vision.hidden, vision.intermediate
    for name in ("norm1", "norm2"):
        yield from norm(layer + name, width, kind, vision.norm == "layer_norm")
    yield from dense(f"{layer}attn.qkv", width, 3 * width, kind, vision.qkv_bias)
    yield from dense(f"{layer}attn.proj", width, width, kind, True)
    ups, down = (("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj") if vision.gated else (("mlp.fc1",), "mlp.fc2")
    for name in ups:
        yield from dense(layer + name, width, deep, kind, True)
    yield from dense(layer + down, deep, width, kind, True)
