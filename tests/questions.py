"""Random questions for the command line and the configurator: all options, most values sensible, some wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator

from recommender.common.units import MIB
from recommender.estimate.model_shape import weight_bytes
from recommender.knowledge.load import load
from recommender.knowledge.names import PART, resolve_gpu, resolve_model

STORE = load()
FORMS = (
    *("bash",) * 8,
    *("command", "docker", "compose", "systemd", "k8s", "python", "client", "env", "report", "json"),
)
"""Forms of the answer, the usual one more often."""
FOLDERS = ("compose", "systemd", "k8s")
COUNTS = (1, 1, 1, 2, 4, 8)
WRONG = {
    "gpu": ("A1000", "RTX", "l4:0", "2xH100", "H100,L4"), "model": ("internvl", "gpt-5", "~/model"),
    "load": ("0", "many", "1e9"), "rps": ("-1", "fast"), "image": ("448", "0x0", "99999x3"),
    "input-tokens": ("none", "0"), "output-tokens": ("1.5",), "goal": ("speed",), "lmdeploy": ("0.5", "v1"),
    "ttft": ("p95:1s",), "kv": ("fp8",), "workload": ("mail",), "follow": ("mistral",), "backend": ("vllm",),
    "burstiness": ("2",),
}  # fmt: skip
"""Values that no record or range has, by option."""


def gpus() -> list[str]:
    """Names of GPUs as people write them: ids and aliases of whole GPUs, and some slices."""
    whole = [gpu for gpu in STORE.gpus.values() if PART not in gpu.id]
    slices = [gpu.id for gpu in STORE.gpus.values() if PART in gpu.id][:6]
    return [name for gpu in whole for name in (gpu.id, *gpu.aliases)] + slices


def models() -> list[str]:
    """Names of models: ids, hub names and aliases."""
    return [name for model in STORE.models.values() for name in (model.id, model.hub, *model.aliases)]


def _may_hold(model: str, gpu: str, count: int) -> bool:
    """Whether the GPUs have room for the weights and some cache."""
    card = resolve_gpu(STORE, gpu)[0].memory_mib * MIB
    return card * count > 1.5 * weight_bytes(resolve_model(STORE, model))


def _values(draw: random.Random) -> Iterator[tuple[str, str]]:
    """Yield options with values: GPU and model always, each other one now and then."""

    def sometimes(share: float) -> bool:
        return draw.random() < share

    model, gpu, count = draw.choice(models()), draw.choice(gpus()), draw.choice(COUNTS)
    while sometimes(0.95) and not _may_hold(model, gpu, count):
        gpu, count = draw.choice(gpus()), draw.choice(COUNTS)
    vision = bool(resolve_model(STORE, model).vision)
    yield "model", model
    yield "gpu", f"{gpu}:{count}" if count > 1 else gpu
    if sometimes(0.8):
        yield "load", draw.choice(("1", "4", "16", "64", "256", "single", "high", "3"))
    elif sometimes(0.2):
        yield "rps", draw.choice(("0.5", "3", "20"))
        if sometimes(0.3):
            yield "burstiness", "2"
    if sometimes(0.25):
        yield "workload", draw.choice([each.id for each in STORE.workloads.values() if vision or not each.images])
    if sometimes(0.4 if vision else 0.02):
        yield "image", draw.choice(("448x448", "1280x720", "640x480x2", "448x448:0.7,1280x720:0.3"))
    elif sometimes(0.3):
        yield "text-only", ""
    others = {
        "input-tokens": ("300", "2000", "512:4000"), "output-tokens": ("64", "256", "100:800"),
        "goal": ("latency", "throughput", "memory", "balanced"), "lmdeploy": (*STORE.releases,),
        "ttft": ("500ms", "p99:2s"), "tpot": ("40ms",), "latency": ("p90:5s",), "p99": ("2000", "10s"),
        "vram": ("24", "20GB"), "cpus": ("4", "96"), "kv": ("auto", "fp16", "int8", "int4"), "turns": ("3",),
        "prefix-tokens": ("20",), "backend": ("auto", "turbomind", "pytorch"), "max-context": ("8192",),
        "headroom": ("20%", "1.5"), "revision": ("main",), "prompt": ("What's in it? $(ls)", "Có gì trong ảnh?"),
        "follow": ("defaults", *STORE.advisers),
    }  # fmt: skip
    for name, values in others.items():
        if sometimes(0.08):
            yield name, draw.choice(values)


def question(number: int) -> tuple[list[tuple[str, str]], str]:
    """Return the options of a question and the form of its answer; the same for the same number."""
    draw = random.Random(number)
    values = dict(_values(draw))
    if number % 12 == 0:
        name = draw.choice([*WRONG])
        values[name] = draw.choice(WRONG[name])
    return [*values.items()], draw.choice(FORMS)


def words(values: list[tuple[str, str]]) -> list[str]:
    """Return a question as the words of a command line."""
    return [word for name, value in values for word in ([f"--{name}", value] if value else [f"--{name}"])]
