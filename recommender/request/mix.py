"""Requests of several kinds: those of a trace or of several workloads, each with its own lengths and images."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from recommender.common.errors import RequestError
from recommender.common.text import did_you_mean, shorten
from recommender.request.lengths import SEED, MixRequest, pair_lengths, spread, write_lengths
from recommender.request.load_lengths import prompt_in_turn
from recommender.request.request import SHARE_SLACK, Request
from recommender.request.trace import quantiles

if TYPE_CHECKING:
    from recommender.knowledge import records
    from recommender.request.resolved_request import ResolvedRequest

T = TypeVar("T")

MOST_ASKED = 400
"""Requests that stand for all: enough for their p99, and few enough to be described one by one."""
BANDS = 40
"""Bands of answers alike, within each of which prompts of all lengths are taken."""


def sample_requests(requests: Sequence[MixRequest]) -> tuple[MixRequest, ...]:
    """Return a sample of at most ``MOST_ASKED`` requests: all image counts, and prompts and answers of every length."""
    if len(requests) <= MOST_ASKED:
        return tuple(requests)
    by_answer = sorted(requests, key=lambda request: (request.images, request.output))
    band_size = -(-len(requests) // BANDS)
    ordered: list[MixRequest] = []
    for band, begin in enumerate(range(0, len(requests), band_size)):
        alike = by_answer[begin : begin + band_size]
        ordered += sorted(alike, key=lambda request: request.prompt, reverse=bool(band % 2))
    return tuple(ordered[int((place + 0.5) / MOST_ASKED * len(requests))] for place in range(MOST_ASKED))


def deal_sizes(requests: Sequence[tuple[ResolvedRequest, T]]) -> list[tuple[ResolvedRequest, T]]:
    """Give each request images of one size of its mix: in a random order, as many of each size as its share says."""
    order = list(range(len(requests)))
    random.Random(SEED).shuffle(order)
    dealt = []
    for place, (own, lengths) in zip(order, requests, strict=True):
        sizes = own.each_size()
        ends = accumulate(share for _, share in sizes)
        number = sum(end <= (place + 0.5) / len(requests) for end in ends)
        dealt.append((sizes[min(number, len(sizes) - 1)][0], lengths))
    return dealt


def read_workloads(text: str, workloads: Mapping[str, records.Workload]) -> dict[str, float]:
    """Return the share of each workload of ``chat:0.7,rag:0.3``. Raises RequestError."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.strip().partition(":")
        name = name.strip().casefold()
        if name not in workloads:
            near = did_you_mean(name, workloads, f"use one of {', '.join(sorted(workloads))}")
            raise RequestError(f"--workload: unknown workload {shorten(name, 40)}{near}")
        try:
            value = float(share)
        except ValueError:
            value = 0.0
        if not 0 < value <= 1 or name in shares:
            raise RequestError(f"--workload {shorten(text, 60)}: write each workload once, as chat:0.7,rag:0.3")
        shares[name] = value
    if abs(math.fsum(shares.values()) - 1) > SHARE_SLACK:
        raise RequestError(
            f"--workload {shorten(text, 60)}: the shares make {sum(shares.values()):g}; they must make 1"
        )
    return shares


def mix_workloads(request: Request, text: str, workloads: Mapping[str, records.Workload]) -> Request:
    """Return the request with the mixed requests of workloads such as ``chat:0.7,rag:0.3``. Raises RequestError.

    Images have the given size, or the largest size of these workloads.
    """
    shares = read_workloads(text, workloads)
    asked: list[MixRequest] = []
    for name, share in shares.items():
        own = _list_requests(workloads[name], request.max_context)
        count = max(round(share * MOST_ASKED), 1)
        asked += [own[place * len(own) // count] for place in range(count)]
    images = {}
    if request.images < 0:
        largest = max(
            (workloads[name] for name in shares), key=lambda workload: (workload.images, workload.image_width)
        )
        images = {name: getattr(largest, name) for name in ("images", "image_width", "image_height")}
    return replace(
        request,
        asked=tuple(asked),
        input_lengths=write_lengths(quantiles([sample.prompt for sample in asked])),
        output_lengths=write_lengths(quantiles([sample.output for sample in asked])),
        **images,
    )


def _list_requests(workload: records.Workload, most: int) -> list[MixRequest]:
    """Return equally likely requests of a workload, of every turn; long and short answers come with any prompt."""
    prompts = spread(workload.prompt_tokens, workload.prompt_p90, workload.prompt_p99)
    outputs = spread(workload.output_tokens, workload.output_p90, workload.output_p99)
    return [
        MixRequest(prompt_in_turn(prompt, output, turn, prefix, most), output, workload.images, prefix)
        for turn in range(workload.turns)
        for prompt, output in pair_lengths(prompts, outputs)
        for prefix in (min(workload.prefix_tokens, prompt - 1),)
    ]
