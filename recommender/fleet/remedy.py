"""Where no server of a kind can be laid out: why, and which cards would do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.choose import Choice, Nothing, choose
from recommender.facts import GIB, MIB, Facts, options_of, resolve_release
from recommender.memory import usable, weights
from recommender.store import PART

if TYPE_CHECKING:
    from recommender import records as r

SIZES = (1, 2, 4, 8)
"""Cards that a server may take."""


def reason(facts: Facts, outcome: Nothing) -> str:
    """What binds, in short: no more digits than a card's memory is known to."""
    if outcome.too_large:
        size, room = weights(facts, facts.request.tp) / GIB, usable(facts) / GIB
        return (
            f"the weights, {size:.1f} GiB a card, and what the engine needs beside them leave no room for a KV cache "
            f"in {room:.1f} GiB"
        )
    message = re.sub(r"\d+\.\d+(?= GiB)", lambda found: f"{float(found[0]):.1f}", outcome.binding.message)
    return message.rstrip(".")


def elsewhere(facts: Facts, cards: int, outcome: Nothing) -> str:
    """The cards of this GPU, another release, or else the smallest other GPU that would do; empty where none does."""
    tp = facts.request.tp
    more, fewer = [each for each in SIZES if each > tp], [each for each in reversed(SIZES) if each < tp]
    for size in () if PART in facts.gpu.id else more if outcome.too_large else more + fewer:
        if _holds(facts, facts.gpu, size):
            return f"tp {size}" if size <= cards and cards % size == 0 else f"tp {size} on hosts of {size} cards"
    for option, changed in _otherwise(facts):
        if isinstance(choose(changed), Choice):
            return option
    for gpu, size in _others(facts):
        if _holds(facts, gpu, size):
            return f"--gpu {gpu.id}" if size == 1 else f"--gpu {gpu.id}:{size}"
    return ""


def _otherwise(facts: Facts) -> Iterator[tuple[str, Facts]]:
    """A cache whose precision is chosen, and the newest release."""
    if facts.request.kv != "auto":
        yield "--kv auto", replace(facts, request=replace(facts.request, kv="auto"))
    newest = max(facts.store.releases, key=Version)
    if Version(newest) > facts.version:
        request, release = replace(facts.request, lmdeploy=newest), resolve_release(facts.store, newest)
        options = options_of(facts.store, Version(newest))
        made = replace(facts, request=request, release=release, version=Version(newest), options=options)
        yield f"--lmdeploy {newest}", made


def _others(facts: Facts) -> Iterator[tuple[r.Gpu, int]]:
    """Larger or newer cards whose memory holds the weights: the fewest first, then the smallest."""
    least = weights(facts, 1)
    cards = sorted(
        (each for each in facts.store.gpus.values() if PART not in each.id and each.memory_mib > facts.gpu.memory_mib),
        key=lambda each: (each.memory_mib, each.id),
    )
    alike = {(each.compute_capability, each.memory_mib // 1024): each for each in reversed(cards)}
    for size in SIZES:
        for gpu in sorted(alike.values(), key=lambda each: (each.memory_mib, each.id)):
            if gpu.memory_mib * MIB * size > least:
                yield gpu, size


def _holds(facts: Facts, gpu: r.Gpu, tp: int) -> bool:
    request = replace(facts.request, gpu=gpu.id, gpu_count=tp, tp=tp)
    made = replace(facts, request=request, gpu=gpu, available_bytes=gpu.memory_mib * MIB)
    return isinstance(choose(made), Choice)
