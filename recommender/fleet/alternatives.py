"""Explain why a kind of host cannot run the model or misses a goal, and suggest what can."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.choose.relax import distinct_gpus, move_to, newer_releases
from recommender.choose.request_change import ask
from recommender.choose.select import Choice, NoCandidate, choose
from recommender.common.units import GIB, MIB, duration
from recommender.estimate import speed
from recommender.estimate.memory_items import usable_bytes, weights
from recommender.knowledge.names import PART
from recommender.request.resolved_request import ResolvedRequest

if TYPE_CHECKING:
    from recommender.estimate.configuration import Configuration
    from recommender.fleet.rate_search import RateSearch
    from recommender.knowledge import records
    from recommender.request.request import TimeGoal

SIZES = (1, 2, 4, 8)
"""Numbers of GPUs that a server may take."""


def explain_misfit(resolved: ResolvedRequest, outcome: NoCandidate) -> str:
    """Return what binds, in short: memory is rounded to what is known of a GPU."""
    if outcome.too_large:
        size, room = weights(resolved, resolved.request.tp) / GIB, usable_bytes(resolved) / GIB
        return (
            f"the weights, {size:.1f} GiB per GPU, and the engine's buffers leave no room for a KV cache "
            f"in {room:.1f} GiB"
        )
    message = re.sub(r"\d+\.\d+(?= GiB)", lambda size: f"{float(size[0]):.1f}", outcome.binding.message)
    return message.rstrip(".")


def explain_miss(resolved: ResolvedRequest, config: Configuration, search: RateSearch, goal: TimeGoal) -> Iterator[str]:
    """Explain a missed goal: yield the time of a request alone, and whether only other arrivals break the goal."""
    alone = search.slow * search.tail.time(search.server.alone, goal.figure, goal.at)
    at = "" if goal.at == "mean" else f" ({goal.at})"
    if goal.figure == "latency":
        coefficients = speed.scale_coefficients(
            resolved.store, resolved.request.host_scale, resolved.request.card_scale
        )
        limit: str = speed.estimate_server(resolved, config, 1, coefficients).limit
        yield f"a request alone takes {alone:,.0f} ms{at}, mainly {limit}"
    elif goal.figure == "ttft":
        requests = [request for turn in search.server.turns for request in turn]
        prepares = sum(request.prepare for request in requests) > sum(request.prefill for request in requests)
        limit = "preprocessing" if prepares else "prefill on the card"
        yield f"the first token of a request alone takes {alone:,.0f} ms{at}, mainly {limit}"
    else:
        yield f"each further token of a request alone takes {alone:,.1f} ms{at}"
    if alone <= goal.most_ms:
        yield f"with other arrivals {goal.words} exceeds {duration(goal.most_ms)}"


def suggest_alternative(resolved: ResolvedRequest, host_gpus: int, outcome: NoCandidate) -> str:
    """Return another number of GPUs, option or larger GPU that fits, or ""."""
    tp = resolved.request.tp
    more, fewer = [size for size in SIZES if size > tp], [size for size in reversed(SIZES) if size < tp]
    for size in () if PART in resolved.gpu.id else more if outcome.too_large else more + fewer:
        if _holds(resolved, resolved.gpu, size):
            fits = size <= host_gpus and host_gpus % size == 0
            return f"tp {size}" if fits else f"tp {size} on hosts of {size} GPUs"
    for option, changed in _other_options(resolved):
        if isinstance(choose(changed), Choice):
            return option
    for gpu, size in _larger_gpus(resolved):
        if _holds(resolved, gpu, size):
            return f"--gpu {gpu.id}" if size == 1 else f"--gpu {gpu.id}:{size}"
    return ""


def _other_options(resolved: ResolvedRequest) -> Iterator[tuple[str, ResolvedRequest]]:
    """Yield the request with a chosen KV cache precision, and on newer releases."""
    if resolved.request.kv != "auto":
        yield "--kv auto", ask(resolved, kv="auto")
    for change, changed in newer_releases(resolved):
        yield change.options, changed


def _larger_gpus(resolved: ResolvedRequest) -> Iterator[tuple[records.Gpu, int]]:
    """Yield larger GPUs whose memory holds the weights: the fewest first, then the smallest."""
    least = weights(resolved, 1)
    for size in SIZES:
        for gpu in distinct_gpus(resolved.store, above_mib=resolved.gpu.memory_mib):
            if gpu.memory_mib * MIB * size > least:
                yield gpu, size


def _holds(resolved: ResolvedRequest, gpu: records.Gpu, tp: int) -> bool:
    return isinstance(choose(ask(move_to(ask(resolved, tp=0), gpu, tp), tp=tp)), Choice)
