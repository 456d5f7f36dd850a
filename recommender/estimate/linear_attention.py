"""Derive what layers with another attention than the usual one have: linear (Qwen3.5) and latent (DeepSeek, GLM).

Linear attention is a gated delta rule. A sequence keeps two states for each such layer: a 16-bit matrix for each value
head, and the last inputs of a convolution over keys, queries and values (0.16.0
src/turbomind/models/llama/GatedDeltaNetLayer.cc:42-52). TurboMind allocates both from the KV region, once for each
running sequence (src/turbomind/engine/scheduler.cc:528-529).

Latent attention: a token's cache is one vector for each layer, the latent one and the rotary key. With heads of 576,
TurboMind's block has no values (0.16.0 src/turbomind/models/llama/unified_attention_layer.cc:153-159). On several
GPUs each has the whole cache (0.18.0 lmdeploy/turbomind/builders/mla.py:74-75). TurboMind multiplies the matrix from
latent vectors to keys and values into its neighbours when it loads: queries and the output then are as wide as the
cached vector, so the loaded weights take more than the stored ones (mla.py:14-62).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from recommender.estimate.vision_shape import BYTES_16_BIT

if TYPE_CHECKING:
    from recommender.knowledge.records import LatentAttention, LinearAttention, Model, TextShape


INDEX_SCALE_BYTES = 4
"""0.18.0 lmdeploy/pytorch/consts.py:33"""


def attention_layers(text: TextShape) -> int:
    """Return the number of layers that keep keys and values."""
    return text.layers - sum(linear.layers for linear in text.linear)


def value_width(linear: LinearAttention) -> int:
    """Return the width of all value heads."""
    return linear.value_heads * linear.head_dim


def convolved_width(linear: LinearAttention) -> int:
    """Return the width of queries, keys and values, which pass a convolution."""
    return 2 * linear.key_heads * linear.head_dim + value_width(linear)


def linear_weights(text: TextShape, tp: int = 1) -> float:
    """Return the matrix weights of these layers on one GPU: input, gate, two numbers per value head, output."""
    return sum(
        linear.layers * text.hidden * (convolved_width(linear) + 2 * value_width(linear) + 2 * linear.value_heads) / tp
        for linear in text.linear
    )


def small_weights(text: TextShape, tp: int = 1) -> float:
    """Return the other weights on one GPU: convolution, decay and time step of each head, a norm whole on every GPU."""
    return sum(
        linear.layers * ((convolved_width(linear) * linear.kernel + 2 * linear.value_heads) / tp + linear.head_dim)
        for linear in text.linear
    )


@lru_cache(maxsize=4096)
def state_parts(model: Model, tp: int = 1) -> tuple[tuple[int, int], ...]:
    """Return a sequence's state on one GPU as objects: bytes of one, and how many.

    One matrix object per layer and one object with the convolution inputs of all layers.
    Empty for a model without linear attention.
    """
    parts: list[tuple[int, int]] = []
    for linear in model.text.linear:
        parts.append((-(-linear.value_heads // tp) * linear.head_dim**2 * BYTES_16_BIT, linear.layers))
        parts.append((linear.layers * convolved_width(linear) // tp * linear.kernel * BYTES_16_BIT, 1))
    return tuple(parts)


def state_bytes(model: Model, tp: int = 1) -> int:
    """Return the bytes of one sequence's state on one GPU; 0 without linear attention."""
    return sum(size * count for size, count in state_parts(model, tp))


def state_flops(text: TextShape, tokens: int) -> int:
    """Return the FLOP in which ``tokens`` tokens update and read the states, one after the other.

    Three products with each head's matrix. A prompt is computed in chunks, which takes more.
    """
    return sum(6 * linear.layers * value_width(linear) * linear.head_dim * tokens for linear in text.linear)


def latent_weights(text: TextShape, latent: LatentAttention, tp: int = 1, *, stored: bool = False) -> float:
    """Return one layer's matrix weights on one GPU: as loaded, or as the checkpoint stores them."""
    inner = latent.query_rank or text.hidden  # what a head's query is made from
    shared = text.hidden * (latent.query_rank + latent.rank + latent.rope)
    for index in latent.index:  # whole on every GPU: queries and one key
        shared += (index.heads * inner + text.hidden) * index.head_dim
    if stored:
        queries = inner * (latent.key + latent.rope)
        return shared + text.heads * (queries + latent.rank * (latent.key + latent.value) + latent.value * text.hidden)
    return shared + text.heads * text.head_dim * (inner + text.hidden) / tp


def cut_scales(model: Model) -> float:
    """Return by how much FP8 scales outnumber whole squares: the latent vector's rows end within one."""
    text = model.text
    groups = [packed.group for packed in model.quantization if packed.method == "fp8" and packed.group > 0]
    cut = [(-(latent.rank + latent.rope) % group, group) for latent in text.latent for group in groups]
    return sum(text.layers * rows * text.hidden / group**2 for rows, group in cut)


def index_bytes(text: TextShape) -> int:
    """Return the bytes that one layer caches per token to pick what attention reads: an 8-bit key, a 32-bit scale."""
    return sum(index.head_dim + INDEX_SCALE_BYTES for latent in text.latent for index in latent.index)
