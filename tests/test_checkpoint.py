"""A local folder's config.json becomes the shape that the same checkpoint's record has, for every family."""

import json
from pathlib import Path
from typing import Any

import pytest

from recommender.estimate import model_shape
from recommender.knowledge.load import load
from recommender.knowledge.records import Model, Quantization, TextShape, VisionShape
from recommender.request import checkpoint
from recommender.request.image_tokens import tiles

STORE = load()
LANGUAGE = {
    "qwen2": "Qwen2ForCausalLM",
    "qwen2.5": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3-moe": "Qwen3MoeForCausalLM",
    "internlm2.5": "InternLM2ForCausalLM",
    "gpt-oss": "GptOssForCausalLM",
}


def text_config(text: TextShape, architecture: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "architectures": [architecture], "hidden_size": text.hidden, "num_hidden_layers": text.layers,
        "num_attention_heads": text.heads, "num_key_value_heads": text.kv_heads,
        "intermediate_size": text.intermediate, "vocab_size": text.vocab,
        "tie_word_embeddings": text.tied_embeddings, "max_position_embeddings": text.max_positions,
        "torch_dtype": text.dtype, "sliding_window": None,
    }  # fmt: skip
    if text.head_dim * text.heads != text.hidden:
        found["head_dim"] = text.head_dim
    return found | mixture_config(text, architecture) | attention_config(text, architecture)


def mixture_config(text: TextShape, architecture: str) -> dict[str, Any]:
    """The experts as each family's config.json writes them."""
    found: dict[str, Any] = {}
    for mixture in text.mixture:
        if architecture.startswith("Llama4"):
            found |= {"intermediate_size_mlp": text.intermediate, "intermediate_size": mixture.intermediate}
            found |= {"num_local_experts": mixture.experts, "moe_layers": None}
            found["interleave_moe_layer_step"] = text.layers // (text.layers - mixture.dense_layers)
        elif mixture.corrected or mixture.ungated:
            found |= {"n_routed_experts": mixture.experts, "moe_intermediate_size": mixture.intermediate}
            found |= {"n_shared_experts": mixture.shared // mixture.intermediate}
            found |= {"first_k_dense_replace": mixture.dense_layers}
        elif architecture.startswith(("Qwen", "InternS2")):
            found |= {"num_experts": mixture.experts, "moe_intermediate_size": mixture.intermediate}
            found |= {"mlp_only_layers": [], "decoder_sparse_step": 1}
            found |= {"shared_expert_intermediate_size": mixture.shared} if mixture.shared else {}
        else:
            found["num_local_experts"] = mixture.experts
        found["num_experts_per_tok"] = mixture.per_token
        found |= {"num_blocks": mixture.sets} if mixture.sets else {}
    return found


def attention_config(text: TextShape, architecture: str) -> dict[str, Any]:
    """Latent, windowed and linear attention, and biases and norms where a family writes them."""
    found: dict[str, Any] = {}
    if architecture.startswith(("Glm4", "Llama4")):
        found["attention_bias"] = text.attention_bias != "none"
    if architecture.startswith(("Glm4Moe", "Llama4")):
        found["use_qk_norm"] = text.qk_norm
    for latent in text.latent:
        found |= {"num_key_value_heads": text.heads, "head_dim": latent.rope, "q_lora_rank": latent.query_rank or None}
        found |= {"kv_lora_rank": latent.rank, "qk_rope_head_dim": latent.rope, "qk_nope_head_dim": latent.key}
        found |= {"v_head_dim": latent.value}
        for index in latent.index:
            found |= {"index_n_heads": index.heads, "index_head_dim": index.head_dim, "index_topk": index.tokens}
    for window in text.window:
        found["sliding_window"] = window.tokens
        if architecture.startswith("Gemma3"):
            found["sliding_window_pattern"] = 6
        elif not architecture.startswith("Gemma"):  # Gemma 2 does not write which
            found["layer_types"] = ["sliding_attention", "full_attention"] * window.layers
    for linear in text.linear:
        kinds = ["linear_attention"] * 3 + ["full_attention"]
        every = architecture == "Qwen3NextForCausalLM"
        found |= {"full_attention_interval": 4} if every else {"layer_types": kinds * (linear.layers // 3)}
        found |= {"linear_num_key_heads": linear.key_heads}
        found |= {"linear_num_value_heads": linear.value_heads, "linear_value_head_dim": linear.head_dim}
        found |= {"linear_conv_kernel_dim": linear.kernel}
    return found


def vision_config(vision: VisionShape, legacy: bool) -> dict[str, Any]:
    """The encoder as its family's config.json writes it; Qwen's leaves most to the class."""
    if vision.pixels and vision.projector:  # GLM: the layers are as deep as the output is wide
        names = {"hidden_size": vision.hidden, "out_hidden_size": vision.intermediate, "depth": vision.layers}
        return names | {"num_heads": vision.heads, "intermediate_size": 13696, "image_size": 336}
    if vision.pixels and vision.positions:
        names = {"hidden_size": vision.hidden, "intermediate_size": vision.intermediate, "depth": vision.layers}
        stacked = {"deepstack_visual_indexes": [5, 11, 17][: vision.deepstack]} if vision.deepstack else {}
        return names | {"num_heads": vision.heads, "num_position_embeddings": vision.positions} | stacked
    if vision.pixels:
        if vision.gated:
            return {"hidden_size": 1280, "in_chans": 3, "intermediate_size": vision.intermediate}
        return {"in_chans": 3, "spatial_patch_size": 14}
    found: dict[str, Any] = {
        "hidden_size": vision.hidden,
        "intermediate_size": vision.intermediate,
        "num_hidden_layers": vision.layers,
        "num_attention_heads": vision.heads,
        "norm_type": vision.norm,
    }
    if legacy:
        names = {"image_size": vision.image, "patch_size": vision.patch, "qkv_bias": vision.qkv_bias}
        return found | names | {"qk_normalization": vision.qk_norm}
    sides = {"image_size": [vision.image] * 2, "patch_size": [vision.patch] * 2}
    return found | sides | {"attention_bias": vision.qkv_bias, "use_qk_norm": vision.qk_norm}


def quantization_config(packed: Quantization) -> dict[str, Any]:
    if packed.method == "fp8":
        return {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
    if packed.method == "mxfp4":
        return {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    common = {"quant_method": packed.method, "bits": packed.bits, "group_size": packed.group}
    return common | ({"version": packed.version} if packed.method == "awq" else {"sym": True, "desc_act": False})


def hub_config(model: Model) -> dict[str, Any]:
    language = LANGUAGE.get(model.text.family, model.architecture)
    legacy = model.architecture == "InternVLChatModel"
    found = text_config(model.text, language)
    for vision in model.vision:
        flat = (bool(vision.pixels) and not vision.positions) or vision.cut in ("rows", "slices")
        inner = {} if flat else {"llm_config" if legacy else "text_config": found}
        encoder = {} if vision.cut == "rows" else {"vision_config": vision_config(vision, legacy)}  # Phi names CLIP's
        found = (found if flat else inner) | encoder
        found |= {"min_dynamic_patch": vision.min_tiles, "max_dynamic_patch": vision.max_tiles} if legacy else {}
        if vision.cut == "slices":
            found |= {"image_size": vision.image, "slice_config": {"max_slice_nums": vision.max_tiles}}
            found["vision_config"]["image_size"] = 980
    found["architectures"] = [model.architecture]
    for audio in model.audio:
        encoder = {"d_model": audio.hidden, "encoder_layers": audio.layers, "encoder_ffn_dim": audio.intermediate}
        found = {"architectures": found.pop("architectures"), "thinker_config": found | {"audio_config": encoder}}
    if model.remote_code:
        found["auto_map"] = {"AutoConfig": "configuration.Config"}
    if model.quantization:
        found["quantization_config"] = quantization_config(model.quantization[0])
    return found


def plain(value: object) -> Any:
    """A record, or several, as JSON has them: those of the store are no pydantic models."""
    return json.loads(json.dumps(value, default=vars))


def folder(tmp_path: Path, config: dict[str, Any]) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize("name", sorted(STORE.models))
def test_every_record_reads_back(name: str, tmp_path: Path) -> None:
    """Widths, experts, windows, encoder, quantisation and support are those of the record, and so are the bytes."""
    model = STORE.models[name]
    found, size, _ = checkpoint.read(folder(tmp_path, hub_config(model)), STORE)
    for field in TextShape.model_fields:
        if field != "family":
            assert plain(getattr(found.text, field)) == plain(getattr(model.text, field)), field
    assert plain(found.vision) == plain(model.vision)
    assert plain(found.audio) == plain(model.audio)
    assert found.remote_code == model.remote_code
    assert [each.method for each in found.quantization] == [each.method for each in model.quantization]
    assert [each.group for each in found.quantization] == [each.group for each in model.quantization]
    assert model_shape.weight_bytes(found) == model_shape.weight_bytes(model)
    assert {each.engine for each in model.support} <= {each.engine for each in found.support} | {"pytorch"}
    assert size == 0


@pytest.mark.parametrize(
    ("name", "processor", "tiles_most", "pixels"),
    [
        ("glm-4.1v-9b-thinking", {"size": {"shortest_edge": 12544, "longest_edge": 9633792}}, 24, (6272, 4816896)),
        ("glm-4.1v-9b-thinking", {"size": {"shortest_edge": 12544, "longest_edge": 2408448}}, 6, (6272, 1204224)),
        ("qwen3-vl-8b-instruct", {"size": {"shortest_edge": 65536, "longest_edge": 1048576}}, 4, (65536, 1048576)),
        ("phi-3.5-vision-instruct", {"num_crops": 16}, 16, None),
        ("llama-4-scout-17b-16e-instruct", {"max_patches": 4}, 4, None),
        ("gemma-3-4b-it", {"size": {"height": 896, "width": 896}}, 1, None),
    ],
)
def test_limits_of_the_image_processor(
    name: str, processor: dict[str, Any], tiles_most: int, pixels: tuple[int, int] | None, tmp_path: Path
) -> None:
    """A folder's own limits hold; GLM's count both frames of a patch."""
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    found, _, _ = checkpoint.read(folder(tmp_path, hub_config(STORE.models[name])), STORE)
    assert found.vision[0].max_tiles == tiles_most
    assert [(rule.least, rule.most) for rule in found.vision[0].pixels] == ([pixels] if pixels else [])


def test_a_projector_follows_its_neighbours(tmp_path: Path) -> None:
    """A folder with another language model has a projector of that width."""
    config = hub_config(STORE.models["gemma-3-4b-it"])
    config["text_config"]["hidden_size"] = 1024
    found, _, _ = checkpoint.read(folder(tmp_path, config), STORE)
    assert [(matrix.inputs, matrix.outputs) for matrix in found.vision[0].projector] == [(1152, 1024)]


@pytest.mark.parametrize(
    ("asks", "processor", "most"),
    [(True, True, 12), (True, False, 12), (False, False, 12), (False, True, 1), (None, True, 1)],
)
def test_an_image_that_is_not_cut(asks: bool | None, processor: bool, most: int, tmp_path: Path) -> None:
    """One tile where config.json asks for no tiles and an image processor is there; LMDeploy cuts all others."""
    config = hub_config(STORE.models["internvl3-8b"]) | ({} if asks is None else {"dynamic_image_size": asks})
    if processor:
        (tmp_path / "preprocessor_config.json").write_text('{"size": 448, "crop_size": 448}')
    found, _, _ = checkpoint.read(folder(tmp_path, config), STORE)
    (vision,) = found.vision
    assert (vision.min_tiles, vision.max_tiles, vision.thumbnail) == (1, most, most > 1)
    assert tiles(vision, 1280, 720, 6) == (3 if most > 1 else 1)  # a request's limit is read where images are cut


PUBLISHED = {
    # google/gemma-3-12b-it and -4b-it, and llava-hf/llava-1.5-7b-hf, leave out what their classes assume.
    "gemma-3-12b-it": {
        "hidden_size": 3840, "intermediate_size": 15360, "model_type": "gemma3_text", "num_attention_heads": 16,
        "num_hidden_layers": 48, "num_key_value_heads": 8, "sliding_window": 1024,
    },
    "gemma-3-4b-it": {
        "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "llava-1.5-7b-hf": {
        "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 4096, "model_type": "llama",
        "torch_dtype": "float16", "vocab_size": 32064,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_entries_that_a_published_file_leaves_out(name: str, tmp_path: Path) -> None:
    """They are those of the class that transformers makes from ``model_type``, not those of another record."""
    model = STORE.models[name]
    config = hub_config(model) | {"text_config": PUBLISHED[name]}
    found, _, _ = checkpoint.read(folder(tmp_path, config), STORE)
    for field in TextShape.model_fields:
        if field != "family":
            assert plain(getattr(found.text, field)) == plain(getattr(model.text, field)), field
    assert model_shape.weight_bytes(found) == model_shape.weight_bytes(model)


def test_a_gemma_3_without_a_window_has_that_of_its_class(tmp_path: Path) -> None:
    """Gemma3TextConfig assumes 4,096 tokens (models/gemma3/configuration_gemma3.py); the record's file says 1,024."""
    text = {key: value for key, value in PUBLISHED["gemma-3-4b-it"].items() if key != "sliding_window"}
    config = hub_config(STORE.models["gemma-3-4b-it"]) | {"text_config": text}
    (window,) = checkpoint.read(folder(tmp_path, config), STORE)[0].text.window
    assert window.tokens == 4096


def test_a_gemma_2_without_a_word_of_its_head_has_it_tied(tmp_path: Path) -> None:
    """As its class assumes, and as google/gemma-2-9b-it relies on."""
    config = hub_config(STORE.models["gemma-2-9b-it"]) | {"model_type": "gemma2"}
    del config["tie_word_embeddings"]
    assert checkpoint.read(folder(tmp_path, config), STORE)[0].text.tied_embeddings


@pytest.mark.parametrize(
    "entry",
    ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size",
     "max_position_embeddings"],
)  # fmt: skip
@pytest.mark.parametrize("null", [True, False])
def test_a_size_that_is_missing_is_not_another_models(entry: str, null: bool, tmp_path: Path) -> None:
    """Without it there is no shape: the file and the entry are named."""
    config = hub_config(STORE.models["qwen2.5-7b-instruct"])
    config[entry] = None
    if not null:
        del config[entry]
    with pytest.raises(checkpoint.CheckpointError, match=rf"config\.json'?: {entry} is missing; "):
        checkpoint.read(folder(tmp_path, config), STORE)


def test_images_that_no_record_of_the_architecture_has(tmp_path: Path) -> None:
    """TurboMind leaves a Glm4MoeLite that sees to the other engine (0.18.0 supported_models.py:73)."""
    config = hub_config(STORE.models["glm-4.7-flash"]) | {"vision_config": {"hidden_size": 1024}}
    with pytest.raises(
        checkpoint.CheckpointError, match="with a vision_config, Glm4MoeLiteForCausalLM is not supported"
    ):
        checkpoint.read(folder(tmp_path, config), STORE)


def test_a_smaller_mixture(tmp_path: Path) -> None:
    """Experts and layers without them come from the file, not from the record."""
    config = hub_config(STORE.models["qwen3-30b-a3b"]) | {
        "num_experts": 16,
        "num_experts_per_tok": 2,
        "mlp_only_layers": [0, 1],
    }
    found, _, _ = checkpoint.read(folder(tmp_path, config), STORE)
    (mixture,) = found.text.mixture
    assert (mixture.experts, mixture.per_token, mixture.dense_layers) == (16, 2, 2)
    assert model_shape.weight_bytes(found) < model_shape.weight_bytes(STORE.models["qwen3-30b-a3b"])


def test_windows_are_counted(tmp_path: Path) -> None:
    """Layers with a window are those that the file marks."""
    config = hub_config(STORE.models["gpt-oss-20b"])
    config |= {"layer_types": ["sliding_attention"] * 20 + ["full_attention"] * 4, "sliding_window": 64}
    found, _, _ = checkpoint.read(folder(tmp_path, config), STORE)
    assert [(each.tokens, each.layers) for each in found.text.window] == [(64, 20)]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ({"min_pixels": 3136, "max_pixels": 1003520}, (3136, 1003520, 5)),
        ({"size": {"shortest_edge": 65536, "longest_edge": 802816}}, (65536, 802816, 4)),
        ([1], (3136, 12845056, 64)),
    ],
)
def test_limits_of_images_come_from_the_folder(limits: Any, expected: tuple[int, int, int], tmp_path: Path) -> None:
    """A folder's own preprocessing says how large an image may be; without it the family's does."""
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(limits))
    found, _, _ = checkpoint.read(folder(tmp_path, hub_config(STORE.models["qwen2.5-vl-7b-instruct"])), STORE)
    (vision,) = found.vision
    assert (vision.pixels[0].least, vision.pixels[0].most, vision.max_tiles) == expected


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("internvl3-8b", {"llm_config": {"architectures": ["PhiForCausalLM"]}}, "'PhiForCausalLM'"),
        ("internvl3-8b", {"vision_config": [1]}, "vision_config is not a JSON object"),
        ("internvl3-8b", {"vision_config": {"hidden_size": 0}}, "vision encoder"),
        ("internvl3-8b", {"vision_config": {"norm_type": "batch"}}, "norm"),
        ("internvl3-8b", {"max_dynamic_patch": 10**9}, "vision encoder"),
        ("qwen3-30b-a3b", {"num_experts": 1}, "experts"),
        ("qwen3-30b-a3b", {"num_experts_per_tok": 200}, "language model"),
        ("qwen3-30b-a3b", {"mlp_only_layers": list(range(48))}, "language model"),
        ("gpt-oss-20b", {"sliding_window": "far"}, "window"),
        ("gpt-oss-20b", {"quantization_config": {"quant_method": "compressed-tensors"}}, "num_bits"),
        ("qwen3-8b", {"torch_dtype": "float32"}, "torch_dtype"),
        ("qwen3-8b", {"hidden_size": "4096"}, ": hidden_size: "),
        ("qwen3-8b", {"num_key_value_heads": [8]}, ": num_key_value_heads: "),
        ("qwen3-8b", {"architectures": None}, "names no architecture"),
    ],
)
def test_nonsense_is_one_line(name: str, changes: dict[str, Any], says: str, tmp_path: Path) -> None:
    """What cannot be is told with the file and the field."""
    with pytest.raises(checkpoint.CheckpointError) as caught:
        checkpoint.read(folder(tmp_path, hub_config(STORE.models[name]) | changes), STORE)
    message = str(caught.value)
    assert says in message
    assert "config.json" in message
    assert "\n" not in message
