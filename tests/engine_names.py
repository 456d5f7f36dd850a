"""Write tests/cases/engine_*.yaml again: tensors and image tokens that LMDeploy's PyTorch engine reads of small models.

Run ``python tests/engine_names.py WHEEL``, where WHEEL is an unpacked wheel of LMDeploy, in an environment with this
project, its test group, torch and torchvision (no GPU), triton, Pillow, transformers, einops, mmengine-lite, psutil and
tqdm. The engine reads config.json and builds its own model, on tensors without data. A tensor that it does not know or
does not read ends the run, and so does a parameter that the checkpoint does not fill to its last number.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import math
import sys
import tempfile
import types
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from loader_names import NUMBERED, write_names
from test_weights import STORE, as_dict, changed, small

from recommender.knowledge.records import Model
from recommender.smoke.weights import layouts, tensors, write

MODELS = (
    "deepseek-v3",
    "deepseek-v3.2",
    "llama-4-maverick-17b-128e-instruct",
    "llama-4-scout-17b-16e-instruct",
    "llava-1.5-7b-hf",
    "minicpm-v-2.6",
    "phi-3.5-vision-instruct",
    "qwen3-omni-30b-a3b-instruct",
    "qwen3-vl-30b-a3b-instruct-fp8",
    "qwen3-vl-8b-instruct-fp8",
)
HEAD = """\
# Tensors that LMDeploy 0.18.0's PyTorch engine reads of small models, by python tests/engine_names.py, written as
# loader_names.yaml is.
"""
ABSENT = (
    "accelerate", "aiohttp", "av", "cv2", "decord", "dlblas", "fastapi", "flash_mla", "llguidance", "openai",
    "openai_harmony", "partial_json_parser", "peft", "prometheus_client", "pybase64", "ray", "sentencepiece",
    "shortuuid", "tiktoken", "uvicorn", "xgrammar", "zmq",
)  # fmt: skip
"""Packages that LMDeploy imports at its start and that reading weights does not need."""

IMAGES = ("llama-4-scout-17b-16e-instruct", "phi-3.5-vision-instruct", "qwen3-omni-30b-a3b-instruct")
SIZES = ((336, 336), (448, 448), (640, 480), (1280, 720), (300, 1600))
HEAD_OF_IMAGES = """\
# Tokens that an image adds to a prompt in LMDeploy 0.18.0, by python tests/engine_names.py, with the processors of the
# random folders.
"""
NOT_STORED = ("self_attn.kc.weight", "self_attn.vc.weight", "self_attn.qk_norm.weight")
"""Parameters that no checkpoint has: the engine computes the first two from kv_b_proj and leaves Llama 4's at one."""
SKIPPED = ("vpm.", "resampler.")
"""MiniCPM-V's encoder, which the engine does not load."""


class Absent(types.ModuleType):
    """A package in whose place anything stands."""

    __path__: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return mock.MagicMock()


class Finder:
    """Import ABSENT packages as empty ones."""

    def find_spec(self, name: str, *_: Any) -> importlib.machinery.ModuleSpec | None:
        known = name.partition(".")[0] in ABSENT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None  # type: ignore[arg-type]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return Absent(spec.name)

    def exec_module(self, _: types.ModuleType) -> None:
        """Run nothing."""


def prepare(wheel: str) -> None:
    """Import the wheel as on a machine with an H100."""
    sys.path.insert(0, wheel)
    sys.meta_path.append(Finder())  # type: ignore[arg-type]
    torch = importlib.import_module("torch")
    card = types.SimpleNamespace(major=9, minor=0, multi_processor_count=132, name="H100")
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    torch.cuda.get_device_properties = lambda *_: card
    torch.cuda.current_device = lambda: 0
    for name in ("lmdeploy.utils", "lmdeploy.pytorch.config"):
        importlib.import_module(name).__dict__["is_bf16_supported"] = lambda *_, **__: True


def counting(name: str, load: Any, filled: Counter[str]) -> Any:
    """Return a loader of one parameter that counts the numbers it gets."""

    def call(param: Any, weight: Any, *args: Any, **kwargs: Any) -> None:
        filled[name] += weight.numel()
        load(param, weight, *args, **kwargs)

    return call


def counting_index(load: Any, filled: Counter[str]) -> Any:
    """Return DeepSeek-V3.2's loader of two joined matrices, which has no parameter's loader, with a count."""

    def call(name: str, weight: Any, *args: Any) -> Any:
        done = load(name, weight, *args)
        if done:  # a scale fills no parameter
            matrix = name.replace(".wk.", ".wk_weights_proj.").replace(".weights_proj.", ".wk_weights_proj.")
            filled[matrix] += weight.numel()
        return done

    return call


def fitting(name: str) -> Model:
    """Return the small model; of Phi-3.5-vision with the real encoder, whose shape the engine does not read."""
    model = small(name)
    if model.architecture != layouts.PHI3V:
        return model
    (real,) = as_dict(STORE.models[name])["vision"]
    first, second = as_dict(model)["vision"][0]["projector"]
    projector = [first | {"inputs": 4 * real["hidden"]}, second]
    return changed(name, vision=[real | {"projector": projector}])


def read_names(name: str) -> list[str]:
    """Return the tensors that fill the engine's model; raise where one is unknown or a parameter is not filled."""
    torch = importlib.import_module("torch")
    patch = importlib.import_module("lmdeploy.pytorch.models.patch")
    config = importlib.import_module("lmdeploy.pytorch.config").ModelConfig
    default = importlib.import_module("lmdeploy.pytorch.weight_loader.model_weight_loader").default_weight_loader
    model = layouts.as_written(fitting(name))
    with tempfile.TemporaryDirectory() as folder:
        made = config.from_pretrained(str(write.ensure_checkpoint(model, Path(folder))), device_type="cuda")
    context = patch.BuildModelContext(quant_config=made.quant_config)
    built = patch.build_patched_model(made, device=torch.device("meta"), build_model_ctx=context)
    parameters = dict(built.named_parameters())
    filled: Counter[str] = Counter()
    for key, parameter in parameters.items():
        parameter.weight_loader = counting(key, getattr(parameter, "weight_loader", default), filled)
    kinds = {"F16": torch.float16, "BF16": torch.bfloat16, "F8_E4M3": torch.float8_e4m3fn, "F32": torch.float32}
    sparse = importlib.import_module("lmdeploy.pytorch.models.deepseek_v32")
    index = counting_index(sparse._load_fused_indexer_weight, filled)
    rename = getattr(built, "rename_weight", str)
    written = list(tensors.tensors(model))
    with torch.inference_mode(), mock.patch.object(sparse, "_load_fused_indexer_weight", index):
        built.load_weights((rename(t.name), torch.empty(t.shape, dtype=kinds[t.dtype], device="meta")) for t in written)
    asked = [tensor for tensor in written if not tensor.name.startswith(SKIPPED)]
    if sum(filled.values()) != sum(math.prod(tensor.shape) for tensor in asked):
        raise SystemExit(f"{name}: some tensors are never read")
    stored = {key: part.numel() for key, part in parameters.items() if not key.endswith(NOT_STORED)}
    short = [key for key, numbers in stored.items() if filled[key] != numbers]
    if short:
        raise SystemExit(f"{name}: not filled: {', '.join(short[:5])}")
    return sorted({NUMBERED.sub(r"\1.N.", tensor.name) for tensor in written})


def count_tokens(name: str) -> list[int]:
    """Return by how many tokens an image of each size lengthens the prompt, as LMDeploy's server writes it."""
    pictures = importlib.import_module("PIL.Image")
    words = {"type": "text", "text": "hello"}
    with tempfile.TemporaryDirectory() as folder:
        made = str(write.ensure_checkpoint(small(name), Path(folder)))
        template = importlib.import_module("lmdeploy.model").HFChatTemplate(made, trust_remote_code=True)
        tokenizer = importlib.import_module("lmdeploy.tokenizer").Tokenizer(made, trust_remote_code=True)
        builder = importlib.import_module("lmdeploy.vl.model.builder")
        seeing = builder.load_vl_model(made, "pytorch", trust_remote_code=True)
        plain = len(tokenizer.encode(template.messages2prompt([{"role": "user", "content": "hello"}]), add_bos=True))
        counts = []
        for size in SIZES:
            image = {"type": "image", "data": pictures.new("RGB", size)}
            messages = [{"role": "user", "content": [image, words]}]
            if name.startswith("qwen"):  # one step, as newer models have it
                found = seeing.preprocess(messages, seeing.get_input_prompt(messages, template))
            else:
                found = seeing.to_pytorch(seeing.preprocess(messages), template, tokenizer)
            counts.append(len(found["input_ids"]) - plain)
    return counts


if __name__ == "__main__":
    prepare(sys.argv[1])
    counted = "".join(f"{name}: {count_tokens(name)}\n" for name in IMAGES)
    sizes = f"sizes: {[list(size) for size in SIZES]}\n"
    (Path(__file__).parent / "cases" / "engine_images.yaml").write_text(HEAD_OF_IMAGES + sizes + counted, "utf-8")
    write_names("engine_names.yaml", HEAD, {name: read_names(name) for name in MODELS})
