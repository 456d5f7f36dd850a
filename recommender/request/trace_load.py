"""A trace as a request: what the command line leaves open is learned from a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recommender.common.errors import RequestError
from recommender.request.lengths import MixRequest, write_lengths
from recommender.request.mix import sample_requests
from recommender.request.request import LEAST, MAX_CONCURRENCY, MAX_IMAGES, Replayed, Request
from recommender.request.trace import Trace, burstiness_of, quantiles, read_trace
from recommender.request.trace_prefix import Beginning

MOST_REPLAYED = 500
"""Requests of a trace that are replayed, at most."""
SIDE = 448
"""Pixels of an image's sides where a trace counts images and the command line gives no size."""


def learn_load(request: Request, path: Path, *, fleet: bool = False) -> tuple[Request, tuple[str, ...]]:
    """Return the request with the load of a file of requests, and a summary of it; given options stay.

    For a ``fleet`` every request keeps its own lengths and images, which differ where a file mixes kinds of requests;
    the main job sizes one server for lengths and images apart, and replays the requests.

    Raises RequestError for a file that holds no requests, or beside a workload, which fills the same.
    """
    if request.workload:
        raise RequestError("--trace and --workload exclude each other: both say what the requests are; remove one")
    trace = read_trace(path)
    learned = {**_lengths(request, trace), **_arrivals(request, trace), **_images(request, trace)}
    if fleet:
        learned |= _mix(request, trace)
        return replace(request, **learned, trace_requests=trace.requests), (
            *trace.summary,
            *_fleet_notes(trace, learned),
        )
    wholly = learned.keys() >= {"input_lengths", "output_lengths", "rps"} and not request.burstiness
    if wholly and learned.get("images", request.images) == 0:
        learned["replay"] = choose_window(trace, prefix=request.prefix_tokens)
    return replace(request, **learned, trace_requests=trace.requests), (
        *trace.summary,
        *_notes(request, trace, learned),
    )


def choose_window(trace: Trace, most: int = MOST_REPLAYED, prefix: int = 0) -> tuple[Replayed, ...]:
    """Return requests of a trace: all, or ``most`` in a row.

    The row's rate is the nearest to the whole's; of several such rows it is the first. Where the trace does not tell
    what its prompts share, they share their first ``prefix`` tokens.
    """
    times = trace.arrivals_s
    count = min(len(times), most)
    usual = times[-1] * (count - 1) / (len(times) - 1)
    begin = min(range(len(times) - count + 1), key=lambda place: abs(times[place + count - 1] - times[place] - usual))
    row = slice(begin, begin + count)
    prompts, beginnings = trace.input_tokens[row], trace.beginnings[row]
    if prefix and not any(beginning.hashes for beginning in beginnings):
        beginnings = (Beginning((0,), (prefix,)),) * count
    shared = _find_shared(prompts, beginnings) if beginnings else [(0, 0)] * count
    asked = zip(times[row], prompts, trace.output_tokens[row], shared, strict=True)
    return tuple(
        Replayed(round((at - times[begin]) * 1e3, 3), prompt, max(output, 1), *repeated)
        for at, prompt, output, repeated in asked
    )


def _find_shared(prompts: Sequence[int], beginnings: Sequence[Beginning]) -> list[tuple[int, int]]:
    """Return for each prompt the place of the earlier one that has the most of its beginning, and how many tokens."""
    known: dict[int, tuple[int, int]] = {}
    found = []
    for place, (prompt, beginning) in enumerate(zip(prompts, beginnings, strict=True)):
        best = (0, 0)
        for whole, end in zip(beginning.hashes, beginning.ends, strict=False):
            of, there = known.get(whole, (0, 0))
            best = max(best, (min(end, there, prompt - 1), of))
            if min(end, prompt) > there:
                known[whole] = place, min(end, prompt)
        found.append(best[::-1])
    return found


def _lengths(request: Request, trace: Trace) -> dict[str, Any]:
    learned: dict[str, Any] = {}
    if not request.prompt_tokens:
        learned["input_lengths"] = write_lengths(quantiles(trace.input_tokens))
        if not request.prefix_tokens:
            learned["prefix_tokens"] = min(trace.prefix_tokens, max(trace.input_tokens) - 1)
            learned["repeated_share"] = round(trace.prefix_hit_share, 4)
    if not request.output_tokens:
        learned["output_lengths"] = write_lengths(quantiles([max(each, 1) for each in trace.output_tokens]))
    return learned


def _arrivals(request: Request, trace: Trace) -> dict[str, Any]:
    """Return rate and burstiness, only the latter beside a given rate; without arrivals the requests in flight."""
    if request.load or request.concurrency:
        return {}
    span = trace.arrivals_s[-1] if trace.arrivals_s else 0.0
    if span > 0 and (rate := float(f"{(len(trace.arrivals_s) - 1) / span:.4g}")) >= LEAST:
        learned = burstiness_of(trace.arrivals_s)
        # A coarse clock with equally many requests at every tick hides the gaps.
        unknown = learned is None or (not learned and len({*trace.arrivals_s}) < len(trace.arrivals_s))
        bursts = request.burstiness or (1.0 if unknown else round(learned or 0.0, 3))
        shape = {"burstiness": min(max(bursts, 0.01), 100.0)}
        if request.rps:
            return {} if unknown else shape
        return {"rps": rate, **shape}
    if request.rps or not trace.most_in_flight:
        return {}
    return {"concurrency": min(trace.most_in_flight, MAX_CONCURRENCY)}


def _mix(request: Request, trace: Trace) -> dict[str, Any]:
    """Return requests that stand for all, and as many images as any of them has; none where lengths are given."""
    if request.prompt_tokens or request.output_tokens or request.turns > 1:
        return {}
    images = [min(count, MAX_IMAGES) if request.images < 0 else request.images for count in trace.each_images]
    every = zip(trace.input_tokens, trace.output_tokens, images, strict=True)
    prefix = request.prefix_tokens or trace.prefix_tokens
    asked = sample_requests(
        [
            MixRequest(prompt, max(output, 1), image_count, min(prefix, prompt - 1))
            for prompt, output, image_count in every
        ]
    )
    return {"asked": asked} | (_take_images(max(images)) if request.images < 0 else {})


def _images(request: Request, trace: Trace) -> dict[str, Any]:
    return {} if request.images >= 0 else _take_images(min(trace.images, MAX_IMAGES))


def _take_images(images: int) -> dict[str, Any]:
    return {"images": images} | ({"image_width": SIDE, "image_height": SIDE} if images else {})


def _fleet_notes(trace: Trace, learned: dict[str, Any]) -> tuple[str, ...]:
    notes = []
    if asked := learned.get("asked"):
        notes.append(f"sizes for {len(asked):,} of these requests, each with its own input, output and images")
    if most := learned.get("images"):
        none = trace.each_images.count(0) / trace.requests
        notes.append(
            f"{none:.0%} of the requests have no image, the others up to {most}; images are taken as {SIDE}x{SIDE}"
        )
    return tuple(notes)


def _notes(request: Request, trace: Trace, learned: dict[str, Any]) -> tuple[str, ...]:
    notes = []
    if replayed := learned.get("replay"):
        rest = f", {len(replayed):,} in a row" if len(replayed) < trace.requests else ""
        notes.append(f"recommend also replays the requests with their own arrivals and lengths{rest}")
    if learned.get("images"):
        notes.append(f"images are taken as {SIDE}x{SIDE}; give their size with --image WxHxN")
    if not (learned.keys() & {"rps", "concurrency"} or request.load or request.concurrency or request.rps):
        notes.append("the file does not say how many requests come at once; give --rps or --concurrency [one]")
    return tuple(notes)
