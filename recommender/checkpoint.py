"""A local Hugging Face folder as a model record: config.json for the shape, safetensors headers for exact bytes."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from recommender import records as r
from recommender.store import Store, shorten

MAX_CONFIG = 16 * 2**20
MAX_HEADER = 256 * 2**20


class CheckpointError(Exception):
    """A model folder cannot be used. One line: which file, what is wrong, how to mend."""


def shown(text: str) -> str:
    """A path made safe for one line."""
    return shorten(text, 120)


def is_folder(name: str) -> bool:
    """Whether a model name is a folder on this machine with a config.json."""
    try:
        return (Path(name) / "config.json").is_file()
    except (OSError, ValueError):
        return False


def looks_like_path(name: str) -> bool:
    """Whether a model name can only be meant as a folder."""
    return name.startswith(("/", "./", "../", "~"))


def read(folder: Path, store: Store) -> tuple[r.Model, int, str]:
    """The folder as a model, its exact bytes of weights (0 where no safetensors are there), and its path.

    Raises CheckpointError.
    """
    config = _config(folder)
    like, text = _like(folder, config, store)
    return _model(folder, config, like, text), weight_bytes(folder), str(folder)


def _like(folder: Path, config: Mapping[str, Any], store: Store) -> tuple[r.Model, r.TextShape]:
    """A record of the same architecture and one's language part, for what a config.json does not say."""
    where = shown(str(folder / "config.json"))
    architecture = _architecture(config)
    like = [model for model in store.models.values() if model.architecture == architecture]
    if not like:
        known = sorted({model.architecture for model in store.models.values()})
        raise CheckpointError(
            f"{where}: architecture {shorten(architecture)} is not covered; covered are {', '.join(known)}"
        )
    language = _architecture(_part(folder, config, "text_config", "llm_config"))
    if language in ("", architecture):
        return like[0], like[0].text
    parts = {model.text.family: model.text for model in store.models.values() if model.architecture == language}
    if not parts:
        raise CheckpointError(f"{where}: language part {shorten(language)} of {architecture} is not covered")
    found = next((model for model in like if model.text.family in parts), None)
    return (found, found.text) if found else (like[0], next(iter(parts.values())))


def _architecture(config: Mapping[str, Any]) -> str:
    named = config.get("architectures")
    return str(named[0]) if isinstance(named, list) and named else ""


def _part(folder: Path, config: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """An inner part of the configuration by the first of its names; the whole where there is none."""
    name = next((each for each in names if config.get(each)), "")
    part = config[name] if name else config
    if not isinstance(part, dict):
        raise CheckpointError(f"{shown(str(folder / 'config.json'))}: {name} is no JSON object; mend that entry")
    return part


def _config(folder: Path) -> Mapping[str, Any]:
    path = folder / "config.json"
    try:
        if path.stat().st_size > MAX_CONFIG:
            raise CheckpointError(f"{shown(str(path))}: larger than {MAX_CONFIG // 2**20} MiB; not a model's config")
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{shown(str(path))}: not readable as JSON ({type(error).__name__}); fetch it again"
        ) from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{shown(str(path))}: holds no JSON object; fetch it again")
    return config


def _model(folder: Path, config: Mapping[str, Any], like: r.Model, base: r.TextShape) -> r.Model:
    text = _part(folder, config, "text_config", "llm_config")
    quantization = config.get("quantization_config") or text.get("quantization_config")
    plain = vars(like) | {
        "id": "local-checkpoint",
        "hub": folder.name or str(folder),
        "aliases": [],
        "text": _text(config, text, base),
        "vision": [_vision(folder, config, each) for each in like.vision],
        "remote_code": bool(config.get("auto_map")),
        "quantization": [_quantization(quantization)] if quantization else [],
        "published": [],
    }
    try:
        model = r.Model.model_validate_json(json.dumps(plain, default=vars))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise CheckpointError(
            f"{shown(str(folder / 'config.json'))}: {field}: {first['msg']}; mend that entry"
        ) from None
    _check(folder, model)
    return model


def _first(found: Mapping[str, Any], otherwise: Any, *names: str) -> Any:
    """The entry of the first of these names that is there and not null."""
    return next((found[name] for name in names if found.get(name) is not None), otherwise)


def _text(config: Mapping[str, Any], text: Mapping[str, Any], base: r.TextShape) -> dict[str, Any]:
    heads = _first(text, base.heads, "num_attention_heads")
    hidden = _first(text, base.hidden, "hidden_size")
    head = hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads else base.head_dim
    layers = _first(text, base.layers, "num_hidden_layers")
    return vars(base) | {
        "hidden": hidden,
        "layers": layers,
        "heads": heads,
        "kv_heads": _first(text, heads, "num_key_value_heads"),
        "head_dim": _first(text, head, "head_dim"),
        "intermediate": _first(text, base.intermediate, "intermediate_size"),
        "vocab": _first(text, base.vocab, "vocab_size"),
        "tied_embeddings": bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        "max_positions": _first(text, base.max_positions, "max_position_embeddings"),
        "dtype": str(text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype") or base.dtype),
        "mixture": [_mixture(text, each) for each in base.mixture],
        "window": [
            {
                "tokens": _first(text, each.tokens, "sliding_window"),
                "layers": _count(text.get("layer_types"), "sliding_attention") or max(1, int(layers) // 2),
            }
            for each in base.window
        ],
    }


def _count(kinds: Any, kind: str) -> int:
    return kinds.count(kind) if isinstance(kinds, list) else 0


def _mixture(text: Mapping[str, Any], base: r.Mixture) -> dict[str, Any]:
    """Experts as each family names them; dense layers are counted, wherever they stand."""
    dense = text.get("mlp_only_layers")
    return {
        "experts": _first(text, base.experts, "num_experts", "num_local_experts"),
        "per_token": _first(text, base.per_token, "num_experts_per_tok", "experts_per_token"),
        "intermediate": _first(text, base.intermediate, "moe_intermediate_size", "intermediate_size"),
        "shared": _first(text, base.shared, "shared_expert_intermediate_size"),
        "dense_layers": len(dense) if isinstance(dense, list) else base.dense_layers,
        "bias": base.bias,
    }


def _vision(folder: Path, config: Mapping[str, Any], base: r.VisionShape) -> dict[str, Any]:
    """The encoder and what its preprocessing may do; what is not written is that of the family."""
    found = _part(folder, config, "vision_config") if config.get("vision_config") else {}
    shape = vars(base) | {
        "layers": _first(found, base.layers, "num_hidden_layers", "depth"),
        "heads": _first(found, base.heads, "num_attention_heads", "num_heads"),
        "patch": _side(_first(found, base.patch, "patch_size")),
    }
    if base.pixels:
        width = _first(found, base.hidden, *(("hidden_size",) if base.gated else ("embed_dim",)))
        deep = base.intermediate if base.gated else int(width * _first(found, 4, "mlp_ratio"))
        limits = _preprocessing(folder)
        nested = limits.get("size")
        size = nested if isinstance(nested, dict) else {}
        rule = base.pixels[0]
        least = _first(limits, _first(size, rule.least, "min_pixels", "shortest_edge"), "min_pixels")
        most = _first(limits, _first(size, rule.most, "max_pixels", "longest_edge"), "max_pixels")
        return shape | {
            "hidden": width,
            "intermediate": _first(found, deep, "intermediate_size"),
            "pixels": [{"least": least, "most": most, "frames": _first(found, rule.frames, "temporal_patch_size")}],
            "max_tiles": max(1, -(-most // base.image**2)) if isinstance(most, int) else most,
        }
    made = shape | {
        "hidden": _first(found, base.hidden, "hidden_size"),
        "intermediate": _first(found, base.intermediate, "intermediate_size"),
        "image": _side(_first(config, _first(found, base.image, "image_size"), "force_image_size")),
        "qkv_bias": _first(found, base.qkv_bias, "qkv_bias", "attention_bias"),
        "qk_norm": _first(found, base.qk_norm, "qk_normalization", "use_qk_norm"),
        "norm": _first(found, base.norm, "norm_type"),
        "min_tiles": _first(config, base.min_tiles, "min_dynamic_patch"),
        "max_tiles": _first(config, base.max_tiles, "max_dynamic_patch"),
        "thumbnail": _first(config, base.thumbnail, "use_thumbnail"),
    }
    uncut = {"min_tiles": 1, "max_tiles": 1, "thumbnail": False, "request_tiles": False}
    return made | uncut if _uncut(folder, config) else made


def _uncut(folder: Path, config: Mapping[str, Any]) -> bool:
    """Whether LMDeploy resizes an image of an InternVLChatModel to one tile instead of cutting it into some.

    So where the configuration does not ask for tiles and an image processor lies beside it.
    [0.18.0 lmdeploy/vl/model/internvl.py:97, 104]
    """
    cut = config.get("dynamic_image_size") or config.get("architectures") != ["InternVLChatModel"]
    return not cut and bool(_preprocessing(folder))


def _side(found: Any) -> Any:
    """One side of a square that some configurations write twice."""
    return found[0] if isinstance(found, list) and found else found


def _preprocessing(folder: Path) -> Mapping[str, Any]:
    """The image processor's limits; nothing where the folder has no such file, or none that can be read."""
    try:
        found = json.loads((folder / "preprocessor_config.json").read_text(encoding="utf-8")[:MAX_CONFIG])
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _quantization(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        return {"method": "", "bits": 0, "group": 0, "version": ""}
    method = found.get("quant_method", "")
    blocks = found.get("weight_block_size")
    block = blocks[0] if isinstance(blocks, list) and blocks else 128
    return {
        "method": method,
        "bits": found.get("bits", 8 if method == "fp8" else 4),
        "group": found.get("group_size", {"fp8": block, "mxfp4": 32}.get(str(method), 128)),
        "version": str(found.get("version") or ("gemm" if method == "awq" else method)).lower(),
    }


def _check(folder: Path, model: r.Model) -> None:
    text = model.text
    sizes = (text.hidden, text.layers, text.heads, text.kv_heads, text.head_dim, text.intermediate, text.vocab)
    inside = all(each.per_token <= each.experts and each.dense_layers < text.layers for each in text.mixture)
    inside = inside and all(each.layers <= text.layers for each in text.window)
    if min(*sizes, text.max_positions) < 1 or max(sizes) > 10**7 or text.kv_heads > text.heads or not inside:
        raise CheckpointError(
            f"{shown(str(folder / 'config.json'))}: sizes of the language model make no sense; mend them"
        )
    for each in model.vision:
        seen = (each.hidden, each.layers, each.heads, each.intermediate, each.patch, each.image, each.max_tiles)
        if min(seen) < 1 or max(seen) > 10**6 or each.patch > each.image or each.heads > each.hidden:
            raise CheckpointError(
                f"{shown(str(folder / 'config.json'))}: sizes of the vision encoder make no sense; mend them"
            )


def weight_bytes(folder: Path) -> int:
    """Bytes of all tensors by the headers of the folder's safetensors files; 0 without any. Raises CheckpointError."""
    return sum(_tensor_bytes(path) for path in sorted(folder.glob("*.safetensors")))


def _tensor_bytes(path: Path) -> int:
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > MAX_HEADER:
                raise ValueError("header too long")
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"]
        total = sum(int(end) - int(start) for start, end in ends)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError):
        raise CheckpointError(
            f"{shown(str(path))}: no safetensors header; the download is broken, fetch it again"
        ) from None
    if total < 0:
        raise CheckpointError(f"{shown(str(path))}: negative tensor sizes; fetch it again")
    return total
