"""Test bytes, parameters and FLOP against what publishers state."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recommender.estimate import linear_attention, model_shape, vision_shape
from recommender.knowledge.records import Model

MODELS = Path(__file__).parent.parent / "knowledge" / "models"


@cache
def load(model: str) -> Model:
    return Model.model_validate_json(json.dumps(yaml.safe_load((MODELS / f"{model}.yaml").read_text("utf-8"))))


NAMES = sorted(path.stem for path in MODELS.glob("*.yaml"))
PUBLISHED = [name for name in NAMES if load(name).published]
AWQ = [name for name in NAMES if name.endswith("-awq") and name.removesuffix("-awq") in NAMES]
PADDED = {"qwen2.5-72b-instruct-awq"}  # its publisher filled the intermediate size up to whole groups


@pytest.mark.parametrize("name", NAMES)
def test_shapes_are_consistent(name: str) -> None:
    """Heads divide as attention needs, and a tile's tokens follow from its patches."""
    model = load(name)
    text = model.text
    assert text.heads % text.kv_heads == 0
    assert all(mixture.per_token <= mixture.experts and mixture.dense_layers < text.layers for mixture in text.mixture)
    assert all(window.layers <= text.layers for window in text.window)
    for vision in model.vision:
        assert vision.hidden % vision.heads == 0
        assert vision.tokens_per_tile == (vision.image // vision.patch) ** 2 * vision.downsample**2
        for pixels in vision.pixels:
            assert pixels.least < pixels.most == vision.max_tiles * vision.image**2
        assert all(window.full_layers < vision.layers and window.side % vision.patch == 0 for window in vision.window)
    wide = text.mixture[0].intermediate if text.mixture else text.intermediate
    for packed in model.quantization:
        for width in (text.hidden, wide, text.heads * text.head_dim):
            assert width % packed.group == 0


def test_enough_models_have_a_published_size() -> None:
    """The check below is worth something."""
    assert len(PUBLISHED) >= 20
    assert {load(name).text.family for name in PUBLISHED} >= {"qwen2", "qwen2.5", "qwen3", "llama3.1", "gpt-oss"}
    assert {packed.method for name in PUBLISHED for packed in load(name).quantization} >= {"awq", "gptq", "mxfp4"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_weight_bytes_match_the_published_files(name: str) -> None:
    """Computed bytes are within 1 % of the sum of the weight files."""
    model = load(name)
    assert model_shape.weight_bytes(model) == pytest.approx(model.published[0].bytes, rel=0.01)


CARDS = {"qwen2.5-7b-instruct": 7.61, "llama-3.1-8b-instruct": 8.03, "internvl3-1b": 0.938, "internvl3-8b": 7.94}
README = {"1b": 1.1, "2b": 2.3, "4b": 4.7, "8b": 8.5, "14b": 15.1, "38b": 38.4, "20b-a4b": 21.2, "30b-a3b": 30.8}


@pytest.mark.parametrize("name", CARDS)
def test_parameter_counts(name: str) -> None:
    """Totals agree with the cards to the digits that these print."""
    assert model_shape.parameters(load(name)) / 1e9 == pytest.approx(CARDS[name], rel=1e-3)


@pytest.mark.parametrize("size", README)
def test_parameter_counts_of_a_family(size: str) -> None:
    """InternVL3.5 as github.com/OpenGVLab/InternVL's README prints it, to its one decimal."""
    assert model_shape.parameters(load(f"internvl3.5-{size}")) / 1e9 == pytest.approx(README[size], abs=0.051)


def test_parameters_without_embeddings() -> None:
    """Qwen2.5-7B's card says 6.53 billion without embeddings; its files hold 7,615,616,512 in all."""
    model = load("qwen2.5-7b-instruct")
    assert round((model_shape.parameters(model) - model_shape.embedding_parameters(model)) / 1e9, 2) == 6.53
    assert model_shape.parameters(model) == 7_615_616_512


@pytest.mark.parametrize(("name", "millions"), [("internvl3-8b", 304), ("internvl3-78b", 5540)])
def test_vision_parameters(name: str, millions: int) -> None:
    """The encoder without projector has what its card says."""
    model = load(name)
    merged, hidden = 4 * model.vision[0].hidden, model.text.hidden
    projector = 2 * merged + merged * hidden + hidden * hidden + 2 * hidden
    assert (vision_shape.vision_parameters(model) - projector) / 1e6 == pytest.approx(millions, rel=2e-3)


def test_text_models_have_no_vision() -> None:
    """Nothing is counted for an encoder that is not there."""
    model = load("qwen2.5-7b-instruct")
    assert vision_shape.vision_weight_bytes(model) == vision_shape.vision_flops_per_tile(model) == 0


def test_awq_bits() -> None:
    """Four bits, and a 16-bit scale with a 4-bit zero for 128 weights."""
    assert model_shape.linear_bits(load("internvl3-8b-awq")) == 4 + 20 / 128
    assert model_shape.linear_bits(load("internvl3-8b")) == 16


def test_awq_of_the_same_shape_elsewhere() -> None:
    """Two files of 4.48 and 1.09 GB, at huggingface.co/graelo/Qwen2.5-7B-Instruct-1M-AWQ."""
    assert model_shape.weight_bytes(load("qwen2.5-7b-instruct-awq")) == pytest.approx(5.57e9, rel=0.01)


@pytest.mark.parametrize("name", AWQ)
def test_awq_packs_linear_layers_only(name: str) -> None:
    """What AWQ saves is 74 % of the language model's linear layers; the encoder stays as it is."""
    packed, plain = load(name), load(name.removesuffix("-awq"))
    if name in PADDED:
        assert packed.text.intermediate > plain.text.intermediate
        plain = plain.model_copy(update={"text": packed.text})
    saved = model_shape.weight_bytes(plain) - model_shape.weight_bytes(packed)
    assert saved == pytest.approx(model_shape.linear_parameters(plain) * 2 * (1 - (4 + 20 / 128) / 16), abs=2)
    assert vision_shape.vision_weight_bytes(packed) == vision_shape.vision_weight_bytes(plain)


def test_converted_checkpoint_weighs_the_same() -> None:
    """Another layout of the same weights changes no bytes."""
    assert model_shape.weight_bytes(load("internvl3-8b")) == model_shape.weight_bytes(load("internvl3-8b-hf"))


@pytest.mark.parametrize(("bits", "tp", "expected"), [(16, 1, 57_344), (8, 1, 29_568), (4, 1, 15_232), (16, 2, 28_672)])
def test_kv_bytes(bits: int, tp: int, expected: int) -> None:
    """Qwen2.5-7B: 28 layers, 4 heads of 128, keys and values."""
    assert model_shape.kv_bytes_per_token(load("qwen2.5-7b-instruct"), bits, tp) == expected


def test_few_kv_heads_are_copied() -> None:
    """With more GPUs than key/value heads each holds one whole head."""
    model = load("qwen2.5-7b-instruct")
    assert model_shape.kv_bytes_per_token(model, 16, 8) == model_shape.kv_bytes_per_token(model, 16, 4) == 57_344 // 4


@pytest.mark.parametrize(("bits", "tp"), [(5, 1), (16, 0)])
def test_impossible_cache_is_refused(bits: int, tp: int) -> None:
    """A width that no cache has, or no GPU at all, is an error."""
    with pytest.raises(ValueError, match="must be"):
        model_shape.kv_bytes_per_token(load("qwen2.5-7b-instruct"), bits, tp)
    if not tp:
        with pytest.raises(ValueError, match="at least 1"):
            model_shape.weight_bytes_per_rank(load("internvl3-8b"), tp)


@given(name=st.sampled_from(NAMES), tp=st.sampled_from([1, 2, 4, 8]))
def test_rank_holds_its_share(name: str, tp: int) -> None:
    """A GPU of the group holds at least an even share, less than all, and all of it when alone."""
    model = load(name)
    held = model_shape.weight_bytes_per_rank(model, 1)
    part = model_shape.weight_bytes_per_rank(model, tp)
    assert held / tp - 1 <= part <= held
    padded = any(vision.pixels for vision in model.vision)
    if model.text.latent:  # loading widens it, see below
        return
    stored = pytest.approx(model_shape.weight_bytes(model), abs=1)
    assert padded or held == stored
    assert model_shape.weight_bytes_per_rank(model, 1, vision_split=False) == stored
    assert padded or part <= model_shape.weight_bytes_per_rank(model, tp, vision_split=False)


def test_vision_heads_of_80_are_held_as_128() -> None:
    """TurboMind's encoder of Qwen2-VL: 32 layers of four matrices 1280 by 1280 and three biases, 16 heads."""
    model = load("qwen2-vl-7b-instruct")
    more = model_shape.weight_bytes_per_rank(model, 1) - model_shape.weight_bytes(model)
    assert more == 32 * 16 * (128 - 80) * (4 * 1280 + 3) * 2


def test_flops() -> None:
    """Two FLOP a weight and token; attention grows with the square of the prompt; one tile of InternViT-300M."""
    model = load("internvl3-8b")
    step = model_shape.prefill_flops(model, 2) - model_shape.prefill_flops(model, 1)
    scores = model_shape.attention_flops(model, 1, context=1)
    assert step - scores == 2 * model_shape.active_parameters(model) == 2 * model_shape.linear_parameters(model)
    assert model_shape.attention_flops(model, 1) == 4 * 28 * 3584
    assert model_shape.attention_flops(model, 1, context=99) == 100 * model_shape.attention_flops(model, 1)
    short, long = (model_shape.attention_flops(model, tokens) for tokens in (1000, 2000))
    assert long / short == pytest.approx(4, rel=0.01)
    assert vision_shape.vision_flops_per_tile(model) == pytest.approx(0.74e12, rel=0.02)
    assert model_shape.prefill_flops(model, 313) == pytest.approx(4.1e12, rel=0.02)


@given(before=st.integers(0, 5000), first=st.integers(1, 3000), second=st.integers(1, 3000))
def test_chunks_cost_what_the_prompt_costs(before: int, first: int, second: int) -> None:
    """A prompt in two chunks does the same attention work as in one."""
    model = load("internvl3-8b")
    chunks = model_shape.attention_flops(model, first, before)
    chunks += model_shape.attention_flops(model, second, before + first)
    assert chunks == model_shape.attention_flops(model, first + second, before)


# --- mixtures of experts, windows, vision without tiles ---------------------------------------


def test_a_token_goes_through_its_experts_only() -> None:
    """Cards say 3.3 of 30.5 billion, 22 of 235 billion and 12.9 of 46.7 billion with embeddings."""
    for name, active in (("qwen3-30b-a3b", 3.3), ("qwen3-235b-a22b", 22), ("mixtral-8x7b-instruct", 12.9)):
        model = load(name)
        counted = model_shape.active_parameters(model) + model_shape.embedding_parameters(model)
        assert counted / 1e9 == pytest.approx(active, rel=0.02)


def test_mixture_by_hand() -> None:
    """Qwen3-30B-A3B, counted from its config.json in another way: tensor by tensor."""
    layer = 2048 * (32 + 4 + 4) * 128 + 32 * 128 * 2048  # query, key, value; output
    layer += 128 * 3 * 2048 * 768 + 128 * 2048  # experts; router
    layer += 2 * 2048 + 2 * 128  # norms of the layer; of query and key
    assert model_shape.parameters(load("qwen3-30b-a3b")) == 48 * layer + 2 * 151936 * 2048 + 2048


def test_decoding_reads_experts_by_the_batch() -> None:
    """One token reads 8 of 128 experts, four 32 at most, sixteen all; more requests cannot read more."""
    model = load("qwen3-30b-a3b")
    assert [model_shape.experts_read(model, batch) for batch in (1, 4, 16, 99)] == [8, 32, 128, 128]
    reads = [model_shape.decode_bytes(model, 1, batch) for batch in (1, 4, 16, 99)]
    expert = 48 * 3 * 2048 * 768 * 2
    assert [read - reads[0] for read in reads] == [0, 24 * expert, 120 * expert, 120 * expert]
    assert model_shape.decode_bytes(model) == reads[0]


@given(name=st.sampled_from(NAMES), tp=st.sampled_from([1, 2, 4, 8]), batch=st.integers(1, 300))
def test_decoding_reads_no_more_than_there_is(name: str, tp: int, batch: int) -> None:
    """A step reads no more than a card holds, but experts that layers share; of a dense model always the same."""
    model = load(name)
    read = model_shape.decode_bytes(model, tp, batch)
    shared = any(mixture.sets for mixture in model.text.mixture)
    assert read > 0
    assert shared or read <= model_shape.weight_bytes_per_rank(model, tp)
    assert model.text.mixture or read == model_shape.decode_bytes(model, tp)


def test_mxfp4_packs_experts_only() -> None:
    """Four bits and an 8-bit scale for 32 weights; everything else stays 16-bit."""
    packed = load("gpt-oss-20b")
    assert model_shape.linear_bits(packed) == 4.25
    plain = packed.model_copy(update={"quantization": ()})
    experts = 24 * 32 * 3 * 2880 * 2880
    saved = model_shape.weight_bytes(plain) - model_shape.weight_bytes(packed)
    assert saved == pytest.approx(experts * (16 - 4.25) / 8, abs=2)


def test_biases_of_experts_and_routers_by_hand() -> None:
    """gpt-oss-20b: 64 heads of 64, 8 KV heads, 32 experts 2880 wide; each layer has a bias and each head a sink."""
    attention = 2 * 2880 * 4096 + 4096 + 2880 + 2 * (2880 * 512 + 512) + 64
    router, expert = 2880 * 32 + 32, 3 * (2880 * 2880 + 2880)  # a gate, an up and a down projection
    layer = attention + router + 32 * expert + 2 * 2880
    assert model_shape.parameters(load("gpt-oss-20b")) == 2 * 201_088 * 2880 + 24 * layer + 2880


def test_fp8_halves_the_linear_layers() -> None:
    """Embeddings, output head and routers stay 16-bit; a square of 128 x 128 weights has a 16-bit scale."""
    for name in ("qwen3-32b", "qwen3-30b-a3b", "qwen3-235b-a22b"):
        packed, plain = load(f"{name}-fp8"), load(name)
        saved = model_shape.weight_bytes(plain) - model_shape.weight_bytes(packed)
        assert saved == pytest.approx(model_shape.linear_parameters(plain) * (1 - 2 / 128**2), abs=2)


@given(before=st.integers(0, 400), tokens=st.integers(1, 400))
def test_a_window_sees_its_tokens_only(before: int, tokens: int) -> None:
    """gpt-oss-20b: half of 24 layers see all before a token, half the last 128; counted one by one."""
    model = load("gpt-oss-20b")
    pairs = sum(12 * (before + turn) + 12 * min(before + turn, 128) for turn in range(1, tokens + 1))
    assert model_shape.attention_flops(model, tokens, before) == 4 * 64 * 64 * pairs


def test_a_window_saves_reading_not_memory() -> None:
    """The cache keeps every token of every layer; decoding reads a window's layers no further than it."""
    model = load("gpt-oss-20b")
    layer = 2 * 8 * 64 * 2
    assert model_shape.kv_bytes_per_token(model, 16) == 24 * layer
    assert model_shape.kv_read_bytes(model, 16, 100) == 100 * 24 * layer
    assert model_shape.kv_read_bytes(model, 16, 1000) == (12 * 1000 + 12 * 128) * layer
    dense = load("qwen3-8b")
    assert model_shape.kv_read_bytes(dense, 8, 1000, 2) == 1000 * model_shape.kv_bytes_per_token(dense, 8, 2)


def test_vision_without_tiles_by_hand() -> None:
    """Qwen2.5-VL-7B's encoder, counted from its config.json tensor by tensor."""
    layer = 1280 * 3 * 1280 + 3 * 1280 + 1280 * 1280 + 1280  # query, key, value; output
    layer += 2 * (1280 * 3420 + 3420) + 3420 * 1280 + 1280 + 2 * 1280  # gate, up; down; norms
    merger = 1280 + 5120 * 5120 + 5120 + 5120 * 3584 + 3584
    patches = 3 * 2 * 14 * 14 * 1280
    model = load("qwen2.5-vl-7b-instruct")
    assert vision_shape.vision_parameters(model) == 32 * layer + merger + patches
    assert model_shape.parameters(model) == 7_615_616_512 + 32 * layer + merger + patches


def test_a_windowed_encoder_costs_less() -> None:
    """Of Qwen2.5-VL's 32 layers 28 see 64 patches, where without windows they would see a tile's 1024."""
    model = load("qwen2.5-vl-7b-instruct")
    blind = model.vision[0].model_copy(update={"window": ()})
    more = vision_shape.vision_flops_per_tile(model.model_copy(update={"vision": (blind,)}))
    assert more - vision_shape.vision_flops_per_tile(model) == 4 * 1024 * 28 * (1024 - 64) * 1280


def test_linear_attention_by_hand() -> None:
    """Qwen3.5-9B: 24 of 32 layers keep states, 8 keep four key/value heads of 256 and gate their output."""
    model = load("qwen3.5-9b")
    assert model_shape.kv_bytes_per_token(model, 16) == 8 * 2 * 4 * 256 * 2
    assert model_shape.kv_bytes_per_token(model, 8, 2) == 8 * 2 * 2 * (256 + 4)
    matrices = 32 * 128 * 128 * 2  # 32 value heads, keys by values, 16-bit
    inputs = 24 * (2 * 16 * 128 + 32 * 128) * 4 * 2  # queries, keys and values of four tokens, all layers
    assert linear_attention.state_parts(model) == ((matrices, 24), (inputs, 1))
    assert linear_attention.state_bytes(model, 2) == (24 * matrices + inputs) / 2
    assert linear_attention.state_parts(load("qwen3-8b")) == ()
    one = model_shape.attention_flops(model, 1, 99)
    assert one == 4 * 8 * 16 * 256 * 100 + 24 * 32 * 6 * 128 * 128


def test_linear_attention_weights_are_the_published_ones() -> None:
    """Qwen/Qwen3.5-9B's index states 19,306,216,416 bytes: these, the layer for drafts, some numbers in 32 bits."""
    model = load("qwen3.5-9b")
    attention = 4096 * (2 * 16 * 256 + 2 * 4 * 256 + 16 * 256)
    drafts = 2 * 4096 * 4096 + attention + 3 * 4096 * 12288 + 5 * 4096 + 2 * 256
    wider = 24 * (32 + 128)  # a decay for each value head and the norm's weights
    assert model_shape.weight_bytes(model) + 2 * (drafts + wider) == 19_306_216_416


def test_latent_attention_by_hand() -> None:
    """GLM-4.7-Flash: each of 47 layers caches one vector of 512 and 64 for all heads, whole on each card."""
    model = load("glm-4.7-flash")
    assert [model_shape.kv_bytes_per_token(model, 16, tp) for tp in (1, 2, 4)] == [47 * 576 * 2] * 3
    assert model_shape.kv_bytes_per_token(model, 8) == 47 * (576 + 4)
    assert model_shape.attention_flops(model, 1, 99) == 47 * 4 * 20 * 576 * 100


def test_latent_attention_loads_wider_than_it_is_stored() -> None:
    """Counted tensor by tensor; loading folds the matrix of keys and values into queries and output."""
    model = load("glm-4.7-flash")
    down = 2048 * 768 + 2048 * (512 + 64)
    stored = down + 768 * 20 * (192 + 64) + 512 * 20 * (192 + 256) + 20 * 256 * 2048
    experts = 46 * ((64 + 1) * 3 * 2048 * 1536 + 64 * 2048 + 2 * 64) + 3 * 2048 * 10240  # the bias has 32 bits
    norms = 47 * (2 * 2048 + 768 + 512) + 2048
    total = 47 * stored + experts + norms + 2 * 154880 * 2048
    assert model_shape.weight_bytes(model) == 2 * total
    for tp in (1, 2):
        loaded = down + 20 // tp * 576 * (768 + 2048)
        rest = (experts - 46 * (64 * 2048 + 2 * 64) + 2 * 154880 * 2048) / tp + 46 * (64 * 2048 + 2 * 64) + norms
        assert model_shape.weight_bytes_per_rank(model, tp) == 2 * (47 * loaded + rest)


def test_layers_that_share_experts() -> None:
    """Intern-S2-Mobius has Qwen3.5-35B-A3B's weights in four sets of ten layers' experts; a token scores them all."""
    shared, own = load("intern-s2-mobius"), load("qwen3.5-35b-a3b")
    assert model_shape.weight_bytes(shared) == model_shape.weight_bytes(own)
    assert model_shape.weight_bytes_per_rank(shared, 2) == model_shape.weight_bytes_per_rank(own, 2)
    more = 40 * 2048 * (2560 - 256)
    assert model_shape.active_parameters(shared) - model_shape.active_parameters(own) == more
    assert model_shape.decode_bytes(shared) - model_shape.decode_bytes(own) == 2 * more


# --- what the PyTorch engine serves: weights counted by the hub ---------------------------------

COUNTED = {
    "qwen3-vl-2b-instruct": 2_127_532_032, "qwen3-vl-4b-instruct": 4_437_815_808,
    "qwen3-vl-8b-instruct": 8_767_123_696, "qwen3-vl-32b-instruct": 33_357_390_064,
    "qwen3-vl-30b-a3b-instruct": 31_070_754_032, "qwen3-vl-235b-a22b-instruct": 235_670_022_896,
    "qwen3-coder-next": 79_674_391_296, "deepseek-v2-lite-chat": 15_706_484_224,
    "gemma-2-9b-it": 9_241_705_984, "gemma-2-27b-it": 27_227_128_320,
    "mistral-7b-instruct-v0.3": 7_248_023_552, "mistral-small-24b-instruct-2501": 23_572_403_200,
    "phi-4": 14_659_507_200, "phi-3.5-mini-instruct": 3_821_079_552,
    "llava-1.5-7b-hf": 7_063_427_072,
}  # fmt: skip
"""The sum of each checkpoint's safetensors, as github.com/sloweyyy/llmfit at cbeccfa (data/hf_models.json) took it
from the hub's interface."""
ABOUT = {
    "gemma-3-4b-it": 4_300_079_472, "gemma-3-12b-it": 12_187_325_040, "gemma-3-27b-it": 27_432_406_640,
    "moonlight-16b-a3b-instruct": 15_960_111_936, "glm-4.1v-9b-thinking": 10_292_777_472,
    "llama-4-scout-17b-16e-instruct": 108_641_793_536, "llama-4-maverick-17b-128e-instruct": 401_583_781_376,
}  # fmt: skip
"""The same, of encoders whose class token and norms are counted like InternVL's, and of a file with constants."""


@pytest.mark.parametrize("name", COUNTED)
def test_weights_are_those_that_the_hub_counts(name: str) -> None:
    """To the last one."""
    assert model_shape.parameters(load(name)) == COUNTED[name]


@pytest.mark.parametrize("name", ABOUT)
def test_weights_of_other_encoders_are_near(name: str) -> None:
    """Within 0.003 %."""
    assert model_shape.parameters(load(name)) == pytest.approx(ABOUT[name], rel=3e-5)


def expert_layer(model: Model) -> int:
    """One layer with experts of GLM-4.5 or DeepSeek-V3, counted tensor by tensor; its correction once."""
    text, mixture = model.text, model.text.mixture[0]
    total = 3 * text.hidden * (mixture.experts * mixture.intermediate + mixture.shared)
    total += mixture.experts * (text.hidden + 1) + 2 * text.hidden
    for latent in text.latent:
        total += text.hidden * (latent.query_rank + latent.rank + latent.rope) + latent.query_rank + latent.rank
        total += latent.query_rank * text.heads * (latent.key + latent.rope)
        return total + latent.rank * text.heads * (latent.key + latent.value) + text.heads * latent.value * text.hidden
    total += 2 * text.hidden * text.heads * text.head_dim + 2 * text.hidden * text.kv_heads * text.head_dim
    return total + (text.heads + 2 * text.kv_heads) * text.head_dim + (2 * text.head_dim if text.qk_norm else 0)


@pytest.mark.parametrize(
    ("name", "counted"),
    [("glm-4.5-air", 110_468_824_832), ("glm-4.5", 358_337_791_296), ("deepseek-v3", 684_531_386_000)],
)
def test_the_files_hold_one_more_layer_that_is_not_loaded(name: str, counted: int) -> None:
    """It predicts further tokens: embeddings and output head again, a matrix of two widths, three norms, a layer.

    DeepSeek-V3's count includes a scale for each square of 128 by 128 weights.
    """
    model = load(name)
    text, mixture = model.text, model.text.mixture[0]
    drafts = expert_layer(model) + 2 * text.vocab * text.hidden + 2 * text.hidden**2 + 3 * text.hidden
    loaded = model_shape.parameters(model) - (text.layers - mixture.dense_layers) * mixture.experts
    scales = round((model_shape.linear_parameters(model) + drafts) / 128**2) if model.quantization else 0
    assert loaded + drafts + scales == pytest.approx(counted, rel=1e-6 if model.quantization else 1e-9)


def test_a_deepstack_has_three_more_projectors() -> None:
    """Qwen3-VL-8B's encoder, counted from its config.json tensor by tensor."""
    layer = 1152 * 3 * 1152 + 3 * 1152 + 1152 * 1152 + 1152 + 2 * 1152 * 4304 + 4304 + 1152 + 4 * 1152
    merger = 4608 * 4608 + 4608 + 4608 * 4096 + 4096
    patches = 3 * 2 * 16 * 16 * 1152 + 1152 + 2304 * 1152
    counted = 27 * layer + 4 * merger + 2 * 1152 + 3 * 2 * 4608 + patches
    model = load("qwen3-vl-8b-instruct")
    assert vision_shape.vision_parameters(model) == counted
    flat = model.model_copy(update={"vision": (model.vision[0].model_copy(update={"deepstack": 0}),)})
    more = vision_shape.vision_flops_per_tile(model) - vision_shape.vision_flops_per_tile(flat)
    assert more == 3 * 2 * 256 * (4608 * 4608 + 4608 * 4096)


def test_a_resampler_works_on_patches_and_on_queries() -> None:
    """MiniCPM-V 2.6: 1024 patches of a slice become keys and values, 64 queries what the language model sees."""
    model = load("minicpm-v-2.6")
    blind = model.model_copy(update={"vision": (model.vision[0].model_copy(update={"layers": 0}),)})
    patches = 2 * 1024 * (3 * 14 * 14 * 1152 + 1152 * 3584 + 3584 * 2 * 3584)
    assert vision_shape.vision_flops_per_tile(blind) == patches + 2 * 64 * 3 * 3584 * 3584


def test_an_audio_encoder_weighs_what_its_layers_do() -> None:
    """Qwen3-Omni: 32 layers of 1280 and 5120, whole on each GPU; the rest is Qwen3-VL-30B's with another vocabulary."""
    omni, vision = load("qwen3-omni-30b-a3b-instruct"), load("qwen3-vl-30b-a3b-instruct")
    layers = 32 * (4 * 1280 * 1280 + 2 * 1280 * 5120 + 4 * 1280 + 5120 + 1280 + 4 * 1280)
    before = 480 * 9 + 480 + 2 * (480 * 480 * 9 + 480) + 480 * (128 // 8) * 1280
    after = 2 * 1280 + 1280 * 1280 + 1280 + 1280 * 2048 + 2048
    audio = (layers + before + after) * 2
    vocabulary = 2 * (152_064 - 151_936) * 2048 * 2
    assert model_shape.weight_bytes(omni) == model_shape.weight_bytes(vision) + audio + vocabulary
    for tp in (2, 4):
        more = model_shape.weight_bytes_per_rank(omni, tp) - model_shape.weight_bytes_per_rank(vision, tp)
        assert more == pytest.approx(audio + vocabulary / tp, abs=2)


def test_latent_attention_without_a_rank_of_queries() -> None:
    """DeepSeek-V2-Lite: 27 layers cache 576 numbers a token, whole on each card; queries come from the hidden state."""
    model = load("deepseek-v2-lite-chat")
    assert [model_shape.kv_bytes_per_token(model, 16, tp) for tp in (1, 2)] == [27 * 576 * 2] * 2
    attention = 2048 * 16 * (128 + 64) + 2048 * (512 + 64) + 512 * 16 * (128 + 128) + 16 * 128 * 2048
    experts = 26 * 3 * 2048 * (64 * 1408 + 2816) + 3 * 2048 * 10944
    assert model_shape.linear_parameters(model) == 27 * attention + experts
    for tp in (1, 2):  # of three matrices one
        assert model_shape.mlp_matrix_parameters(model, tp) == experts / 3 / tp


@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("name", ["deepseek-v2-lite-chat", "glm-4.7-flash", "qwen3-30b-a3b", "qwen2.5-7b-instruct"])
def test_a_step_of_a_crowd_reads_all_that_is_loaded(name: str, tp: int) -> None:
    """It meets every expert: all weights of a card but its embeddings and norms, as loaded, not as stored."""
    model = load(name)
    embeddings = model.text.vocab * model.text.hidden * 2 // tp
    loaded = model_shape.weight_bytes_per_rank(model, tp)
    rest = loaded - embeddings - model_shape.decode_bytes(model, tp, 10**6)
    assert 0 <= rest <= loaded / 1000


def test_sparse_attention_caches_keys_and_reads_what_it_picks() -> None:
    """DeepSeek-V3.2: 61 layers cache 576 numbers and an index key of 128 bytes with a scale of 4, and read 2048."""
    model, dense = load("deepseek-v3.2"), load("deepseek-v3")
    token = 576 * 2 + 128 + 4
    assert model_shape.kv_bytes_per_token(model, 16) == 61 * token
    assert model_shape.kv_read_bytes(model, 16, 1000) == 1000 * 61 * token
    assert model_shape.kv_read_bytes(model, 16, 100_000) == 61 * (2048 * 576 * 2 + 100_000 * 132)
    layer, small = 1536 * 64 * 128 + 7168 * 128, 7168 * 64 + 2 * 128  # the small ones stay 16-bit
    assert model_shape.linear_parameters(model) - model_shape.linear_parameters(dense) == 61 * layer
    assert model_shape.parameters(model) - model_shape.parameters(dense) == 61 * (layer + small)
    more = model_shape.weight_bytes(model) - model_shape.weight_bytes(dense)
    assert more == 61 * (layer * (1 + 2 / 128**2) + small * 2)
    assert model_shape.attention_flops(model, 1, 99_999) == 61 * 4 * 128 * 576 * 2048


def test_linear_attention_of_qwen3_next() -> None:
    """36 of 48 layers keep states of 32 heads of 128 by 128 and four inputs; 12 cache 2 key/value heads of 256."""
    model = load("qwen3-next-80b-a3b-instruct")
    assert model_shape.kv_bytes_per_token(model, 16) == 12 * 2 * 2 * 256 * 2
    inputs = (2 * 16 * 128 + 32 * 128) * 4
    assert linear_attention.state_bytes(model) == 36 * (32 * 128 * 128 + inputs) * 2


def test_windows_of_gemma() -> None:
    """Gemma 3 27B: 52 of 62 layers read 1024 tokens at most; all cache every token."""
    model = load("gemma-3-27b-it")
    layer = 2 * 16 * 128 * 2
    assert model_shape.kv_bytes_per_token(model, 16) == 62 * layer
    assert model_shape.kv_read_bytes(model, 16, 5000) == (10 * 5000 + 52 * 1024) * layer


def test_dense_layers_between_those_with_experts() -> None:
    """Llama 4 Maverick: each second of 48 layers is dense, 16384 wide; a token passes one expert and the shared one."""
    model = load("llama-4-maverick-17b-128e-instruct")
    attention = 5120 * 128 * (40 + 8 + 8 + 40)
    active = 48 * attention + 24 * 3 * 5120 * (16384 + 8192 + 8192) + 24 * 5120 * 128
    assert model_shape.active_parameters(model) == active
    counted = active + model_shape.embedding_parameters(model)
    assert counted / 1e9 == pytest.approx(17, abs=0.5)  # its name
