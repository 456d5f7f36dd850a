"""Where nothing fits: the nearest change of the request that would."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from packaging.version import Version

from recommender.candidates import fewer_tiles
from recommender.choose import Choice, choose
from recommender.configuration import Configuration
from recommender.facts import GIB, MIB, Facts, resolve_release
from recommender.facts import options_of as _options
from recommender.memory import usable, weights
from recommender.request import Goal, Request
from recommender.speed import Speed, estimate
from recommender.store import PART

if TYPE_CHECKING:
    from recommender import records as r

MOST_CARDS = 8


@dataclass(frozen=True, slots=True)
class Change:
    """A changed request that fits: the options to change, and how it reads."""

    options: str
    text: str


def nearest(facts: Facts, too_large: bool) -> Change | None:
    """The first change, the smallest kind first, under which something fits; None where none does.

    Where the weights alone are too large only changes that bring memory are tried.
    """
    smaller = () if too_large else _smaller(facts)
    for change, tried in chain(smaller, _more(facts)):
        if isinstance(choose(tried), Choice):
            return change
    return None


def _smaller(facts: Facts) -> Iterator[tuple[Change, Facts]]:
    request = facts.request
    if request.kv != "auto":
        free = replace(request, kv="auto")
        yield Change("--kv auto", "let the KV cache precision be chosen"), replace(facts, request=free)
    yield from _looser_goals(facts)
    flight = facts.concurrency
    while flight > 1:
        flight //= 2
        yield Change(f"--load {flight}", f"keep {flight} requests in flight"), replace(facts, concurrency=flight)
    yield from _newer(facts)


def _more(facts: Facts) -> Iterator[tuple[Change, Facts]]:
    """More of a shared card, more cards, larger cards; none whose memory is less than the weights."""
    for change, tried in chain(_more_memory(facts), _more_cards(facts), _larger_cards(facts)):
        if usable(tried) * tried.request.gpu_count > weights(tried, 1):
            yield change, tried


def _looser_goals(facts: Facts) -> Iterator[tuple[Change, Facts]]:
    request = facts.request
    if request.p99_ms or request.ttft_ms or request.rps:
        goal: Goal = "throughput" if request.rps else "latency"
        free = replace(request, p99_ms=0.0, ttft_ms=0.0, rps=0.0, goal=goal)
        outcome = choose(replace(facts, request=free))
        if isinstance(outcome, Choice):
            options = _missed(request, outcome.best.speed)
            text = "the best predicted for this card and load" + _with_less_detail(facts, outcome.best.config)
            yield Change(" ".join(options) or "no latency goals", text), replace(facts, request=free)


def _missed(request: Request, speed: Speed) -> list[str]:
    """Each goal that a predicted speed misses, as the option that it would meet."""
    options = []
    if request.p99_ms and speed.p99_ms.value > request.p99_ms:
        options.append(f"--p99 {math.ceil(speed.p99_ms.value)}")
    if request.ttft_ms and speed.ttft_ms.value > request.ttft_ms:
        options.append(f"--ttft {math.ceil(speed.ttft_ms.value)}")
    if request.rps and speed.rps.value < request.rps:
        options.append(f"--rps {math.floor(speed.rps.value * 10) / 10:g}")
    return options


def _with_less_detail(facts: Facts, config: Configuration) -> str:
    """What else would meet the goals with that script: clients that ask for fewer tiles, where that is enough."""
    for most in () if config.max_tiles else fewer_tiles(facts):
        if not _missed(facts.request, estimate(facts, replace(config, max_tiles=most), ranged=False)):
            return f"; clients that send max_dynamic_patch {most} meet the goal with it, for less detail"
    return ""


def _more_memory(facts: Facts) -> Iterator[tuple[Change, Facts]]:
    """More of a shared card, a GiB at a time."""
    asked = facts.request.vram_gib
    if not asked:
        return
    for size in range(int(asked) + 1, int(facts.gpu.memory_mib / 1024) + 1):
        request = replace(facts.request, vram_gib=float(size))
        change = Change(f"--vram {size}", f"leave {size} GiB of the card free for it")
        yield change, replace(facts, request=request, available_bytes=size * GIB)


def _newer(facts: Facts) -> Iterator[tuple[Change, Facts]]:
    for name in sorted(facts.store.releases, key=Version, reverse=True):
        if Version(name) <= facts.version:
            return
        release = resolve_release(facts.store, name)
        version = Version(name)
        yield (
            Change(f"--lmdeploy {name}", f"use LMDeploy {name}"),
            replace(
                facts,
                request=replace(facts.request, lmdeploy=name),
                release=release,
                version=version,
                options=_options(facts.store, version),
            ),
        )
        return


def _more_cards(facts: Facts) -> Iterator[tuple[Change, Facts]]:
    if PART in facts.gpu.id:  # a process sees one slice only
        return
    for count in (2, 4, 8):
        if count > facts.request.gpu_count:
            yield (
                Change(f"--gpu {facts.gpu.id}:{count}", f"use {count} cards"),
                replace(facts, request=replace(facts.request, gpu_count=count)),
            )


def _larger_cards(facts: Facts) -> Iterator[tuple[Change, Facts]]:
    """One larger or newer card, the smallest first; then several of one. Of cards alike only the first is tried."""
    now = Version(facts.gpu.compute_capability)
    whole = (each for each in facts.store.gpus.values() if PART not in each.id)
    cards = sorted(whole, key=lambda each: (each.memory_mib, each.id))
    alike = {(each.compute_capability, each.memory_mib // 1024): each for each in reversed(cards)}
    some = sorted(alike.values(), key=lambda each: (each.memory_mib, each.id))
    if not _any_helps(facts, some):
        return
    for count in (facts.request.gpu_count, 2, 4, 8):
        for gpu in some:
            newer = Version(gpu.compute_capability) > now
            if count < facts.request.gpu_count or not (newer or gpu.memory_mib * MIB > facts.available_bytes):
                continue
            asked = gpu.id if count == 1 else f"{gpu.id}:{count}"
            text = f"use {gpu.name}" if count == 1 else f"use {count} x {gpu.name}"
            yield Change(f"--gpu {asked}", text), _on(facts, gpu, count)


def _any_helps(facts: Facts, cards: Sequence[r.Gpu]) -> bool:
    """Whether many of the largest card of any generation would do: else no card is worth trying."""
    largest = {each.compute_capability: each for each in cards}
    most = sorted(largest.values(), key=lambda each: -each.memory_mib)
    count = max(facts.request.gpu_count, MOST_CARDS)
    return any(isinstance(choose(_on(facts, each, count)), Choice) for each in most)


def _on(facts: Facts, gpu: r.Gpu, count: int) -> Facts:
    """The same request on so many of another card."""
    request = replace(facts.request, gpu_count=count, vram_gib=0.0)
    return replace(facts, request=request, gpu=gpu, available_bytes=gpu.memory_mib * MIB)
