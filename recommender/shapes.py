"""Bytes, parameters and arithmetic that follow from a model's shape; no model is named here.

Bytes are counted as a checkpoint stores them (1 byte = 8 bits, no alignment): 16-bit
weights, except that AWQ and GPTQ keep the language model's linear layers in few bits with
a 16-bit scale and a zero of the weight's own width for every group of inputs, FP8 in 8 bits,
and MXFP4 the experts alone in 4 bits with an 8-bit scale a group. Embeddings, the output
head, routers, norms, biases, the vision encoder and its projector stay 16-bit. What
LMDeploy does with tensor parallelism was read in its wheel 0.18.0,
``lmdeploy/turbomind/builders`` (text; a router is on every GPU, each expert is split) and
``lmdeploy/turbomind/models`` (vision: ``internvl.py``, ``qwen2_vl.py``).

One multiply and one add are two FLOP.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender.records import Mixture, Model, TextShape, VisionShape

BYTES_16_BIT = 2
KV_SCALE_AND_ZERO_BYTES = 4
"""Of one cached vector when the cache is quantised: two 16-bit numbers (block.h at v0.16.0)."""
VISION_HEADS = (64, 128)
"""Head sizes that TurboMind pads encoders without tiles to (0.18.0 lmdeploy/turbomind/models/qwen2_vl.py:39)."""


def _kv_heads_per_rank(text: TextShape, tp: int) -> int:
    """Key/value heads on one GPU: split over the group, or copied where there are fewer than GPUs."""
    return max(1, -(-text.kv_heads // tp))


# --- parameters ------------------------------------------------------------------------


def _mixture(text: TextShape) -> Mixture | None:
    return text.mixture[0] if text.mixture else None


def _common_parameters(text: TextShape, tp: int = 1) -> float:
    """Linear weights that every token goes through on one of ``tp`` GPUs: attention, dense and shared parts."""
    attention = 2 * text.hidden * text.heads * text.head_dim / tp
    key_value = 2 * text.hidden * _kv_heads_per_rank(text, tp) * text.head_dim
    wide = text.layers * text.intermediate
    if mixture := _mixture(text):
        wide = mixture.dense_layers * text.intermediate + (text.layers - mixture.dense_layers) * mixture.shared
    return text.layers * (attention + key_value) + 3 * text.hidden * wide / tp


def _expert_parameters(text: TextShape, tp: int = 1) -> float:
    """Weights of one expert of every mixture layer on one of ``tp`` GPUs; 0 for a dense model."""
    mixture = _mixture(text)
    return (text.layers - mixture.dense_layers) * 3 * text.hidden * mixture.intermediate / tp if mixture else 0.0


def _router_parameters(text: TextShape) -> int:
    """Routers, and the one-column gate of the shared expert; whole on every GPU, never packed."""
    mixture = _mixture(text)
    if mixture is None:
        return 0
    return (text.layers - mixture.dense_layers) * text.hidden * (mixture.experts + (1 if mixture.shared else 0))


def _small_parameters(text: TextShape, tp: int = 1) -> float:
    """Norms, biases and sinks of all layers on one of ``tp`` GPUs; norms are on every GPU."""
    each = 2.0 * text.hidden + (2 * text.head_dim if text.qk_norm else 0)
    if text.attention_bias != "none":
        each += text.heads * text.head_dim / tp + 2 * _kv_heads_per_rank(text, tp) * text.head_dim
        each += text.hidden if text.attention_bias == "qkvo" else 0
    total = text.layers * (each + (text.heads / tp if text.attention_sinks else 0)) + text.hidden
    mixture = _mixture(text)
    if mixture and mixture.bias:
        of_expert = 2 * mixture.intermediate / tp + text.hidden + 1  # the last: its entry in the router's bias
        total += (text.layers - mixture.dense_layers) * mixture.experts * of_expert
    return total


def _experts(text: TextShape) -> int:
    return text.mixture[0].experts if text.mixture else 0


def _linear_parameters(text: TextShape, tp: int = 1) -> float:
    return _common_parameters(text, tp) + _experts(text) * _expert_parameters(text, tp)


def embedding_parameters(model: Model) -> int:
    """Input embeddings and, where it is a matrix of its own, the output head."""
    text = model.text
    return text.vocab * text.hidden * (1 if text.tied_embeddings else 2)


def linear_parameters(model: Model) -> int:
    """Weights of the language model's linear layers without routers and output head: what AWQ packs."""
    return round(_linear_parameters(model.text))


def text_parameters(model: Model) -> int:
    """All parameters of the language model."""
    text = model.text
    return (
        linear_parameters(model)
        + _router_parameters(text)
        + embedding_parameters(model)
        + round(_small_parameters(text))
    )


def active_parameters(model: Model) -> int:
    """Weights of the linear layers that one token goes through: of the experts only those it is sent to."""
    text = model.text
    experts = experts_read(model, 1) * _expert_parameters(text)
    return round(_common_parameters(text) + _router_parameters(text) + experts)


def _scale(vision: VisionShape) -> int:
    """Neighbouring patches that the projector merges into one token."""
    return round(1 / vision.downsample**2)


def _patches(vision: VisionShape) -> int:
    return (vision.image // vision.patch) ** 2


def _patch_inputs(vision: VisionShape) -> int:
    return 3 * vision.patch**2 * (vision.pixels[0].frames if vision.pixels else 1)


def _attention_width(vision: VisionShape, resident: bool) -> int:
    """Width of all heads; TurboMind holds those of encoders without tiles padded to a size it has kernels for."""
    head = vision.hidden // vision.heads
    if not resident or not vision.pixels:
        return vision.hidden
    return vision.heads * min((size for size in VISION_HEADS if size >= head), default=head)


def _vision_split_parameters(vision: VisionShape, hidden: int, resident: bool = False) -> tuple[int, int, int]:
    """Parameters of attention, of MLP with projector matrices, and of all that no GPU shares.

    The first is split where the heads divide by the number of GPUs, the second always.
    """
    width, deep = vision.hidden, vision.intermediate
    heads = _attention_width(vision, resident)
    norm = width * (2 if vision.norm == "layer_norm" else 1)
    attention = 4 * width * heads
    mlp = (3 * width * deep + 2 * deep) if vision.gated else (2 * width * deep + deep)
    whole = (3 * heads if vision.qkv_bias else 0) + 2 * width + 2 * norm
    whole += (2 * width if vision.layer_scale else 0) + (2 * width if vision.qk_norm else 0)
    merged = _scale(vision) * width
    outside = _patch_inputs(vision) * width + hidden
    if vision.pixels:  # no class token, no positions; a norm a patch, then two layers as wide as merged
        projector = merged * merged + merged * hidden
        outside += norm + merged
    else:
        projector = merged * hidden + hidden * hidden + hidden
        outside += width + width * (_patches(vision) + 2) + 2 * merged
    return vision.layers * attention, vision.layers * mlp + projector, vision.layers * whole + outside


def vision_parameters(model: Model) -> int:
    """Vision encoder and projector; 0 for a text model."""
    return sum(sum(_vision_split_parameters(vision, model.text.hidden)) for vision in model.vision)


def parameters(model: Model) -> int:
    """All parameters, counted before any packing."""
    return text_parameters(model) + vision_parameters(model)


# --- bytes -----------------------------------------------------------------------------


def linear_bits(model: Model) -> float:
    """Bits of one quantised weight of the language model, its share of scale and zero included; 16 without."""
    if not model.quantization:
        return 8 * BYTES_16_BIT
    packed = model.quantization[0]
    if packed.method == "fp8" or packed.group <= 0:
        return packed.bits
    if packed.method == "mxfp4":
        return packed.bits + 8 / packed.group
    return packed.bits + (8 * BYTES_16_BIT + packed.bits) / packed.group


def _linear_bytes(model: Model, tp: int, experts: int) -> float:
    """Bytes of the linear layers on one of ``tp`` GPUs, routers included, with so many experts of each layer."""
    text, bits = model.text, linear_bits(model)
    only_experts = bool(model.quantization) and model.quantization[0].method == "mxfp4"
    common = _common_parameters(text, tp) * (8 * BYTES_16_BIT if only_experts else bits)
    return (common + experts * _expert_parameters(text, tp) * bits) / 8 + _router_parameters(text) * BYTES_16_BIT


def _text_bytes(model: Model, tp: int) -> float:
    text = model.text
    small = _small_parameters(text, tp) + embedding_parameters(model) / tp
    return _linear_bytes(model, tp, _experts(text)) + small * BYTES_16_BIT


def _vision_bytes(model: Model, tp: int, resident: bool = False) -> float:
    total = 0.0
    for vision in model.vision:
        attention, split, whole = _vision_split_parameters(vision, model.text.hidden, resident)
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
    engine): heads of 80 are then held as 128, so that even one GPU holds more than the files.
    Without it the encoder sits whole and as stored on one GPU.
    """
    if tp < 1:
        raise ValueError(f"tp must be at least 1, not {tp}")
    vision = _vision_bytes(model, tp, resident=True) if vision_split else _vision_bytes(model, 1)
    return round(_text_bytes(model, tp) + vision)


def experts_read(model: Model, tokens: int) -> int:
    """Experts of each mixture layer that a pass over ``tokens`` tokens reads at most; 0 for a dense model."""
    mixture = _mixture(model.text)
    return min(mixture.experts, tokens * mixture.per_token) if mixture else 0


@lru_cache(maxsize=4096)
def decode_bytes(model: Model, tp: int = 1, batch: int = 1) -> int:
    """Bytes of weights that one decoding step reads on each of ``tp`` GPUs: linear layers and output head.

    A dense model reads all of them whatever the batch; a mixture of experts those that the
    ``batch`` tokens of the step are sent to, at most as many as there are.
    """
    return round(_linear_bytes(model, tp, experts_read(model, batch)) + head_bytes(model, tp))


def head_bytes(model: Model, tp: int = 1) -> float:
    """Bytes of the output head on each of ``tp`` GPUs: 16-bit whatever the other weights are."""
    return model.text.vocab * model.text.hidden * BYTES_16_BIT / tp


def inner_rows(model: Model, tp: int = 1) -> int:
    """Inner dimensions of the linear layers that a token passes one after the other on one of ``tp`` GPUs, summed."""
    text, mixture = model.text, _mixture(model.text)
    attention = 2 * text.hidden + text.heads * text.head_dim // tp
    wide = text.layers * text.intermediate
    if mixture:
        experts = (text.layers - mixture.dense_layers) * (mixture.intermediate + mixture.shared)
        wide = mixture.dense_layers * text.intermediate + experts
    return text.layers * attention + wide // tp


def kv_bytes_per_token(model: Model, kv_bits: int, tp: int = 1) -> int:
    """Bytes that one cached token takes on each of ``tp`` GPUs (TurboMind's block layout).

    A key and a value vector per layer and head; a quantised cache (8 or 4 bits) adds a scale
    and a zero to each vector. Layers with a sliding window keep all tokens too: a block holds
    every layer, and the window is known to the attention kernels alone (0.16.0
    src/turbomind/models/llama/unified_attention_layer.cc:150 and :553).
    """
    return model.text.layers * _kv_layer_bytes(model, kv_bits, tp)


def _kv_layer_bytes(model: Model, kv_bits: int, tp: int) -> int:
    if kv_bits not in (4, 8, 16):
        raise ValueError(f"kv_bits must be 16, 8 or 4, not {kv_bits}")
    if tp < 1:
        raise ValueError(f"tp must be at least 1, not {tp}")
    text = model.text
    vector = kv_bits * text.head_dim // 8 + (KV_SCALE_AND_ZERO_BYTES if kv_bits < 16 else 0)
    return 2 * _kv_heads_per_rank(text, tp) * vector


def kv_read_bytes(model: Model, kv_bits: int, context: int, tp: int = 1) -> int:
    """Bytes of cache that decoding one token after ``context`` others reads: a window's layers read no more than it."""
    text = model.text
    tokens = text.layers * context
    for window in text.window:
        tokens -= window.layers * max(context - window.tokens, 0)
    return tokens * _kv_layer_bytes(model, kv_bits, tp)


# --- arithmetic ------------------------------------------------------------------------


def text_flops_per_token(model: Model) -> int:
    """FLOP of one token through all decoder layers, attention scores and output head left out."""
    return 2 * active_parameters(model)


def logits_flops(model: Model) -> int:
    """FLOP of the output head for one position; a server needs it for a prompt's last token only."""
    return 2 * model.text.vocab * model.text.hidden


def attention_flops(model: Model, tokens: int, context: int = 0) -> int:
    """FLOP of scores and weighted values for ``tokens`` new tokens after ``context`` cached ones, causal."""
    text = model.text
    pairs = text.layers * (tokens * context + tokens * (tokens + 1) // 2)
    for window in text.window:
        far = tokens - min(max(window.tokens - context, 0), tokens)  # new tokens that no longer see all before them
        last = context + tokens - window.tokens  # tokens that the last one of them does not see
        pairs -= window.layers * far * (2 * last - far + 1) // 2
    return 4 * text.heads * text.head_dim * pairs


def prefill_flops(model: Model, tokens: int) -> int:
    """FLOP of a prompt of ``tokens`` through the language model, its last token's logits included."""
    return text_flops_per_token(model) * tokens + attention_flops(model, tokens) + logits_flops(model)


def vision_flops_per_tile(model: Model) -> int:
    """FLOP of one tile through patch embedding, encoder and projector; 0 for a text model.

    Without tiles one is a square of the same number of pixels, and layers without a window are
    counted as if they saw one tile: too little for images of many tiles.
    """
    total = 0
    for vision in model.vision:
        width, hidden, patches = vision.hidden, model.text.hidden, _patches(vision)
        tokens = patches + (0 if vision.pixels else 1)
        matrices = 4 * width * width + (3 if vision.gated else 2) * width * vision.intermediate
        seen = vision.layers * tokens
        for window in vision.window:
            seen -= (vision.layers - window.full_layers) * (tokens - (window.side // vision.patch) ** 2)
        layers = vision.layers * 2 * tokens * matrices + 4 * tokens * seen * width
        embedding = 2 * patches * _patch_inputs(vision) * width
        merged = _scale(vision) * width
        second = merged * hidden if vision.pixels else hidden * hidden
        first = merged * merged if vision.pixels else merged * hidden
        total += layers + embedding + 2 * vision.tokens_per_tile * (first + second)
    return total
