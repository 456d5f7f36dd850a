"""Tensors and configuration of Gemma: four norms a layer, capped scores, and Gemma 3's SigLIP encoder.

Names and keys are those that LMDeploy's wheel 0.18.0 reads in ``lmdeploy/pytorch/models``: ``gemma.py``,
``gemma3_vl.py``, ``siglip.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recommender.smoke.weights.layouts import CHANNELS, Tensor, encoder_keys
from recommender.smoke.weights.vision_tensors import norm, split_layers

if TYPE_CHECKING:
    from recommender.knowledge.records import Model, TextShape, VisionShape

GEMMA2 = "Gemma2ForCausalLM"
USUAL_HEAD = 256
"""Width of the heads of all but the 27B models, whose config.json scales scores by hidden / heads: 144 and 168."""


def text_config(text: TextShape) -> dict[str, Any]:
    """Return the keys that only Gemma's language models have."""
    scale = text.head_dim if text.head_dim == USUAL_HEAD else text.hidden // text.heads
    keys: dict[str, Any] = {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": scale}
    capped = {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    apart = {"attn_logit_softcapping": None, "final_logit_softcapping": None, "rope_local_base_freq": 1e4}
    return keys | (apart if text.qk_norm else capped)


def config(model: Model, text: dict[str, Any], ids: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of config.json that not every vision model has."""
    vision = model.vision[0]
    encoder = {
        "model_type": "siglip_vision_model",
        **encoder_keys(vision),
        "image_size": vision.image,
        "patch_size": vision.patch,
        "vision_use_head": False,
    }
    marks = {"boi_token_index": ids["image_start"], "eoi_token_index": ids["image_end"]}
    named = marks | {"image_token_index": ids["image"], "mm_tokens_per_image": vision.tokens_per_tile}
    return {"model_type": "gemma3", "text_config": text, "vision_config": encoder, **named}


def vision(shape: VisionShape, hidden: int, kind: str) -> Iterator[Tensor]:
    """Yield the tensors of a SigLIP encoder without a class token, and of Gemma 3's projector."""
    width, patch, stem = shape.hidden, shape.patch, "vision_tower.vision_model."
    yield Tensor(f"{stem}embeddings.patch_embedding.weight", kind, (width, CHANNELS, patch, patch), "normal")
    yield Tensor(f"{stem}embeddings.patch_embedding.bias", kind, (width,), "normal")
    yield Tensor(f"{stem}embeddings.position_embedding.weight", kind, ((shape.image // patch) ** 2, width), "normal")
    yield from split_layers(shape, f"{stem}encoder.layers.", kind)
    yield from norm(f"{stem}post_layernorm", width, kind, True)
    yield Tensor("multi_modal_projector.mm_input_projection_weight", kind, (width, hidden), "normal")
    yield Tensor("multi_modal_projector.mm_soft_emb_norm.weight", kind, (width,), "normal")
