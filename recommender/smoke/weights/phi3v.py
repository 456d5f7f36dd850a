"""Tensors and configuration of Phi-3.5-vision: CLIP's encoder, two learned marks, and a projector of two layers.

Names and keys are those that LMDeploy's wheel 0.18.0 reads in ``lmdeploy/pytorch/models/phi3_v.py`` and
``lmdeploy/vl/model/phi3_vision.py``. No class of Transformers cuts its images: ``PROCESSOR_FILE`` does.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recommender.request import image_grids
from recommender.smoke.weights import llava
from recommender.smoke.weights.layouts import Tensor
from recommender.smoke.weights.vision_tensors import dense

if TYPE_CHECKING:
    from recommender.knowledge.records import Model, VisionShape

STEM = "model.vision_embed_tokens."
PROCESSOR_FILE = "image_processing_synthetic.py"
MAPPED = {"AutoImageProcessor": f"{PROCESSOR_FILE.removesuffix('.py')}.SyntheticImageProcessor"}
TOKENS = {"<|endoftext|>": 32000, "<|assistant|>": 32001, "<|end|>": 32007, "<|user|>": 32010, "<|image|>": 32044}
_PROCESSOR = '''"""Image processor of a folder with RANDOM weights, for measuring; not the real model's."""

import math

import numpy as np
from transformers import BatchFeature
from transformers.image_processing_utils import BaseImageProcessor

Grid = tuple


RULE

class SyntheticImageProcessor(BaseImageProcessor):
    """Cut an image into rows of squares and count the tokens of them, of the overview and of the marks between."""

    model_input_names = ["pixel_values", "image_sizes", "num_img_tokens"]

    def __init__(self, num_crops=4, side=336, num_img_tokens=144, image_mean=None, image_std=None, **kwargs):
        super().__init__(**kwargs)
        self.num_crops, self.side, self.num_img_tokens = num_crops, side, num_img_tokens
        self.image_mean, self.image_std = image_mean, image_std

    def _pixels(self, image, width, height):
        values = np.asarray(image.convert("RGB").resize((width, height)), np.float32) / 255
        return ((values - self.image_mean) / self.image_std).transpose(2, 0, 1).astype(np.float32)

    def preprocess(self, images, return_tensors=None, **kwargs):
        side, pixels, sizes, counts = self.side, [], [], []
        for image in images:
            columns, lines = rows(*image.size, side, self.num_crops)
            whole = self._pixels(image, columns * side, lines * side)
            squares = whole.reshape(3, lines, side, columns, side).transpose(1, 3, 0, 2, 4).reshape(-1, 3, side, side)
            parts = np.zeros((self.num_crops + 1, 3, side, side), np.float32)
            parts[0], parts[1 : 1 + len(squares)] = self._pixels(image, side, side), squares
            pixels.append(parts)
            sizes.append([lines * side, columns * side])
            line = math.isqrt(self.num_img_tokens)
            counts.append((columns * lines + 1) * self.num_img_tokens + 1 + (lines + 1) * line)
        data = {"pixel_values": np.stack(pixels), "image_sizes": sizes, "num_img_tokens": counts}
        return BatchFeature(data=data, tensor_type=return_tensors)
'''


def config(model: Model, _: dict[str, Any], __: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the configuration besides those of all vision models; text keys are at the top level."""
    shape = model.vision[0]
    encoder = {
        "name": "clip_vision_model",
        "model_name": "openai/clip-vit-large-patch14-336",
        "image_dim_out": shape.hidden,
        "num_img_tokens": shape.tokens_per_tile,
    }
    layer = {
        "embedding_cls": "image",
        "hd_transform_order": "sub_glb",
        "projection_cls": "mlp",
        "use_hd_transform": True,
        "with_learnable_separator": True,
    }
    kind = {"model_type": "phi3_v", "sliding_window": None, "auto_map": MAPPED}
    return kind | {"img_processor": encoder, "embd_layer": layer}


def processors(shape: VisionShape, colours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the files that name the image processor."""
    cut = {"num_crops": shape.max_tiles, "side": shape.image, "num_img_tokens": shape.tokens_per_tile}
    files = llava.processors(shape, {})
    files["preprocessor_config.json"] = {
        "image_mean": colours["image_mean"],
        "image_std": colours["image_std"],
        "image_processor_type": "SyntheticImageProcessor",
        "auto_map": MAPPED,
        **cut,
    }
    return files


def processor_class() -> str:
    """Return the Python file of the image processor, with the rule that the recommender counts by."""
    return _PROCESSOR.replace("RULE", inspect.getsource(image_grids.rows))


def vision(shape: VisionShape, hidden: int, kind: str) -> Iterator[Tensor]:
    """Yield CLIP's tensors and those of the projector, after the marks at the end of a line and of the squares."""
    for tensor in llava.vision(shape, hidden, kind):
        if not tensor.name.startswith("multi_modal_projector"):
            name = tensor.name.replace(llava.STEM, f"{STEM}img_processor.vision_model.")
            yield Tensor(name, tensor.dtype, tensor.shape, tensor.fill)
    first, second = shape.projector
    yield Tensor(f"{STEM}glb_GN", kind, (1, 1, first.inputs), "normal")
    yield Tensor(f"{STEM}sub_GN", kind, (1, 1, 1, first.inputs), "normal")
    yield from dense(f"{STEM}img_projection.0", first.inputs, first.outputs, kind, True)
    yield from dense(f"{STEM}img_projection.2", second.inputs, second.outputs, kind, True)
