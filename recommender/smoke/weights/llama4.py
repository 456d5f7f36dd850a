"""Tensors and configuration of Llama 4: layers without experts in turn, and an encoder with a class token at its end.

Names and keys are those that LMDeploy's wheel 0.18.0 reads in ``lmdeploy/pytorch/models/llama4.py`` and
``lmdeploy/vl/model/llama4.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recommender.smoke.weights.layouts import CHANNELS, Tensor, encoder_keys, expert_step
from recommender.smoke.weights.vision_tensors import dense, norm, split_layers

if TYPE_CHECKING:
    from recommender.knowledge.records import Mixture, Model, TextShape, VisionShape

TOKENS = {"<|image_start|>": 200080, "<|image_end|>": 200081, "<|tile_x_separator|>": 200084}
TOKENS |= {"<|tile_y_separator|>": 200085, "<|image|>": 200090, "<|patch|>": 200092}
STEM = "vision_model."
PROCESSOR = "Llama4Processor"


def text_config(text: TextShape, mixture: Mixture) -> dict[str, Any]:
    """Return the keys that only Llama 4's language model has; an expert is not as wide as a layer without."""
    return {
        "num_local_experts": mixture.experts,
        "intermediate_size": mixture.intermediate,
        "intermediate_size_mlp": text.intermediate,
        "interleave_moe_layer_step": expert_step(text, mixture),
        "use_qk_norm": text.qk_norm,
    }


def config(model: Model, text: dict[str, Any], ids: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the configuration besides those of all vision models."""
    shape = model.vision[0]
    encoder = {
        "model_type": "llama4_vision_model",
        **encoder_keys(shape),
        "intermediate_size": shape.projector[0].inputs,
        "num_channels": CHANNELS,
        "image_size": shape.image,
        "patch_size": shape.patch,
        "pixel_shuffle_ratio": shape.downsample,
        "projector_input_dim": shape.projector[0].outputs,
        "projector_output_dim": shape.projector[1].outputs,
        "vision_output_dim": shape.projector[2].inputs,
    }
    marks = {"boi_token_index": "<|image_start|>", "eoi_token_index": "<|image_end|>", "image_token_index": "<|patch|>"}
    named = {key: ids[word] for key, word in marks.items()}
    return {"model_type": "llama4", "text_config": text, "vision_config": encoder, **named}


def processors(shape: VisionShape, colours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the files of a processor that cuts an image into squares."""
    side = {"height": shape.image, "width": shape.image}
    cut = {"size": side, "max_patches": shape.max_tiles, "resize_to_max_canvas": False, "resample": 2}
    named = {"image_processor_type": "Llama4ImageProcessorFast", "processor_class": PROCESSOR}
    scaled = {"do_rescale": True, "rescale_factor": 1 / 255, "do_convert_rgb": True}
    counted = {"patch_size": shape.patch, "pixel_shuffle_ratio": shape.downsample, "processor_class": PROCESSOR}
    return {"preprocessor_config.json": {**colours, **cut, **scaled, **named}, "processor_config.json": counted}


def vision(shape: VisionShape, hidden: int, kind: str) -> Iterator[Tensor]:
    """Yield the tensors of the encoder, whose patches are a matrix without a bias, and of the projector."""
    width, places = shape.hidden, (shape.image // shape.patch) ** 2 + 1
    yield from dense(f"{STEM}patch_embedding.linear", CHANNELS * shape.patch**2, width, kind, False)
    yield Tensor(f"{STEM}class_embedding", kind, (width,), "normal")
    yield Tensor(f"{STEM}positional_embedding_vlm", kind, (places, width), "normal")
    yield from norm(f"{STEM}layernorm_pre", width, kind, True)
    yield from norm(f"{STEM}layernorm_post", width, kind, True)
    yield from split_layers(
        shape, f"{STEM}model.layers.", kind, norms=("input_layernorm", "post_attention_layernorm"), out="o_proj"
    )
    names = (f"{STEM}vision_adapter.mlp.fc1", f"{STEM}vision_adapter.mlp.fc2", "multi_modal_projector.linear_1")
    for name, matrix in zip(names, shape.projector, strict=True):
        yield from dense(name, matrix.inputs, matrix.outputs, kind, False)
