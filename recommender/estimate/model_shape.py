"""Derive parameters, bytes and FLOP from a model's shape; no model is named here.

Bytes are those of a stored checkpoint (1 byte = 8 bits, no alignment). Weights are
16-bit, with these exceptions:

- AWQ, GPTQ: the language model's linear layers are in few bits, with a 16-bit scale
  and a zero of the weight's own width for each group of inputs.
- FP8: the same layers in 8 bits, with a 16-bit scale for each square of weights.
- MXFP4: only the experts, in 4 bits with an 8-bit scale for each group.

Embeddings, output head, routers, norms, biases, vision encoder and projector stay
16-bit. Tensor parallelism follows LMDeploy 0.18.0, ``lmdeploy/turbomind/builders``:
each GPU has the whole router and a slice of each expert.

A multiply and an add are two FLOP.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from recommender.estimate.linear_attention import (
    attention_layers,
    cut_scales,
    index_bytes,
    latent_weights,
    linear_weights,
    small_weights,
    state_flops,
    value_width,
)
from recommender.estimate.vision_shape import (
    BYTES_16_BIT,
    audio_bytes,
    vision_bytes,
    vision_parameters,
    vision_weight_bytes,
)
from recommender.knowledge.quantization import only_experts

if TYPE_CHECKING:
    from recommender.knowledge.records import Mixture, Model, TextShape

MANY_TOKENS = 2**20
"""More tokens than any mixture has experts."""
KV_SCALE_AND_ZERO_BYTES = 4
"""For each vector of a quantised cache: two 16-bit numbers (block.h at v0.16.0)."""


def _kv_heads_per_rank(text: TextShape, tp: int) -> int:
    """Return the KV heads on one GPU; fewer heads than GPUs are replicated."""
    return max(1, -(-text.kv_heads // tp))


# --- parameters ------------------------------------------------------------------------


def _mixture(text: TextShape) -> Mixture | None:
    return text.mixture[0] if text.mixture else None


def _mixture_layers(text: TextShape) -> int:
    """Return the number of layers whose MLP is a mixture of experts."""
    return text.layers - text.mixture[0].dense_layers if text.mixture else 0


def _common_parameters(text: TextShape, tp: int = 1, *, stored: bool = False) -> float:
    """Return the linear weights on one GPU that every token uses.

    Attention, dense MLPs and shared experts. ``stored``: as in the checkpoint, not as loaded.
    """
    attention = (3 if text.linear else 2) * text.hidden * text.heads * text.head_dim / tp  # 3: an output gate
    attention += 2 * text.hidden * _kv_heads_per_rank(text, tp) * text.head_dim
    if text.latent:
        attention = latent_weights(text, text.latent[0], tp, stored=stored)
    mlps = 3 * text.hidden * _mlp_width(text) / tp
    return attention_layers(text) * attention + linear_weights(text, tp) + mlps


def _mlp_width(text: TextShape) -> int:
    """Return the inner width of dense MLPs and shared experts, summed over the layers."""
    if mixture := _mixture(text):
        return mixture.dense_layers * text.intermediate + _mixture_layers(text) * mixture.shared
    return text.layers * text.intermediate


def _expert_parameters(text: TextShape, tp: int = 1) -> float:
    """Return one expert's weights on one GPU, summed over the layers; 0 if dense."""
    mixture = _mixture(text)
    return _mixture_layers(text) * 3 * text.hidden * mixture.intermediate / tp if mixture else 0.0


def _router_parameters(text: TextShape, scored: float) -> int:
    """Return the weights that score ``scored`` experts a layer, of the shared experts' gates and of indexes' heads.

    They are whole on every GPU and never quantised.
    """
    mixture = _mixture(text)
    gates = bool(mixture and mixture.shared and not (mixture.corrected or mixture.ungated))
    heads = text.layers * sum(index.heads for latent in text.latent for index in latent.index)
    return round(text.hidden * (_mixture_layers(text) * (scored + gates) + heads))


def _small_parameters(text: TextShape, tp: int = 1) -> float:
    """Return norms, biases and sinks of all layers on one GPU.

    Norms are whole on every GPU.
    """
    layer = 2.0 * text.head_dim if text.qk_norm and text.qk_norm_weights else 0.0
    if text.attention_bias != "none":
        layer += text.heads * text.head_dim / tp + 2 * _kv_heads_per_rank(text, tp) * text.head_dim
        layer += text.hidden if text.attention_bias == "qkvo" else 0
    layer += text.heads / tp if text.attention_sinks else 0
    layer += sum(latent.query_rank + latent.rank for latent in text.latent)
    layer += sum(2 * index.head_dim for latent in text.latent for index in latent.index)
    norms = (4 if text.post_norms else 2) * text.layers + 1
    total = attention_layers(text) * layer + small_weights(text, tp) + norms * text.hidden
    mixture = _mixture(text)
    if mixture and mixture.bias:
        expert = 2 * mixture.intermediate / tp + text.hidden + 1  # 1: its entry in the router's bias
        total += _mixture_layers(text) * mixture.experts * expert
    if mixture and mixture.corrected:
        total += _mixture_layers(text) * mixture.experts * 2  # a number of 32 bits counts as two
    return total


def _experts(text: TextShape) -> float:
    """Return the experts in memory for each layer with experts; layers that share a set each have a part of it."""
    mixture = _mixture(text)
    if not mixture or not mixture.sets:
        return mixture.experts if mixture else 0
    return mixture.experts * mixture.sets / _mixture_layers(text)


def embedding_parameters(model: Model) -> int:
    """Return the weights of input embeddings and, if untied, the output head."""
    text = model.text
    return text.vocab * text.hidden * (1 if text.tied_embeddings else 2)


def linear_parameters(model: Model) -> int:
    """Return the weights that AWQ packs.

    The language model's linear layers without routers and output head.
    """
    text = model.text
    return round(_common_parameters(text, stored=True) + _experts(text) * _expert_parameters(text))


def mlp_matrix_parameters(model: Model, tp: int = 1) -> float:
    """Return the weights of one of an MLP's three matrices on one GPU, summed over layers and experts."""
    text = model.text
    return text.hidden * _mlp_width(text) / tp + _experts(text) * _expert_parameters(text, tp) / 3


def active_parameters(model: Model) -> int:
    """Return the weights of the linear layers that one token passes.

    A mixture counts only the experts that the token is routed to.
    """
    text = model.text
    experts = experts_read(model, 1) * _expert_parameters(text)
    return round(_common_parameters(text) + _router_parameters(text, experts_read(model, MANY_TOKENS)) + experts)


def parameters(model: Model) -> int:
    """Return all weights, counted before quantisation."""
    text = model.text
    small = _router_parameters(text, _experts(text)) + round(_small_parameters(text))
    encoders = vision_parameters(model) + audio_bytes(model) // BYTES_16_BIT
    return linear_parameters(model) + embedding_parameters(model) + small + encoders


# --- bytes -----------------------------------------------------------------------------


def linear_bits(model: Model) -> float:
    """Return the bits of a language model's linear weight; 16 if not quantised.

    The weight's share of scale and zero is included.
    """
    if not model.quantization:
        return 8 * BYTES_16_BIT
    packed = model.quantization[0]
    if packed.group <= 0:
        return packed.bits
    if packed.method == "fp8":  # a scale for a square of weights
        return packed.bits + 8 * BYTES_16_BIT / packed.group**2
    if packed.method == "mxfp4":
        return packed.bits + 8 / packed.group
    zero = 0 if packed.method == "compressed-tensors" else packed.bits
    return packed.bits + (8 * BYTES_16_BIT + zero) / packed.group


def _linear_bytes(model: Model, tp: int, experts: float, scored: float, *, stored: bool = False) -> float:
    """Return the bytes of the linear layers on one GPU.

    Each mixture layer counts ``experts`` experts and the router of ``scored`` ones.
    """
    text, bits = model.text, linear_bits(model)
    common = _common_parameters(text, tp, stored=stored) * (8 * BYTES_16_BIT if only_experts(model) else bits)
    routers = _router_parameters(text, scored) * BYTES_16_BIT
    return (common + experts * _expert_parameters(text, tp) * bits) / 8 + routers


def _text_bytes(model: Model, tp: int, *, stored: bool = False) -> float:
    text, experts = model.text, _experts(model.text)
    small = _small_parameters(text, tp) + embedding_parameters(model) / tp + cut_scales(model)
    return _linear_bytes(model, tp, experts, experts, stored=stored) + small * BYTES_16_BIT


def text_weight_bytes(model: Model) -> int:
    """Return the bytes of the language model's weights in the checkpoint."""
    return round(_text_bytes(model, 1, stored=True))


def weight_bytes(model: Model) -> int:
    """Return the bytes of all weights: the published files without their headers."""
    return text_weight_bytes(model) + vision_weight_bytes(model) + audio_bytes(model)


@lru_cache(maxsize=4096)
def weight_bytes_per_rank(model: Model, tp: int, *, vision_split: bool = True) -> int:
    """Return the bytes of weights on the fullest of ``tp`` GPUs.

    ``vision_split``: the vision encoder loads natively (TurboMind since 0.16.0, PyTorch
    engine). It then pads heads of 80 to 128, so one GPU holds more than the files do.
    Otherwise the encoder is whole on one GPU, as stored. Raises ValueError if ``tp`` < 1.
    """
    if tp < 1:
        raise ValueError(f"tp must be at least 1, not {tp}")
    vision = vision_bytes(model, tp, resident=True) if vision_split else vision_bytes(model, 1)
    return round(_text_bytes(model, tp) + vision + audio_bytes(model))


def experts_read(model: Model, tokens: int) -> int:
    """Return how many experts of a layer a pass over ``tokens`` reads at most.

    0 for a dense model.
    """
    mixture = _mixture(model.text)
    return min(mixture.experts, tokens * mixture.per_token) if mixture else 0


@lru_cache(maxsize=4096)
def decode_bytes(model: Model, tp: int = 1, batch: int = 1) -> int:
    """Return the bytes of weights that one decoding step reads on one GPU.

    Linear layers and output head. A dense model reads all of them. A mixture reads the
    experts that the step's ``batch`` tokens are routed to, at most all.
    """
    read = _linear_bytes(model, tp, experts_read(model, batch), experts_read(model, MANY_TOKENS))
    return round(read + head_bytes(model, tp))


def head_bytes(model: Model, tp: int = 1) -> float:
    """Return the bytes of the output head on one GPU; it is always 16-bit."""
    return model.text.vocab * model.text.hidden * BYTES_16_BIT / tp


@lru_cache(maxsize=4096)
def inner_rows(model: Model, tp: int = 1) -> int:
    """Return the summed inner dimensions of the linear layers that a token passes.

    On one of ``tp`` GPUs.
    """
    text, mixture = model.text, _mixture(model.text)
    wide = text.layers * text.intermediate
    if mixture:
        wide = mixture.dense_layers * text.intermediate
        wide += _mixture_layers(text) * (mixture.intermediate + mixture.shared)
    outputs = attention_layers(text) * text.heads * text.head_dim
    outputs += sum(linear.layers * value_width(linear) for linear in text.linear)
    return text.layers * 2 * text.hidden + (outputs + wide) // tp


@lru_cache(maxsize=4096)
def kv_bytes_per_token(model: Model, kv_bits: int, tp: int = 1) -> int:
    """Return the KV cache bytes of one token on one GPU (TurboMind's block layout).

    A key and a value vector for each layer and head, or one latent vector, and what picks the tokens to read. A cache
    of 8 or 4 bits adds a scale and a zero to each vector. Layers with a sliding window keep all tokens too: a block
    holds every layer, and only the attention kernels know the window (0.16.0
    src/turbomind/models/llama/unified_attention_layer.cc:150 and :553). Layers with linear attention keep none.
    Raises ValueError for other bits, or if ``tp`` < 1.
    """
    return attention_layers(model.text) * _kv_layer_bytes(model, kv_bits, tp)


def _kv_layer_bytes(model: Model, kv_bits: int, tp: int) -> int:
    if kv_bits not in (4, 8, 16):
        raise ValueError(f"kv_bits must be 16, 8 or 4, not {kv_bits}")
    if tp < 1:
        raise ValueError(f"tp must be at least 1, not {tp}")
    text = model.text
    vector = kv_bits * text.head_dim // 8 + (KV_SCALE_AND_ZERO_BYTES if kv_bits < 16 else 0)
    return (1 if text.latent else 2) * _kv_heads_per_rank(text, tp) * vector + index_bytes(text)


def _limits(text: TextShape) -> list[tuple[int, int]]:
    """Return (layers, most tokens read) of layers with a sliding window or that pick tokens."""
    picked = [(text.layers, index.tokens) for latent in text.latent for index in latent.index]
    return [(window.layers, window.tokens) for window in text.window] + picked


@lru_cache(maxsize=4096)
def kv_read_bytes(model: Model, kv_bits: int, context: int, tp: int = 1) -> int:
    """Return the cache bytes that decoding a token reads after ``context`` others.

    Layers with a sliding window read at most the window. Layers that pick tokens read those, and what picks them.
    """
    text = model.text
    tokens = attention_layers(text) * context
    for layers, most in _limits(text):
        tokens -= layers * max(context - most, 0)
    index = index_bytes(text)
    return tokens * (_kv_layer_bytes(model, kv_bits, tp) - index) + attention_layers(text) * context * index


# --- arithmetic ------------------------------------------------------------------------


def expert_flops(model: Model) -> float:
    """Return the FLOP of one token through one expert of each mixture layer; 0 for a dense model."""
    return 2 * _expert_parameters(model.text)


def attention_flops(model: Model, tokens: int, context: int = 0) -> int:
    """Return the FLOP of causal attention for ``tokens`` new tokens.

    It counts the scores and weighted values after ``context`` cached tokens, and the states of linear attention.
    """
    text = model.text
    pairs = attention_layers(text) * (tokens * context + tokens * (tokens + 1) // 2)
    for layers, most in _limits(text):
        far = tokens - min(max(most - context, 0), tokens)  # new tokens that do not see all before them
        last = context + tokens - most  # tokens that the last one of them does not see
        pairs -= layers * far * (2 * last - far + 1) // 2
    return 4 * text.heads * text.head_dim * pairs + state_flops(text, tokens)


@lru_cache(maxsize=4096)
def prefill_flops(model: Model, tokens: int) -> int:
    """Return the FLOP of a prompt of ``tokens`` through the language model.

    Only the last token's logits are computed.
    """
    logits = 2 * model.text.vocab * model.text.hidden
    return 2 * active_parameters(model) * tokens + attention_flops(model, tokens) + logits
