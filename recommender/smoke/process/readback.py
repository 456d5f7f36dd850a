"""Read the engine's settings from its log and compare them with the artefact."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender.choose import batch_room
from recommender.estimate.cache_sizing import BLOCK
from recommender.estimate.engines.engine import ENGINES
from recommender.estimate.model_shape import kv_bytes_per_token
from recommender.knowledge.eras import default_values

if TYPE_CHECKING:
    from recommender.request.resolved_request import ResolvedRequest

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# TurboMind 0.15 and later at INFO (turbomind.cc:128, 338, 440 and slab.h:136 of 0.16.0); 0.18.0 prints the same.
SESSION = re.compile(r"`max_context_token_num` is not set, default to (\d+)")
BUDGET = re.compile(r"cache budget: ([\d.]+) MB from free ([\d.]+) MB and ratio ([\d.]+)")
SLAB = re.compile(r"slab_size \d+, object_size (\d+)")
LENGTHS = re.compile(r"Warm-up lengths: [\d, ]*?(\d+)\s*$", re.MULTILINE)
# LMDeploy's Python log at INFO, if the artefact enables it; the last one counts.
CONFIG = re.compile(r"updated backend_config=(?:Turbomind|Pytorch)EngineConfig\((.*)\)")
FALLBACK = re.compile(r"Fallback to pytorch engine")
# The bars are of the PyTorch engine's warm-up (0.18.0 lmdeploy/pytorch/engine/model_agent/agent.py:488, :547).
PYTORCH = re.compile(r"Fallback to pytorch engine|PytorchEngineConfig\(|Warming up (?:prefill|decoding)")
TURBOMIND = re.compile(r"\[TM\]\[|TurbomindEngineConfig\(")


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Settings found in a log; empty or 0 if it has none. Memory in MiB."""

    backend: str
    session_len: int
    max_batch_size: int
    forward_tokens: int
    cache_ratio: float
    cache_mib: float
    free_mib: float
    block_bytes: int


@dataclass(frozen=True, slots=True)
class ReadbackSetting:
    """One setting as asked and as found, as text; ``found`` is empty if unknown."""

    name: str
    asked: str
    found: str

    @property
    def differs(self) -> bool:
        """Return whether the engine runs with another value."""
        return bool(self.found) and self.found != self.asked


def strip_colours(log: str) -> str:
    """Return a log without colours, each redrawn progress line on its own."""
    return COLOURS.sub("", log).replace("\r", "\n")


def parse_log(log: str) -> EngineSettings:
    """Return the settings in a server's log, read up to its readiness."""
    text = strip_colours(log)
    budget, slab = BUDGET.search(text), SLAB.search(text)
    config: dict[str, str] = dict(re.findall(r"(\w+)=([^,()]+)", (CONFIG.findall(text) or [""])[-1]))
    session, lengths = SESSION.search(text), LENGTHS.search(text)
    backend = "pytorch" if PYTORCH.search(text) else "turbomind" if TURBOMIND.search(text) else ""
    return EngineSettings(
        backend=backend,
        session_len=_parse_int(config.get("session_len", "")) or (int(session[1]) if session else 0),
        max_batch_size=_parse_int(config.get("max_batch_size", "")),
        forward_tokens=int(lengths[1]) if lengths else 0,
        cache_ratio=float(budget[3]) if budget else 0.0,
        cache_mib=float(budget[1]) if budget else 0.0,
        free_mib=float(budget[2]) if budget else 0.0,
        block_bytes=int(slab[1]) if slab else 0,
    )


def _parse_int(text: str) -> int:
    """Return a whole number, or 0 for anything else such as None."""
    return int(text) if text.isdecimal() else 0


def compare_settings(
    resolved: ResolvedRequest, options: Mapping[str, str], engine: EngineSettings
) -> tuple[ReadbackSetting, ...]:
    """Compare backend, session length, cache budget, batch, prefill and KV block."""
    session = int(options.get("session_len") or 0) or resolved.model.text.max_positions
    defaults = default_values(resolved.store, resolved.version)
    ratio = float(options.get("cache_ratio") or defaults["cache_ratio"])
    prefill = int(options.get("prefill_tokens") or defaults["prefill_tokens"])
    tp = int(options.get("tp") or 1)
    batch = int(options.get("max_batch_size") or 0) or batch_room.default_batch(resolved)
    bits = {"8": 8, "4": 4}.get(options.get("kv_bits", ""), 16)
    block = int(options.get("block_len") or BLOCK) * kv_bytes_per_token(resolved.model, bits, tp)
    budget = f"{engine.free_mib * ratio:.0f} MiB ({ratio:.3f})"
    reported = f"{engine.cache_mib:.0f} MiB ({engine.cache_ratio:.3f})"
    asked = options.get("backend") or defaults["backend"]
    forward = ENGINES[asked].forward_tokens(prefill, batch, tp)
    batch_found = engine.max_batch_size or (batch + engine.forward_tokens - forward if engine.forward_tokens else 0)
    return (
        ReadbackSetting("backend", asked, engine.backend),
        ReadbackSetting("session_len", str(session), str(engine.session_len or "")),
        ReadbackSetting("cache_budget", *_cache_values(budget, reported, engine, ratio)),
        ReadbackSetting("max_batch_size", str(batch), str(batch_found or "")),
        ReadbackSetting("forward_tokens", str(forward), str(engine.forward_tokens or "")),
        ReadbackSetting("kv_block_bytes", str(block), str(engine.block_bytes or "")),
    )


def _cache_values(budget: str, reported: str, engine: EngineSettings, ratio: float) -> tuple[str, str]:
    """Return the cache budget as asked and found, equal within the log's rounding."""
    if not engine.cache_mib:
        return budget, ""
    same = abs(engine.cache_ratio - ratio) < 0.001 and abs(engine.cache_mib - engine.free_mib * ratio) < 64
    return (reported, reported) if same else (budget, reported)
