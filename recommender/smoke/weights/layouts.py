"""Which models get random weights, and how their architectures name and store tensors.

Read in LMDeploy's wheel 0.18.0: ``lmdeploy/turbomind/models`` and, for what only the PyTorch engine serves,
``lmdeploy/pytorch/models`` (names), ``weight_format.py`` and ``converter.py`` (quantisation and data types accepted).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.common.errors import MaintenanceError
from recommender.knowledge import records

if TYPE_CHECKING:
    from recommender.knowledge.records import Mixture, Model, TextShape, VisionShape

CHAT_LAYOUT = "InternVLChatModel"
HF_LAYOUT = "InternVLForConditionalGeneration"
S1_LAYOUT = "InternS1ForConditionalGeneration"
TILED = (CHAT_LAYOUT, HF_LAYOUT, S1_LAYOUT)
"""Architectures with an InternVL encoder; the language model's own architecture is inside."""
QWEN_VL = {"Qwen2VLForConditionalGeneration": "qwen2_vl", "Qwen2_5_VLForConditionalGeneration": "qwen2_5_vl"}
"""Architectures with a Qwen encoder, and their model types; the language model is Qwen2."""
INTERN_S2 = {
    "InternS2PreviewForConditionalGeneration": "intern_s2_preview",
    "InternS2MobiusForConditionalGeneration": "interns2_mobius",
}
"""Those of them that Transformers has no class for."""
QWEN35 = {"Qwen3_5ForConditionalGeneration": "qwen3_5", "Qwen3_5MoeForConditionalGeneration": "qwen3_5_moe"} | INTERN_S2
"""Architectures with linear attention and an encoder with learned positions, and their model types."""
QWEN3_VL = {"Qwen3VLForConditionalGeneration": "qwen3_vl", "Qwen3VLMoeForConditionalGeneration": "qwen3_vl_moe"}
"""Architectures with that encoder and ordinary attention, and their model types."""
GEMMA3 = "Gemma3ForConditionalGeneration"
GLM4V = "Glm4vForConditionalGeneration"
MINICPM = "MiniCPMV"
PHI3V = "Phi3VForCausalLM"
OMNI = "Qwen3OmniMoeForConditionalGeneration"
LLAMA4 = "Llama4ForConditionalGeneration"
LLAVA = "LlavaForConditionalGeneration"
PROJECTED = (GEMMA3, GLM4V, LLAMA4, LLAVA, MINICPM, PHI3V)
"""Architectures whose record lists the projector's matrices."""
QWEN3_NEXT = "Qwen3NextForCausalLM"
GLM_MOE = "Glm4MoeForCausalLM"
ITEM_BYTES = {"F16": 2, "BF16": 2, "F32": 4, "I32": 4, "U8": 1, "F8_E4M3": 1}
NIBBLES = 8
"""4-bit weights a 32-bit word."""
LATENT = "Glm4MoeLiteForCausalLM"
MOBIUS = "InternS2MobiusForConditionalGeneration"
"""The architecture whose layers share sets of experts."""
CHANNELS = 3
QUANTIZED = {
    "awq": ("awq", 4, 128, "gemm"),
    "gptq": ("gptq", 4, 128, "gptq"),
    "fp8": ("fp8", 8, 128, "fp8"),
    "mxfp4": ("mxfp4", 4, 32, "mxfp4"),
}
"""Method, bits, group and version that the loader accepts, by method."""


SMALL_ENCODER = {
    "hidden": 1024, "layers": 1, "heads": 16, "intermediate": 4096, "patch": 14, "image": 448, "qkv_bias": True,
    "qk_norm": False, "layer_scale": True, "norm": "layer_norm", "downsample": 0.5, "tokens_per_tile": 256,
    "min_tiles": 1, "max_tiles": 12, "thumbnail": True, "wrapper_tokens": 3,
}  # fmt: skip
"""One layer of InternVL's encoder of 300 million weights."""


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
class Experts:
    """How an architecture names its experts; ``linears`` are gate, up and down. ``packed``: one tensor holds all.

    ``shared`` names what every token passes: ``shared_expert`` has a gate of its own, ``shared_experts`` has none.
    ``corrected``: a bias corrects which experts are chosen. ``alternate``: the layers without experts are not the first
    ones but come in turn.
    """

    block: str
    router: str
    linears: tuple[str, str, str]
    packed: bool = False
    bias: bool = False
    shared: str = ""
    corrected: bool = False
    dense_layers: bool = False
    alternate: bool = False


_EACH = ("gate_proj", "up_proj", "down_proj")
_GATED = Experts("mlp", "gate", _EACH, shared="shared_expert")
_CORRECTED = Experts("mlp", "gate", _EACH, shared="shared_experts", corrected=True, dense_layers=True)
_TWO_NORMS = ("input_layernorm", "post_attention_layernorm")
_INTERN_NORMS = ("attention_norm", "ffn_norm")
_GEMMA_NORMS = (*_TWO_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
_GLM_NORMS = (*_TWO_NORMS, "post_self_attn_layernorm", "post_mlp_layernorm")


@dataclass(frozen=True, slots=True)
class Decoder:
    """How one decoder architecture differs from the others.

    ``fused``: InternLM2's names, with one tensor for queries, keys and values. ``joined``: which of ``qkv_proj`` and
    ``gate_up_proj`` are stored as one tensor. ``norms``: a layer's. ``centered``: norms add one to what is stored.
    ``latent``: keys and values are compressed. ``qk_norm`` None: some models have it (GLM-4.5), others not (4.5-Air).
    """

    model_type: str
    theta: float
    eps: float
    fused: bool = False
    qk_norm: bool | None = False
    remote: bool = False
    experts: Experts | None = None
    joined: tuple[str, ...] = ()
    norms: tuple[str, ...] = _TWO_NORMS
    centered: bool = False
    latent: bool = False


DECODERS: Mapping[str, Decoder] = {
    "Qwen2ForCausalLM": Decoder("qwen2", 1e6, 1e-6),
    "Qwen3ForCausalLM": Decoder("qwen3", 1e6, 1e-6, qk_norm=True),
    "LlamaForCausalLM": Decoder("llama", 5e5, 1e-5),
    "InternLM2ForCausalLM": Decoder("internlm2", 1e6, 1e-5, fused=True, remote=True, norms=_INTERN_NORMS),
    "InternLM3ForCausalLM": Decoder("internlm3", 5e7, 1e-5, remote=True),
    "Qwen2MoeForCausalLM": Decoder("qwen2_moe", 1e6, 1e-6, experts=_GATED),
    "Qwen3MoeForCausalLM": Decoder(
        "qwen3_moe", 1e6, 1e-6, qk_norm=True, experts=Experts("mlp", "gate", _EACH, dense_layers=True)
    ),
    "MixtralForCausalLM": Decoder(
        "mixtral", 1e6, 1e-5, experts=Experts("block_sparse_moe", "gate", ("w1", "w3", "w2"))
    ),
    "GptOssForCausalLM": Decoder(
        "gpt_oss", 1.5e5, 1e-5, experts=Experts("mlp", "router", _EACH, packed=True, bias=True)
    ),
    "Qwen3_5ForConditionalGeneration": Decoder("qwen3_5_text", 1e7, 1e-6, qk_norm=True, centered=True),
    **dict.fromkeys(
        ["Qwen3_5MoeForConditionalGeneration", *INTERN_S2],
        Decoder("qwen3_5_moe_text", 1e7, 1e-6, qk_norm=True, centered=True, experts=_GATED),
    ),
    LATENT: Decoder("glm4_moe_lite", 1e6, 1e-5, experts=_CORRECTED, latent=True),
    # These run on the PyTorch engine only.
    "MistralForCausalLM": Decoder("mistral", 1e6, 1e-5),
    "Phi3ForCausalLM": Decoder("phi3", 1e4, 1e-5, joined=("qkv_proj", "gate_up_proj")),
    PHI3V: Decoder("phi3", 1e4, 1e-5, joined=("qkv_proj", "gate_up_proj")),
    "Gemma2ForCausalLM": Decoder("gemma2", 1e4, 1e-6, norms=_GEMMA_NORMS, centered=True),
    GEMMA3: Decoder("gemma3_text", 1e6, 1e-6, qk_norm=True, norms=_GEMMA_NORMS, centered=True),
    "Glm4ForCausalLM": Decoder("glm4", 1e4, 1e-5, joined=("gate_up_proj",), norms=_GLM_NORMS),
    GLM4V: Decoder("glm4v_text", 1e4, 1e-5, joined=("gate_up_proj",), norms=_GLM_NORMS),
    GLM_MOE: Decoder("glm4_moe", 1e6, 1e-5, qk_norm=None, experts=_CORRECTED),
    QWEN3_NEXT: Decoder("qwen3_next", 1e7, 1e-6, qk_norm=True, centered=True, experts=_GATED),
    "DeepseekV2ForCausalLM": Decoder(
        "deepseek_v2",
        1e4,
        1e-6,
        latent=True,
        experts=Experts("mlp", "gate", _EACH, shared="shared_experts", dense_layers=True),
    ),
    "DeepseekV3ForCausalLM": Decoder("deepseek_v3", 1e4, 1e-6, experts=_CORRECTED, latent=True),
    "DeepseekV32ForCausalLM": Decoder("deepseek_v32", 1e4, 1e-6, experts=_CORRECTED, latent=True),
    OMNI: Decoder("qwen3_omni_moe_text", 1e6, 1e-6, qk_norm=True, experts=Experts("mlp", "gate", _EACH)),
    LLAMA4: Decoder(
        "llama4_text",
        5e5,
        1e-5,
        qk_norm=None,
        experts=Experts(
            "feed_forward", "router", _EACH, packed=True, shared="shared_expert", dense_layers=True, alternate=True
        ),
    ),
    "Qwen3VLForConditionalGeneration": Decoder("qwen3_vl_text", 5e6, 1e-6, qk_norm=True),
    "Qwen3VLMoeForConditionalGeneration": Decoder(
        "qwen3_vl_moe_text", 5e6, 1e-6, qk_norm=True, experts=Experts("mlp", "gate", _EACH, packed=True)
    ),
}
FAMILIES = {
    "qwen3moe": "Qwen3Moe", "qwen3": "Qwen3", "qwen2moe": "Qwen2Moe", "qwen2": "Qwen2", "llama": "Llama",
    "internlm2": "InternLM2", "internlm3": "InternLM3", "gptoss": "GptOss", "mixtral": "Mixtral",
}  # fmt: skip
"""Language models inside a vision model, by how the family begins; the longest beginning counts."""


def family(model: Model) -> str:
    """Return the language model's family, normalised: qwen2.5, llama3.1, internlm2.5, qwen3moe."""
    return model.text.family.lower().replace("-", "").replace("_", ".")


def by_family(model: Model, families: Mapping[str, object]) -> str:
    """Return the longest key with which the model's family begins; empty if there is none."""
    return max((prefix for prefix in families if family(model).startswith(prefix)), key=len, default="")


def decoder_name(model: Model) -> str:
    """Return the language model's architecture; raise WeightsError if unsupported."""
    if model.architecture in DECODERS:
        return model.architecture
    if model.architecture in QWEN_VL:
        return "Qwen2ForCausalLM"
    if model.architecture not in (*TILED, LLAVA, MINICPM):
        covered = ", ".join((*DECODERS, *TILED, *QWEN_VL, LLAVA, MINICPM))
        raise WeightsError(
            f"{model.id}: random weights for {model.architecture} are not supported; use a model of {covered}"
        )
    name_found = FAMILIES.get(by_family(model, FAMILIES), "")
    if not name_found:
        raise WeightsError(
            f"{model.id}: text.family {model.text.family!r} is not supported under {model.architecture}; "
            f"it should begin with one of {', '.join(FAMILIES)}"
        )
    if model.architecture != CHAT_LAYOUT and name_found.startswith("InternLM"):
        name_found = "Llama"  # converted checkpoints hold InternLM under Llama's names
    return f"{name_found}ForCausalLM"


def expert_step(text: TextShape, mixture: Mixture) -> int:
    """Return the period of layers with experts: one in this many layers has them."""
    return text.layers // (text.layers - mixture.dense_layers)


def has_experts(text: TextShape, mixture: Mixture, decoder: Decoder, number: int) -> bool:
    """Return whether a layer has experts: the last of each group where they alternate, else all after the dense."""
    step = expert_step(text, mixture)
    alternate = bool(decoder.experts and decoder.experts.alternate)
    return number % step == step - 1 if alternate else number >= mixture.dense_layers


def as_written(model: Model) -> Model:
    """Return the model in the architecture that its random checkpoint has.

    LMDeploy 0.18.0 reads gpt-oss's replies with a vocabulary from the network, and shows nothing of a reply without
    its marks. Inside a vision model the same language model is served like any other: gpt-oss is written with an
    encoder of one layer, which takes less than 1 % of its bytes.
    """
    if model.architecture != "GptOssForCausalLM":
        return model
    fields = vars(model) | {"architecture": HF_LAYOUT, "vision": [SMALL_ENCODER]}
    return records.Model.model_validate_json(json.dumps(fields, default=vars))


def encoder_keys(shape: VisionShape) -> dict[str, int]:
    """Return an encoder's size under the keys that most encoders' configurations have."""
    return {
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
    }


def check_model(model: Model) -> None:
    """Raise WeightsError for a model whose weights LMDeploy would not load as written."""
    text, name = model.text, decoder_name(model)
    decoder = DECODERS[name]
    sees = model.architecture in (*TILED, *QWEN_VL, *QWEN35, *QWEN3_VL, OMNI, *PROJECTED)
    hybrid = model.architecture in (*QWEN35, QWEN3_NEXT)
    faults = [
        (bool(model.audio) != (model.architecture == OMNI), "audio does not go with it", "fix the record's audio"),
        (sees != bool(model.vision), f"vision does not go with {model.architecture}", "fix the record's vision"),
        (decoder.qk_norm not in (text.qk_norm, None), f"text.qk_norm is not what {name} has", "fix the record"),
        (bool(text.mixture) != bool(decoder.experts), f"text.mixture is not what {name} has", "fix the record"),
        (bool(text.linear) != hybrid, f"text.linear is not what {name} has", "fix the record"),
        (text.post_norms != (len(decoder.norms) > 2), f"text.post_norms is not what {name} has", "fix the record"),
        (bool(text.latent) != decoder.latent, f"text.latent is not what {name} has", "fix the record"),
        (hybrid and bool(model.quantization), "quantised linear attention is not supported", "use 16-bit weights"),
        (text.heads % text.kv_heads != 0, "text.heads is no multiple of text.kv_heads", "fix the record"),
        *(fault for mixture in text.mixture for fault in _mixture_faults(model, mixture, decoder.experts)),
        *(fault for vision in model.vision for fault in _vision_faults(vision, model.architecture)),
        *_quantization_faults(model),
    ]
    for broken, what, fix in faults:
        if broken:
            raise WeightsError(f"{model.id}: {what}; {fix}")


_Faults = Iterator[tuple[bool, str, str]]


def _mixture_faults(model: Model, mixture: Mixture, experts: Experts | None) -> _Faults:
    text, bias, shared = model.text, bool(experts and experts.bias), bool(experts and experts.shared)
    yield mixture.bias != bias, "text.mixture.bias is not what the architecture has", "fix the record"
    yield bool(mixture.shared) != shared, "text.mixture.shared is not what the architecture has", "fix the record"
    sinks = text.attention_sinks == bool(text.window) == bias
    yield not sinks, "text.attention_sinks and text.window are not what the architecture has", "fix the record"
    name = decoder_name(model)
    yield bool(mixture.sets) != (name == MOBIUS), "text.mixture.sets is not what the architecture has", "fix the record"
    odd = mixture.corrected != bool(experts and experts.corrected)
    yield odd, "text.mixture.corrected is not what the architecture has", "fix the record"
    dense = bool(mixture.dense_layers and experts and not experts.dense_layers)
    yield dense, "the loader wants experts in every layer", "fix text.mixture.dense_layers"


def _vision_faults(vision: VisionShape, architecture: str) -> _Faults:
    kept, stacked = architecture in (*QWEN35, *QWEN3_VL, GLM4V, OMNI), architecture in (*QWEN3_VL, OMNI)
    for name, found, wanted in (
        ("positions", vision.positions, kept or architecture == MINICPM),
        ("pixels", vision.pixels, kept or architecture in QWEN_VL),
        ("deepstack", vision.deepstack, stacked),
        ("projector", vision.projector, architecture in PROJECTED),
    ):
        yield bool(found) != wanted, f"vision.{name} is not what the architecture has", "fix the record's vision"
    yield architecture in TILED and not vision.layer_scale, "the loader wants layer scales", "fix vision.layer_scale"


def _quantization_faults(model: Model) -> _Faults:
    text = model.text
    experts = DECODERS[decoder_name(model)].experts
    wide = [text.intermediate, *(mixture.shared for mixture in text.mixture)]
    if text.mixture and not any(mixture.dense_layers for mixture in text.mixture):
        wide = wide[1:]
    wide += [mixture.intermediate for mixture in text.mixture]
    for packed in model.quantization:
        kind = (packed.method, packed.bits, packed.group, packed.version)
        known = kind == QUANTIZED.get(packed.method)
        yield not known, f"quantisation {kind} is not supported", "use AWQ, GPTQ, FP8, MXFP4 or 16-bit weights"
        wanted = ("mxfp4",) if experts and experts.bias else () if experts and experts.alternate else ("fp8",)
        odd = packed.method not in wanted if experts and experts.packed else packed.method == "mxfp4"
        yield odd, f"{packed.method} does not go with {decoder_name(model)}", "fix the record's quantization"
        widths = wide if packed.method == "mxfp4" else [text.hidden, text.heads * text.head_dim, *wide]
        broken = any(width % packed.group for width in widths)
        yield broken, "widths are no multiples of the group", "fix the record"
        yield text.kv_heads * text.head_dim % NIBBLES != 0, "keys are no multiple of 8 wide", "fix the record"
