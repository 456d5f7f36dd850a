"""What the engine says it runs with, out of its log, held against what the artefact asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recommender import follow, memory
from recommender.candidates import BLOCK

if TYPE_CHECKING:
    from recommender.facts import Facts

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# TurboMind 0.15 and later at INFO (turbomind.cc:128, 338, 440 and slab.h:136 of 0.16.0); 0.18.0 prints the same.
SESSION = re.compile(r"`max_context_token_num` is not set, default to (\d+)")
BUDGET = re.compile(r"cache budget: ([\d.]+) MB from free ([\d.]+) MB and ratio ([\d.]+)")
SLAB = re.compile(r"slab_size \d+, object_size (\d+)")
LENGTHS = re.compile(r"Warm-up lengths: [\d, ]*?(\d+)\s*$", re.MULTILINE)
WARM = re.compile(r"Warm-up finished")
# LMDeploy's own Python log at INFO, where the artefact asks for it; the last one printed holds.
CONFIG = re.compile(r"updated backend_config=TurbomindEngineConfig\((.*)\)")
FALLBACK = re.compile(r"Fallback to pytorch engine|PytorchEngineConfig\(")
TURBOMIND = re.compile(r"\[TM\]\[|TurbomindEngineConfig\(")


@dataclass(frozen=True, slots=True)
class Effective:
    """What a log tells. Empty or 0: it does not say. Memory in MiB."""

    backend: str
    session_len: int
    max_batch_size: int
    forward_tokens: int
    cache_ratio: float
    cache_mib: float
    free_mib: float
    block_bytes: int


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting as asked and as found, as text; ``found`` is empty where nothing tells it."""

    name: str
    asked: str
    found: str

    @property
    def differs(self) -> bool:
        """Whether the engine runs with another value."""
        return bool(self.found) and self.found != self.asked


def plain(log: str) -> str:
    """A log without colours, each redrawn progress line on a line of its own."""
    return COLOURS.sub("", log).replace("\r", "\n")


def effective(log: str) -> Effective:
    """Reads a server's log, from its start until it is ready."""
    text = plain(log)
    budget, slab = BUDGET.search(text), SLAB.search(text)
    config: dict[str, str] = dict(re.findall(r"(\w+)=([^,()]+)", (CONFIG.findall(text) or [""])[-1]))
    session, lengths = SESSION.search(text), LENGTHS.search(text)
    backend = "pytorch" if FALLBACK.search(text) else "turbomind" if TURBOMIND.search(text) else ""
    return Effective(
        backend=backend,
        session_len=_whole(config.get("session_len", "")) or (int(session[1]) if session else 0),
        max_batch_size=_whole(config.get("max_batch_size", "")),
        forward_tokens=int(lengths[1]) if lengths else 0,
        cache_ratio=float(budget[3]) if budget else 0.0,
        cache_mib=float(budget[1]) if budget else 0.0,
        free_mib=float(budget[2]) if budget else 0.0,
        block_bytes=int(slab[1]) if slab else 0,
    )


def _whole(text: str) -> int:
    """A whole number; 0 for anything else, such as None."""
    return int(text) if text.isdecimal() else 0


def compare(facts: Facts, asked: Mapping[str, str], found: Effective) -> tuple[Setting, ...]:
    """Backend, session length, KV cache budget, KV block and batch: asked beside found."""
    session = int(asked.get("session_len") or 0) or facts.model.text.max_positions
    ratio = float(asked.get("cache_ratio") or follow.DEFAULT_RATIO)
    prefill = int(asked.get("prefill_tokens") or follow.DEFAULT_PREFILL)
    tp = int(asked.get("tp") or 1)
    batch = int(asked.get("max_batch_size") or 0) or follow.default_batch(facts)
    bits = {"8": 8, "4": 4}.get(asked.get("kv_bits", ""), 16)
    block = int(asked.get("block_len") or BLOCK) * memory.kv_token_bytes(facts.model, bits, tp)
    budget = f"{found.free_mib * ratio:.0f} MiB ({ratio:.3f})"
    told = f"{found.cache_mib:.0f} MiB ({found.cache_ratio:.3f})"
    forward = memory.forward_tokens(prefill, batch, tp)
    batch_found = found.max_batch_size or (batch + found.forward_tokens - forward if found.forward_tokens else 0)
    return (
        Setting("backend", asked.get("backend") or "turbomind", found.backend),
        Setting("session_len", str(session), str(found.session_len or "")),
        Setting("cache_budget", *_near(budget, told, found, ratio)),
        Setting("max_batch_size", str(batch), str(batch_found or "")),
        Setting("forward_tokens", str(forward), str(found.forward_tokens or "")),
        Setting("kv_block_bytes", str(block), str(found.block_bytes or "")),
    )


def _near(asked: str, told: str, found: Effective, ratio: float) -> tuple[str, str]:
    """The log prints the ratio with three digits and the region in whole slabs: that near counts as equal."""
    if not found.cache_mib:
        return asked, ""
    same = abs(found.cache_ratio - ratio) < 0.001 and abs(found.cache_mib - found.free_mib * ratio) < 64
    return (told, told) if same else (asked, told)
