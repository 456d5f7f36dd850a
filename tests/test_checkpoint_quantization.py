"""How a folder's weights are packed decides which engine of which release can read them."""

import json
from pathlib import Path
from typing import Any

import pytest
from artefacts import KNOWLEDGE, RELEASES
from test_checkpoint import hub_config

from recommender.choose.recommend import NothingFits, recommend
from recommender.common.errors import CheckpointError
from recommender.estimate.model_shape import text_weight_bytes
from recommender.knowledge.load import load
from recommender.maintenance.wheel_facts import load_extracted
from recommender.request import checkpoint
from recommender.request.request import BackendChoice, Request

STORE = load()
FACTS = load_extracted(KNOWLEDGE / "extracted" / "api_server.json")
ATTENTION = ["lm_head", r"re:.*self_attn.*"]


def compressed(
    group: int | str | None = 32, bits: int = 4, form: str = "pack-quantized", **more: Any
) -> dict[str, Any]:
    weights = {"num_bits": bits, "group_size": group, "strategy": "group", "symmetric": True, "type": "int"}
    if group == "left out":  # as where a scale holds for a channel
        del weights["group_size"]
    groups = {"group_0": {"targets": ["Linear"], "weights": weights}}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": groups, "ignore": ["lm_head"]} | more


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
TENSOR = {"quant_method": "fp8", "activation_scheme": "static"}
PLAIN = {"awq": AWQ, "gptq": GPTQ, "fp8": FP8, "compressed-tensors": compressed(128)}
DENSE, EXPERTS = "llama-3.1-8b-instruct", "qwen3-30b-a3b"


def folder(tmp_path: Path, packed: Any, model: str = DENSE) -> Path:
    config = hub_config(STORE.models[model]) | {"quantization_config": packed}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


def refused(path: Path, release: str = "0.18.0", backend: BackendChoice = "turbomind") -> str:
    """The constraint that binds; empty if a configuration was found."""
    request = Request(gpu="h100-sxm-80g", model=str(path), lmdeploy=release, backend=backend, concurrency=1)
    try:
        recommend(request, STORE)
    except NothingFits as error:
        return error.nothing.binding.constraint
    return ""


@pytest.mark.parametrize("method", sorted(PLAIN))
def test_a_release_reads_the_formats_that_its_converter_names(method: str, tmp_path: Path) -> None:
    """The names were extracted from the wheels; what a release does not compare with stops its start."""
    path = folder(tmp_path, PLAIN[method])
    for release in RELEASES:
        assert (not refused(path, release)) == (method in FACTS.release(release).entries("format")), release


@pytest.mark.parametrize(
    ("packed", "model", "release", "turbomind", "pytorch"),
    [
        # 0.18.0 lmdeploy/turbomind/converter.py:191-209, lmdeploy/pytorch/config.py:853-877
        (AWQ, DENSE, "0.18.0", True, True),
        (AWQ | {"version": "gemv"}, DENSE, "0.18.0", False, False),
        (AWQ | {"group_size": 64}, DENSE, "0.18.0", False, True),
        (GPTQ, DENSE, "0.18.0", True, False),
        (GPTQ | {"desc_act": True}, DENSE, "0.18.0", False, False),
        (GPTQ | {"sym": False}, DENSE, "0.7.0", False, False),
        (GPTQ | {"bits": 8}, DENSE, "0.18.0", False, False),
        (FP8, DENSE, "0.18.0", True, True),
        (TENSOR, DENSE, "0.18.0", False, True),
        (TENSOR, DENSE, "0.15.0", False, False),
        (TENSOR | {"activation_scheme": "dynamic"}, DENSE, "0.18.0", False, False),
        (compressed(32), DENSE, "0.18.0", True, False),
        (compressed(32), DENSE, "0.12.2", False, False),
        (compressed(128), DENSE, "0.12.0", True, False),
        (compressed(64), DENSE, "0.18.0", False, False),
        (compressed(128, bits=8), DENSE, "0.18.0", False, False),
        (compressed(None, bits=8, form="float-quantized"), DENSE, "0.18.0", False, False),
        (compressed("left out", bits=8, form="int-quantized"), DENSE, "0.18.0", False, False),
        # Of compressed-tensors the PyTorch engine has kernels for experts only: lmdeploy/pytorch/nn/moe/__init__.py:111
        (compressed(32), EXPERTS, "0.18.0", True, False),
        (compressed(32, ignore=ATTENTION), EXPERTS, "0.18.0", True, True),
        (compressed(32, ignore=ATTENTION), EXPERTS, "0.16.0", True, False),
        (compressed(128, ignore=ATTENTION), EXPERTS, "0.18.0", True, False),
    ],
)
def test_a_layout_is_planned_for_where_the_engine_reads_it(
    packed: Any, model: str, release: str, turbomind: bool, pytorch: bool, tmp_path: Path
) -> None:
    """By LMDeploy's own assertions and its shapes of weights."""
    path = folder(tmp_path, packed, model)
    assert (not refused(path, release)) == turbomind
    assert (not refused(path, release, "pytorch")) == pytorch
    assert (not refused(path, release, "auto")) == (turbomind or pytorch)


def test_packed_weights_take_their_bits_and_a_scale_a_group(tmp_path: Path) -> None:
    """All linear layers, or the experts alone; symmetric weights store no zero points."""
    text = STORE.models[EXPERTS].text
    (mixture,) = text.mixture
    experts = text.layers * mixture.experts * 3 * text.hidden * mixture.intermediate
    heads = text.heads + text.kv_heads
    linear = experts + text.layers * 2 * text.hidden * heads * text.head_dim
    found = {}
    for group, ignored in ((32, ["lm_head"]), (128, ["lm_head"]), (32, ATTENTION)):
        model, _, _ = checkpoint.read(folder(tmp_path, compressed(group, ignore=ignored), EXPERTS), STORE)
        found[group, len(ignored)] = text_weight_bytes(model)
    assert found[32, 1] - found[128, 1] == pytest.approx(linear * 2 * (1 / 32 - 1 / 128), rel=1e-3)
    whole = text_weight_bytes(STORE.models[EXPERTS])
    assert whole - found[32, 1] == pytest.approx(linear * (2 - 4.5 / 8), rel=1e-3)
    assert whole - found[32, 2] == pytest.approx(experts * (2 - 4.5 / 8), rel=1e-3)


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (
            {"quant_method": "bitsandbytes"},
            "weights in 'bitsandbytes' are not supported; use a checkpoint in 16 bits or",
        ),
        ({"quant_method": "smooth_quant"}, "weights in 'smooth_quant' are not supported"),
        ([4], "an unnamed format"),
        ({"quant_method": "compressed-tensors"}, "num_bits of the weights"),
        (compressed(ignore=[4]), "num_bits of the weights"),
    ],
)
def test_another_format_is_one_line(packed: Any, said: str, tmp_path: Path) -> None:
    """With the file, and what to use instead."""
    with pytest.raises(CheckpointError, match=r"config\.json") as raised:
        checkpoint.read(folder(tmp_path, packed), STORE)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("config.json", json.dumps({**hub_config(STORE.models[DENSE]), "quantization": {"bits": 4}}), "MLX"),
        ("hf_quant_config.json", '{"quantization": {"quant_algo": "NVFP4"}}', "ModelOpt"),
        ("modules.json", "[]", "embeddings"),
    ],
)
def test_a_folder_of_another_program_is_no_16_bit_checkpoint(name: str, text: str, says: str, tmp_path: Path) -> None:
    """Its config.json has no ``quantization_config``: it was planned as the original's 16 bits, as a chat model."""
    (tmp_path / "config.json").write_text(json.dumps(hub_config(STORE.models[DENSE])))
    assert checkpoint.read(tmp_path, STORE)[0].text.layers == 32
    (tmp_path / name).write_text(text)
    with pytest.raises(CheckpointError, match=f"{name}.*{says}"):
        checkpoint.read(tmp_path, STORE)
