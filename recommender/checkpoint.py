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
    named = config.get("architectures")
    architecture = str(named[0]) if isinstance(named, list) and named else ""
    like = next((model for model in store.models.values() if model.architecture == architecture), None)
    if like is None:
        known = sorted({model.architecture for model in store.models.values()})
        raise CheckpointError(
            f"{shown(str(folder / 'config.json'))}: architecture {shorten(architecture)} is not covered; "
            f"covered are {', '.join(known)}"
        )
    return _model(folder, config, like), weight_bytes(folder), str(folder)


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


def _model(folder: Path, config: Mapping[str, Any], like: r.Model) -> r.Model:
    text = config.get("text_config") or config.get("llm_config") or config
    if not isinstance(text, dict):
        raise CheckpointError(f"{shown(str(folder / 'config.json'))}: llm_config is no JSON object; mend that entry")
    base = like.text
    heads = text.get("num_attention_heads", base.heads)
    hidden = text.get("hidden_size", base.hidden)
    shape = vars(base) | {
        "hidden": hidden,
        "layers": text.get("num_hidden_layers", base.layers),
        "heads": heads,
        "kv_heads": text.get("num_key_value_heads", heads),
        "head_dim": text.get("head_dim") or (hidden // heads if isinstance(hidden, int) and heads else base.head_dim),
        "intermediate": text.get("intermediate_size", base.intermediate),
        "vocab": text.get("vocab_size", base.vocab),
        "tied_embeddings": bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        "max_positions": text.get("max_position_embeddings", base.max_positions),
        "dtype": str(text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype") or "float16"),
    }
    quantization = config.get("quantization_config") or text.get("quantization_config")
    plain = vars(like) | {
        "id": "local-checkpoint",
        "hub": folder.name or str(folder),
        "aliases": [],
        "text": shape,
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


def _quantization(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        return {"method": "", "bits": 0, "group": 0, "version": ""}
    return {
        "method": found.get("quant_method", ""),
        "bits": found.get("bits", 8 if found.get("quant_method") == "fp8" else 4),
        "group": found.get("group_size", 128),
        "version": str(found.get("version") or "gemm").lower(),
    }


def _check(folder: Path, model: r.Model) -> None:
    text = model.text
    sizes = (text.hidden, text.layers, text.heads, text.kv_heads, text.head_dim, text.intermediate, text.vocab)
    if min(*sizes, text.max_positions) < 1 or max(sizes) > 10**7 or text.kv_heads > text.heads:
        raise CheckpointError(
            f"{shown(str(folder / 'config.json'))}: sizes of the language model make no sense; mend them"
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
