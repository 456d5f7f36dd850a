"""Tensors and configuration of Qwen3.5 and Qwen3-VL: an encoder with learned positions; of the first, linear attention.

Names and keys are those that LMDeploy's wheel 0.18.0 reads in ``lmdeploy/turbomind/models/qwen3_5.py`` and
``lmdeploy/pytorch/models/qwen3_vl.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recommender.estimate.linear_attention import attention_layers, convolved_width, value_width
from recommender.smoke.weights.layouts import CHANNELS, QWEN3_VL, QWEN35, Tensor
from recommender.smoke.weights.vision_tensors import dense, norm

if TYPE_CHECKING:
    from recommender.knowledge.records import LinearAttention, Model, TextShape, VisionShape

VISION_STEM = "model.visual."
SECTIONS = [11, 11, 10]
"""How the rotary embedding's 32 pairs are shared by time, height and width."""
ROTARY_SHARE = 0.25


def linear_layer(text: TextShape, number: int) -> LinearAttention | None:
    """Return the linear attention of a layer; None for one with keys and values, which is the last of each group."""
    every = text.layers // attention_layers(text)
    return None if (number + 1) % every == 0 else next(iter(text.linear), None)


def linear_matrices(linear: LinearAttention, hidden: int, joined: bool) -> Iterator[tuple[str, int, int]]:
    """Yield name, inputs and outputs of a layer's projections; Qwen3-Next has two of them ``joined``."""
    if joined:
        yield "in_proj_qkvz", hidden, convolved_width(linear) + value_width(linear)
        yield "in_proj_ba", hidden, 2 * linear.value_heads
    else:
        yield "in_proj_qkv", hidden, convolved_width(linear)
        yield "in_proj_z", hidden, value_width(linear)
        yield "in_proj_b", hidden, linear.value_heads
        yield "in_proj_a", hidden, linear.value_heads
    yield "out_proj", value_width(linear), hidden


def linear_rest(layer: str, linear: LinearAttention, kind: str) -> Iterator[Tensor]:
    """Yield a layer's tensors that are no projections."""
    yield Tensor(f"{layer}linear_attn.A_log", kind, (linear.value_heads,), "normal")
    yield Tensor(f"{layer}linear_attn.dt_bias", kind, (linear.value_heads,), "normal")
    yield Tensor(f"{layer}linear_attn.conv1d.weight", kind, (convolved_width(linear), 1, linear.kernel), "normal")
    yield Tensor(f"{layer}linear_attn.norm.weight", kind, (linear.head_dim,), "ones")


def vision(shape: VisionShape, hidden: int, kind: str) -> Iterator[Tensor]:
    """Yield the encoder's tensors."""
    width, patch = shape.hidden, shape.patch
    yield Tensor(f"{VISION_STEM}pos_embed.weight", kind, (shape.positions, width), "normal")
    patches = (width, CHANNELS, shape.pixels[0].frames, patch, patch)
    yield Tensor(f"{VISION_STEM}patch_embed.proj.weight", kind, patches, "normal")
    yield Tensor(f"{VISION_STEM}patch_embed.proj.bias", kind, (width,), "normal")
    for number in range(shape.layers):
        block = f"{VISION_STEM}blocks.{number}."
        yield from norm(f"{block}norm1", width, kind, True)
        yield from norm(f"{block}norm2", width, kind, True)
        yield from dense(f"{block}attn.qkv", width, 3 * width, kind, True)
        yield from dense(f"{block}attn.proj", width, width, kind, True)
        yield from dense(f"{block}mlp.linear_fc1", width, shape.intermediate, kind, True)
        yield from dense(f"{block}mlp.linear_fc2", shape.intermediate, width, kind, True)
    merged = round(1 / shape.downsample**2) * width
    deep = [f"deepstack_merger_list.{number}" for number in range(shape.deepstack)]
    for name in ("merger", *deep):
        yield from norm(f"{VISION_STEM}{name}.norm", merged if name in deep else width, kind, True)
        yield from dense(f"{VISION_STEM}{name}.linear_fc1", merged, merged, kind, True)
        yield from dense(f"{VISION_STEM}{name}.linear_fc2", merged, hidden, kind, True)


def text_config(text: TextShape, theta: float, sees: bool) -> dict[str, Any]:
    """Return the keys of the language model that no other family has; one that ``sees`` rotates in three dimensions."""
    kinds = ["linear_attention" if linear_layer(text, number) else "full_attention" for number in range(text.layers)]
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": ROTARY_SHARE}
    if sees:
        rope |= {"mrope_interleaved": True, "mrope_section": SECTIONS}
    settings: dict[str, Any] = {
        "attn_output_gate": True,
        "dtype": text.dtype,
        "layer_types": kinds,
        "full_attention_interval": text.layers // attention_layers(text),
        "rope_parameters": rope,
    }
    for linear in text.linear:
        settings |= {
            "linear_conv_kernel_dim": linear.kernel,
            "linear_key_head_dim": linear.head_dim,
            "linear_value_head_dim": linear.head_dim,
            "linear_num_key_heads": linear.key_heads,
            "linear_num_value_heads": linear.value_heads,
        }
    return settings


def _stacked_layers(shape: VisionShape) -> list[int]:
    """Return the layers whose outputs join the language model's first ones; those of Qwen3-VL's two encoders."""
    published = {24: [5, 11, 17], 27: [8, 16, 24]}
    spread = [shape.layers * number // (shape.deepstack + 1) for number in range(1, shape.deepstack + 1)]
    return published.get(shape.layers, spread) if shape.deepstack else []


def config(model: Model, text: dict[str, Any], ids: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the configuration besides those of all vision models."""
    shape, kind = model.vision[0], (QWEN35 | QWEN3_VL).get(model.architecture, "")
    encoder = {
        "model_type": kind,
        "depth": shape.layers,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_heads": shape.heads,
        "in_channels": CHANNELS,
        "patch_size": shape.patch,
        "temporal_patch_size": shape.pixels[0].frames,
        "spatial_merge_size": round(1 / shape.downsample),
        "num_position_embeddings": shape.positions,
        "out_hidden_size": model.text.hidden,
        "hidden_act": "gelu_pytorch_tanh",
        "deepstack_visual_indexes": _stacked_layers(shape),
        "dtype": model.text.dtype,
    }
    words = {"vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>"}
    words |= {"image": "<|image_pad|>", "video": "<|video_pad|>"}
    named = {f"{name}_token_id": ids[word] for name, word in words.items()}
    return {"model_type": kind, "text_config": text, "vision_config": encoder, **named}
