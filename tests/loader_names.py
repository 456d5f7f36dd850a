"""Write tests/cases/loader_names.yaml again: the tensors that LMDeploy's loaders read of small models.

Run ``python tests/loader_names.py WHEEL``, where WHEEL is an unpacked wheel of LMDeploy, in an environment with this
project, its test group, torch (no GPU), transformers, mmengine-lite and tqdm. The classes of lmdeploy/turbomind/models
run as they are, on tensors without data; a stand-in takes the place of the C++ module. A tensor that a loader asks for
and that is not written ends the run, and so does one that is written and never read. Of the models that only the
PyTorch engine serves, ``tests/cases/class_names.yaml`` has the tensors of Transformers' class: run it without WHEEL and
with Transformers 4.57, as version 5 names experts otherwise.
"""

from __future__ import annotations

import copy
import enum
import importlib
import logging
import re
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from test_weights import small

from recommender.knowledge.records import Model
from recommender.smoke.weights import layouts, tensors, write

MODELS = (
    "glm-4.7-flash", "gpt-oss-20b", "intern-s1", "intern-s2-mobius", "intern-s2-preview", "internlm2.5-7b",
    "internlm3-8b-gptq", "internvl3-38b", "internvl3-8b", "internvl3-8b-hf", "internvl3.5-20b-a4b",
    "llama-3.1-8b-fp8", "mixtral-8x7b-awq", "qwen2-57b-a14b", "qwen2-vl-2b-instruct", "qwen2.5-7b-instruct-awq",
    "qwen2.5-vl-7b-gptq", "qwen3-30b-a3b-fp8", "qwen3-30b-a3b-gptq", "qwen3-8b", "qwen3.5-35b-a3b", "qwen3.5-9b",
)  # fmt: skip
OF_CLASSES = (
    "deepseek-v2-lite-chat", "gemma-2-9b-it", "gemma-3-4b-it", "glm-4-9b-0414", "glm-4.1v-9b-thinking", "glm-4.5",
    "glm-4.5-air",
    "mistral-7b-instruct-v0.3", "moonlight-16b-a3b-instruct", "phi-4", "qwen3-next-80b-a3b-instruct",
    "qwen3-vl-30b-a3b-instruct", "qwen3-vl-4b-instruct",
)  # fmt: skip
"""Models that only the PyTorch engine serves."""
HEAD = """\
# Tensors that LMDeploy 0.18.0 reads of small models, by python tests/loader_names.py. N is a layer's or an expert's
# number. Each entry: what stands before the last two dots, the parts between them, the endings.
"""
HEAD_OF_CLASSES = """\
# Tensors of Transformers' classes for small models, by python tests/loader_names.py, written as loader_names.yaml is.
"""
NUMBERED = re.compile(r"\b(layers?|blocks|experts)\.\d+\.")


class Anything:
    """An object of the C++ module: every attribute and every call gives another."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take whatever the loaders pass."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.__dict__[name] = Anything()
        return self.__dict__[name]

    def __call__(self, *_: Any, **__: Any) -> Any:
        return Anything()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def clone(self) -> Any:
        """Return a copy, as configurations of the C++ module do."""
        other = type(self)()
        other.__dict__.update(copy.copy(self.__dict__))
        return other


BYTES = {"FP32": 4.0, "FP16": 2, "BF16": 2, "INT32": 4, "INT64": 8, "INT8": 1, "UINT8": 1, "UINT4": 0.5}
BYTES |= {"FP8_E4M3": 1, "FP4_E2M1": 0.5, "GENERIC_FLOAT": 0, "INVALID": 0}
TYPES = enum.Enum("TYPES", [f"TYPE_{name}" for name in BYTES])  # type: ignore[misc]


class Parameter:
    """A tensor of a C++ module: its bytes are checked by the loader against those of the checkpoint's tensor."""

    def alloc(self, shape: list[int], kind: Any) -> Parameter:
        self.type, self.byte_size = kind, BYTES[kind.name.removeprefix("TYPE_")]
        for side in shape:
            self.byte_size *= side
        return self

    def copy_from(self, *_: Any) -> None:
        """Copy nothing."""


class Module(Anything):
    def param(self, _: str) -> Parameter:
        return Parameter()


class Gemm(Anything):
    """The kernels' choice, which accepts every shape."""

    def get_weight_plan(self, _: Any) -> Any:
        """Return a plan without padding."""
        free = ((1, 1), (1, 1))
        return types.SimpleNamespace(family="any", bridge=None, shape_constraints=free, gate_up=lambda *_: 0)


class Native(types.ModuleType):
    """The C++ module."""

    DataType = TYPES
    NormType = enum.Enum("NormType", "LAYER_NORM RMS_NORM")
    ActivationType = enum.Enum("ActivationType", "kSilu kSiluGptOss")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (Anything,), {})


def add_module(name: str, path: str = "", **contents: Any) -> types.ModuleType:
    """Put a module in place of one that needs a GPU; with a path, of a package whose own start is skipped."""
    module = types.ModuleType(name)
    module.__dict__.update(contents | ({"__path__": [path]} if path else {}))
    sys.modules[name] = module
    return module


def prepare(wheel: str) -> None:
    torch = importlib.import_module("torch")
    torch.Tensor.cuda = lambda self: self
    for package in ("", "/turbomind", "/vl"):
        add_module(f"lmdeploy{package.replace('/', '.')}", f"{wheel}/lmdeploy{package}")
    add_module("lmdeploy.utils", get_logger=logging.getLogger)
    add_module("lmdeploy.archs", get_model_arch=None, search_nested_config=None)
    add_module("lmdeploy.turbomind.linear", _apply_bridge=lambda tensor, *_: tensor)
    native = Native("lmdeploy.turbomind._tm")
    native.__dict__["create_module"] = lambda _: Module()
    sys.modules[native.__name__] = native
    sys.modules["lmdeploy.turbomind"].__dict__["_tm"] = native


def loader(model: Model, config: Any) -> Any:
    """Return LMDeploy's loader of the model, for one GPU, as lmdeploy/turbomind/converter.py makes it."""
    formats = importlib.import_module("lmdeploy.turbomind.weight_format")
    registry = importlib.import_module("lmdeploy.turbomind.models.base").INPUT_MODELS
    importlib.import_module("lmdeploy.turbomind.models")
    names = importlib.import_module("lmdeploy.turbomind.supported_models").SUPPORTED_ARCHS
    base = importlib.import_module("lmdeploy.turbomind.builders._base")
    kind = TYPES[{"float16": "TYPE_FP16", "bfloat16": "TYPE_BF16"}[model.text.dtype]]
    made = {
        "awq": lambda: formats.AWQFormat(block_in=128),
        "gptq": lambda: formats.GPTQFormat(block_in=128),
        "fp8": lambda: formats.FP8Format(block_out=128),
        "mxfp4": formats.MXFP4Format,
    }
    plain = formats.TrivialFormat(weight_dtype=kind)
    packed = [made[each.method]() for each in model.quantization]
    found = registry.get(names[model.architecture])
    seen = formats.WeightFormatResolver(formats=[plain])
    more = {"vision_resolver": seen, "vision_data_type": kind} if getattr(found, "_vision", False) else {}
    result = found(config, resolver=formats.WeightFormatResolver(formats=[*packed, plain]), **more)
    one = base.ParallelGroup(1, [0])
    context = base.Context([Anything()], Gemm(), data_type=kind, gemm_input_dtype=TYPES["TYPE_INVALID"])
    groups = dict.fromkeys(("attn_tp", "mlp_tp", "ep", "model_tp", "dense_tp"), one)
    result.bind_runtime(ctx=context, root_handles=[Anything()], **groups)
    return result


def noting(real: Any, read: set[str]) -> Any:
    """Return a method of the checkpoint that notes the names it is called with."""

    def call(key: str, index: int | None = None) -> Any:
        read.add(key)
        return real(key, index)

    return call


def read_names(model: Model) -> list[str]:
    """Return the names that the loader reads; raise where one is missing or is never read."""
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    checkpoint = importlib.import_module("lmdeploy.turbomind.checkpoint")
    kinds = {"F16": torch.float16, "BF16": torch.bfloat16, "I32": torch.int32, "U8": torch.uint8}
    kinds |= {"F8_E4M3": torch.float8_e4m3fn, "F32": torch.float32}
    with tempfile.TemporaryDirectory() as folder:
        made = write.ensure_checkpoint(model, Path(folder))
        config = transformers.AutoConfig.from_pretrained(str(made), trust_remote_code=True)
    run = loader(model, config)
    store = checkpoint.SafetensorsCheckpoint.__new__(checkpoint.SafetensorsCheckpoint)
    store._data = {}
    original: dict[str, str] = {}
    read: set[str] = set()
    for tensor in tensors.tensors(model):
        key = checkpoint._apply_mappings(tensor.name, run._loader_mappings)
        store._data[key] = torch.empty(tensor.shape, dtype=kinds[tensor.dtype], device="meta")
        original[key] = tensor.name
    for name in ("get", "pop"):
        setattr(store, name, noting(getattr(store, name), read))
    run.model(checkpoint.Prefix(store))
    unread = sorted(set(original) - read)
    if unread:
        raise SystemExit(f"{model.id}: never read: {', '.join(unread[:5])}")
    return sorted({NUMBERED.sub(r"\1.N.", original[key]) for key in read})


def class_names(model: Model) -> list[str]:
    """Return the names that Transformers' class has, as they are published; raise where a shape differs."""
    torch = importlib.import_module("torch")
    transformers = importlib.import_module("transformers")
    with tempfile.TemporaryDirectory() as folder:
        config = transformers.AutoConfig.from_pretrained(str(write.ensure_checkpoint(model, Path(folder))))
    with torch.device("meta"):
        made = getattr(transformers, model.architecture)(config)
    tied = {"lm_head.weight"} if config.get_text_config().tie_word_embeddings else set()
    found = {name: tuple(part.shape) for name, part in made.state_dict().items() if name not in tied}
    if model.architecture == layouts.GEMMA3:  # the class renames what it loads
        found = {
            re.sub(r"^model\.", "", name.replace("model.language_model.", "language_model.model.")): shape
            for name, shape in found.items()
        }
    written = {tensor.name: tuple(tensor.shape) for tensor in tensors.tensors(model)}
    if found != written:
        differ = sorted({name for name, _ in found.items() ^ written.items()})
        raise SystemExit(f"{model.id}: {', '.join(differ[:5])}")
    return sorted({NUMBERED.sub(r"\1.N.", name) for name in found})


def lines(names: list[str]) -> list[str]:
    """Return names with a common beginning and the same endings on one line."""
    endings: dict[str, list[str]] = {}
    for name in names:
        before, _, ending = name.rpartition(".")
        endings.setdefault(before, []).append(ending)
    groups: dict[tuple[str, str], list[str]] = {}
    for before, found in endings.items():
        first, _, middle = before.rpartition(".")
        groups.setdefault((first, " ".join(found)), []).append(middle)
    return [f'  - "{first} | {" ".join(middle)} | {found}"' for (first, found), middle in groups.items()]


def write_names(file: str, head: str, names: dict[str, list[str]]) -> None:
    text = head + "".join("\n".join([f"{name}:", *lines(found)]) + "\n" for name, found in names.items())
    (Path(__file__).parent / "cases" / file).write_text(text, encoding="utf-8")


def main(wheel: str = "") -> None:
    if not wheel:
        names = {name: class_names(layouts.as_written(small(name))) for name in OF_CLASSES}
        write_names("class_names.yaml", HEAD_OF_CLASSES, names)
        return
    prepare(wheel)
    write_names("loader_names.yaml", HEAD, {name: read_names(layouts.as_written(small(name))) for name in MODELS})


if __name__ == "__main__":
    main(*sys.argv[1:])
