"""One-line summaries of a recommendation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recommender.choose.defaults import compare_with_defaults
from recommender.choose.reasons import has_source
from recommender.common.text import count
from recommender.common.units import GIB
from recommender.estimate.memory import likely_range
from recommender.knowledge.engines import LABELS

if TYPE_CHECKING:
    from recommender.choose.recommend import Recommendation
    from recommender.estimate.configuration import Configuration
    from recommender.knowledge import records
    from recommender.request.resolved_request import ResolvedRequest

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


def rate(*values: float) -> str:
    """Format requests/s, or a value with its range; a slow server does not show as 0.0."""
    places = 1 if values[0] >= 1 else 3
    first, *ends = (f"{value:,.{places}f}" for value in values)
    return first + (f" requests/s ({' to '.join(ends)})" if ends else "")


def against_defaults(recommendation: Recommendation) -> str:
    """Say how LMDeploy's defaults compare; empty for somebody's configuration."""
    found = compare_with_defaults(recommendation)
    if found is None:
        return ""
    if not found.fits:
        return "may run out of memory: --follow defaults says why"
    gain = found.gain
    than = f"this serves {gain.value:.1f}x ({gain.low:.1f} to {gain.high:.1f})"
    if gain.low <= 1 <= gain.high:
        than = "as fast as this, within the error"
    return f"{rate(found.rps)} requests/s, {gib(found.memory)} GiB: {than}"


def replayed_misses(recommendation: Recommendation) -> tuple[str, ...]:
    """Return a sentence for each goal that the requests of a trace miss when they come as they did."""
    request, replayed = recommendation.request, recommendation.speed.replayed
    if replayed is None:
        return ()
    goals = (
        ("--p99", "p99", request.p99_ms, replayed.latency.p99),
        ("--ttft", request.ttft_at, request.ttft_ms, getattr(replayed.ttft, request.ttft_at)),
        ("--tpot", request.tpot_at, request.tpot_ms, getattr(replayed.tpot, request.tpot_at)),
        ("--latency", request.latency_at, request.latency_ms, getattr(replayed.latency, request.latency_at)),
    )
    return tuple(
        f"Replayed, the {at} is {found:,.1f} ms and misses {option}; plan for more with --headroom 20%."
        for option, at, most, found in goals
        if 0 < most < found
    )


def _load(resolved: ResolvedRequest) -> str:
    """Return how many requests are in flight, or arrive."""
    if resolved.rps:
        return f"{resolved.rps:g} requests/s arriving, {resolved.concurrency} at most at once"
    return count(resolved.concurrency, "concurrent request")


def _varying(resolved: ResolvedRequest) -> str:
    """Return what varies between requests, or repeats in them; empty if they are all alike."""
    parts = []
    if resolved.prompt_lengths or resolved.output_lengths or resolved.turns > 1:
        longest = resolved.longest()
        parts.append(f" on average, up to {longest.input_tokens():,} and {longest.output_tokens:,}")
    if resolved.prefix_tokens:
        parts.append(f" {resolved.prefix_tokens:,} of each input are the same")
    if resolved.turns > 1:
        parts.append(f" {resolved.turns} requests a conversation")
    return ";".join(parts) if parts and parts[0].startswith(" on") else "".join(f";{part}" for part in parts)


def _sizes(resolved: ResolvedRequest) -> str:
    """Return the size of the images, or all sizes with their shares."""
    mixed = (f"{width}x{height} ({share:.0%})" for width, height, share in resolved.image_sizes)
    return ", ".join(mixed) or f"{resolved.image_width}x{resolved.image_height}"


def describe_load(resolved: ResolvedRequest, config: Configuration) -> str:
    """Return in one sentence what the requests are and how many come."""
    images = f"{count(resolved.images, 'image')} of {_sizes(resolved)}, " if resolved.images else ""
    return (
        f"{_load(resolved)}: {images}{resolved.input_tokens(config.max_tiles):,} input and "
        f"{resolved.output_tokens:,} output tokens{_varying(resolved)}"
    )


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


def summary(recommendation: Recommendation) -> list[str]:
    """Return plain sentences: what this is for, and what to expect of it."""
    resolved, speed = recommendation.resolved, recommendation.speed
    config, memory = recommendation.config, recommendation.memory
    low, high = likely_range(resolved, memory, config.tp)
    return [
        f"{resolved.model.hub} on {config.cards} x {resolved.gpu.name}, LMDeploy {resolved.release.id}, "
        f"{LABELS[config.backend].title}.",
        f"{describe_load(resolved, config)}.",
        f"Predicted: {gib(memory.total)} GiB per GPU ({gib(low)} to {gib(high)}), "
        f"{speed.latency_ms.value:,.0f} ms per request ({speed.latency_ms.low:,.0f} to {speed.latency_ms.high:,.0f}), "
        f"{rate(speed.rps.value, speed.rps.low, speed.rps.high)}; {speed.basis}.",
    ]
