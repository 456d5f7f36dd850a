"""The files of a synthetic folder that say how images become pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recommender.smoke.weights import llama4, llava, omni, phi3v
from recommender.smoke.weights.layouts import (
    CHAT_LAYOUT,
    GEMMA3,
    GLM4V,
    LLAMA4,
    LLAVA,
    MINICPM,
    OMNI,
    PHI3V,
    QWEN3_VL,
    QWEN35,
)

if TYPE_CHECKING:
    from recommender.knowledge.records import Model

CLIP_MEAN, CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
HALVES = [0.5, 0.5, 0.5]
PIXEL_PROCESSORS = {
    GLM4V: "Glm4vProcessor",
    OMNI: "Qwen3OmniMoeProcessor",
    **dict.fromkeys((*QWEN35, *QWEN3_VL), "Qwen3VLProcessor"),
    "Qwen2VLForConditionalGeneration": "Qwen2VLProcessor", "Qwen2_5_VLForConditionalGeneration": "Qwen2_5_VLProcessor",
}  # fmt: skip
IMAGE_MEAN, IMAGE_STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def processors(model: Model) -> dict[str, Any]:
    """Return the processors' JSON files by name."""
    if not model.vision:
        return {}
    vision = model.vision[0]
    if model.architecture in PIXEL_PROCESSORS:
        return _pixel_processors(model)
    colours = {"do_normalize": True, "image_mean": IMAGE_MEAN, "image_std": IMAGE_STD, "do_resize": True, "resample": 3}
    if model.architecture in (LLAVA, MINICPM, PHI3V):  # LMDeploy hands MiniCPM-V's processor no image
        files = phi3v.processors if model.architecture == PHI3V else llava.processors
        return files(vision, colours | {"image_mean": CLIP_MEAN, "image_std": CLIP_STD})
    if model.architecture == LLAMA4:
        return llama4.processors(vision, colours | {"image_mean": HALVES, "image_std": HALVES})
    if model.architecture == CHAT_LAYOUT:
        clip = {"image_processor_type": "CLIPImageProcessor", "crop_size": vision.image, "size": vision.image}
        return {"preprocessor_config.json": clip | colours | {"do_center_crop": True}}
    size = {"height": vision.image, "width": vision.image}
    if model.architecture == GEMMA3:
        halves = {"image_mean": HALVES, "image_std": HALVES, "resample": 2, "size": size, "do_rescale": True}
        named = {"processor_class": "Gemma3Processor", "image_seq_length": vision.tokens_per_tile}
        kind = {"image_processor_type": "Gemma3ImageProcessor", "rescale_factor": 1 / 255}
        return {"preprocessor_config.json": colours | halves | named | kind, "processor_config.json": named}
    common = colours | {"size": size, "do_rescale": True, "rescale_factor": 1 / 255, "do_convert_rgb": True}
    common["processor_class"] = "InternVLProcessor"
    tiles = {"crop_to_patches": True, "min_patches": vision.min_tiles, "max_patches": vision.max_tiles}
    return {
        "preprocessor_config.json": common | tiles | {"image_processor_type": "GotOcr2ImageProcessorFast"},
        "video_preprocessor_config.json": common | {"video_processor_type": "InternVLVideoProcessor"},
        "processor_config.json": {"processor_class": "InternVLProcessor", "image_seq_length": vision.tokens_per_tile},
    }


def _pixel_processors(model: Model) -> dict[str, Any]:
    """Return the files of a processor that keeps an image's shape, with its pixels under both of their names."""
    vision, rule, newer = model.vision[0], model.vision[0].pixels[0], model.architecture in (*QWEN35, *QWEN3_VL)
    mean, deviation = (HALVES, HALVES) if newer or model.architecture == OMNI else (CLIP_MEAN, CLIP_STD)
    kinds = (f"Qwen2VLImageProcessor{'Fast' if newer else ''}", f"Qwen{3 if newer else 2}VLVideoProcessor")
    if model.architecture == GLM4V:
        kinds = ("Glm4vImageProcessor", "Glm4vVideoProcessor")
    common: dict[str, Any] = {
        "do_convert_rgb": True, "do_normalize": True, "do_rescale": True, "do_resize": True,
        "image_mean": mean, "image_std": deviation, "resample": 3, "rescale_factor": 1 / 255,
        "patch_size": vision.patch, "temporal_patch_size": rule.frames, "merge_size": round(1 / vision.downsample),
        "min_pixels": rule.least, "max_pixels": rule.most,
        "size": {"shortest_edge": rule.least, "longest_edge": rule.most},
        "processor_class": PIXEL_PROCESSORS[model.architecture],
    }  # fmt: skip
    for audio in model.audio:
        common |= omni.LISTENING | {"feature_size": audio.bands}
    return {
        "preprocessor_config.json": common | {"image_processor_type": kinds[0]},
        "video_preprocessor_config.json": common | {"video_processor_type": kinds[1]},
    }
