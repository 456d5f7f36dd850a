"""Read the encoders of a local Hugging Face folder: images and audio, and the limits of its image processor."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from recommender.common.parse import parse_json
from recommender.common.user_file import Unreadable, read_text
from recommender.knowledge import records


def first(entries: Mapping[str, Any], default: Any, *names: str) -> Any:
    """Return the first entry of these names that is there and not null."""
    return next((entries[name] for name in names if entries.get(name) is not None), default)


def read_fields(entries: Mapping[str, Any], base: records.Record, **keys: str) -> dict[str, Any]:
    """Return fields of a record from the entries of these keys; what is not written is the family's."""
    return {name: first(entries, getattr(base, name), key) for name, key in keys.items()}


def vision_fields(
    folder: Path, config: Mapping[str, Any], encoder: Mapping[str, Any], base: records.VisionShape
) -> dict[str, Any]:
    """Return the encoder and its preprocessing limits; what is not written is the family's."""
    shape = vars(base) | {
        "layers": first(encoder, base.layers, "num_hidden_layers", "depth"),
        "heads": first(encoder, base.heads, "num_attention_heads", "num_heads"),
        "patch": _side(first(encoder, base.patch, "patch_size")),
    }
    if base.pixels:
        return shape | _with_pixels(folder, encoder, base)
    limits = _preprocessing(folder)
    slicing = config.get("slice_config")
    if base.cut == "slices":  # the encoder's own size is that of its learned positions
        image = first(config, base.image, "image_size")
        limits = slicing if isinstance(slicing, dict) else {}
    else:
        image = _side(first(config, first(encoder, base.image, "image_size"), "force_image_size"))
    tiled = shape | {
        "hidden": first(encoder, base.hidden, "hidden_size"),
        "intermediate": first(encoder, base.intermediate, "intermediate_size"),
        "image": image,
        "qkv_bias": first(encoder, base.qkv_bias, "qkv_bias", "attention_bias"),
        "qk_norm": first(encoder, base.qk_norm, "qk_normalization", "use_qk_norm"),
        "norm": first(encoder, base.norm, "norm_type"),
        "min_tiles": first(config, base.min_tiles, "min_dynamic_patch"),
        "max_tiles": first(config, base.max_tiles, "max_dynamic_patch"),
        "thumbnail": first(config, base.thumbnail, "use_thumbnail"),
    }
    if base.cut != "grid":
        return tiled | {"max_tiles": first(limits, base.max_tiles, "max_slice_nums", "num_crops", "max_patches")}
    resized = {"min_tiles": 1, "max_tiles": 1, "thumbnail": False, "request_tiles": False}
    return tiled | resized if _resizes(folder, config) else tiled


def _with_pixels(folder: Path, encoder: Mapping[str, Any], base: records.VisionShape) -> dict[str, Any]:
    width = first(encoder, base.hidden, "hidden_size" if base.gated or base.positions else "embed_dim")
    deep = base.intermediate if base.gated else int(width * first(encoder, 4, "mlp_ratio"))
    limits = _preprocessing(folder)
    nested = limits.get("size")
    size = nested if isinstance(nested, dict) else {}
    rule = base.pixels[0]
    frames = first(encoder, rule.frames, "temporal_patch_size")
    least = first(limits, first(size, None, "min_pixels", "shortest_edge"), "min_pixels")
    most = first(limits, first(size, None, "max_pixels", "longest_edge"), "max_pixels")
    divisor = frames if rule.over_frames and isinstance(frames, int) and frames > 0 else 1
    least, most = (_share(limit, divisor, known) for limit, known in ((least, rule.least), (most, rule.most)))
    stacked = encoder.get("deepstack_visual_indexes")
    # GLM's layers are as deep as its output; their own entry is that of the projector.
    deep_name = "out_hidden_size" if base.projector else "intermediate_size"
    return {
        "hidden": width,
        "intermediate": first(encoder, deep, deep_name),
        "positions": first(encoder, base.positions, "num_position_embeddings"),
        "deepstack": len(stacked) if isinstance(stacked, list) else base.deepstack,
        "pixels": [{"least": least, "most": most, "frames": frames, "over_frames": rule.over_frames}],
        "max_tiles": max(1, -(-most // base.image**2)) if isinstance(most, int) else most,
    }


def _share(limit: Any, frames: int, default: int) -> Any:
    """Return one image's share of a limit for ``frames`` frames; the family's if the folder names none."""
    if limit is None:
        return default
    return limit // frames if isinstance(limit, int) else limit


def audio_fields(config: Mapping[str, Any], base: records.AudioShape) -> dict[str, Any]:
    """Return the audio encoder; what is not written is the family's."""
    found = config.get("audio_config")
    encoder = found if isinstance(found, dict) else {}
    names = {"hidden": "d_model", "layers": "encoder_layers", "intermediate": "encoder_ffn_dim"}
    return read_fields(encoder, base, **names, filters="downsample_hidden_size", bands="num_mel_bins")


def _resizes(folder: Path, config: Mapping[str, Any]) -> bool:
    """Return whether LMDeploy resizes an image of an InternVLChatModel to one tile instead of cutting it.

    It does where the configuration does not ask for tiles and the folder has an image processor.
    [0.18.0 lmdeploy/vl/model/internvl.py:97, 104]
    """
    cut = config.get("dynamic_image_size") or config.get("architectures") != ["InternVLChatModel"]
    return not cut and bool(_preprocessing(folder))


def _side(value: Any) -> Any:
    """Return one side of a square that some configurations write twice."""
    return value[0] if isinstance(value, list) and value else value


def _preprocessing(folder: Path) -> Mapping[str, Any]:
    """Return the image processor's limits; empty where the folder has no readable file of them."""
    try:
        limits = parse_json(read_text(folder / "preprocessor_config.json"))
    except (OSError, Unreadable):
        return {}
    return limits if isinstance(limits, dict) else {}
