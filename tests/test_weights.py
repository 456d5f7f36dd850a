"""Random checkpoints: the record's exact shapes, the same bytes every time, marked synthetic, never half written."""

import fcntl
import hashlib
import json
import operator
import os
import random
import re
import shutil
import subprocess
import sys
import threading
from collections import namedtuple
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest
import tokenizers
import yaml

from recommender.estimate import model_shape
from recommender.knowledge.load import load
from recommender.knowledge.records import Model
from recommender.request import checkpoint
from recommender.request.image_tokens import image_tokens
from recommender.smoke.filler import write_filler
from recommender.smoke.weights import gemma, hf_config, layouts, processors, qwen35, tensors, tokenizer, values, write
from recommender.smoke.weights.layouts import WeightsError

STORE = load()


def covered(model: Model) -> bool:
    try:
        layouts.check_model(model)
    except layouts.WeightsError:
        return False
    return True


NAMES = sorted(name for name, model in STORE.models.items() if covered(model))
SMALL_TEXT = {"hidden": 128, "layers": 2, "heads": 2, "kv_heads": 1, "head_dim": 64, "intermediate": 384}
SMALL_VISION = {"hidden": 128, "layers": 2, "heads": 2, "intermediate": 128}
SMALL_LINEAR = {"layers": 1, "key_heads": 1, "value_heads": 2}
SMALL_LATENT = {"query_rank": 64, "rank": 32, "rope": 32, "key": 32, "value": 64}
SMALL_MIXTURE = {"experts": 4, "per_token": 2, "intermediate": 384}
AWQ = {"quantization": [{"method": "awq", "bits": 4, "group": 128, "version": "gemm"}]}
GPTQ = {"quantization": [{"method": "gptq", "bits": 4, "group": 128, "version": "gptq"}]}
FP8 = {"quantization": [{"method": "fp8", "bits": 8, "group": 128, "version": "fp8"}]}
SHARED = [SMALL_MIXTURE | {"shared": 256}]
SHAPES = ("text", "vision", "audio", "quantization")
"""Fields of a record that decide what is written."""
QWEN3 = {"family": "qwen3", "qk_norm": True, "attention_bias": "none", "vocab": 151936}
INTERNLM2 = {"family": "internlm2.5", "attention_bias": "none", "vocab": 92553}
INTERNLM3 = {"family": "internlm3", "attention_bias": "none", "vocab": 128512}
OTHERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # id: the record it comes from, what differs in the record, what differs in its text shape
    "qwen3-8b": ("qwen2.5-7b-instruct", {"architecture": "Qwen3ForCausalLM"}, QWEN3),
    "qwen3-8b-awq": ("qwen2.5-7b-instruct-awq", {"architecture": "Qwen3ForCausalLM"}, QWEN3),
    "qwen2.5-0.5b": ("qwen2.5-7b-instruct", {}, {"tied_embeddings": True, "dtype": "float16"}),
    "internlm2.5-7b": ("qwen2.5-7b-instruct", {"architecture": "InternLM2ForCausalLM"}, INTERNLM2),
    "internlm3-8b-awq": ("qwen2.5-7b-instruct-awq", {"architecture": "InternLM3ForCausalLM"}, INTERNLM3),
    "internvl2.5-8b": ("internvl3-8b", {}, INTERNLM2),
    "internvl2.5-8b-hf": ("internvl3-8b-hf", {}, INTERNLM2),
    "internvl3.5-8b": ("internvl3-8b", {}, QWEN3 | {"attention_bias": "qkvo"}),
    "llama-2-7b": ("llama-3.1-8b-instruct", {}, {"family": "llama2", "vocab": 32000}),
    "qwen3-30b-a3b-awq": ("qwen3-30b-a3b", AWQ, {}),
    "qwen3-30b-a3b-gptq": ("qwen3-30b-a3b", GPTQ, {"mixture": [SMALL_MIXTURE | {"dense_layers": 1}]}),
    "qwen2-57b-a14b": ("qwen2.5-7b-instruct", {"architecture": "Qwen2MoeForCausalLM"},
     {"family": "qwen2-moe", "mixture": SHARED}),
    "mixtral-8x7b-awq": ("mixtral-8x7b-instruct", AWQ, {}),
    "qwen2.5-vl-7b-gptq": ("qwen2.5-vl-7b-instruct", GPTQ, {}),
    "internlm3-8b-gptq": ("internlm3-8b-instruct", GPTQ, {}),
    "llama-3.1-8b-fp8": ("llama-3.1-8b-instruct", FP8, {}),
    "intern-s1": ("internvl3.5-30b-a3b", FP8 | {"architecture": "InternS1ForConditionalGeneration"}, {}),
}  # fmt: skip


def as_dict(model: Model) -> dict[str, Any]:
    return json.loads(json.dumps(vars(model), default=vars))


def small(name: str) -> Model:
    """A model of the knowledge, or one of a family it lacks, with few layers and narrow ones."""
    base, top, text = OTHERS.get(name, (name, {}, {}))
    fields = as_dict(STORE.models[base]) | top | {"id": name}
    fields["text"] |= SMALL_TEXT | text
    fields["text"]["mixture"] = [
        each | SMALL_MIXTURE | {"dense_layers": min(each.get("dense_layers", 0), 1)}
        for each in fields["text"].get("mixture", [])
    ]
    fields["text"]["mixture"] = [
        each | {"sets": 2 if each.get("sets") else 0} | ({"shared": 384} if each.get("shared") else {})
        for each in fields["text"]["mixture"]
    ]
    fields["text"]["latent"] = [
        each | SMALL_LATENT | {"query_rank": 64 if each.get("query_rank") else 0}
        for each in fields["text"].get("latent", [])
    ]
    for latent in fields["text"]["latent"]:
        latent["index"] = [each | {"heads": 4} for each in latent.get("index", [])]
    fields["text"]["window"] = [each | {"layers": 1} for each in fields["text"].get("window", [])]
    fields["text"]["linear"] = [each | SMALL_LINEAR for each in fields["text"].get("linear", [])]
    if [each["method"] for each in fields.get("quantization", [])] == ["fp8"]:
        whole_blocks = {"query_rank": 256, "rank": 256, "rope": 64, "key": 128, "value": 128}  # as real ones have
        fields["text"]["latent"] = [each | whole_blocks for each in fields["text"]["latent"]]
        fields["text"]["head_dim"] = 320 if fields["text"]["latent"] else 128
    fields["audio"] = [each | SMALL_VISION | {"filters": 16} for each in fields.get("audio", [])]
    for audio in fields["audio"]:
        del audio["heads"]
    fields["vision"] = [each | SMALL_VISION for each in fields.get("vision", [])]
    for vision in fields["vision"]:
        vision["window"] = [each | {"full_layers": 1} for each in vision.get("window", [])]
        sides = [(512, 128), (128, 128), (128, 768), (384, 128)] if vision.get("gated") else [(128, 128)] * 5
        sides[1] = (128, 256) if vision.get("cut") == "slices" else sides[1]
        matrices = zip(vision.get("projector", []), sides, strict=False)
        vision["projector"] = [each | dict(zip(("inputs", "outputs"), shape, strict=True)) for each, shape in matrices]
    return Model.model_validate_json(json.dumps(fields))


def small_text(model: Model) -> Any:
    return Model.model_validate_json(json.dumps(as_dict(model))).text


def changed(name: str, **text: Any) -> Model:
    """A small model with other text fields, or other top fields where the name is one of the record's."""
    fields = as_dict(small(name))
    for key, value in text.items():
        (fields if key in fields else fields["text"])[key] = value
    return Model.model_validate_json(json.dumps(fields))


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def header(path: Path) -> tuple[dict[str, Any], int]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        return json.loads(file.read(length)), 8 + length


def read(folder: Path, name: str) -> np.ndarray[Any, Any]:
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    head, begin = header(folder / index[name])
    entry = head[name]
    first, last = entry["data_offsets"]
    raw = (folder / index[name]).read_bytes()[begin + first : begin + last]
    if entry["dtype"] == "BF16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(entry["shape"])
    return np.frombuffer(raw, {"F16": "<f2", "I32": "<u4", "U8": "u1", "F8_E4M3": "u1"}[entry["dtype"]]).reshape(
        entry["shape"]
    )


@pytest.fixture(scope="module")
def awq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One small AWQ checkpoint that tests read and none changes."""
    root = tmp_path_factory.mktemp("awq")
    yield write.ensure_checkpoint(small("internvl3-8b-awq"), root)
    shutil.rmtree(root)


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path) -> Iterator[None]:
    """Leaves no weights in the temporary folder, which outlives the run."""
    yield
    shutil.rmtree(tmp_path)


def test_every_record_is_covered() -> None:
    """Random weights can be written for every model."""
    assert set(NAMES) == set(STORE.models)


# --- shapes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_planned_bytes_are_the_models(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every real model's tensors take exactly the bytes that its shape is computed to have."""
    model = STORE.models[name]
    layouts.check_model(model)
    made = list(tensors.tensors(model))
    monkeypatch.setattr(tensors, "tensors", lambda _: made)  # large mixtures have a hundred thousand
    assert write.planned_bytes(model) == model_shape.weight_bytes(model)
    assert len(made) == len({tensor.name for tensor in made})


def distinct() -> list[str]:
    """One of the models whose small ones differ in nothing but their names and sources."""
    names: dict[str, str] = {}
    for name in [*NAMES, *OTHERS]:
        fields = as_dict(small(name))
        shape = {key: fields[key] for key in ("architecture", "remote_code", "chat_tokens", *SHAPES)}
        names.setdefault(json.dumps(shape, sort_keys=True), name)
    return list(names.values())


_normal_values, _random_words = cache(values._normal_values), cache(values._random_words)


@pytest.fixture
def _values_are_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that look at no value: which ones a seed gives is another test's."""
    monkeypatch.setattr(values, "_normal_values", _normal_values)
    monkeypatch.setattr(values, "_random_words", _random_words)


@pytest.fixture
def _words_are_special(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that look at no word: writing all of a family's takes longer than the tensors."""
    monkeypatch.setattr(tokenizer, "vocabulary", lambda model: tokenizer.special_tokens(model).ids)


@pytest.mark.usefixtures("_values_are_drawn_once", "_words_are_special")
@pytest.mark.parametrize("name", distinct())
def test_written_folder_reads_back(name: str, tmp_path: Path) -> None:
    """Headers hold the computed bytes exactly, data lie without gaps, and the shape reads back from config.json."""
    model = layouts.as_written(small(name))
    made = write.ensure_checkpoint(small(name), tmp_path)
    assert [*tmp_path.iterdir()] == [made]
    assert model_shape.weight_bytes(model) == checkpoint.weight_bytes(made)
    index = json.loads((made / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == model_shape.weight_bytes(model)
    seen = set()
    for path in made.glob("*.safetensors"):
        head, begin = header(path)
        del head["__metadata__"]
        spans = sorted(tuple(entry["data_offsets"]) for entry in head.values())
        assert begin % 8 == 0
        assert [span[0] for span in spans] == [0, *(span[1] for span in spans[:-1])]
        assert path.stat().st_size == begin + spans[-1][1]
        assert all(index["weight_map"][key] == path.name for key in head)
        seen |= set(head)
    assert seen == set(index["weight_map"])
    if any(each.architecture == model.architecture for each in STORE.models.values()):
        found, size, _ = checkpoint.read(made, STORE)
        fields = ("hidden", "layers", "heads", "kv_heads", "head_dim", "intermediate", "vocab", "tied_embeddings")
        for field in (*fields, "max_positions", "dtype"):
            assert getattr(found.text, field) == getattr(model.text, field), field
        assert (found.architecture, found.quantization) == (model.architecture, model.quantization)
        assert size == model_shape.weight_bytes(model)


def test_tensor_names() -> None:
    """Each layout has the names its loader asks for."""
    for name, wanted in {
        "internvl3-8b-awq": ("language_model.model.layers.1.mlp.down_proj.qzeros", "mlp1.3.weight"),
        "internvl3-38b": ("vision_model.encoder.layers.1.attn.q_norm.weight", "language_model.lm_head.weight"),
        "internvl3-8b-hf": ("vision_tower.encoder.layer.1.attention.q_proj.bias", "vision_tower.embeddings.cls_token"),
        "internvl2.5-8b": ("language_model.model.layers.0.attention.wqkv.weight", "language_model.output.weight"),
        "internvl2.5-8b-hf": ("language_model.model.layers.0.self_attn.k_proj.weight", "language_model.lm_head.weight"),
        "internlm2.5-7b": ("model.tok_embeddings.weight", "model.layers.1.feed_forward.w2.weight", "output.weight"),
        "internlm3-8b-awq": ("model.embed_tokens.weight", "model.layers.1.self_attn.o_proj.scales", "lm_head.weight"),
        "qwen3-8b": ("model.layers.0.self_attn.q_norm.weight", "model.norm.weight"),
    }.items():
        assert set(wanted) <= {tensor.name for tensor in tensors.tensors(small(name))}, name
    rms = {tensor.name for tensor in tensors.tensors(small("internvl3-38b"))}
    assert not {"vision_model.encoder.layers.0.norm1.bias", "vision_model.encoder.layers.0.attn.qkv.bias"} & rms
    assert "lm_head.weight" not in {tensor.name for tensor in tensors.tensors(small("qwen2.5-0.5b"))}


def loader_names() -> dict[str, set[str]]:
    """What LMDeploy's loaders read of small models, or Transformers' classes have; the files say how they were made."""
    cases = Path(__file__).parent / "cases"
    lines = yaml.safe_load((cases / "loader_names.yaml").read_text("utf-8"))
    lines |= yaml.safe_load((cases / "class_names.yaml").read_text("utf-8"))
    lines |= yaml.safe_load((cases / "engine_names.yaml").read_text("utf-8"))
    read: dict[str, set[str]] = {}
    for name, groups in lines.items():
        for group in groups:
            before, middle, after = (part.split() or [""] for part in group.split(" | "))
            joined = (".".join(filter(None, (before[0], m, a))) for m in middle for a in after)
            read.setdefault(name, set()).update(joined)
    return read


@pytest.mark.parametrize(("name", "wanted"), loader_names().items())
def test_loaders_read_every_tensor(name: str, wanted: set[str]) -> None:
    """Exactly the tensors that the architecture's loader or class asks for are written."""
    written = {tensor.name for tensor in tensors.tensors(layouts.as_written(small(name)))}
    numbered = re.compile(r"\b(layers?|blocks|experts)\.\d+\.")
    assert {numbered.sub(r"\1.N.", each) for each in written} == wanted


def test_processors_make_the_records_tokens() -> None:
    """LMDeploy's prompts with the folders' image processors are as long as the records say."""
    counts = yaml.safe_load((Path(__file__).parent / "cases" / "engine_images.yaml").read_text("utf-8"))
    sizes = counts.pop("sizes")
    for name, found in counts.items():
        (vision,) = STORE.models[name].vision
        assert found == [image_tokens(vision, *size) + vision.wrapper_tokens for size in sizes], name


@pytest.mark.parametrize(
    ("name", "mean", "deviation"),
    [
        # ImageNet's, CLIP's and halves: preprocessor_config.json of OpenGVLab/InternVL3-8B, llava-hf/llava-1.5-7b-hf,
        # Qwen/Qwen2.5-VL-7B-Instruct and google/gemma-3-4b-it.
        ("internvl3-8b", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ("llava-1.5-7b-hf", [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]),
        ("qwen2.5-vl-7b-instruct", [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]),
        ("gemma-3-4b-it", [0.5] * 3, [0.5] * 3),
    ],
)
def test_colours_are_scaled_as_published(name: str, mean: list[float], deviation: list[float]) -> None:
    """With another scale the encoder would see other pixels than the model's own."""
    file = processors.processors(STORE.models[name])["preprocessor_config.json"]
    assert (file["image_mean"], file["image_std"]) == (mean, deviation)


@pytest.mark.parametrize(
    ("name", "scale"),
    [("gemma-2-9b-it", 256), ("gemma-2-27b-it", 144), ("gemma-3-4b-it", 256), ("gemma-3-27b-it", 168)],
)
def test_gemmas_scores_are_scaled_as_published(name: str, scale: int) -> None:
    """query_pre_attn_scalar of the models' config.json; without one, the classes take 256."""
    assert gemma.text_config(STORE.models[name].text)["query_pre_attn_scalar"] == scale


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("qwen3-vl-8b-instruct", [8, 16, 24]),
        ("qwen3-vl-4b-instruct", [5, 11, 17]),
        ("qwen3.5-9b", []),
    ],
)
def test_the_layers_that_join_the_language_model_are_the_published(name: str, layers: list[int]) -> None:
    """deepstack_visual_indexes of the models' config.json."""
    assert qwen35._stacked_layers(STORE.models[name].vision[0]) == layers


def test_llavas_processor_counts_the_class_token() -> None:
    """Its patches, plus the additional ones, less the class token that the strategy drops: the record's tokens.

    So counts LlavaProcessor (models/llava/processing_llava.py of Transformers).
    """
    model = STORE.models["llava-1.5-7b-hf"]
    files = processors.processors(model)
    cut, named = files["preprocessor_config.json"]["crop_size"], files["processor_config.json"]
    patches = (cut["height"] // named["patch_size"]) * (cut["width"] // named["patch_size"])
    dropped = named["vision_feature_select_strategy"] == "default"
    assert patches + named["num_additional_image_tokens"] - dropped == model.vision[0].tokens_per_tile == 576


def test_models_with_code_of_their_own_bring_the_class_that_reads_their_configuration() -> None:
    """No others do. Kimi's code is its tokenizer; of MiniCPM-V and Phi-3.5-vision LMDeploy itself reads the file."""
    bringing = {name for name in NAMES if hf_config.config_class(STORE.models[name])}
    assert bringing < {name for name in NAMES if STORE.models[name].remote_code}
    others = {STORE.models[name].architecture for name in NAMES if STORE.models[name].remote_code} - {
        STORE.models[name].architecture for name in bringing
    }
    assert others == {"DeepseekV3ForCausalLM", "MiniCPMV", "Phi3VForCausalLM"}
    for name in bringing:
        compile(hf_config.config_class(STORE.models[name]), name, "exec")


def test_loaders_were_asked_for_every_architecture() -> None:
    """The names above cover every architecture that random weights are written for, and every method."""
    models = [small(name) for name in loader_names()]
    covered = {model.architecture for model in models}
    assert covered == {*layouts.DECODERS, *layouts.TILED, *layouts.QWEN_VL, layouts.LLAVA, layouts.MINICPM}
    assert {packed.method for model in models for packed in model.quantization} == {*layouts.QUANTIZED}


def test_large_models_are_split() -> None:
    """A weight file holds whole tensors and stays under the limit unless one tensor alone is larger."""
    shards = write._shards(STORE.models["internvl3-78b-awq"])
    assert len(shards) > 10
    assert all(sum(tensor.bytes for tensor in group) <= write.SHARD_BYTES for group in shards.values())


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (changed("qwen2.5-7b-instruct", architecture="GemmaForCausalLM"), "not supported"),
        (changed("qwen2.5-7b-instruct", architecture="Qwen2MoeForCausalLM"), "text.mixture"),
        (changed("mixtral-8x7b-instruct", mixture=SHARED), "text.mixture.shared"),
        (changed("mixtral-8x7b-instruct", mixture=[SMALL_MIXTURE | {"dense_layers": 1}]), "every layer"),
        (changed("gpt-oss-20b", attention_sinks=False), "attention_sinks"),
        (changed("gpt-oss-20b", **AWQ), "awq does not go with GptOssForCausalLM"),
        (changed("qwen2.5-vl-7b-instruct", vision=as_dict(small("internvl3-8b"))["vision"]), "vision.pixels"),
        (changed("internvl3-8b", family="gemma"), "text.family 'gemma'"),
        (changed("internvl3-8b", vision=[]), "vision"),
        (changed("qwen2.5-7b-instruct", qk_norm=True), "qk_norm"),
        (changed("qwen2.5-7b-instruct-awq", hidden=200), "group"),
        (changed("qwen2.5-7b-instruct", vocab=1000), "vocab"),
        *(
            (
                changed(
                    "qwen2.5-7b-instruct-awq",
                    quantization=[{"method": method, "bits": bits, "group": group, "version": version}],
                ),
                "quantisation",
            )
            for method, bits, group, version in (("fp8", 8, 128, ""), ("gptq", 4, 128, "1"), ("awq", 4, 64, "gemm"))
            if version
        ),
    ],
)
def test_what_is_not_covered_is_refused(model: Model, says: str, tmp_path: Path) -> None:
    """One line names what cannot be made, and nothing is written."""
    with pytest.raises(WeightsError, match=says) as refused:
        write.ensure_checkpoint(model, tmp_path)
    assert "\n" not in str(refused.value)
    assert model.id in str(refused.value)
    assert not list(tmp_path.iterdir())
    with pytest.raises(WeightsError, match="negative"):
        write.ensure_checkpoint(model, tmp_path / "made", -1)


# --- values ---------------------------------------------------------------------------------


def test_same_seed_same_bytes(tmp_path: Path, awq: Path) -> None:
    """Every file is the same at another place and time; another seed changes the weights and the mark only."""
    model = small("internvl3-8b-awq")
    again = digests(write.ensure_checkpoint(model, tmp_path / "again"))
    other = digests(write.ensure_checkpoint(model, tmp_path / "other", 1))
    assert again == digests(awq)
    differ = {name for name in again if again[name] != other[name]}
    assert differ == {"config.json", "README.md", *(name for name in again if name.endswith(".safetensors"))}


def test_known_bytes(awq: Path) -> None:
    """The values are those of the format's number: whoever changes them raises it."""
    norm = read(awq, "language_model.model.norm.weight")
    first = read(awq, "language_model.model.layers.0.self_attn.q_proj.qweight").tobytes()
    assert (norm == 1).all()
    assert (write.FORMAT, hashlib.sha256(first).hexdigest()[:16]) == (2, "a716fa5878623331")


def test_weights_are_symmetric(awq: Path) -> None:
    """4-bit values lie evenly around their zero point, never 0; 16-bit ones around zero; tensors differ."""
    layer = "language_model.model.layers.0."
    words = read(awq, layer + "mlp.gate_proj.qweight")
    steps = np.stack([(words >> (4 * k)) & 15 for k in range(8)]).astype(int) - 8
    counts = np.bincount((steps + 8).ravel(), minlength=16) / steps.size
    assert counts[0] == 0
    assert abs(steps.mean()) < 0.05
    assert np.allclose(counts[[*range(1, 8), *range(9, 16)]], 1 / 16, atol=0.003)
    assert (read(awq, layer + "mlp.gate_proj.qzeros") == 0x88888888).all()
    scales = read(awq, layer + "mlp.gate_proj.scales").astype(np.float32)
    assert abs(steps.std() * scales.mean() / values.DEVIATION - 1) < 0.05
    table = read(awq, "language_model.model.embed_tokens.weight")[:20000].astype(np.float32)
    assert abs(table.mean()) < 1e-4
    assert abs(table.std() / values.DEVIATION - 1) < 0.02
    assert len(np.unique(table[:5000], axis=0)) == 5000
    assert (words != read(awq, layer + "mlp.up_proj.qweight")).mean() > 0.9


def test_eight_and_four_bit_floats_are_symmetric(tmp_path: Path) -> None:
    """FP8 and MXFP4 values as their formats define them have no NaN, a mean near zero and the wanted deviation."""
    bits = np.arange(256)
    exponents, mantissa = (bits >> 3) & 15, bits & 7
    e4m3 = np.where(exponents, (1 + mantissa / 8) * 2.0 ** (exponents - 7), mantissa / 8 * 2.0**-6)
    e4m3 = np.where((bits & 127) == 127, np.nan, e4m3 * np.where(bits >> 7, -1, 1))
    e2m1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    fp8 = write.ensure_checkpoint(small("qwen3-30b-a3b-fp8"), tmp_path / "fp8")
    name = "model.layers.1.mlp.experts.3.up_proj.weight"
    weights, scale = e4m3[read(fp8, name)], read(fp8, f"{name}_scale_inv")
    assert (weights.shape, scale.shape) == ((384, 128), (3, 1))
    wanted = [(weights * np.repeat(scale, 128, axis=0), 0.2)]
    oss = write.ensure_checkpoint(small("gpt-oss-20b"), tmp_path / "oss")
    name = "language_model.model.layers.1.mlp.experts.gate_up_proj"
    blocks, powers = read(oss, f"{name}_blocks"), read(oss, f"{name}_scales").astype(int) - 127
    assert (blocks.shape, powers.shape) == ((4, 768, 4, 16), (4, 768, 4))
    wanted.append((np.stack([e2m1[blocks & 15], e2m1[blocks >> 4]]) * 2.0 ** powers[None, ..., None], 0.2))
    for values_found, tolerance in wanted:
        assert np.isfinite(values_found).all()
        assert abs(values_found.mean()) < 1e-3
        assert abs(values_found.std() / values.DEVIATION - 1) < tolerance


def test_gptq_zero_points(tmp_path: Path) -> None:
    """The loader adds one to a stored zero point; the values lie around the sum."""
    folder = write.ensure_checkpoint(small("internlm3-8b-gptq"), tmp_path / "made")
    name = "model.layers.0.mlp.down_proj"
    assert (read(folder, f"{name}.qzeros") == 0x77777777).all()
    words = read(folder, f"{name}.qweight")
    assert words.shape == (384 // 8, 128)
    assert abs(np.stack([(words >> (4 * k)) & 15 for k in range(8)]).mean() - 8) < 0.1


def test_gpt_oss_is_written_inside_a_vision_model() -> None:
    """It is served without a vocabulary from the network, and its own bytes are at least 99 %."""
    model = STORE.models["gpt-oss-20b"]
    inside = layouts.as_written(model)
    assert (inside.architecture, inside.text) == ("InternVLForConditionalGeneration", small_text(model))
    assert 1 < write.planned_bytes(inside) / model_shape.weight_bytes(model) < 1.01
    other = STORE.models["qwen3-8b"]
    assert layouts.as_written(other) is other


def test_activations_stay_small(awq: Path) -> None:
    """A deep stack of the MLP's real width keeps the residual stream far below what 16-bit floats hold."""
    blocks = {key[0]: block for key, block in values.blocks(STORE.models["internvl3-8b-awq"], 0).items()}
    words, steps = np.frombuffer(blocks["nibbles"], "<u4"), np.frombuffer(blocks["scales"], "<f2")
    hidden, inner = 384, 18944

    def linear(number: int, inputs: int, outputs: int) -> np.ndarray[Any, Any]:
        part = words[number * 977 :][: inputs * outputs // 8]
        values = np.stack([(part >> (4 * k)) & 15 for k in range(8)], axis=-1).astype(np.float32) - 8
        scale = steps[number * 977 :][: inputs // 128 * outputs].astype(np.float32)
        return (values.reshape(-1, 128, outputs) * scale.reshape(-1, 1, outputs)).reshape(inputs, outputs)

    stream = np.ones((1, hidden), np.float32)  # the constant direction, which a mean would grow
    gate, up, down = linear(0, hidden, inner), linear(1, hidden, inner), linear(2, inner, hidden)
    largest = 0.0
    for _ in range(28):
        normal = stream / np.sqrt((stream**2).mean())
        opened = normal @ gate
        inside = opened / (1 + np.exp(-opened)) * (normal @ up)
        stream = stream + inside @ down
        largest = max(largest, float(abs(stream).max()), float(abs(inside).max()))
    assert largest < 1000


# --- tokenizer ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("internvl3-8b-awq", {"<|im_end|>": 151645, "<img>": 151665, "</img>": 151666, "<IMG_CONTEXT>": 151667}),
        ("internvl3.5-8b", {"<|im_start|>": 151644, "<IMG_CONTEXT>": 151671}),
        ("internvl2.5-8b", {"<img>": 92544, "<IMG_CONTEXT>": 92546, "<|im_start|>": 92543}),
        ("llama-3.1-8b-instruct", {"<|begin_of_text|>": 128000, "<|end_header_id|>": 128007, "<|eot_id|>": 128009}),
        ("qwen2.5-7b-instruct", {"<|endoftext|>": 151643, "<|file_sep|>": 151664}),
        ("internlm2.5-7b", {"<s>": 1, "</s>": 2, "<|im_end|>": 92542}),
        ("internlm3-8b-awq", {"<|im_start|>": 128130, "<|im_end|>": 128131}),
        ("gemma-2-9b-it", {"<bos>": 2, "<start_of_turn>": 106, "<end_of_turn>": 107}),
        ("gemma-3-4b-it", {"<bos>": 2, "<start_of_turn>": 105, "<end_of_turn>": 106, "<image_soft_token>": 262144}),
    ],
)
def test_special_ids(name: str, wanted: dict[str, int]) -> None:
    """Special tokens have the family's ids, every id has one word, and every byte one token."""
    model = small(name)
    words = tokenizer.vocabulary(model)
    assert wanted.items() <= words.items()
    assert sorted(words.values()) == list(range(model.text.vocab))
    assert set(tokenizer._byte_letters()) <= set(words)
    assert wanted.keys() <= {each["content"] for each in tokenizer.tokenizer_json(model)["added_tokens"]}


def test_every_id_has_its_word() -> None:
    """As many different words as the vocabulary of each family has ids, the special ones at theirs."""
    models = {(model.text.family, model.text.vocab): model for model in map(small, distinct())}
    assert len(models) > 10
    for model in models.values():
        words = tokenizer.vocabulary(model)
        assert {*words.values()} == {*range(model.text.vocab)}, model.id
        assert tokenizer.special_tokens(model).ids.items() <= words.items(), model.id


@pytest.mark.parametrize("name", ["llama-3.1-8b-instruct", "qwen2.5-7b-instruct-awq", "internlm2.5-7b"])
def test_words_are_tokens(name: str) -> None:
    """Prompts differ in most words and have the same tokens; an answer, sent back, takes its own tokens."""
    model = small(name)
    encoder = tokenizers.Tokenizer.from_str(json.dumps(tokenizer.tokenizer_json(model)))
    prompts = [
        encoder.encode(write_filler(f"{number:06d} ", 6000), add_special_tokens=False).ids for number in range(9)
    ]
    assert {len(ids) for ids in prompts} == {6 + 999}
    assert all(sum(map(operator.eq, one, other)) < 20 for one, other in pairwise(prompts))
    assert min(len(set(ids)) for ids in prompts) > 300
    ids = random.Random(3).sample(range(len(encoder.get_vocab()) // 2), 200)
    words = [number for number in ids if len(encoder.id_to_token(number)) == len("Gabcdef")]
    assert len(words) > 100
    assert encoder.encode(encoder.decode(words), add_special_tokens=False).ids == words


def test_config_names_the_same_ids(awq: Path) -> None:
    """bos and eos agree in config.json, generation_config.json and the tokenizer."""
    config = json.loads((awq / "config.json").read_text())
    generation = json.loads((awq / "generation_config.json").read_text())
    settings = json.loads((awq / "tokenizer_config.json").read_text())
    words = tokenizer.vocabulary(small("internvl3-8b-awq"))
    assert generation["eos_token_id"] == [151645, 151643]
    assert words[settings["eos_token"]] == config["llm_config"]["eos_token_id"] == 151645
    assert words[settings["bos_token"]] == config["llm_config"]["bos_token_id"] == generation["bos_token_id"]


@pytest.mark.parametrize("name", [*NAMES, "internlm2.5-7b", "qwen3-8b"])
def test_template_takes_the_records_tokens(name: str) -> None:
    """The marks around one user turn are as many tokens as the record says."""
    model = small(name)
    template = jinja2.Environment(undefined=jinja2.StrictUndefined).from_string(tokenizer.chat_template(model))
    turn = {"role": "user", "content": "hello"}
    text = template.render(messages=[turn], add_generation_prompt=True)
    assert "hello" in text
    assert tokenizer._length(text, tokenizer.special_tokens(model)) - len("hello") == model.chat_tokens
    parts = [{"type": "text", "text": "hello"}]
    assert template.render(messages=[turn | {"content": parts}], add_generation_prompt=True) == text


# --- folders --------------------------------------------------------------------------------


def test_mark(awq: Path, tmp_path: Path) -> None:
    """The folder says that it is synthetic; others carry no mark."""
    mark = write.read_mark(awq)
    assert mark.items() >= {"weights": "random", "seed": 0, "shapes_of": "OpenGVLab/InternVL3-8B-AWQ"}.items()
    assert mark["made_by"] == "lmdeploy-recommender"
    assert "NOT OpenGVLab/InternVL3-8B-AWQ" in (awq / "README.md").read_text()
    assert write.read_mark(tmp_path) is None
    for text in ("{}", "[]", "{", '{"synthetic": true}', '{"synthetic": {"made_by": "else"}}'):
        (tmp_path / "config.json").write_text(text)
        assert write.read_mark(tmp_path) is None


def test_ensure_reuses_and_refuses(tmp_path: Path) -> None:
    """A complete folder is used at once; one that is something else is left as it is."""
    model = small("internvl3-1b")
    made = write.ensure_checkpoint(model, tmp_path)
    assert made == tmp_path / "random-internvl3-1b-seed0"
    before = {path: path.stat().st_mtime_ns for path in made.iterdir()}
    assert write.ensure_checkpoint(model, tmp_path) == made
    assert {path: path.stat().st_mtime_ns for path in made.iterdir()} == before
    with pytest.raises(WeightsError, match="differs from what this version writes"):
        write.ensure_checkpoint(changed("internvl3-1b", layers=1), tmp_path)
    shard = next(made.glob("*.safetensors"))
    os.truncate(shard, shard.stat().st_size - 2)
    with pytest.raises(WeightsError, match="differs from what this version writes"):
        write.ensure_checkpoint(model, tmp_path)
    other = tmp_path / "random-internvl3-1b-seed7"
    other.mkdir()
    (other / "mine.txt").write_text("keep")
    with pytest.raises(WeightsError, match="was not made by"):
        write.ensure_checkpoint(model, tmp_path, 7)
    assert (other / "mine.txt").read_text() == "keep"
    assert sorted(path.name for path in tmp_path.iterdir()) == [made.name, other.name]


def test_full_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too little room is said before anything is written: the folder, what is needed and what is free."""
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 5, 2**30))
    with pytest.raises(WeightsError, match=r"random-internvl3-8b-awq-seed0.*needs 5\.86 GiB.*1\.00 GiB free"):
        write.ensure_checkpoint(STORE.models["internvl3-8b-awq"], tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device"), SystemExit(1)])
def test_interrupted_write_leaves_nothing(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever ends the writing early, neither a folder nor a part of one remains, and the next try works."""
    real, calls = os.pwrite, []

    def pwrite(handle: int, data: bytes, at: int) -> int:
        calls.append(at)
        if len(calls) == 12:
            raise error
        return real(handle, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    expected = WeightsError if isinstance(error, OSError) else type(error)
    with pytest.raises(expected):
        write.ensure_checkpoint(small("internvl3-1b"), tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(os, "pwrite", real)
    left = [tmp_path / f".random-internvl3-{size}-seed0.partial-1" for size in ("1b", "8b")]
    left[0].mkdir()  # as a killed process would leave it
    made = write.ensure_checkpoint(small("internvl3-1b"), tmp_path)
    written = made.stat().st_ino
    left[1].mkdir()
    assert write.ensure_checkpoint(small("internvl3-1b"), tmp_path).stat().st_ino == written
    assert [path.name for path in tmp_path.iterdir()] == ["random-internvl3-1b-seed0"]


def test_two_at_once_write_once(tmp_path: Path) -> None:
    """A second one waits for the lock, says so, and then uses what the first wrote."""
    model, said = small("internvl3-1b"), []
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    found: list[Path] = []
    waits = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        waits.set()

    thread = threading.Thread(target=lambda: found.append(write.ensure_checkpoint(model, tmp_path, say=say)))
    thread.start()
    assert waits.wait(10)
    other = write.ensure_checkpoint(model, tmp_path / "elsewhere").rename(tmp_path / "random-internvl3-1b-seed0")
    written = other.stat().st_ino
    os.close(handle)
    thread.join(20)
    assert found == [other]
    assert other.stat().st_ino == written
    assert "waiting" in said[0]


def test_progress_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long write says how far it is."""
    monkeypatch.setattr(write, "SAY_SECONDS", 0.001)
    said: list[str] = []
    write.ensure_checkpoint(small("internvl3-8b"), tmp_path / "made", say=said.append)
    assert said
    assert "internvl3-8b" in said[0]
    assert "of 0.1 GB written" in said[0]


def test_memory_stays_small(tmp_path: Path) -> None:
    """Writing many times what fits under the bound stays under 300 MB of memory."""
    program = (
        "import re, sys; from pathlib import Path\n"
        "from recommender.knowledge.records import Model; from recommender.smoke.weights import write as weights\n"
        "weights.ensure_checkpoint(Model.model_validate_json(sys.stdin.read()), Path(sys.argv[1]))\n"
        # Not ru_maxrss: that begins with the size of the process that started this one.
        "print(re.search(r'VmHWM:\\s+(\\d+) kB', Path('/proc/self/status').read_text())[1])"
    )
    model = changed("internvl3-8b-awq", hidden=1024, heads=16, intermediate=4096, layers=8)
    assert write.planned_bytes(model) > 600e6
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "made")],
        input=json.dumps(as_dict(model)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 300_000  # KiB
