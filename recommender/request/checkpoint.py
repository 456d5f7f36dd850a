"""Read a local Hugging Face folder: config.json for the shape, safetensors headers for exact bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from packaging.version import Version
from pydantic import ValidationError

from recommender.common.errors import CheckpointError
from recommender.common.parse import parse_json
from recommender.common.text import shorten
from recommender.common.user_file import MOST_BYTES, Unreadable, decode, open_regular, read_text
from recommender.knowledge import records
from recommender.knowledge.store import Store
from recommender.request.checkpoint_encoders import audio_fields, first, read_fields, vision_fields
from recommender.request.checkpoint_quantization import quantization_fields
from recommender.request.model_folder import shorten_path
from recommender.request.unknown_model import explain_architecture

CLASS_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "gemma2": {"tie_word_embeddings": True},
    "gemma3_text": {
        "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
        "max_position_embeddings": 131072, "sliding_window": 4096, "sliding_window_pattern": 6,
        "tie_word_embeddings": True,
    },
    "llama": {
        "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 32000, "max_position_embeddings": 2048,
    },
}  # fmt: skip
"""By ``model_type``: what transformers' class assumes where published files (Gemma, LLaVA) leave an entry out."""
SIZES = {
    "hidden": ("hidden_size",),
    "layers": ("num_hidden_layers",),
    "heads": ("num_attention_heads",),
    "intermediate": ("intermediate_size_mlp", "intermediate_size"),
    "vocab": ("vocab_size",),
    "max_positions": ("max_position_embeddings",),
}
"""Sizes of the language model without which a folder has no shape, and their entries; the last is the usual one."""
ENTRIES = {"kv_heads": "num_key_value_heads", "dtype": "torch_dtype"} | {name: SIZES[name][-1] for name in SIZES}


def _config_name(folder: Path) -> str:
    return shorten_path(str(folder / "config.json"))


def read(folder: Path, store: Store) -> tuple[records.Model, int, str]:
    """Return the folder as a model, its exact bytes of weights (0 without safetensors), and its path.

    Raises CheckpointError.
    """
    config = _config(folder)
    like, text = _like(folder, config, store)
    model = _model(folder, config, like, text)
    return model.model_copy(update={"needs": _needs(model, store)}), weight_bytes(folder), str(folder)


def _like(folder: Path, config: Mapping[str, Any], store: Store) -> tuple[records.Model, records.TextShape]:
    """Return a record of the same architecture and a language part, for what a config.json does not say."""
    where = _config_name(folder)
    architecture = _architecture(config)
    if not architecture:
        raise CheckpointError(f"{where}: names no architecture; download it again")
    like = [model for model in store.models.values() if model.architecture == architecture]
    if not like:
        known = sorted({model.architecture for model in store.models.values()})
        engine = explain_architecture(architecture, max(store.releases, key=Version))
        more = f": {engine}" if engine else f"; supported: {', '.join(known)}"
        raise CheckpointError(f"{where}: architecture {shorten(architecture)} is not supported{more}")
    if config.get("vision_config") and not any(model.vision for model in like):
        raise CheckpointError(f"{where}: with a vision_config, {architecture} is not supported; use its text model")
    language = _architecture(_language(folder, config))
    if language in ("", architecture):
        return like[0], like[0].text
    parts = {model.text.family: model.text for model in store.models.values() if model.architecture == language}
    if not parts:
        raise CheckpointError(f"{where}: language part {shorten(language)} of {architecture} is not supported")
    same = next((model for model in like if model.text.family in parts), None)
    return (same, same.text) if same else (like[0], next(iter(parts.values())))


def _needs(model: records.Model, store: Store) -> tuple[records.NeededOption, ...]:
    """Return the options that records of the same shape need; the folder's name does not matter."""
    alike = (each for each in store.models.values() if each.architecture == model.architecture)
    needs = {need.option: need for each in alike if _same_shape(each.text, model.text) for need in each.needs}
    return tuple(needs.values())


def _same_shape(one: records.TextShape, other: records.TextShape) -> bool:
    names = ("hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate", "vocab", "max_positions")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _architecture(config: Mapping[str, Any]) -> str:
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def _part(folder: Path, config: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """Return an inner part of the configuration by the first of its names; the whole where it has none."""
    name = next((name for name in names if config.get(name)), "")
    part = config[name] if name else config
    if not isinstance(part, dict):
        raise CheckpointError(f"{_config_name(folder)}: {name} is not a JSON object; fix that entry")
    return part


def _language(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the language model's entries, with what its class assumes."""
    part = _part(folder, config, "text_config", "llm_config")
    return {**CLASS_DEFAULTS.get(str(part.get("model_type")), {}), **part}


def _require_sizes(folder: Path, text: Mapping[str, Any], base: records.TextShape) -> None:
    for size, entries in SIZES.items():
        needless = size == "intermediate" and base.mixture  # where every layer has experts
        if first(text, None, *entries) is None and not needless:
            raise CheckpointError(f"{_config_name(folder)}: {entries[-1]} is missing; download it again")


def _config(folder: Path) -> Mapping[str, Any]:
    path = folder / "config.json"
    try:
        config = parse_json(read_text(path))
    except (OSError, Unreadable) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CheckpointError(f"{shorten_path(str(path))}: {reason}; or download it again") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{shorten_path(str(path))}: is not a JSON object; download it again")
    thinker = config.get("thinker_config")  # Qwen3-Omni: LMDeploy loads this part only
    return config | thinker if isinstance(thinker, dict) else config


def _model(folder: Path, config: Mapping[str, Any], like: records.Model, base: records.TextShape) -> records.Model:
    text = _language(folder, config)
    _require_sizes(folder, text, base)
    quantization = config.get("quantization_config") or text.get("quantization_config")
    _refuse_foreign(folder, config if not quantization else {})
    plain = vars(like) | {
        "id": "local-checkpoint",
        "hub": folder.name or str(folder),
        "aliases": [],
        "text": _text(config, text, base),
        "vision": [_vision(folder, config, text, like) for _ in like.vision],
        "audio": [audio_fields(config, audio) for audio in like.audio],
        "remote_code": bool(config.get("auto_map")),
        "quantization": [quantization_fields(_config_name(folder), quantization)] if quantization else [],
        "published": [],
    }
    try:
        model = records.Model.model_validate_json(json.dumps(plain, default=vars))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        field = ENTRIES.get(field.removeprefix("text."), field)
        raise CheckpointError(f"{_config_name(folder)}: {field}: {first['msg']}; fix that entry") from None
    _check(folder, model)
    return model


FOREIGN = {
    "modules.json": "a Sentence Transformers model; LMDeploy serves no embeddings",
    "hf_quant_config.json": "weights of NVIDIA's ModelOpt, which LMDeploy does not read; use the original, AWQ or GPTQ",
}
"""Files of a folder that no engine serves as the config.json beside them says."""


def _refuse_foreign(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise CheckpointError if a folder is another program's, though its config.json names no quantisation."""
    for name, what in FOREIGN.items():
        if (folder / name).is_file():
            raise CheckpointError(f"{shorten_path(str(folder / name))}: {what}")
    if config.get("quantization"):
        raise CheckpointError(
            f"{_config_name(folder)}: quantization: weights of MLX, which LMDeploy does not read; use the original, "
            "AWQ or GPTQ"
        )


def _text(config: Mapping[str, Any], text: Mapping[str, Any], base: records.TextShape) -> dict[str, Any]:
    sizes = {size: first(text, getattr(base, size), *entries) for size, entries in SIZES.items()}
    heads, hidden, layers = sizes["heads"], sizes["hidden"], sizes["layers"]
    head = hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads else base.head_dim
    return vars(base) | {
        **sizes,
        "kv_heads": first(text, heads, "num_key_value_heads"),
        "head_dim": first(text, head, "head_dim"),
        "tied_embeddings": bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        "dtype": str(text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype") or base.dtype),
        "attention_bias": _bias(text, base),
        "qk_norm": bool(first(text, base.qk_norm, "use_qk_norm")),
        "mixture": [_mixture(text, mixture) for mixture in base.mixture],
        "window": [_window(text, window, layers) for window in base.window],
        "linear": [_linear(text, linear) for linear in base.linear],
        **_latent(text, base),
    }


def _bias(text: Mapping[str, Any], base: records.TextShape) -> str:
    """Return which biases the attention has; where the folder does not say, the family's."""
    given = text.get("attention_bias")
    if not isinstance(given, bool):
        return base.attention_bias
    return (base.attention_bias if base.attention_bias != "none" else "qkv") if given else "none"


def _window(text: Mapping[str, Any], base: records.Window, layers: Any) -> dict[str, Any]:
    """Return the sliding window. Without a list of its layers, assume that every n-th layer has none."""
    listed = _count(text.get("layer_types"), "sliding_attention")
    every = text.get("sliding_window_pattern")
    each = every if isinstance(every, int) and every > 1 else 2
    return vars(base) | {
        "tokens": first(text, base.tokens, "sliding_window"),
        "layers": listed or max(1, int(layers) - int(layers) // each),
    }


def _latent(text: Mapping[str, Any], base: records.TextShape) -> dict[str, Any]:
    """Return latent attention, and heads as TurboMind caches them; nothing for other attention."""
    for latent in base.latent:
        shape = read_fields(text, latent, query_rank="q_lora_rank", rank="kv_lora_rank", rope="qk_rope_head_dim")
        shape |= read_fields(text, latent, key="qk_nope_head_dim", value="v_head_dim")
        if text.get("q_lora_rank", latent.query_rank) is None:
            shape["query_rank"] = 0
        keys = {"heads": "index_n_heads", "head_dim": "index_head_dim", "tokens": "index_topk"}
        shape["index"] = [read_fields(text, index, **keys) for index in latent.index]
        parts = (shape["rank"], shape["rope"])
        width = sum(parts) if all(isinstance(part, int) for part in parts) else base.head_dim
        return {"latent": [shape], "kv_heads": 1, "head_dim": width}
    return {}


def _linear(text: Mapping[str, Any], base: records.LinearAttention) -> dict[str, Any]:
    heads = {"key_heads": "linear_num_key_heads", "value_heads": "linear_num_value_heads"}
    shape = read_fields(text, base, **heads, head_dim="linear_value_head_dim", kernel="linear_conv_kernel_dim")
    return {"layers": _linear_layers(text) or base.layers} | shape


def _linear_layers(text: Mapping[str, Any]) -> int:
    """Return the number of layers with linear attention: those listed, else all but every n-th."""
    layers, every = text.get("num_hidden_layers"), text.get("full_attention_interval")
    counted = 0
    if isinstance(layers, int) and isinstance(every, int) and every > 0:
        counted = layers - layers // every
    return _count(text.get("layer_types"), "linear_attention") or counted


def _count(kinds: Any, kind: str) -> int:
    return kinds.count(kind) if isinstance(kinds, list) else 0


def _mixture(text: Mapping[str, Any], base: records.Mixture) -> dict[str, Any]:
    """Return the experts, as each family names them; dense layers are counted wherever they are."""
    dense = text.get("mlp_only_layers")
    layers = len(dense) if isinstance(dense, list) else first(text, base.dense_layers, "first_k_dense_replace")
    shared = first(text, base.shared, "shared_expert_intermediate_size")
    total, step = text.get("num_hidden_layers"), text.get("interleave_moe_layer_step")
    if isinstance(total, int) and isinstance(step, int) and step > 0:
        layers = total - total // step
    width, count = text.get("moe_intermediate_size"), text.get("n_shared_experts")
    return {
        "experts": first(text, base.experts, "num_experts", "num_local_experts", "n_routed_experts"),
        "per_token": first(text, base.per_token, "num_experts_per_tok", "experts_per_token"),
        "intermediate": first(text, base.intermediate, "moe_intermediate_size", "intermediate_size"),
        "shared": width * count if isinstance(width, int) and isinstance(count, int) else shared,
        "dense_layers": _count(text.get("mlp_layer_types"), "dense") or layers,
        "bias": base.bias,
        "corrected": base.corrected,
        "ungated": base.ungated,
        "sets": first(text, base.sets, "num_blocks") if base.sets else 0,
    }


def _vision(folder: Path, config: Mapping[str, Any], text: Mapping[str, Any], like: records.Model) -> dict[str, Any]:
    """Return the encoder, and the projector at this folder's widths where the family's is not InternVL's or Qwen's."""
    base = like.vision[0]
    encoder = _part(folder, config, "vision_config") if config.get("vision_config") else {}
    found = vision_fields(folder, config, encoder, base)
    widths = {base.hidden: found["hidden"], like.text.hidden: first(text, like.text.hidden, "hidden_size")}
    scaled = ("inputs", "outputs")
    projector = [
        vars(matrix) | {name: widths.get(getattr(matrix, name), getattr(matrix, name)) for name in scaled}
        for matrix in base.projector
    ]
    return found | {"projector": projector}


def _check(folder: Path, model: records.Model) -> None:
    text = model.text
    sizes = (text.hidden, text.layers, text.heads, text.kv_heads, text.head_dim, text.intermediate, text.vocab)
    inside = all(
        mixture.per_token <= mixture.experts and mixture.dense_layers < text.layers for mixture in text.mixture
    )
    inside = inside and all(window.layers <= text.layers for window in text.window)
    inside = inside and all(linear.layers < text.layers for linear in text.linear)
    if min(*sizes, text.max_positions) < 1 or max(sizes) > 10**7 or text.kv_heads > text.heads or not inside:
        raise CheckpointError(f"{_config_name(folder)}: impossible sizes of the language model; fix them")
    for vision in model.vision:
        shape = (vision.hidden, vision.layers, vision.heads, vision.intermediate, vision.patch, vision.image)
        limits = (*shape, vision.max_tiles)
        if min(limits) < 1 or max(limits) > 10**6 or vision.patch > vision.image or vision.heads > vision.hidden:
            raise CheckpointError(f"{_config_name(folder)}: impossible sizes of the vision encoder; fix them")


def weight_bytes(folder: Path) -> int:
    """Return the bytes of all tensors by the safetensors headers; 0 without any. Raises CheckpointError."""
    return sum(_tensor_bytes(path) for path in sorted(folder.glob("*.safetensors")))


def _tensor_bytes(path: Path) -> int:
    try:
        with open_regular(path) as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MOST_BYTES:
                raise ValueError("header too long")
            header = parse_json(decode(file.read(length)))
        ends = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
        total = sum(int(end) - int(start) for start, end in ends)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
        raise CheckpointError(
            f"{shorten_path(str(path))}: no safetensors header: the download is incomplete; download it again"
        ) from None
    if total < 0:
        raise CheckpointError(f"{shorten_path(str(path))}: negative tensor sizes; download it again")
    return total
