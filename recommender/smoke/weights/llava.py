"""Tensors and configuration of LLaVA-1.5: CLIP's encoder with a class token, and a projector of two layers.

Names and keys are those that LMDeploy's wheel 0.18.0 reads in ``lmdeploy/pytorch/models/llava.py`` and
``lmdeploy/vl/model/llava_hf.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recommender.smoke.weights.layouts import CHANNELS, Tensor, encoder_keys
from recommender.smoke.weights.vision_tensors import dense, norm, split_layers

if TYPE_CHECKING:
    from recommender.knowledge.records import Model, VisionShape

TOKENS = {"<image>": 32000, "<pad>": 32001}
PROCESSOR = "LlavaProcessor"
WORDS = (
    "chat between a curious human and an artificial intelligence assistant The gives helpful detailed polite answers "
    "to the questions USER ASSISTANT"
)
"""Words of the chat template that LMDeploy writes itself (``lmdeploy/model.py``, llava-v1): each is one token."""
STEM = "vision_tower.vision_model."


def config(model: Model, text: dict[str, Any], ids: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the configuration besides those of all vision models."""
    shape = model.vision[0]
    encoder = {
        "model_type": "clip_vision_model",
        **encoder_keys(shape),
        "image_size": shape.image,
        "patch_size": shape.patch,
        "projection_dim": 768,
    }
    return {
        "model_type": "llava",
        "image_seq_length": shape.tokens_per_tile,
        "image_token_index": ids["<image>"],
        "projector_hidden_act": "gelu",
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "text_config": text,
        "vision_config": encoder,
    }


def processors(shape: VisionShape, colours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the files of a processor that cuts a square out of an image."""
    side = {"height": shape.image, "width": shape.image}
    cut = {"do_center_crop": True, "crop_size": side, "size": {"shortest_edge": shape.image}}
    scaled = {"do_rescale": True, "rescale_factor": 1 / 255, "do_convert_rgb": True}
    named = {"image_processor_type": "CLIPImageProcessor", "processor_class": PROCESSOR}
    counted = {"patch_size": shape.patch, "vision_feature_select_strategy": "default", "image_token": "<image>"}
    return {
        "preprocessor_config.json": {**colours, **cut, **scaled, **named},
        "processor_config.json": counted | {"num_additional_image_tokens": 1, "processor_class": PROCESSOR},
    }


def vision(shape: VisionShape, hidden: int, kind: str) -> Iterator[Tensor]:
    """Yield the tensors of the encoder, whose patches have no bias, and of the projector."""
    width, patch = shape.hidden, shape.patch
    yield Tensor(f"{STEM}embeddings.class_embedding", kind, (width,), "normal")
    yield Tensor(f"{STEM}embeddings.patch_embedding.weight", kind, (width, CHANNELS, patch, patch), "normal")
    places = (shape.image // patch) ** 2 + 1
    yield Tensor(f"{STEM}embeddings.position_embedding.weight", kind, (places, width), "normal")
    yield from norm(f"{STEM}pre_layrnorm", width, kind, True)  # CLIP's own spelling
    yield from split_layers(shape, f"{STEM}encoder.layers.", kind)
    yield from norm(f"{STEM}post_layernorm", width, kind, True)
    yield from dense("multi_modal_projector.linear_1", width, hidden, kind, True)
    yield from dense("multi_modal_projector.linear_2", hidden, hidden, kind, True)
