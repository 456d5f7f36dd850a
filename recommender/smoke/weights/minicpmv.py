"""Tensors and configuration of MiniCPM-V 2.6: SigLIP's layers, and learned queries that pick a square's tokens.

Names and keys are those that LMDeploy's wheel 0.18.0 reads in ``lmdeploy/pytorch/models/minicpmv26.py`` and
``lmdeploy/vl/model/minicpmv.py``. The engine skips the encoder and answers no images.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recommender.smoke.weights.layouts import CHANNELS, Tensor, encoder_keys
from recommender.smoke.weights.vision_tensors import dense, norm, split_layers

if TYPE_CHECKING:
    from recommender.knowledge.records import Model, VisionShape


def config(model: Model, _: dict[str, Any], __: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the configuration besides those of all vision models; text keys are at the top level."""
    shape = model.vision[0]
    encoder = {
        "model_type": "siglip_vision_model",
        **encoder_keys(shape),
        "image_size": round(shape.positions**0.5) * shape.patch,
        "patch_size": shape.patch,
    }
    cut = {"max_slice_nums": shape.max_tiles, "scale_resolution": shape.image, "patch_size": shape.patch}
    named = {"model_type": "minicpmv", "version": 2.6, "query_num": shape.tokens_per_tile, "image_size": shape.image}
    sliced = {"slice_mode": True, "slice_config": cut, "sliding_window": None}
    return named | sliced | {"vision_config": encoder}


def vision(shape: VisionShape, hidden: int, kind: str) -> Iterator[Tensor]:
    """Yield the tensors of the encoder and of the attention that picks tokens, whose projections are one matrix."""
    width, patch = shape.hidden, shape.patch
    yield Tensor("vpm.embeddings.patch_embedding.weight", kind, (width, CHANNELS, patch, patch), "normal")
    yield Tensor("vpm.embeddings.patch_embedding.bias", kind, (width,), "normal")
    yield Tensor("vpm.embeddings.position_embedding.weight", kind, (shape.positions, width), "normal")
    yield from split_layers(shape, "vpm.encoder.layers.", kind)
    yield from norm("vpm.post_layernorm", width, kind, True)
    yield Tensor("resampler.query", kind, (shape.tokens_per_tile, hidden), "normal")
    yield from dense("resampler.kv_proj", width, hidden, kind, False)
    yield Tensor("resampler.attn.in_proj_weight", kind, (3 * hidden, hidden), "normal")
    yield Tensor("resampler.attn.in_proj_bias", kind, (3 * hidden,), "normal")
    yield from dense("resampler.attn.out_proj", hidden, hidden, kind, True)
    for name in ("ln_q", "ln_kv", "ln_post"):
        yield from norm(f"resampler.{name}", hidden, kind, True)
    yield Tensor("resampler.proj", kind, (hidden, hidden), "normal")
