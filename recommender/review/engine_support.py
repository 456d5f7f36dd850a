"""Which engine runs a launch: the one asked for, or PyTorch where TurboMind does not list the architecture.

The tables are extracted from each release's wheel. The architecture of a model without a record follows from its name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from recommender.common.pattern import pattern
from recommender.common.text import normal
from recommender.knowledge.eras import within
from recommender.request.unknown_model import PARTS, READS, SEES, SUFFIX, served
from recommender.review import accepted_options

if TYPE_CHECKING:
    from recommender.review.case import Case

TURBOMIND, PYTORCH = "turbomind", "pytorch"
HUB = pattern(r"[A-Za-z0-9][\w-]*/[\w.-]+")
# Names that do not begin as their architecture does; an empty one is ambiguous.
OTHERWISE = {
    "qwen15": "Qwen2ForCausalLM",
    "qwq": "Qwen2ForCausalLM",
    "deepseekr1": "DeepseekV3ForCausalLM",
    "deepseekcoder": "",
    "deepseekllm": "LlamaForCausalLM",
    "deepseekmoe": "DeepseekForCausalLM",
    "codellama": "LlamaForCausalLM",
    "metallama": "LlamaForCausalLM",
    "vicuna": "LlamaForCausalLM",
    "glm4": "",
    "bloom": "BloomForCausalLM",
    "internlmxcomposer": "",
    "internlmchat": "InternLMForCausalLM",
    "baichuan2": "BaichuanForCausalLM",
    "baichuan13b": "BaichuanForCausalLM",
    "llama3211bvision": "MllamaForConditionalGeneration",
    "llama3290bvision": "MllamaForConditionalGeneration",
    "llamaguard311bvision": "MllamaForConditionalGeneration",
}


def wanted_engine(case: Case) -> str:
    """Return the requested engine or LMDeploy's default; empty if unknown."""
    launch = case.launch
    if launch.starts in ("proxy", "tool"):
        return ""
    if launch.engine:
        return PYTORCH if launch.engine == "PytorchEngineConfig" else TURBOMIND
    if "backend" in case.settings:
        text = case.text("backend")
        return text if text in (TURBOMIND, PYTORCH) else ""
    return "" if launch.unsure and not _lists_all(case) else TURBOMIND


def _lists_all(case: Case) -> bool:
    """Return whether the script lists all words that a launch may get, none of them for another engine."""
    launch = case.launch
    return launch.starts == "api_server" and not launch.unread and "--backend" not in case.script.text


def engine(case: Case) -> str:
    """Return the engine that will run: PyTorch if TurboMind lacks the model."""
    asked = wanted_engine(case)
    if asked == TURBOMIND and serves(case, TURBOMIND) is False:
        return PYTORCH
    device = case.settings.get("device")
    if asked == TURBOMIND and device is not None and device.text != "cuda":
        return ""
    return asked


def falls_back(case: Case) -> bool:
    """Return whether the PyTorch engine certainly runs in place of TurboMind: no table or record has TurboMind."""
    return (
        wanted_engine(case) == TURBOMIND
        and engine(case) == PYTORCH
        and architecture(case) not in served(case.resolved.release.id, TURBOMIND)
        and serves(case, PYTORCH) is True
    )


def runs_for_certain(case: Case) -> bool:
    """Return whether the engine is known that runs: the one asked for, or PyTorch in place of TurboMind."""
    return wanted_engine(case) == engine(case) or falls_back(case)


def serves(case: Case, name: str) -> bool | None:
    """Return whether an engine supports the model in this release; None if the architecture is unknown."""
    resolved = case.resolved
    if case.model_known:
        return any(
            support.engine == name and within(support.since, support.until, resolved.version)
            for support in resolved.model.support
        )
    found = architecture(case)
    return found in served(resolved.release.id, name) if found else None


def is_served(case: Case) -> bool:
    """Return whether an engine of the release may serve the model; False only if no table and no record says so."""
    found = architecture(case)
    listed = (found in served(case.resolved.release.id, name) for name in (TURBOMIND, PYTORCH))
    return not found or any(listed) or bool(serves(case, TURBOMIND) or serves(case, PYTORCH))


def architecture(case: Case) -> str:
    """Return the model's architecture; of a model without a record, by its name. Empty if unknown."""
    if case.model_known:
        return case.resolved.model.architecture
    model = case.launch.model
    return architecture_of(model.value) if model is not None and model.value else ""


@lru_cache(maxsize=256)
def architecture_of(name: str) -> str:
    """Return the architecture whose name a model's begins with, of any release's tables; empty if none."""
    folder = name.casefold().replace("\\", "/").rstrip("/").rpartition("/")[2].rpartition("distill")[2]
    last = normal(folder).replace(".", "")
    keys = _keys()
    hub = HUB.fullmatch(name) is not None  # a folder may be called after anything
    begun = max((key for key in keys if last.startswith(key)), key=len, default="")
    found = keys[begun] if begun and (hub or last[len(begun) :][:1].isdigit()) else ""
    return "" if SEES.search(folder) and READS.search(found) else found


@lru_cache(maxsize=1)
def _keys() -> dict[str, str]:
    names = {
        name
        for release in accepted_options.releases()
        for engine_name in (TURBOMIND, PYTORCH)
        for name in served(release, engine_name)
        if not PARTS.search(name)
    }
    # Some architectures share a name; the shortest spelling is that of the text model.
    ranked = sorted(names, key=lambda name: (len(name), name), reverse=True)
    keys = {normal(SUFFIX.sub("", name).casefold()): name for name in ranked}
    return {key: name for key, name in keys.items() if len(key) > 2} | OTHERWISE
