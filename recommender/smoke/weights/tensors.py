"""Names, types and shapes of a model's tensors, as TurboMind's loaders ask for them (``layouts.py`` says where)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.smoke.weights import omni, qwen35
from recommender.smoke.weights.encoders import ENCODERS
from recommender.smoke.weights.layouts import (
    DECODERS,
    GLM4V,
    MINICPM,
    NIBBLES,
    OMNI,
    PHI3V,
    QWEN3_NEXT,
    QWEN3_VL,
    QWEN35,
    QWEN_VL,
    S1_LAYOUT,
    Tensor,
    decoder_name,
    has_experts,
)
from recommender.smoke.weights.vision_tensors import dense, norm, tiled_vision

if TYPE_CHECKING:
    from recommender.knowledge.records import Mixture, Model, TextShape
    from recommender.smoke.weights.layouts import Decoder, Experts

FLOATS = {"float16": "F16", "bfloat16": "BF16"}


def tensors(model: Model) -> Iterator[Tensor]:
    """Yield every tensor of the checkpoint in file order."""
    float_type = FLOATS[model.text.dtype]
    for vision in model.vision:
        if encoder := ENCODERS.get(model.architecture):
            yield from encoder.vision(vision, model.text.hidden, float_type)
        else:
            yield from tiled_vision(vision, model.text.hidden, float_type, model.architecture)
    for audio in model.audio:
        yield from omni.audio(audio, model.text.hidden, float_type)
    yield from _text(model, float_type)


def planned_bytes(model: Model) -> int:
    """Return the bytes of all tensors, without headers."""
    return sum(tensor.bytes for tensor in tensors(model))


# --- one linear layer -----------------------------------------------------------------------


def _linear(name: str, inputs: int, outputs: int, kind: str, bias: bool, method: str) -> Iterator[Tensor]:
    """Yield a linear layer as the method stores it; an empty one is 16-bit."""
    groups = inputs // 128
    if method in ("awq", "gptq"):
        packed = (inputs, outputs // NIBBLES) if method == "awq" else (inputs // NIBBLES, outputs)
        yield Tensor(f"{name}.qweight", "I32", packed, "nibbles")
        yield Tensor(f"{name}.qzeros", "I32", (groups, outputs // NIBBLES), "zeros")
        yield Tensor(f"{name}.scales", "F16", (groups, outputs), "scales")
    elif method == "fp8":
        yield Tensor(f"{name}.weight", "F8_E4M3", (outputs, inputs), "bytes")
        yield Tensor(f"{name}.weight_scale_inv", kind, (-(-outputs // 128), groups), "steps")
    if not method:
        yield from dense(name, inputs, outputs, kind, bias)
    elif bias:
        yield Tensor(f"{name}.bias", kind, (outputs,), "normal")


def _norm(name: str, width: int, kind: str, centered: bool = False) -> Tensor:
    """Return a norm; one that is ``centered`` adds one to what is stored."""
    return Tensor(f"{name}.weight", kind, (width,), "normal" if centered else "ones")


# --- language model -------------------------------------------------------------------------


_STEMS = {OMNI: ("thinker.model.", "thinker."), MINICPM: ("llm.model.", "llm.")}


def _stem(model: Model) -> tuple[str, str]:
    """Return the prefixes of the decoder's names and of the output head's name."""
    if not model.vision or model.architecture in (*QWEN_VL, PHI3V):
        return "model.", ""
    if model.architecture in _STEMS:
        return _STEMS[model.architecture]
    if model.architecture in (S1_LAYOUT, GLM4V, *QWEN35, *QWEN3_VL):
        return "model.language_model.", ""
    return "language_model.model.", "language_model."


def _text(model: Model, kind: str) -> Iterator[Tensor]:
    text, decoder = model.text, DECODERS[decoder_name(model)]
    stem, top = _stem(model)
    embed, head = ("tok_embeddings", "output") if decoder.fused else ("embed_tokens", "lm_head")
    method = model.quantization[0].method if model.quantization else ""
    common = "" if method == "mxfp4" else method  # that one quantises experts only
    yield Tensor(f"{stem}{embed}.weight", kind, (text.vocab, text.hidden), "normal")
    for shared in text.mixture:
        yield from _sets(f"{stem}meta_mlp.", text.hidden, shared, kind)
    for number in range(text.layers):
        layer = f"{stem}layers.{number}."
        first, *others = decoder.norms
        yield _norm(layer + first, text.hidden, kind, decoder.centered)
        if linear := qwen35.linear_layer(text, number):
            for name, inputs, outputs in qwen35.linear_matrices(linear, text.hidden, model.architecture == QWEN3_NEXT):
                yield from _linear(f"{layer}linear_attn.{name}", inputs, outputs, kind, False, common)
            yield from qwen35.linear_rest(layer, linear, kind)
        else:
            yield from _attention_tensors(layer, text, decoder, kind, common)
        mixture = next((mixture for mixture in text.mixture if has_experts(text, mixture, decoder, number)), None)
        if mixture and decoder.experts:
            yield from _mixture(f"{layer}{decoder.experts.block}.", text.hidden, mixture, decoder.experts, kind, method)
        else:
            for name, inputs, outputs in _mlp(text, decoder):
                yield from _linear(layer + name, inputs, outputs, kind, False, common)
        for other in others:
            yield _norm(layer + other, text.hidden, kind, decoder.centered)
    yield _norm(f"{stem}norm", text.hidden, kind, decoder.centered)
    if not text.tied_embeddings:
        yield Tensor(f"{top}{head}.weight", kind, (text.vocab, text.hidden), "normal")


def _attention_tensors(layer: str, text: TextShape, decoder: Decoder, kind: str, method: str) -> Iterator[Tensor]:
    for latent in text.latent:
        if latent.query_rank:
            yield _norm(f"{layer}self_attn.q_a_layernorm", latent.query_rank, kind)
        yield _norm(f"{layer}self_attn.kv_a_layernorm", latent.rank, kind)
        for index in latent.index:
            yield from norm(f"{layer}self_attn.indexer.k_norm", index.head_dim, kind, True)
            yield from dense(f"{layer}self_attn.indexer.weights_proj", text.hidden, index.heads, kind, False)
    for name, inputs, outputs, bias in _attention(text, decoder):
        yield from _linear(layer + name, inputs, outputs, kind, bias, method)
    for name in ("q_norm", "k_norm") if text.qk_norm and text.qk_norm_weights else ():
        yield _norm(f"{layer}self_attn.{name}", text.head_dim, kind, decoder.centered)
    if text.attention_sinks:
        yield Tensor(f"{layer}self_attn.sinks", kind, (text.heads,), "normal")


def _attention(text: TextShape, decoder: Decoder) -> Iterator[tuple[str, int, int, bool]]:
    for latent in text.latent:
        wide = text.heads * (latent.key + latent.rope)
        if latent.query_rank:
            yield "self_attn.q_a_proj", text.hidden, latent.query_rank, False
            yield "self_attn.q_b_proj", latent.query_rank, wide, False
        else:
            yield "self_attn.q_proj", text.hidden, wide, False
        yield "self_attn.kv_a_proj_with_mqa", text.hidden, latent.rank + latent.rope, False
        yield "self_attn.kv_b_proj", latent.rank, text.heads * (latent.key + latent.value), False
        yield "self_attn.o_proj", text.heads * latent.value, text.hidden, False
        for index in latent.index:
            yield "self_attn.indexer.wq_b", latent.query_rank, index.heads * index.head_dim, False
            yield "self_attn.indexer.wk", text.hidden, index.head_dim, False
        return
    query, keys = text.heads * text.head_dim, text.kv_heads * text.head_dim
    biased, all_biased = text.attention_bias != "none", text.attention_bias == "qkvo"
    if decoder.fused:
        yield "attention.wqkv", text.hidden, query + 2 * keys, biased
        yield "attention.wo", query, text.hidden, all_biased
        return
    if "qkv_proj" in decoder.joined:
        yield "self_attn.qkv_proj", text.hidden, query + 2 * keys, biased
        yield "self_attn.o_proj", query, text.hidden, all_biased
        return
    gated = 2 if text.linear else 1  # each query head is followed by its output gate
    for name, width in (("q", gated * query), ("k", keys), ("v", keys)):
        yield f"self_attn.{name}_proj", text.hidden, width, biased
    yield "self_attn.o_proj", query, text.hidden, all_biased


def _mlp(text: TextShape, decoder: Decoder) -> Iterator[tuple[str, int, int]]:
    if "gate_up_proj" in decoder.joined:
        yield "mlp.gate_up_proj", text.hidden, 2 * text.intermediate
        yield "mlp.down_proj", text.intermediate, text.hidden
        return
    names = ("feed_forward.w1", "feed_forward.w3", "feed_forward.w2") if decoder.fused else ()
    block = decoder.experts.block if decoder.experts else "mlp"
    gate, up, down = names or (f"{block}.gate_proj", f"{block}.up_proj", f"{block}.down_proj")
    yield from ((name, text.hidden, text.intermediate) for name in (gate, up))
    yield down, text.intermediate, text.hidden


def _mixture(
    block: str, hidden: int, mixture: Mixture, experts: Experts, kind: str, method: str
) -> Iterator[Tensor]:  # fmt: skip
    """Yield a layer's router and experts; router and the shared expert's gate are 16-bit always."""
    own = 0 if mixture.sets else mixture.experts
    if own:
        yield from _linear(block + experts.router, hidden, own, kind, mixture.bias, "")
    packed = experts.packed and method != "fp8"  # 8-bit experts are one tensor each
    if packed:
        yield from _packed(f"{block}experts.", hidden, mixture, kind, method)
    parts = [(f"{block}experts.{number}.", mixture.intermediate) for number in range(0 if packed else own)]
    if experts.shared:
        parts.append((f"{block}{experts.shared}.", mixture.shared))
    if experts.corrected:
        yield Tensor(f"{block}{experts.router}.e_score_correction_bias", "F32", (own,), "normal")
    elif experts.shared and not mixture.ungated:
        yield from _linear(f"{block}shared_expert_gate", hidden, 1, kind, False, "")
    gate, up, down = experts.linears
    for expert, width in parts:
        yield from _linear(expert + gate, hidden, width, kind, False, method)
        yield from _linear(expert + up, hidden, width, kind, False, method)
        yield from _linear(expert + down, width, hidden, kind, False, method)


def _sets(block: str, hidden: int, mixture: Mixture, kind: str) -> Iterator[Tensor]:
    """Yield the sets of experts that layers share, each with its router."""
    count, width = mixture.experts, mixture.intermediate
    for number in range(mixture.sets):
        yield Tensor(f"{block}{number}.experts.gate_up_proj", kind, (count, 2 * width, hidden), "normal")
        yield Tensor(f"{block}{number}.experts.down_proj", kind, (count, hidden, width), "normal")
        yield from dense(f"{block}{number}.gate", hidden, count, kind, False)


def _packed(block: str, hidden: int, mixture: Mixture, kind: str, method: str) -> Iterator[Tensor]:
    """Yield a layer's experts where all are in one tensor, 16-bit ones with inputs first (gpt-oss, Qwen3-VL)."""
    count = mixture.experts
    for name, inputs, outputs in (
        ("gate_up_proj", hidden, 2 * mixture.intermediate),
        ("down_proj", mixture.intermediate, hidden),
    ):
        if method == "mxfp4":
            yield Tensor(f"{block}{name}_blocks", "U8", (count, outputs, inputs // 32, 16), "pairs")
            yield Tensor(f"{block}{name}_scales", "U8", (count, outputs, inputs // 32), "exponents")
        else:
            yield Tensor(f"{block}{name}", kind, (count, inputs, outputs), "normal")
        if mixture.bias:
            yield Tensor(f"{block}{name}_bias", kind, (count, outputs), "normal")
