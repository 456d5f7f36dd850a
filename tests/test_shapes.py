"""Bytes, parameters and arithmetic agree with what publishers state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recommender import shapes
from recommender.records import Model

MODELS = Path(__file__).parent.parent / "knowledge" / "models"


def load(model: str) -> Model:
    return Model.model_validate_json(json.dumps(yaml.safe_load((MODELS / f"{model}.yaml").read_text("utf-8"))))


NAMES = sorted(path.stem for path in MODELS.glob("*.yaml"))
PUBLISHED = [name for name in NAMES if load(name).published]
AWQ = [name for name in NAMES if name.endswith("-awq")]


@pytest.mark.parametrize("name", NAMES)
def test_shapes_are_consistent(name: str) -> None:
    """Heads divide as attention needs, and a tile's tokens follow from its patches."""
    model = load(name)
    assert model.text.heads % model.text.kv_heads == 0
    for vision in model.vision:
        assert vision.hidden % vision.heads == 0
        assert vision.tokens_per_tile == (vision.image // vision.patch) ** 2 * vision.downsample**2
    for packed in model.quantization:
        for width in (model.text.hidden, model.text.intermediate, model.text.heads * model.text.head_dim):
            assert width % packed.group == 0


def test_enough_models_have_a_published_size() -> None:
    """The check below is worth something."""
    assert len(PUBLISHED) >= 4


@pytest.mark.parametrize("name", PUBLISHED)
def test_weight_bytes_match_the_published_files(name: str) -> None:
    """Computed bytes are within 1 % of the sum of the weight files."""
    model = load(name)
    assert shapes.weight_bytes(model) == pytest.approx(model.published[0].bytes, rel=0.01)


@pytest.mark.parametrize(
    ("name", "billions"),
    [("qwen2.5-7b-instruct", 7.61), ("llama-3.1-8b-instruct", 8.03), ("internvl3-1b", 0.938), ("internvl3-8b", 7.94)],
)
def test_parameter_counts(name: str, billions: float) -> None:
    """Totals agree with the cards to the digits that these print."""
    assert shapes.parameters(load(name)) / 1e9 == pytest.approx(billions, rel=1e-3)


def test_parameters_without_embeddings() -> None:
    """Qwen2.5-7B's card says 6.53 billion without embeddings; its files hold 7,615,616,512 in all."""
    model = load("qwen2.5-7b-instruct")
    assert round((shapes.parameters(model) - shapes.embedding_parameters(model)) / 1e9, 2) == 6.53
    assert shapes.parameters(model) == 7_615_616_512


@pytest.mark.parametrize(("name", "millions"), [("internvl3-8b", 304), ("internvl3-78b", 5540)])
def test_vision_parameters(name: str, millions: int) -> None:
    """The encoder without projector has what its card says."""
    model = load(name)
    merged, hidden = 4 * model.vision[0].hidden, model.text.hidden
    projector = 2 * merged + merged * hidden + hidden * hidden + 2 * hidden
    assert (shapes.vision_parameters(model) - projector) / 1e6 == pytest.approx(millions, rel=2e-3)


def test_text_models_have_no_vision() -> None:
    """Nothing is counted for an encoder that is not there."""
    model = load("qwen2.5-7b-instruct")
    assert shapes.vision_weight_bytes(model) == shapes.vision_flops_per_tile(model) == 0


def test_awq_bits() -> None:
    """Four bits, and a 16-bit scale with a 4-bit zero for 128 weights."""
    assert shapes.linear_bits(load("internvl3-8b-awq")) == 4 + 20 / 128
    assert shapes.linear_bits(load("internvl3-8b")) == 16


def test_awq_of_the_same_shape_elsewhere() -> None:
    """Two files of 4.48 and 1.09 GB, at huggingface.co/graelo/Qwen2.5-7B-Instruct-1M-AWQ."""
    assert shapes.weight_bytes(load("qwen2.5-7b-instruct-awq")) == pytest.approx(5.57e9, rel=0.01)


@pytest.mark.parametrize("name", AWQ)
def test_awq_packs_linear_layers_only(name: str) -> None:
    """What AWQ saves is 74 % of the language model's linear layers; the encoder stays as it is."""
    packed, plain = load(name), load(name.removesuffix("-awq"))
    saved = shapes.weight_bytes(plain) - shapes.weight_bytes(packed)
    assert saved == pytest.approx(shapes.linear_parameters(plain) * 2 * (1 - (4 + 20 / 128) / 16), abs=2)
    assert shapes.vision_weight_bytes(packed) == shapes.vision_weight_bytes(plain)


def test_converted_checkpoint_weighs_the_same() -> None:
    """Another layout of the same weights changes no bytes."""
    assert shapes.weight_bytes(load("internvl3-8b")) == shapes.weight_bytes(load("internvl3-8b-hf"))


@pytest.mark.parametrize(("bits", "tp", "expected"), [(16, 1, 57_344), (8, 1, 29_568), (4, 1, 15_232), (16, 2, 28_672)])
def test_kv_bytes(bits: int, tp: int, expected: int) -> None:
    """Qwen2.5-7B: 28 layers, 4 heads of 128, keys and values."""
    assert shapes.kv_bytes_per_token(load("qwen2.5-7b-instruct"), bits, tp) == expected


def test_few_kv_heads_are_copied() -> None:
    """With more GPUs than key/value heads each holds one whole head."""
    model = load("qwen2.5-7b-instruct")
    assert shapes.kv_bytes_per_token(model, 16, 8) == shapes.kv_bytes_per_token(model, 16, 4) == 57_344 // 4


@pytest.mark.parametrize(("bits", "tp"), [(5, 1), (16, 0)])
def test_impossible_cache_is_refused(bits: int, tp: int) -> None:
    """A width that no cache has, or no GPU at all, is an error."""
    with pytest.raises(ValueError, match="must be"):
        shapes.kv_bytes_per_token(load("qwen2.5-7b-instruct"), bits, tp)


@given(name=st.sampled_from(NAMES), tp=st.sampled_from([1, 2, 4, 8]))
def test_rank_holds_its_share(name: str, tp: int) -> None:
    """A GPU of the group holds at least an even share, less than all, and all of it when alone."""
    model = load(name)
    whole, part = shapes.weight_bytes(model), shapes.weight_bytes_per_rank(model, tp)
    assert whole / tp - 1 <= part <= whole
    assert shapes.weight_bytes_per_rank(model, 1) == pytest.approx(whole, abs=1)
    assert part <= shapes.weight_bytes_per_rank(model, tp, vision_split=False)


def test_no_group_without_a_gpu() -> None:
    """tp 0 is an error, not a division by zero."""
    with pytest.raises(ValueError, match="at least 1"):
        shapes.weight_bytes_per_rank(load("internvl3-8b"), 0)


def test_flops() -> None:
    """Two FLOP a weight and token; attention grows with the square of the prompt; one tile of InternViT-300M."""
    model = load("internvl3-8b")
    assert shapes.text_flops_per_token(model) == 2 * shapes.linear_parameters(model)
    assert shapes.attention_flops(model, 1) == 4 * 28 * 3584
    assert shapes.attention_flops(model, 1, context=99) == 100 * shapes.attention_flops(model, 1)
    assert shapes.attention_flops(model, 2000) / shapes.attention_flops(model, 1000) == pytest.approx(4, rel=0.01)
    assert shapes.vision_flops_per_tile(model) == pytest.approx(0.74e12, rel=0.02)
    assert shapes.prefill_flops(model, 313) == pytest.approx(4.1e12, rel=0.02)


@given(before=st.integers(0, 5000), first=st.integers(1, 3000), second=st.integers(1, 3000))
def test_chunks_cost_what_the_prompt_costs(before: int, first: int, second: int) -> None:
    """A prompt in two chunks does the same attention work as in one."""
    model = load("internvl3-8b")
    chunks = shapes.attention_flops(model, first, before) + shapes.attention_flops(model, second, before + first)
    assert chunks == shapes.attention_flops(model, first + second, before)
