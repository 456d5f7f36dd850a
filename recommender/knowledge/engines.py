"""LMDeploy's engines: their names, and which options each reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from recommender.knowledge import records

EngineName: TypeAlias = Literal["turbomind", "pytorch"]


class EngineLabel(NamedTuple):
    """How texts name an engine, the class of its configuration in Python, and the folders of its own code."""

    title: str
    config_class: str
    code: tuple[str, ...]


LABELS: Mapping[str, EngineLabel] = {
    "turbomind": EngineLabel("TurboMind", "TurbomindEngineConfig", ("src/turbomind/", "lmdeploy/turbomind/")),
    "pytorch": EngineLabel("PyTorch engine", "PytorchEngineConfig", ("lmdeploy/pytorch/",)),
}


def is_read(era: records.Era, engine: EngineName) -> bool:
    """Return whether an option does anything where this engine runs: it or the server reads it."""
    return not {engine, "server"}.isdisjoint(era.read_by)
