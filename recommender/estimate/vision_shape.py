"""Derive parameters, bytes and FLOP from the shapes of a model's vision and audio encoders.

Weights are 16-bit. Encoders other than InternVL's and Qwen's may miss a class token or a norm, less than 0.1 % of the
model. Tensor parallelism follows LMDeploy 0.18.0, ``lmdeploy/turbomind/models`` (``internvl.py``, ``qwen2_vl.py``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recommender.knowledge.records import AudioShape, Model, VisionShape

BYTES_16_BIT = 2
VISION_HEADS = (64, 128)
"""Head sizes that TurboMind pads to, of encoders without tiles (0.18.0 lmdeploy/turbomind/models/qwen2_vl.py:39)."""


def _scale(vision: VisionShape) -> int:
    """Return how many neighbouring patches the projector merges into one token."""
    return round(1 / vision.downsample**2)


def patches(vision: VisionShape) -> int:
    """Return the number of patches in one tile."""
    return (vision.image // vision.patch) ** 2


def _patch_inputs(vision: VisionShape) -> int:
    return 3 * vision.patch**2 * (vision.pixels[0].frames if vision.pixels else 1)


def _attention_width(vision: VisionShape, resident: bool) -> int:
    """Return the width of all heads.

    TurboMind pads the heads of encoders without tiles to a size that it has kernels for.
    """
    head = vision.hidden // vision.heads
    if not resident or not vision.pixels:
        return vision.hidden
    return vision.heads * min((size for size in VISION_HEADS if size >= head), default=head)


def _split_parameters(vision: VisionShape, hidden: int, resident: bool = False) -> tuple[int, int, int]:
    """Return attention weights, MLP and projector weights, and all others.

    Attention is split if the heads divide by the number of GPUs, MLP and projector
    always, the others never.
    """
    width, deep = vision.hidden, vision.intermediate
    heads = _attention_width(vision, resident)
    norm = width * (2 if vision.norm == "layer_norm" else 1)
    attention = 4 * width * heads
    mlp = (3 * width * deep + 2 * deep) if vision.gated else (2 * width * deep + deep)
    whole = (3 * heads if vision.qkv_bias else 0) + 2 * width + 2 * norm
    whole += (2 * width if vision.layer_scale else 0) + (2 * width if vision.qk_norm else 0)
    merged = _scale(vision) * width
    outside = _patch_inputs(vision) * width + hidden
    if vision.pixels:  # no class token or positions; a norm for each patch, then two layers
        projector = merged * merged + merged * hidden
        outside += norm + merged
        outside += vision.positions * width + (width if vision.positions else 0)  # with them, patches have a bias
        outside += vision.deepstack * (2 * merged + merged + hidden)  # their norms are as wide as merged patches
        projector += vision.deepstack * projector
    else:
        projector = merged * hidden + hidden * hidden + hidden
        outside += width + width * ((vision.positions or patches(vision)) + 2) + 2 * merged
    if vision.projector:  # as SigLIP and Gemma 3 have it: no class token, a norm after the layers and one before these
        outside = _patch_inputs(vision) * width + width * ((vision.positions or patches(vision)) + 1) + 3 * width
        projector = sum(matrix.inputs * matrix.outputs for matrix in vision.projector)
        outside += sum(matrix.outputs for matrix in vision.projector if matrix.bias)
        if not vision.positions and len(vision.projector) > 1:  # as CLIP has it: both, but no bias of patches
            outside += 2 * width
        if vision.cut == "rows":  # Phi-3.5-vision: a mark ends a line of tokens, another the squares
            outside += 2 * vision.projector[0].inputs
        if vision.cut == "slices":  # MiniCPM-V: a query a token, three norms with biases, none before
            outside += (vision.tokens_per_tile + 6) * hidden - width
    if (
        vision.projector and vision.gated
    ):  # GLM-4.1V: layers without biases, one more norm with a bias, no norm before the layers
        mlp, whole = 3 * width * deep, whole - 2 * width
        outside += 2 * hidden - width
    return vision.layers * attention, vision.layers * mlp + projector, vision.layers * whole + outside


def vision_parameters(model: Model) -> int:
    """Return the weights of vision encoder and projector; 0 for a text model."""
    return sum(sum(_split_parameters(vision, model.text.hidden)) for vision in model.vision)


def vision_bytes(model: Model, tp: int, resident: bool = False) -> float:
    """Return the bytes of encoder and projector on one of ``tp`` GPUs.

    ``resident``: as TurboMind holds them, with padded heads; else as stored.
    """
    total = 0.0
    for vision in model.vision:
        attention, split, whole = _split_parameters(vision, model.text.hidden, resident)
        part = tp if vision.heads % tp == 0 else 1
        total += (attention / part + split / tp + whole) * BYTES_16_BIT
    return total


def vision_weight_bytes(model: Model) -> int:
    """Return the bytes of vision encoder and projector; 0 for a text model."""
    return round(vision_bytes(model, 1))


@lru_cache(maxsize=4096)
def vision_flops_per_tile(model: Model) -> int:
    """Return the FLOP of one tile through the vision encoder; 0 for a text model.

    Patch embedding, encoder and projector. For models without tiles, a tile is a square
    of the same number of pixels, and layers without a window count as if they saw one
    tile: too little for images of many tiles.
    """
    total = 0
    for vision in model.vision:
        width, hidden = vision.hidden, model.text.hidden
        tokens = patches(vision) + (0 if vision.pixels else 1)
        matrices = 4 * width * width + (3 if vision.gated else 2) * width * vision.intermediate
        seen = vision.layers * tokens
        for window in vision.window:
            seen -= (vision.layers - window.full_layers) * (tokens - (window.side // vision.patch) ** 2)
        layers = vision.layers * 2 * tokens * matrices + 4 * tokens * seen * width
        embedding = 2 * patches(vision) * _patch_inputs(vision) * width
        total += layers + embedding + _projector_flops(vision, hidden)
    return total


def _projector_flops(vision: VisionShape, hidden: int) -> int:
    """Return the FLOP of one tile through the projector."""
    if vision.projector:
        rows = {True: patches(vision), False: vision.tokens_per_tile}
        return sum(2 * rows[matrix.patches] * matrix.inputs * matrix.outputs for matrix in vision.projector)
    merged = _scale(vision) * vision.hidden
    second = merged * hidden if vision.pixels else hidden * hidden
    first = merged * merged if vision.pixels else merged * hidden
    return 2 * (1 + vision.deepstack) * vision.tokens_per_tile * (first + second)


def audio_bytes(model: Model) -> int:
    """Return the bytes of the audio encoder and its projector, whole on each GPU; 0 without one."""
    return BYTES_16_BIT * sum(_audio_parameters(audio, model.text.hidden) for audio in model.audio)


def _audio_parameters(audio: AudioShape, hidden: int) -> int:
    """Return the weights of layers, of three convolutions of 3 by 3 before and two matrices after."""
    width, deep, filters = audio.hidden, audio.intermediate, audio.filters
    layers = audio.layers * (4 * width**2 + 2 * width * deep + 9 * width + deep)
    convolutions = 9 * filters * (1 + 2 * filters) + 3 * filters + filters * audio.bands // 8 * width
    return layers + convolutions + 3 * width + width**2 + width * hidden + hidden


@lru_cache(maxsize=256)
def vision_bytes_per_tile(model: Model) -> int:
    """Return the bytes of a tile's 16-bit patches, once for each encoder layer."""
    return sum(vision.layers * patches(vision) * vision.hidden * BYTES_16_BIT for vision in model.vision)
