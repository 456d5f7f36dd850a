"""One-line summaries of a recommendation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from recommender.choose.defaults import compare_with_defaults, rate_of_16_bits
from recommender.choose.reasons import has_source
from recommender.common.text import count
from recommender.common.units import GIB, SECONDS_FROM, duration
from recommender.estimate.memory import likely_range
from recommender.knowledge.engines import LABELS

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.estimate.configuration import Configuration
    from recommender.knowledge import records
    from recommender.request.resolved_request import ResolvedRequest

FIGURES = {"ttft": "TTFT", "tpot": "TPOT", "latency": "latency"}
WHERE = "the model runs code of its own, so name a commit of https://huggingface.co/{hub}/commits/main"
"""How to find the variable that a start needs."""


def cite(sources: records.Sources, caveat: str = "", most: int = 2) -> str:
    """Return short references to a reason's sources with what limits them; ``unverified`` if nobody opened one."""
    if not has_source(sources):
        return "unverified"
    code = [f"{line.release} {line.path}:{line.line}" for line in sources.code[-most:]]
    pages = [page.url for page in sources.pages[: max(most - len(code), 0)]]
    runs = [f"evidence {run}" for run in sources.evidence[:1]]
    return "; ".join([*code, *pages, *runs, *([caveat] if caveat else [])])


def gib(size: float) -> str:
    """Format bytes as GiB with one or two digits after the point."""
    return f"{size / GIB:.2f}" if size < 10 * GIB else f"{size / GIB:.1f}"


def rate_digits(value: float) -> int:
    """Return the digits after the point of requests/s: a rare request does not show as 0.0."""
    return 1 if value >= 1 else max(3, 1 - math.floor(math.log10(max(value, 1e-9))))


def rate(*values: float) -> str:
    """Format requests/s, or a value with its range."""
    first, *ends = (f"{value:,.{rate_digits(values[0])}f}" for value in values)
    return first + (f" requests/s ({' to '.join(ends)})" if ends else "")


def given_up(config: Configuration) -> str:
    """Say what of a configuration may change answers; empty: nothing."""
    parts = [f"{config.kv_bits}-bit KV cache"] if config.kv_bits < 16 else []
    return " and ".join([*parts, *(["fewer tiles per image"] if config.max_tiles else [])])


def notes_of_request(resolved: ResolvedRequest) -> list[str]:
    """Return the notes of a request but those of the assumed card and host."""
    return [note for note in resolved.notes if "; assuming " not in note and "CPU cores" not in note]


def against_defaults(recommendation: Recommendation) -> str:
    """Say how LMDeploy's defaults compare; empty for somebody's configuration."""
    found = compare_with_defaults(recommendation)
    if found is None:
        return ""
    if not found.fits:
        return "may run out of memory: --follow defaults says why"
    gain = found.gain
    than = f"this serves {gain.value:.1f}x: {gain.low:.1f} to {gain.high:.1f}"
    if gain.low <= 1 <= gain.high:
        than = "no clear difference"
    return f"{rate(found.rps)} requests/s ({than}), {gib(found.memory)} GiB"


def with_16_bits(recommendation: Recommendation) -> str:
    """Say what a KV cache of 16 bits would cost; empty where speed was no reason for fewer."""
    slower, ours = rate_of_16_bits(recommendation), recommendation.speed.rps.value
    return f"{rate(slower)} requests/s ({100 * (1 - slower / ours):.0f} % less): --kv fp16" if slower else ""


def replayed_misses(recommendation: Recommendation) -> tuple[str, ...]:
    """Return a sentence for each goal that the requests of a trace miss when they come as they did."""
    request, replayed = recommendation.request, recommendation.speed.replayed
    if replayed is None:
        return ()
    found = [(goal, getattr(getattr(replayed, goal.figure), goal.at)) for goal in request.time_goals]
    return tuple(
        f"Replayed, the {goal.at} is {duration(value)} and misses {goal.option}; plan for more with --headroom 20%."
        for goal, value in found
        if value > goal.most_ms
    )


def _load(resolved: ResolvedRequest, config: Configuration) -> str:
    """Return the concurrency or arrival rate, and the other parts of the request."""
    together = count(resolved.concurrency, "concurrent request")
    if resolved.rps:
        places = config.max_batch_size * config.servers
        most = f"{min(resolved.concurrency, places)} at most"
        return f"{resolved.rps:g} requests/s arriving, {most} at once"
    return together


def _tokens(resolved: ResolvedRequest, config: Configuration) -> str:
    """Return the lengths of prompts and answers, and what repeats in them."""
    inputs, outputs = f"{resolved.input_tokens(config.max_tiles):,}", f"{resolved.output_tokens:,}"
    parts = [f"{inputs} input and {outputs} output tokens"]
    if resolved.prompt_lengths or resolved.output_lengths or resolved.turns > 1:
        most, answer = resolved.longest_prompt().input_tokens(config.max_tiles), resolved.longest().output_tokens
        parts = [f"input {inputs} tokens (up to {most:,}), output {outputs} (up to {answer:,})"]
    if resolved.prefix_tokens:
        parts.append(f"{resolved.prefix_tokens:,} of each input are the same")
    if resolved.turns > 1:
        parts.append(f"{resolved.turns} requests a conversation")
    return "; ".join(parts)


def describe_sizes(resolved: ResolvedRequest) -> str:
    """Return the size of the images, or all sizes with their shares."""
    mixed = (f"{width}x{height} ({share:.0%})" for width, height, share in resolved.image_sizes)
    return ", ".join(mixed) or f"{resolved.image_width}x{resolved.image_height}"


def describe_load(resolved: ResolvedRequest, config: Configuration) -> str:
    """Return in one sentence what the requests are and how many come."""
    images = f"{count(resolved.images, 'image')} of {describe_sizes(resolved)}, " if resolved.images else ""
    return f"{_load(resolved, config)}: {images}{_tokens(resolved, config)}"


def describe_goals(recommendation: Recommendation) -> Iterator[str]:
    """Yield each goal of the request with what is predicted for it."""
    request, speed = recommendation.request, recommendation.speed
    for goal in request.time_goals:
        predicted = speed.goal_ms(goal)
        missed = "" if predicted <= goal.most_ms else ", missed"
        yield f"{FIGURES[goal.figure]} {goal.at} {duration(predicted)} of {duration(goal.most_ms)}{missed}"
    if request.rps and not recommendation.resolved.rps:
        missed = "" if speed.rps.value >= request.planned_rps else ", missed"
        yield f"rate {rate(speed.rps.value)} of {request.planned_rps:g} requests/s{missed}"


def asks_revision(recommendation: Recommendation) -> bool:
    """Return whether the model runs code of its own repository, so that a start needs a commit."""
    resolved = recommendation.resolved
    return resolved.model.remote_code and not resolved.local and not recommendation.adviser


def missing(recommendation: Recommendation) -> str:
    """Return which variable must be set before a start, and where its value is found; empty if none."""
    resolved = recommendation.resolved
    if resolved.request.revision or not asks_revision(recommendation):
        return ""
    return f"Set REVISION before the start: {WHERE.format(hub=resolved.model.hub)}"


def asked_of_clients(resolved: ResolvedRequest, config: Configuration) -> str:
    """Return which field clients must send with each image, and what happens without it; empty if none."""
    if not config.max_tiles:
        return ""
    tokens = resolved.longest().input_tokens()
    beyond = f", more than session_len {config.session_len:,}" if tokens >= config.session_len else ""
    return (
        f"Clients must send max_dynamic_patch {config.max_tiles} with each image; without it a prompt has "
        f"{tokens:,} tokens{beyond}."
    )


def summary(recommendation: Recommendation) -> list[str]:
    """Return plain sentences: what this is for, and what to expect of it."""
    resolved, speed = recommendation.resolved, recommendation.speed
    config, memory, latency = recommendation.config, recommendation.memory, speed.latency_ms
    low, high = likely_range(resolved, memory, config.tp)
    scale, digits = (1000, 1) if latency.value >= SECONDS_FROM else (1, 0)
    low_end, high_end = (f"{end / scale:,.{digits}f}" for end in (latency.low, latency.high))
    asked = asked_of_clients(resolved, config)
    return [
        f"{resolved.model.hub} on {config.cards} x {resolved.gpu.name}, LMDeploy {resolved.release.id}, "
        f"{LABELS[config.backend].title}.",
        f"{describe_load(resolved, config)}.",
        f"Predicted: {gib(memory.total)} GiB per GPU ({gib(low)} to {gib(high)}), "
        f"{duration(latency.value)} per request ({low_end} to {high_end}), "
        f"{rate(speed.rps.value, speed.rps.low, speed.rps.high)}; {speed.basis}.",
        *([asked] if asked else []),
    ]
