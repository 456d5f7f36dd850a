"""config.json of a synthetic folder, and the small class that reads it where Transformers has none.

Keys are those LMDeploy reads in its wheel 0.18.0: ``lmdeploy/turbomind/models`` and its ``utils.py`` (shapes, rotary
embedding), ``converter.py`` (types, quantisation), ``lmdeploy/vl/model/internvl*.py`` (tiles).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recommender.smoke.weights import gemma, glm4v, llama4, qwen35, tokenizer
from recommender.smoke.weights.encoders import ENCODERS
from recommender.smoke.weights.layouts import (
    CHANNELS,
    CHAT_LAYOUT,
    DECODERS,
    GEMMA3,
    GLM4V,
    GLM_MOE,
    INTERN_S2,
    LLAMA4,
    MINICPM,
    OMNI,
    PHI3V,
    QWEN3_VL,
    QWEN_VL,
    S1_LAYOUT,
    decoder_name,
    encoder_keys,
    family,
)  # fmt: skip

if TYPE_CHECKING:
    from recommender.knowledge.records import Mixture, Model, Quantization, TextShape, VisionShape

CLASS_FILE = "configuration_synthetic.py"
TRANSFORMERS = "4.56.0"
"""The oldest Transformers that LMDeploy 0.18.0 accepts; without it, newer ones warn of an old tokenizer."""
_CLASS = '''"""Configuration of a folder with RANDOM weights, for measuring; not the real model."""

from transformers import CONFIG_MAPPING, PretrainedConfig


class SyntheticTextConfig(PretrainedConfig):
    model_type = "TEXT_TYPE"
    rope_parameters = None


class SyntheticVisionConfig(PretrainedConfig):
    model_type = "intern_vit_6b"


class SyntheticVisionModelConfig(PretrainedConfig):
    model_type = "MODEL_TYPE"
    is_composition = True

    def __init__(self, vision_config=None, TEXT_KEY=None, **kwargs):
        super().__init__(**kwargs)
        text = TEXT_KEY or {}
        kind = text.get("model_type")
        made_by = CONFIG_MAPPING[kind] if kind in CONFIG_MAPPING else SyntheticTextConfig
        self.vision_config = SyntheticVisionConfig(**(vision_config or {}))
        self.TEXT_KEY = made_by(**text)
'''
_MODEL_TYPES = {
    CHAT_LAYOUT: ("internvl_chat", "llm_config"),
    S1_LAYOUT: ("interns1", "text_config"),
    **{name: (kind, "text_config") for name, kind in INTERN_S2.items()},
}
"""Vision models that Transformers has no class for: their type, and the key of their language model."""


def config(model: Model, mark: Mapping[str, Any], ids: Mapping[str, Any]) -> dict[str, Any]:
    """Return config.json; ``ids`` holds bos, eos, pad and the image token, if any."""
    text = _text_config(model, ids)
    remote = DECODERS[decoder_name(model)].remote
    if not model.vision:
        mapped = {"auto_map": {"AutoConfig": f"{_module()}.SyntheticTextConfig"}} if remote else {}
        return {"synthetic": dict(mark), "transformers_version": TRANSFORMERS, **text, **mapped}
    common: dict[str, Any] = {"synthetic": dict(mark), "architectures": [model.architecture]}
    common |= {
        "transformers_version": TRANSFORMERS,
        "torch_dtype": model.text.dtype,
        "tie_word_embeddings": model.text.tied_embeddings,
    }
    vision = model.vision[0]
    own = {"auto_map": {"AutoConfig": f"{_module()}.SyntheticVisionModelConfig"}}
    if model.architecture in _MODEL_TYPES:
        common |= own
    if encoder := ENCODERS.get(model.architecture):
        at_the_top = text if model.architecture in (*QWEN_VL, MINICPM, PHI3V) else {}
        if model.architecture in (MINICPM, PHI3V):  # else Transformers 5 leaves None
            at_the_top = text | {"rope_parameters": {"rope_type": "default", "rope_theta": text["rope_theta"]}}
        return at_the_top | common | encoder.config(model, text, {**ids, **tokenizer.special_tokens(model).ids})
    if model.architecture == CHAT_LAYOUT:
        return common | _chat_config(vision) | {"llm_config": text, "vision_config": _vision_config(model)}
    return common | {
        "model_type": "interns1" if model.architecture == S1_LAYOUT else "internvl",
        "downsample_ratio": vision.downsample,
        "image_seq_length": vision.tokens_per_tile,
        "image_token_id": ids["image"],
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "default",
        "text_config": text,
        "vision_config": _vision_config(model),
    }


def config_class(model: Model) -> str:
    """Return the Python file that reads config.json if Transformers has no class for it."""
    decoder = DECODERS[decoder_name(model)]
    if model.architecture not in _MODEL_TYPES and (model.vision or not decoder.remote):
        return ""
    kind, key = _MODEL_TYPES.get(model.architecture, ("unused", "text_config"))
    return (
        _CLASS.replace("TEXT_TYPE", decoder.model_type).replace("MODEL_TYPE", kind).replace("TEXT_KEY", key)
    )  # fmt: skip


def _module() -> str:
    return CLASS_FILE.removesuffix(".py")


def _rope_scaling(model: Model) -> dict[str, Any] | None:
    """Return the family's published RoPE scaling; it does not affect memory."""
    name, positions, head = family(model), model.text.max_positions, model.text.head_dim
    if model.architecture in (*QWEN3_VL, OMNI):
        sections = [head * 3 // 16, head * 5 // 32, head * 5 // 32]
        return {"rope_type": "default", "mrope_interleaved": True, "mrope_section": sections}
    if model.architecture in QWEN_VL:
        return {"type": "mrope", "rope_type": "default", "mrope_section": [head // 8, head * 3 // 16, head * 3 // 16]}
    if name == "gptoss":
        return {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
                "original_max_position_embeddings": max(1, positions // 32)}  # fmt: skip
    if name.startswith("llama3") and positions > 8192:
        factors = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        return {"rope_type": "llama3", "original_max_position_embeddings": 8192, **factors}
    if model.architecture == GEMMA3:  # on Transformers 5, LMDeploy takes for granted that there is a factor
        return {"rope_type": "linear", "factor": 8.0}
    factor = {"internlm2": 2.0, "internlm3": 6.0}.get(name[:9])
    return {"rope_type": "dynamic", "type": "dynamic", "factor": factor} if factor else None


def _text_config(model: Model, ids: Mapping[str, Any]) -> dict[str, Any]:
    text, name = model.text, decoder_name(model)
    decoder, biased = DECODERS[name], model.text.attention_bias != "none"
    settings: dict[str, Any] = {
        "architectures": [name],
        "model_type": decoder.model_type,
        "hidden_size": text.hidden,
        "intermediate_size": text.intermediate,
        "num_hidden_layers": text.layers,
        "num_attention_heads": text.heads,
        "num_key_value_heads": text.kv_heads,
        **({} if text.latent else {"head_dim": text.head_dim}),
        "vocab_size": text.vocab,
        "max_position_embeddings": text.max_positions,
        "rms_norm_eps": decoder.eps,
        "rope_theta": decoder.theta,
        "rope_scaling": _rope_scaling(model),
        "tie_word_embeddings": text.tied_embeddings,
        "hidden_act": "silu",
        "attention_bias": biased,
        "torch_dtype": text.dtype,
        "bos_token_id": ids["bos"],
        "eos_token_id": ids["eos"][0],
        "pad_token_id": ids["pad"],
    }
    if text.linear:
        del settings["rope_theta"], settings["rope_scaling"], settings["torch_dtype"]
        settings |= qwen35.text_config(text, decoder.theta, bool(model.vision))
    settings |= _attention_config(model)
    if decoder.remote:
        settings |= {"bias": text.attention_bias == "qkvo", "qkv_bias": biased}
    settings |= _mixture_config(model)
    settings |= _window_config(text)
    for packed in model.quantization:
        settings["quantization_config"] = _quantization(packed)
    return settings


def _attention_config(model: Model) -> dict[str, Any]:
    """Return the keys of attention that only some families have."""
    text, name = model.text, decoder_name(model)
    if text.latent:
        return _latent_config(model)
    if name == GLM4V:
        return glm4v.text_config(text)
    if name == GLM_MOE:
        return {"use_qk_norm": text.qk_norm}
    return gemma.text_config(text) if name in (gemma.GEMMA2, GEMMA3) else {}


def _latent_config(model: Model) -> dict[str, Any]:
    (latent,) = model.text.latent
    picked = {
        key: value
        for index in latent.index
        for key, value in (("n_heads", index.heads), ("head_dim", index.head_dim), ("topk", index.tokens))
    }
    return {
        **{f"index_{key}": value for key, value in picked.items()},
        "num_key_value_heads": model.text.heads,
        "q_lora_rank": latent.query_rank or None,
        "kv_lora_rank": latent.rank,
        "qk_rope_head_dim": latent.rope,
        "qk_nope_head_dim": latent.key,
        "v_head_dim": latent.value,
    }


def _mixture_config(model: Model) -> dict[str, Any]:
    """Return the keys of experts and of layers that look back a window, as each family names them."""
    text, name = model.text, decoder_name(model)
    settings: dict[str, Any] = {}
    for mixture in text.mixture:
        settings |= {"num_experts_per_tok": mixture.per_token}
        if name == LLAMA4:
            settings |= llama4.text_config(text, mixture)
        elif mixture.corrected or mixture.ungated:
            settings |= _routed(text, mixture)
        elif name in ("MixtralForCausalLM", "GptOssForCausalLM"):
            settings |= {"num_local_experts": mixture.experts, "intermediate_size": mixture.intermediate}
        else:
            settings |= {
                "num_experts": mixture.experts,
                "moe_intermediate_size": mixture.intermediate,
                "norm_topk_prob": name != "Qwen2MoeForCausalLM",
                "decoder_sparse_step": 1,
                "mlp_only_layers": list(range(mixture.dense_layers)),
            }
        if mixture.sets:
            settings["num_blocks"] = mixture.sets
        if mixture.shared and "n_routed_experts" not in settings:
            settings["shared_expert_intermediate_size"] = mixture.shared
    return settings


def _window_config(text: TextShape) -> dict[str, Any]:
    """Return the keys of layers that look back a window; the last of each group sees everything."""
    for window in text.window:
        every = text.layers // (text.layers - window.layers)
        kinds = ("sliding_attention", "full_attention")
        types = [kinds[number % every == every - 1] for number in range(text.layers)]
        return {"sliding_window": window.tokens, "layer_types": types}
    return {}


def _routed(text: TextShape, mixture: Mixture) -> dict[str, Any]:
    """Return the keys of GLM's and DeepSeek's experts."""
    scored = {"scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": True}
    plain = {"scoring_func": "softmax", "topk_method": "greedy", "norm_topk_prob": False}
    return (scored if mixture.corrected else plain) | {
        "n_routed_experts": mixture.experts,
        "n_shared_experts": mixture.shared // mixture.intermediate,
        "moe_intermediate_size": mixture.intermediate,
        "first_k_dense_replace": mixture.dense_layers,
        "mlp_layer_types": ["dense"] * mixture.dense_layers + ["sparse"] * (text.layers - mixture.dense_layers),
        "moe_layer_freq": 1,
        "routed_scaling_factor": 1.8 if mixture.corrected else 1.0,
        "n_group": 8 if mixture.experts == 256 else 1,  # DeepSeek-V3 and its successors
        "topk_group": 4 if mixture.experts == 256 else 1,
    }


def _quantization(packed: Quantization) -> dict[str, Any]:
    if packed.method == "mxfp4":
        return {"quant_method": "mxfp4"}
    if packed.method == "fp8":
        blocks = [packed.group, packed.group]
        return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": blocks}
    own: dict[str, Any] = {"version": packed.version, "zero_point": True}
    if packed.method == "gptq":
        own = {"desc_act": False, "sym": True}
    return {"quant_method": packed.method, "bits": packed.bits, "group_size": packed.group, **own}


def _chat_config(vision: VisionShape) -> dict[str, Any]:
    return {
        "model_type": "internvl_chat",
        "downsample_ratio": vision.downsample,
        "dynamic_image_size": True,
        "force_image_size": vision.image,
        "max_dynamic_patch": vision.max_tiles,
        "min_dynamic_patch": vision.min_tiles,
        "use_thumbnail": vision.thumbnail,
        "ps_version": "v2",
        "select_layer": -1,
        "template": "internvl2_5",
    }


def _vision_config(model: Model) -> dict[str, Any]:
    vision, legacy = model.vision[0], model.architecture == CHAT_LAYOUT
    settings: dict[str, Any] = {
        **encoder_keys(vision),
        "num_channels": CHANNELS,
        "layer_norm_eps": 1e-6,
        "norm_type": vision.norm,
        "hidden_act": "gelu",
        "torch_dtype": model.text.dtype,
    }
    if legacy:
        return settings | {
            "architectures": ["InternVisionModel"],
            "model_type": "intern_vit_6b",
            "image_size": vision.image,
            "patch_size": vision.patch,
            "qk_normalization": vision.qk_norm,
            "qkv_bias": vision.qkv_bias,
        }
    return settings | {
        "architectures": ["InternVLVisionModel"],
        "model_type": "internvl_vision",
        "image_size": [vision.image, vision.image],
        "patch_size": [vision.patch, vision.patch],
        "use_qk_norm": vision.qk_norm,
        "attention_bias": vision.qkv_bias,
        "use_absolute_position_embeddings": True,
        "use_mask_token": False,
        "use_mean_pooling": True,
    }
