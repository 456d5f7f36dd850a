"""Tensors and configuration of Qwen3-Omni's thinker: Qwen3-VL's encoder under other names, and one for audio.

Names and keys are those that LMDeploy's wheel 0.18.0 reads in ``lmdeploy/pytorch/models/qwen3_omni_moe_thinker.py``; it
skips the part that speaks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from recommender.smoke.weights import qwen35
from recommender.smoke.weights.layouts import Tensor
from recommender.smoke.weights.vision_tensors import dense, norm, split_layers

if TYPE_CHECKING:
    from recommender.knowledge.records import AudioShape, Model, VisionShape

TOKENS = {"<|audio_start|>": 151669, "<|audio_end|>": 151670, "<|audio_pad|>": 151675}
AUDIO_STEM = "thinker.audio_tower."
WORDS = {
    "image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "audio_token": "<|audio_pad|>",
    "vision_bos_token": "<|vision_start|>", "vision_eos_token": "<|vision_end|>",
    "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>",
}  # fmt: skip
"""Special tokens by the name that the processor has for them."""
AUDIO_HEAD = 64
LISTENING = {
    "feature_extractor_type": "WhisperFeatureExtractor", "sampling_rate": 16000, "hop_length": 160, "n_fft": 400,
    "chunk_length": 300, "padding_value": 0.0, "return_attention_mask": True, "dither": 0.0,
}  # fmt: skip
"""How the processor cuts a sound."""


def config(model: Model, text: dict[str, Any], ids: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the configuration besides those of all vision models."""
    seen = qwen35.config(model, text, ids)
    encoder = seen["vision_config"] | {"model_type": "qwen3_omni_moe_vision_encoder"}
    (shape,) = model.audio
    listener = {
        "model_type": "qwen3_omni_moe_audio_encoder",
        "num_mel_bins": shape.bands,
        "encoder_layers": shape.layers,
        "encoder_attention_heads": shape.hidden // AUDIO_HEAD,
        "encoder_ffn_dim": shape.intermediate,
        "d_model": shape.hidden,
        "output_dim": model.text.hidden,
        "downsample_hidden_size": shape.filters,
    }
    marks = {"audio_token_id": ids["<|audio_pad|>"], "audio_start_token_id": ids["<|audio_start|>"]}
    thinker = (
        seen | marks | {"model_type": "qwen3_omni_moe_thinker", "vision_config": encoder, "audio_config": listener}
    )
    return {"model_type": "qwen3_omni_moe", "enable_audio_output": False, "thinker_config": thinker}


def vision(shape: VisionShape, hidden: int, kind: str) -> Iterator[Tensor]:
    """Yield the encoder's tensors."""
    names = {"norm": "ln_q", "linear_fc1": "mlp.0", "linear_fc2": "mlp.2", "deepstack_merger_list": "merger_list"}
    for tensor in qwen35.vision(shape, hidden, kind):
        name = tensor.name.replace(qwen35.VISION_STEM, "thinker.visual.")
        if "merger" in name:
            for usual, own in names.items():
                name = name.replace(f".{usual}.", f".{own}.")
        yield Tensor(name, tensor.dtype, tensor.shape, tensor.fill)


def audio(shape: AudioShape, hidden: int, kind: str) -> Iterator[Tensor]:
    """Yield the tensors of the audio encoder: three convolutions that halve bands and frames, layers, two matrices."""
    width, filters = shape.hidden, shape.filters
    for number, inputs in ((1, 1), (2, filters), (3, filters)):
        yield Tensor(f"{AUDIO_STEM}conv2d{number}.weight", kind, (filters, inputs, 3, 3), "normal")
        yield Tensor(f"{AUDIO_STEM}conv2d{number}.bias", kind, (filters,), "normal")
    yield from dense(f"{AUDIO_STEM}conv_out", filters * shape.bands // 8, width, kind, False)
    yield from split_layers(
        shape, f"{AUDIO_STEM}layers.", kind, norms=("self_attn_layer_norm", "final_layer_norm"), block=""
    )
    yield from norm(f"{AUDIO_STEM}ln_post", width, kind, True)
    yield from dense(f"{AUDIO_STEM}proj1", width, width, kind, True)
    yield from dense(f"{AUDIO_STEM}proj2", width, hidden, kind, True)
