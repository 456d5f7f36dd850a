"""Bytes, parameters and arithmetic that follow from a model's shape; no model is named here.

Bytes are counted as a checkpoint stores them (1 byte = 8 bits, no alignment): 16-bit
weights, except that AWQ and GPTQ keep the language model's linear layers in few bits with
a 16-bit scale and a zero of the weight's own width for every group of inputs. Embeddings,
the output head, norms, biases, the vision encoder and its projector stay 16-bit. What
LMDeploy does with tensor parallelism was read in its wheel 0.18.0,
``lmdeploy/turbomind/builders`` (text) and ``lmdeploy/turbomind/models/internvl.py`` (vision).

One multiply and one add are two FLOP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender.records import Model, TextShape, VisionShape

BYTES_16_BIT = 2
KV_SCALE_AND_ZERO_BYTES = 4
"""Of one cached vector when the cache is quantised: two 16-bit numbers (block.h at v0.16.0)."""


def _kv_heads_per_rank(text: TextShape, tp: int) -> int:
    """Key/value heads on one GPU: split over the group, or copied where there are fewer than GPUs."""
    return max(1, -(-text.kv_heads // tp))


# --- parameters ------------------------------------------------------------------------


def _layer_linear_parameters(text: TextShape, tp: int = 1) -> float:
    """Weights of one decoder layer's linear layers on one of ``tp`` GPUs."""
    attention = 2 * text.hidden * text.heads * text.head_dim / tp
    key_value = 2 * text.hidden * _kv_heads_per_rank(text, tp) * text.head_dim
    return attention + key_value + 3 * text.hidden * text.intermediate / tp


def _layer_small_parameters(text: TextShape, tp: int = 1) -> float:
    """Norms and biases of one decoder layer on one of ``tp`` GPUs; norms are on every GPU."""
    norms = 2 * text.hidden + (2 * text.head_dim if text.qk_norm else 0)
    if text.attention_bias == "none":
        return norms
    biases = text.heads * text.head_dim / tp + 2 * _kv_heads_per_rank(text, tp) * text.head_dim
    return norms + biases + (text.hidden if text.attention_bias == "qkvo" else 0)


def embedding_parameters(model: Model) -> int:
    """Input embeddings and, where it is a matrix of its own, the output head."""
    text = model.text
    return text.vocab * text.hidden * (1 if text.tied_embeddings else 2)


def linear_parameters(model: Model) -> int:
    """Weights of the language model's linear layers without the output head: what AWQ packs."""
    return round(model.text.layers * _layer_linear_parameters(model.text))


def text_parameters(model: Model) -> int:
    """All parameters of the language model."""
    text = model.text
    small = text.layers * _layer_small_parameters(text) + text.hidden
    return linear_parameters(model) + embedding_parameters(model) + round(small)


def _scale(vision: VisionShape) -> int:
    """Neighbouring patches that the projector merges into one token."""
    return round(1 / vision.downsample**2)


def _patches(vision: VisionShape) -> int:
    return (vision.image // vision.patch) ** 2


def _vision_split_parameters(vision: VisionShape, hidden: int) -> tuple[int, int, int]:
    """Parameters of attention, of MLP with projector matrices, and of all that no GPU shares.

    The first is split where the heads divide by the number of GPUs, the second always.
    """
    width, deep = vision.hidden, vision.intermediate
    attention = 4 * width * width
    mlp = 2 * width * deep + deep
    whole = (3 * width if vision.qkv_bias else 0) + 2 * width
    whole += 2 * width * (2 if vision.norm == "layer_norm" else 1)
    whole += (2 * width if vision.layer_scale else 0) + (2 * width if vision.qk_norm else 0)
    merged = _scale(vision) * width
    projector = merged * hidden + hidden * hidden + hidden
    patch_embedding = 3 * vision.patch**2 * width + width
    positions = width * (_patches(vision) + 2)
    outside = patch_embedding + positions + 2 * merged + hidden
    return vision.layers * attention, vision.layers * mlp + projector, vision.layers * whole + outside


def vision_parameters(model: Model) -> int:
    """Vision encoder and projector; 0 for a text model."""
    return sum(sum(_vision_split_parameters(vision, model.text.hidden)) for vision in model.vision)


def parameters(model: Model) -> int:
    """All parameters, counted before any packing."""
    return text_parameters(model) + vision_parameters(model)


# --- bytes -----------------------------------------------------------------------------


def linear_bits(model: Model) -> float:
    """Bits of one weight of the language model's linear layers, its share of scale and zero included."""
    if not model.quantization:
        return 8 * BYTES_16_BIT
    packed = model.quantization[0]
    if packed.method == "fp8" or packed.group <= 0:
        return packed.bits
    return packed.bits + (8 * BYTES_16_BIT + packed.bits) / packed.group


def _text_bytes(model: Model, tp: int) -> float:
    text = model.text
    linear = text.layers * _layer_linear_parameters(text, tp) * linear_bits(model) / 8
    small = text.layers * _layer_small_parameters(text, tp) + text.hidden
    return linear + (small + embedding_parameters(model) / tp) * BYTES_16_BIT


def _vision_bytes(model: Model, tp: int) -> float:
    total = 0.0
    for vision in model.vision:
        attention, split, whole = _vision_split_parameters(vision, model.text.hidden)
        part = tp if vision.heads % tp == 0 else 1
        total += (attention / part + split / tp + whole) * BYTES_16_BIT
    return total


def text_weight_bytes(model: Model) -> int:
    """Bytes of the language model's weights."""
    return round(_text_bytes(model, 1))


def vision_weight_bytes(model: Model) -> int:
    """Bytes of vision encoder and projector; 0 for a text model."""
    return round(_vision_bytes(model, 1))


def weight_bytes(model: Model) -> int:
    """Bytes of all weights: what the publisher's weight files hold, headers aside."""
    return text_weight_bytes(model) + vision_weight_bytes(model)


def weight_bytes_per_rank(model: Model, tp: int, *, vision_split: bool = True) -> int:
    """Bytes of weights on the fullest of ``tp`` GPUs.

    ``vision_split`` is how the native vision encoder loads (TurboMind since 0.16.0, PyTorch
    engine); without it the encoder sits whole on one GPU.
    """
    if tp < 1:
        raise ValueError(f"tp must be at least 1, not {tp}")
    return round(_text_bytes(model, tp) + _vision_bytes(model, tp if vision_split else 1))


def decode_bytes(model: Model, tp: int = 1) -> int:
    """Bytes of weights that one decoding step reads on each of ``tp`` GPUs: linear layers and output head."""
    text = model.text
    linear = text.layers * _layer_linear_parameters(text, tp) * linear_bits(model) / 8
    return round(linear + text.vocab * text.hidden * BYTES_16_BIT / tp)


def kv_bytes_per_token(model: Model, kv_bits: int, tp: int = 1) -> int:
    """Bytes that one cached token takes on each of ``tp`` GPUs (TurboMind's block layout).

    A key and a value vector per layer and head; a quantised cache (8 or 4 bits) adds a scale
    and a zero to each vector.
    """
    if kv_bits not in (4, 8, 16):
        raise ValueError(f"kv_bits must be 16, 8 or 4, not {kv_bits}")
    if tp < 1:
        raise ValueError(f"tp must be at least 1, not {tp}")
    text = model.text
    vector = kv_bits * text.head_dim // 8 + (KV_SCALE_AND_ZERO_BYTES if kv_bits < 16 else 0)
    return text.layers * 2 * _kv_heads_per_rank(text, tp) * vector


# --- arithmetic ------------------------------------------------------------------------


def text_flops_per_token(model: Model) -> int:
    """FLOP of one token through all decoder layers, attention scores and output head left out."""
    return 2 * linear_parameters(model)


def logits_flops(model: Model) -> int:
    """FLOP of the output head for one position; a server needs it for a prompt's last token only."""
    return 2 * model.text.vocab * model.text.hidden


def attention_flops(model: Model, tokens: int, context: int = 0) -> int:
    """FLOP of scores and weighted values for ``tokens`` new tokens after ``context`` cached ones, causal."""
    text = model.text
    pairs = tokens * context + tokens * (tokens + 1) // 2
    return 4 * text.layers * text.heads * text.head_dim * pairs


def prefill_flops(model: Model, tokens: int) -> int:
    """FLOP of a prompt of ``tokens`` through the language model, its last token's logits included."""
    return text_flops_per_token(model) * tokens + attention_flops(model, tokens) + logits_flops(model)


def vision_flops_per_tile(model: Model) -> int:
    """FLOP of one tile through patch embedding, encoder and projector; 0 for a text model."""
    total = 0
    for vision in model.vision:
        width, hidden, patches = vision.hidden, model.text.hidden, _patches(vision)
        tokens = patches + 1
        linear = 2 * tokens * (4 * width * width + 2 * width * vision.intermediate)
        layers = vision.layers * (linear + 4 * tokens * tokens * width)
        embedding = 2 * patches * 3 * vision.patch**2 * width
        projector = 2 * vision.tokens_per_tile * hidden * (_scale(vision) * width + hidden)
        total += layers + embedding + projector
    return total
