"""Names, types and shapes of the tensors of a vision encoder and its projector; both stay 16-bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from recommender.smoke.weights.layouts import CHANNELS, CHAT_LAYOUT, S1_LAYOUT, Tensor

if TYPE_CHECKING:
    from recommender.knowledge.records import AudioShape, VisionShape


def dense(name: str, inputs: int, outputs: int, kind: str, bias: bool) -> Iterator[Tensor]:
    """Yield a 16-bit linear layer."""
    yield Tensor(f"{name}.weight", kind, (outputs, inputs), "normal")
    if bias:
        yield Tensor(f"{name}.bias", kind, (outputs,), "normal")


def norm(name: str, width: int, kind: str, bias: bool) -> Iterator[Tensor]:
    """Yield a norm."""
    yield Tensor(f"{name}.weight", kind, (width,), "ones")
    if bias:
        yield Tensor(f"{name}.bias", kind, (width,), "normal")


def split_layers(
    shape: VisionShape | AudioShape,
    stem: str,
    kind: str,
    *,
    norms: tuple[str, str] = ("layer_norm1", "layer_norm2"),
    out: str = "out_proj",
    block: str = "mlp.",
) -> Iterator[Tensor]:
    """Yield layers whose queries, keys and values are tensors of their own, under CLIP's and SigLIP's names."""
    width, deep = shape.hidden, shape.intermediate
    for number in range(shape.layers):
        layer = f"{stem}{number}."
        for name in norms:
            yield from norm(layer + name, width, kind, True)
        for name in ("q_proj", "k_proj", "v_proj", out):
            yield from dense(f"{layer}self_attn.{name}", width, width, kind, True)
        yield from dense(f"{layer}{block}fc1", width, deep, kind, True)
        yield from dense(f"{layer}{block}fc2", deep, width, kind, True)


# --- InternVL: tiles ------------------------------------------------------------------------


def tiled_vision(vision: VisionShape, hidden: int, kind: str, architecture: str) -> Iterator[Tensor]:
    """Yield the tensors of an InternVL encoder, under the names that the architecture has."""
    width, patch, legacy = vision.hidden, vision.patch, architecture == CHAT_LAYOUT
    names: Mapping[str, str] = _LEGACY_VISION if legacy else _HF_VISION
    if architecture == S1_LAYOUT:
        names = {
            key: " ".join(f"model.{name}" for name in value.split()) if key in _ROOTS else value
            for key, value in names.items()
        }
    positions = (vision.image // patch) ** 2 + 1
    yield Tensor(names["class"], kind, (1, 1, width), "normal")
    yield Tensor(names["positions"], kind, (1, positions, width), "normal")
    yield Tensor(f"{names['patches']}.weight", kind, (width, CHANNELS, patch, patch), "normal")
    yield Tensor(f"{names['patches']}.bias", kind, (width,), "normal")
    for number in range(vision.layers):
        yield from _tiled_layer(vision, f"{names['layers']}.{number}.", names, kind, legacy)
    merged = round(1 / vision.downsample**2) * width
    before, first, second = names["projector"].split()
    yield from norm(before, merged, kind, True)
    yield from dense(first, merged, hidden, kind, True)
    yield from dense(second, hidden, hidden, kind, True)


def _tiled_layer(
    vision: VisionShape, layer: str, names: Mapping[str, str], kind: str, legacy: bool
) -> Iterator[Tensor]:
    width, attention = vision.hidden, layer + names["attention"]
    if legacy:
        yield from dense(f"{attention}.qkv", width, 3 * width, kind, vision.qkv_bias)
    else:
        for name in ("q_proj", "k_proj", "v_proj"):
            yield from dense(f"{attention}.{name}", width, width, kind, vision.qkv_bias)
    for name in ("q_norm", "k_norm") if vision.qk_norm else ():
        yield from norm(f"{attention}.{name}", width, kind, False)
    yield from dense(attention + names["out"], width, width, kind, True)
    yield from dense(f"{layer}mlp.fc1", width, vision.intermediate, kind, True)
    yield from dense(f"{layer}mlp.fc2", vision.intermediate, width, kind, True)
    for name in names["norms"].split():
        yield from norm(layer + name, width, kind, vision.norm == "layer_norm")
    for name in names["scales"].split():
        yield Tensor(layer + name, kind, (width,), "tenths")


_LEGACY_VISION = {
    "class": "vision_model.embeddings.class_embedding",
    "positions": "vision_model.embeddings.position_embedding",
    "patches": "vision_model.embeddings.patch_embedding",
    "layers": "vision_model.encoder.layers",
    "attention": "attn",
    "out": ".proj",
    "norms": "norm1 norm2",
    "scales": "ls1 ls2",
    "projector": "mlp1.0 mlp1.1 mlp1.3",
}
_HF_VISION = {
    "class": "vision_tower.embeddings.cls_token",
    "positions": "vision_tower.embeddings.position_embeddings",
    "patches": "vision_tower.embeddings.patch_embeddings.projection",
    "layers": "vision_tower.encoder.layer",
    "attention": "attention",
    "out": ".projection_layer",
    "norms": "layernorm_before layernorm_after",
    "scales": "lambda_1 lambda_2",
    "projector": "multi_modal_projector.layer_norm multi_modal_projector.linear_1 multi_modal_projector.linear_2",
}
_ROOTS = ("class", "positions", "patches", "layers", "projector")
"""Names that begin at the checkpoint's root."""
