"""Names, types and shapes of a model's tensors.

TurboMind's loaders ask for these, read in LMDeploy's wheel 0.18.0: ``lmdeploy/turbomind/models`` (names),
``weight_format.py`` (AWQ) and ``converter.py`` (quantisation and data types it accepts).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.common.errors import MaintenanceError

if TYPE_CHECKING:
    from recommender.knowledge.records import Model, TextShape, VisionShape

CHAT_LAYOUT = "InternVLChatModel"
HF_LAYOUT = "InternVLForConditionalGeneration"
ITEM_BYTES = {"F16": 2, "BF16": 2, "I32": 4}
NIBBLES = 8
"""4-bit weights a 32-bit word."""
CHANNELS = 3


class WeightsError(MaintenanceError):
    """Random weights cannot be written."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a checkpoint; ``fill`` names its kind of values."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    fill: str

    @property
    def bytes(self) -> int:
        """Return its size in the weight file."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Decoder:
    """How one decoder architecture differs from the others."""

    model_type: str
    theta: float
    eps: float
    fused: bool = False
    qk_norm: bool = False
    remote: bool = False


DECODERS: Mapping[str, Decoder] = {
    "Qwen2ForCausalLM": Decoder("qwen2", 1e6, 1e-6),
    "Qwen3ForCausalLM": Decoder("qwen3", 1e6, 1e-6, qk_norm=True),
    "LlamaForCausalLM": Decoder("llama", 5e5, 1e-5),
    "InternLM2ForCausalLM": Decoder("internlm2", 1e6, 1e-5, fused=True, remote=True),
    "InternLM3ForCausalLM": Decoder("internlm3", 5e7, 1e-5, remote=True),
}
FAMILIES = {"qwen2": "Qwen2", "qwen3": "Qwen3", "llama": "Llama", "internlm2": "InternLM2", "internlm3": "InternLM3"}


# --- what is covered ------------------------------------------------------------------------


def family(model: Model) -> str:
    """Return the language model's family, normalised: qwen2.5, llama3.1, internlm2.5."""
    return model.text.family.lower().replace("-", "").replace("_", ".")


def decoder_name(model: Model) -> str:
    """Return the language model's architecture; raise WeightsError if unsupported."""
    if model.architecture in DECODERS:
        return model.architecture
    if model.architecture not in (CHAT_LAYOUT, HF_LAYOUT):
        covered = ", ".join((*DECODERS, CHAT_LAYOUT, HF_LAYOUT))
        raise WeightsError(
            f"{model.id}: random weights for {model.architecture} are not supported; use a model of {covered}"
        )
    name_found = next((name for prefix, name in FAMILIES.items() if family(model).startswith(prefix)), "")
    if not name_found:
        raise WeightsError(
            f"{model.id}: text.family {model.text.family!r} is not supported under {model.architecture}; "
            f"it should begin with one of {', '.join(FAMILIES)}"
        )
    if model.architecture == HF_LAYOUT and name_found.startswith("InternLM"):
        name_found = "Llama"  # converted checkpoints hold InternLM under Llama's names
    return f"{name_found}ForCausalLM"


def check_model(model: Model) -> None:
    """Raise WeightsError for a model whose weights TurboMind would not load as written."""
    text, name = model.text, decoder_name(model)
    sees = model.architecture in (CHAT_LAYOUT, HF_LAYOUT)
    faults = [
        (sees != bool(model.vision), f"vision does not go with {model.architecture}", "fix the record's vision"),
        (text.qk_norm != DECODERS[name].qk_norm, f"text.qk_norm is not what {name} has", "fix the record"),
        (bool(text.mixture), "random experts are not supported", "use a dense model"),
        (text.heads % text.kv_heads != 0, "text.heads is no multiple of text.kv_heads", "fix the record"),
        (any(not v.layer_scale for v in model.vision), "the loader wants layer scales", "fix vision.layer_scale"),
    ]
    for packed in model.quantization:
        kind = (packed.method, packed.bits, packed.group, packed.version)
        widths = (text.hidden, text.heads * text.head_dim, text.intermediate)
        faults += [
            (kind != ("awq", 4, 128, "gemm"), f"quantisation {kind} is not supported", "use AWQ or 16-bit weights"),
            (any(width % packed.group for width in widths), "widths are no multiples of the group", "fix the record"),
            (text.kv_heads * text.head_dim % NIBBLES != 0, "keys are no multiple of 8 wide", "fix the record"),
        ]
    for broken, what, mend in faults:
        if broken:
            raise WeightsError(f"{model.id}: {what}; {mend}")


# --- tensors --------------------------------------------------------------------------------


def tensors(model: Model) -> Iterator[Tensor]:
    """Yield every tensor of the checkpoint in file order."""
    float_type = {"float16": "F16", "bfloat16": "BF16"}[model.text.dtype]
    for vision in model.vision:
        legacy = model.architecture == CHAT_LAYOUT
        yield from _vision(vision, model.text.hidden, float_type, legacy)
    yield from _text(model, float_type)


def planned_bytes(model: Model) -> int:
    """Return the bytes of all tensors, without headers."""
    return sum(tensor.bytes for tensor in tensors(model))


def _dense(name: str, inputs: int, outputs: int, kind: str, bias: bool) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", kind, (outputs, inputs), "normal")
    if bias:
        yield Tensor(f"{name}.bias", kind, (outputs,), "normal")


def _quantized(name: str, inputs: int, outputs: int, kind: str, bias: bool, group: int) -> Iterator[Tensor]:
    yield Tensor(f"{name}.qweight", "I32", (inputs, outputs // NIBBLES), "nibbles")
    yield Tensor(f"{name}.qzeros", "I32", (inputs // group, outputs // NIBBLES), "zeros")
    yield Tensor(f"{name}.scales", "F16", (inputs // group, outputs), "scales")
    if bias:
        yield Tensor(f"{name}.bias", kind, (outputs,), "normal")


def _norm(name: str, width: int, kind: str, bias: bool = False) -> Iterator[Tensor]:
    yield Tensor(f"{name}.weight", kind, (width,), "ones")
    if bias:
        yield Tensor(f"{name}.bias", kind, (width,), "normal")


def _layer_linears(text: TextShape, fused: bool) -> Iterator[tuple[str, int, int, bool]]:
    """Yield name, inputs, outputs and bias of a decoder layer's linear layers."""
    query, keys = text.heads * text.head_dim, text.kv_heads * text.head_dim
    biased, all_biased = text.attention_bias != "none", text.attention_bias == "qkvo"
    if fused:
        yield "attention.wqkv", text.hidden, query + 2 * keys, biased
        yield "attention.wo", query, text.hidden, all_biased
        ups, down = ("feed_forward.w1", "feed_forward.w3"), "feed_forward.w2"
    else:
        for name, width in (("q", query), ("k", keys), ("v", keys)):
            yield f"self_attn.{name}_proj", text.hidden, width, biased
        yield "self_attn.o_proj", query, text.hidden, all_biased
        ups, down = ("mlp.gate_proj", "mlp.up_proj"), "mlp.down_proj"
    for name in ups:
        yield name, text.hidden, text.intermediate, False
    yield down, text.intermediate, text.hidden, False


def _text(model: Model, kind: str) -> Iterator[Tensor]:
    text, decoder = model.text, DECODERS[decoder_name(model)]
    top = "language_model." if model.vision else ""
    embed, head = ("tok_embeddings", "output") if decoder.fused else ("embed_tokens", "lm_head")
    before, after = ("attention_norm", "ffn_norm") if decoder.fused else ("input_layernorm", "post_attention_layernorm")
    group = model.quantization[0].group if model.quantization else 0
    yield Tensor(f"{top}model.{embed}.weight", kind, (text.vocab, text.hidden), "normal")
    for number in range(text.layers):
        layer = f"{top}model.layers.{number}."
        yield from _norm(layer + before, text.hidden, kind)
        for name, inputs, outputs, bias in _layer_linears(text, decoder.fused):
            if group:
                yield from _quantized(layer + name, inputs, outputs, kind, bias, group)
            else:
                yield from _dense(layer + name, inputs, outputs, kind, bias)
        for name in ("q_norm", "k_norm") if text.qk_norm else ():
            yield from _norm(f"{layer}self_attn.{name}", text.head_dim, kind)
        yield from _norm(layer + after, text.hidden, kind)
    yield from _norm(f"{top}model.norm", text.hidden, kind)
    if not text.tied_embeddings:
        yield Tensor(f"{top}{head}.weight", kind, (text.vocab, text.hidden), "normal")


def _vision(vision: VisionShape, hidden: int, kind: str, legacy: bool) -> Iterator[Tensor]:
    width, patch = vision.hidden, vision.patch
    names = _LEGACY_VISION if legacy else _HF_VISION
    positions = (vision.image // patch) ** 2 + 1
    yield Tensor(names["class"], kind, (1, 1, width), "normal")
    yield Tensor(names["positions"], kind, (1, positions, width), "normal")
    yield Tensor(f"{names['patches']}.weight", kind, (width, CHANNELS, patch, patch), "normal")
    yield Tensor(f"{names['patches']}.bias", kind, (width,), "normal")
    for number in range(vision.layers):
        yield from _vision_layer(vision, f"{names['layers']}.{number}.", names, kind, legacy)
    merged = round(1 / vision.downsample**2) * width
    norm, first, second = names["projector"].split()
    yield from _norm(norm, merged, kind, bias=True)
    yield from _dense(first, merged, hidden, kind, True)
    yield from _dense(second, hidden, hidden, kind, True)


def _vision_layer(
    vision: VisionShape, layer: str, names: Mapping[str, str], kind: str, legacy: bool
) -> Iterator[Tensor]:
    width, attention = vision.hidden, layer + names["attention"]
    if legacy:
        yield from _dense(f"{attention}.qkv", width, 3 * width, kind, vision.qkv_bias)
    else:
        for name in ("q_proj", "k_proj", "v_proj"):
            yield from _dense(f"{attention}.{name}", width, width, kind, vision.qkv_bias)
    for name in ("q_norm", "k_norm") if vision.qk_norm else ():
        yield from _norm(f"{attention}.{name}", width, kind)
    yield from _dense(attention + names["out"], width, width, kind, True)
    yield from _dense(f"{layer}mlp.fc1", width, vision.intermediate, kind, True)
    yield from _dense(f"{layer}mlp.fc2", vision.intermediate, width, kind, True)
    for name in names["norms"].split():
        yield from _norm(layer + name, width, kind, bias=vision.norm == "layer_norm")
    for name in names["scales"].split():
        yield Tensor(layer + name, kind, (width,), "tenths")


_LEGACY_VISION = {
    "class": "vision_model.embeddings.class_embedding",
    "positions": "vision_model.embeddings.position_embedding",
    "patches": "vision_model.embeddings.patch_embedding",
    "layers": "vision_model.encoder.layers",
    "attention": "attn",
    "out": ".proj",
    "norms": "norm1 norm2",
    "scales": "ls1 ls2",
    "projector": "mlp1.0 mlp1.1 mlp1.3",
}
_HF_VISION = {
    "class": "vision_tower.embeddings.cls_token",
    "positions": "vision_tower.embeddings.position_embeddings",
    "patches": "vision_tower.embeddings.patch_embeddings.projection",
    "layers": "vision_tower.encoder.layer",
    "attention": "attention",
    "out": ".projection_layer",
    "norms": "layernorm_before layernorm_after",
    "scales": "lambda_1 lambda_2",
    "projector": "multi_modal_projector.layer_norm multi_modal_projector.linear_1 multi_modal_projector.linear_2",
}
