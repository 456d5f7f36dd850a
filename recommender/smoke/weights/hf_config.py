"""config.json of a synthetic folder, and the small class that reads it where Transformers has none.

Keys are those LMDeploy reads in its wheel 0.18.0: ``lmdeploy/turbomind/models/internvl.py`` and ``utils.py`` (shapes,
rotary embedding), ``converter.py`` (types, quantisation), ``lmdeploy/vl/model/internvl*.py`` (tiles).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from recommender.smoke.weights.tensors import CHANNELS, CHAT_LAYOUT, DECODERS, decoder_name, family

if TYPE_CHECKING:
    from recommender.knowledge.records import Model, VisionShape

CLASS_FILE = "configuration_synthetic.py"
TRANSFORMERS = "4.56.0"
"""The oldest Transformers that LMDeploy 0.18.0 accepts; without it, newer ones warn of an old tokenizer."""
_CLASS = '''"""Configuration of a folder with RANDOM weights, for measuring; not the real model."""

from transformers import LlamaConfig, PretrainedConfig, Qwen2Config, Qwen3Config


class SyntheticTextConfig(PretrainedConfig):
    model_type = "MODEL_TYPE"
    rope_parameters = None


class SyntheticVisionConfig(PretrainedConfig):
    model_type = "intern_vit_6b"


TEXT = {"Qwen2ForCausalLM": Qwen2Config, "Qwen3ForCausalLM": Qwen3Config, "LlamaForCausalLM": LlamaConfig}


class SyntheticChatConfig(PretrainedConfig):
    model_type = "internvl_chat"
    is_composition = True

    def __init__(self, vision_config=None, llm_config=None, **kwargs):
        super().__init__(**kwargs)
        text = llm_config or {}
        made_by = TEXT.get((text.get("architectures") or [""])[0], SyntheticTextConfig)
        self.vision_config = SyntheticVisionConfig(**(vision_config or {}))
        self.llm_config = made_by(**text)
'''


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
    if model.architecture == CHAT_LAYOUT:
        return common | _chat_config(vision) | {"llm_config": text, "vision_config": _vision_config(model)}
    return common | {
        "model_type": "internvl",
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
    if model.architecture == CHAT_LAYOUT or (not model.vision and decoder.remote):
        return _CLASS.replace("MODEL_TYPE", decoder.model_type)
    return ""


def _module() -> str:
    return CLASS_FILE.removesuffix(".py")


def _rope_scaling(model: Model) -> dict[str, Any] | None:
    """Return the family's published RoPE scaling; it does not affect memory."""
    name, positions = family(model), model.text.max_positions
    if name.startswith("llama3") and positions > 8192:
        factors = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        return {"rope_type": "llama3", "original_max_position_embeddings": 8192, **factors}
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
        "head_dim": text.head_dim,
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
    if decoder.remote:
        settings |= {"bias": text.attention_bias == "qkvo", "qkv_bias": biased}
    if model.quantization:
        packed = model.quantization[0]
        settings["quantization_config"] = {
            "quant_method": packed.method,
            "bits": packed.bits,
            "group_size": packed.group,
            "version": packed.version,
            "zero_point": True,
        }
    return settings


def _chat_config(vision: VisionShape) -> dict[str, Any]:
    return {
        "model_type": "internvl_chat",
        "auto_map": {"AutoConfig": f"{_module()}.SyntheticChatConfig"},
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
        "hidden_size": vision.hidden,
        "intermediate_size": vision.intermediate,
        "num_hidden_layers": vision.layers,
        "num_attention_heads": vision.heads,
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
    }
