"""Tensors and configuration of GLM-4.1V: an encoder with learned positions, merged by a convolution and a gated layer.

Names and keys are those that LMDeploy's wheel 0.18.0 reads in ``lmdeploy/pytorch/models/glm4_1v.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recommender.smoke.weights.layouts import CHANNELS, Tensor
from recommender.smoke.weights.vision_tensors import dense, norm

if TYPE_CHECKING:
    from recommender.knowledge.records import Model, TextShape, VisionShape

STEM = "model.visual."
TOKENS = {"<|begin_of_image|>": 151339, "<|end_of_image|>": 151340, "<|begin_of_video|>": 151341}
TOKENS |= {"<|end_of_video|>": 151342, "<|image|>": 151343, "<|video|>": 151344}
"""Special tokens of the vision models, which follow those of GLM-4."""
ROTARY_SHARE = 0.5


def text_config(text: TextShape) -> dict[str, Any]:
    """Return the keys of the language model that no other GLM has: it rotates in time, height and width."""
    head = text.head_dim
    sections = [head // 16, head * 3 // 32, head * 3 // 32]
    return {
        "partial_rotary_factor": ROTARY_SHARE,
        "rope_scaling": {"rope_type": "default", "type": "default", "mrope_section": sections},
    }


def config(model: Model, text: dict[str, Any], ids: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the configuration besides those of all vision models."""
    shape = model.vision[0]
    encoder = {
        "model_type": "glm4v",
        "depth": shape.layers,
        "hidden_size": shape.hidden,
        "num_heads": shape.heads,
        "image_size": round(shape.positions**0.5) * shape.patch,
        "patch_size": shape.patch,
        "in_channels": CHANNELS,
        "temporal_patch_size": shape.pixels[0].frames,
        "spatial_merge_size": round(1 / shape.downsample),
        "out_hidden_size": model.text.hidden,
        "intermediate_size": shape.projector[-1].inputs,
        "attention_bias": shape.qkv_bias,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
    }
    words = {"image": "<|image|>", "image_start": "<|begin_of_image|>", "image_end": "<|end_of_image|>"}
    words |= {"video": "<|video|>", "video_start": "<|begin_of_video|>", "video_end": "<|end_of_video|>"}
    named = {f"{name}_token_id": ids[word] for name, word in words.items()}
    # LMDeploy looks for the language model's shape in text_config and at the top.
    return {**text, "model_type": "glm4v", "text_config": text, "vision_config": encoder, **named}


def vision(shape: VisionShape, hidden: int, kind: str) -> Iterator[Tensor]:
    """Yield the tensors of the encoder, whose layers are as wide inside as the language model."""
    width, deep, side = shape.hidden, shape.projector[-1].inputs, round(1 / shape.downsample)
    patches = (width, CHANNELS, shape.pixels[0].frames, shape.patch, shape.patch)
    yield Tensor(f"{STEM}embeddings.position_embedding.weight", kind, (shape.positions, width), "normal")
    yield Tensor(f"{STEM}patch_embed.proj.weight", kind, patches, "normal")
    yield Tensor(f"{STEM}patch_embed.proj.bias", kind, (width,), "normal")
    for number in range(shape.layers):
        block = f"{STEM}blocks.{number}."
        yield from norm(f"{block}norm1", width, kind, False)
        yield from norm(f"{block}norm2", width, kind, False)
        yield from dense(f"{block}attn.qkv", width, 3 * width, kind, shape.qkv_bias)
        yield from dense(f"{block}attn.proj", width, width, kind, False)
        yield from _gated(f"{block}mlp.", width, shape.intermediate, kind)
    yield from dense(f"{STEM}merger.proj", hidden, hidden, kind, False)
    yield from norm(f"{STEM}merger.post_projection_norm", hidden, kind, True)
    yield from _gated(f"{STEM}merger.", hidden, deep, kind)
    yield from norm(f"{STEM}post_conv_layernorm", width, kind, False)
    yield Tensor(f"{STEM}downsample.weight", kind, (hidden, width, side, side), "normal")
    yield Tensor(f"{STEM}downsample.bias", kind, (hidden,), "normal")
    yield from norm(f"{STEM}post_layernorm", width, kind, False)


def _gated(stem: str, width: int, deep: int, kind: str) -> Iterator[Tensor]:
    yield from dense(f"{stem}gate_proj", width, deep, kind, False)
    yield from dense(f"{stem}up_proj", width, deep, kind, False)
    yield from dense(f"{stem}down_proj", deep, width, kind, False)
